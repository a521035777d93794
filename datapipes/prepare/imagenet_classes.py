"""What ImageNet's development kit says: which classes there are, in which order, and those of the validation images."""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from datapipes.catalog.class_map import ClassMap

ClassOrder: TypeAlias = Literal["wnid", "devkit"]

_OF_A_DEVKIT = ("meta.mat", "validation_ground_truth.txt")
_NUMBER = re.compile(r"(\d{8})\.\w+$")


@dataclass(frozen=True)
class ClassMetadata:
    """Classes as files beside the images give them; all empty where there are none.

    >>> metadata = ClassMetadata(devkit=("n02119789", "n01440764"), truth=("2", "1"))
    >>> metadata.class_of("val/ILSVRC2012_val_00000001.JPEG")
    'n01440764'
    >>> metadata.class_map([]).names, metadata.class_map([], order="devkit").names
    (('n01440764', 'n02119789'), ('n02119789', 'n01440764'))

    Args:
        devkit: WNIDs in the order of their ILSVRC2012_ID, which counts from 1.
        mapped: classes with labels of their own.
        truth: the class of each validation image, an ILSVRC2012_ID or a name.
        base_name: of the images that `truth` is about; their number follows.
    """

    devkit: tuple[str, ...] = ()
    mapped: ClassMap | None = None
    truth: tuple[str, ...] = ()
    base_name: str = "ILSVRC2012_val_"

    def class_of(self, path: str) -> str | None:
        """The class that the ground truth gives to an image; None for an image that it is not about."""
        name = path.rpartition("/")[2]
        number = _NUMBER.match(name, len(self.base_name)) if name.startswith(self.base_name) else None
        if not self.truth or number is None:
            return None
        line = int(number[1])
        if not 1 <= line <= len(self.truth):
            raise ValueError(
                f"imagenet_sharding: {path} has no line in the ground truth, which has {len(self.truth)}; "
                "give the ground truth of these images"
            )
        known = self.truth[line - 1]
        if not known.isdigit() or not self.devkit:
            return known
        if not 1 <= int(known) <= len(self.devkit):
            raise ValueError(
                f"imagenet_sharding: line {line} of the ground truth says {known}, and meta.mat has IDs from 1 to "
                f"{len(self.devkit)}; give the two of one development kit"
            )
        return self.devkit[int(known) - 1]

    @property
    def has_only_ids(self) -> bool:
        """Whether the ground truth's classes have numbers and no names."""
        return not self.devkit and bool(self.truth) and all(known.isdigit() for known in self.truth)

    def class_map(self, found: Iterable[str], *, order: ClassOrder = "wnid") -> ClassMap:
        """Every class with its label from 0 on; `found`, the classes of the images, where no file names them.

        Raises:
            ValueError: the devkit's order is wanted and nobody gave it, or the other order of bare IDs.
        """
        if self.mapped is not None:
            return self.mapped
        if self.has_only_ids:
            if order == "wnid":
                raise ValueError(
                    "imagenet_sharding: the ground truth holds ILSVRC2012_IDs, whose order is not that of sorted "
                    "WNIDs; give the development kit's meta.mat too, or ask for the devkit's order"
                )
            last = max(map(int, self.truth))
            return ClassMap(map(str, range(1, last + 1)), source="the ground truth")
        if self.devkit:
            names = sorted(self.devkit) if order == "wnid" else self.devkit
            return ClassMap(names, source="meta.mat")
        if order == "devkit":
            raise ValueError("imagenet_sharding: the devkit's order is in its meta.mat; give it as metadata")
        return ClassMap(sorted(set(found)), source="the images")


def read_class_metadata(paths: Iterable[str], *, base_name: str = "ILSVRC2012_val_") -> ClassMetadata:
    """Development kits (archive or folder), meta.mat, ground truths (.txt) and class maps (.json) in one.

    Raises:
        ValueError: a file is not what its name says.
        FileNotFoundError: there is no such file, or nothing known in a folder or archive.
    """
    devkit: tuple[str, ...] = ()
    mapped: ClassMap | None = None
    truth: tuple[str, ...] = ()
    for path in paths:
        for name, content in _files_of(path):
            if name.endswith(".mat"):
                devkit = _devkit_order(content, name)
            elif name.endswith(".json"):
                mapped = _class_map(content, name)
            else:
                truth = tuple(line.strip() for line in content.decode().splitlines() if line.strip())
    return ClassMetadata(devkit, mapped, truth, base_name)


def _files_of(path: str) -> Iterator[tuple[str, bytes]]:
    """The files that a path means: itself, or what a development kit holds of use."""
    found = False
    if Path(path).is_dir():
        for file in sorted(Path(path).rglob("*")):
            if file.name.endswith(_OF_A_DEVKIT):
                found = True
                yield str(file), file.read_bytes()
    elif path.endswith((".tar", ".tar.gz", ".tgz")):
        with tarfile.open(path) as archive:
            for member in archive:
                if member.name.endswith(_OF_A_DEVKIT):
                    content = archive.extractfile(member)
                    assert content is not None
                    found = True
                    yield member.name, content.read()
    else:
        found = True
        yield path, Path(path).read_bytes()
    if not found:
        raise FileNotFoundError(f"imagenet_sharding: neither {' nor '.join(_OF_A_DEVKIT)} in {path}")


def _devkit_order(content: bytes, name: str) -> tuple[str, ...]:
    """WNIDs by ILSVRC2012_ID. Synsets with children are groups of classes, and come behind the classes."""
    try:
        from scipy.io import loadmat
    except ModuleNotFoundError:
        raise ModuleNotFoundError(f"imagenet_sharding: to read {name}, install scipy") from None
    try:
        synsets = loadmat(io.BytesIO(content), squeeze_me=True)["synsets"].reshape(-1)
        ids = {int(synset["ILSVRC2012_ID"]): str(synset["WNID"]) for synset in synsets if not synset["num_children"]}
    except (ValueError, KeyError, IndexError, NotImplementedError) as error:
        raise ValueError(f"imagenet_sharding: {name} is not a development kit's meta.mat ({error!r})") from None
    if sorted(ids) != list(range(1, len(ids) + 1)):
        raise ValueError(f"imagenet_sharding: {name} has ILSVRC2012_IDs with gaps; fetch the development kit again")
    return tuple(ids[number] for number in range(1, len(ids) + 1))


def _class_map(content: bytes, name: str) -> ClassMap:
    try:
        labels = json.loads(content)
        if isinstance(labels, dict):
            if sorted(labels.values()) != list(range(len(labels))):
                raise ValueError("labels must be 0, 1, 2, ... once each")
            labels = sorted(labels, key=labels.__getitem__)
        return ClassMap(labels, source=name)
    except (ValueError, TypeError) as error:
        raise ValueError(f'imagenet_sharding: {name}: {error}; give {{"n01440764": 0, ...}} or a list') from None
