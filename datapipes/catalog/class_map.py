"""Class names and their labels: 0-based, in sorted order, saved beside the data as one small JSON file."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

# In these the part after "://" is a path, not a bucket or a host.
_SCHEMES_WITHOUT_HOST = ("file:", "local:", "memory:")


def directory_of(key: str) -> str:
    """The name of the directory that a key lies in, which is its class; empty when it lies in none.

    >>> directory_of("s3://bucket/train/n01440764/n01440764_10026.JPEG")
    'n01440764'
    >>> directory_of("s3://bucket/n01440764_10026.JPEG")  # a bucket is not a class
    ''
    """
    before, _, directory = key.rpartition("/")[0].rpartition("/")
    if before.endswith(":/") and not before.startswith(_SCHEMES_WITHOUT_HOST):
        return ""
    return directory


class ClassMap:
    """Names of classes, each with its label: its place in `names`.

    >>> classes = ClassMap.of_keys(["train/tench/1.jpg", "train/ostrich/2.jpg", "train/tench/3.jpg"])
    >>> classes.names, classes["tench"], len(classes), "goldfish" in classes
    (('ostrich', 'tench'), 1, 2, False)

    Args:
        names: Every class once. The order given is the order of the labels.
        source: Where the names came from, in words, for error messages.

    Raises:
        ValueError: When a name comes twice or is empty.
    """

    def __init__(self, names: Iterable[str], *, source: str = "names given") -> None:
        self.names = tuple(names)
        self.source = source
        self._labels = {name: label for label, name in enumerate(self.names)}
        if len(self._labels) < len(self.names):
            twice = next(name for label, name in enumerate(self.names) if self._labels[name] != label)
            raise ValueError(f"ClassMap: {twice!r} comes twice in {source}; name every class once")
        if "" in self._labels:
            raise ValueError(f"ClassMap: an empty class name in {source}; leave it out")

    @classmethod
    def of_keys(cls, keys: Iterable[str], *, source: str = "the listing") -> ClassMap:
        """The directories that `keys` lie in, sorted, as torchvision's ImageFolder numbers them."""
        return cls.of_directories({key.rpartition("/")[0] for key in keys}, source=source)

    @classmethod
    def of_directories(cls, directories: Iterable[str], *, source: str = "the listing") -> ClassMap:
        """The last parts of `directories`, sorted. A slash at the end does not matter.

        >>> ClassMap.of_directories(["s3://photos/train/tench/", "s3://photos/train/ostrich/"]).names
        ('ostrich', 'tench')
        """
        names = {directory_of(directory.removesuffix("/") + "/") for directory in directories}
        return cls(sorted(names - {""}), source=source)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ClassMap:
        """Read what `save` wrote: a JSON object of names and labels. A JSON list of names will do, too.

        Raises:
            ValueError: When the labels are not 0, 1, 2, ... without a gap, or the file is no such JSON.
        """
        name = os.fspath(path)
        try:
            content = json.loads(Path(path).read_text("utf-8"))
        except ValueError as error:
            raise ValueError(f"ClassMap.load: {name} is not JSON ({error}); save the map again") from None
        if isinstance(content, dict) and set(content.values()) == set(range(len(content))):
            content = sorted(content, key=content.__getitem__)
        if not isinstance(content, list) or not all(isinstance(entry, str) for entry in content):
            raise ValueError(
                f"ClassMap.load: {name} must hold an object of class names with the labels 0, 1, 2, ... "
                f'once each, such as {{"ostrich": 0, "tench": 1}}, or a list of names'
            )
        return cls(content, source=name)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the map as JSON. The file appears whole or not at all."""
        target = Path(path)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=target.parent, delete=False) as file:
            try:
                json.dump(self._labels, file, ensure_ascii=False, indent=0)
                file.flush()
                os.fsync(file.fileno())
                os.replace(file.name, target)
            except BaseException:
                os.unlink(file.name)
                raise

    def __getitem__(self, name: str) -> int:
        try:
            return self._labels[name]
        except KeyError:
            raise ValueError(
                f"class {name!r} is not in the class map of {len(self)} classes from {self.source}; "
                f"pass classes= a map that was made from every split, or correct the directory's name"
            ) from None

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self._labels

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClassMap) and self.names == other.names

    def __hash__(self) -> int:
        return hash(self.names)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.names, self.source)

    def __repr__(self) -> str:
        ends = f": {self.names[0]!r} to {self.names[-1]!r}" if self.names else ""
        return f"ClassMap({len(self)} classes{ends}, from {self.source})"


def _rebuild(names: tuple[str, ...], source: str) -> ClassMap:
    return ClassMap(names, source=source)
