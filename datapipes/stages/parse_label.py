"""From a file's URL to a sample with its label, the name of the parent directory."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from datapipes.catalog.class_map import ClassMap, directory_of
from datapipes.catalog.keys import StrKeys
from datapipes.on_error import OnError, check_on_error
from datapipes.pipe import MapPipe, functional_form, upstream

Classes: TypeAlias = ClassMap | str | os.PathLike[str] | Iterable[str] | Callable[[str], Any]


@functional_form("parse_label")
class LabelParser(MapPipe[dict[str, Any]]):
    """Takes `(url, stream)` pairs, or samples, and yields samples with their label in `cls`
    (functional name: `parse_label`).

    The label is the parent directory. A number is the label itself; a name is looked up in the class map of
    the listing upstream, which numbers the names from 0 in sorted order, as torchvision does.

    >>> from datapipes.iter import IterableWrapper
    >>> files = IterableWrapper([("s3://photos/train/12/x.JPEG", b"...")])
    >>> next(iter(files.parse_label()))
    {'__key__': '12/x', '__url__': 's3://photos/train/12/x.JPEG', 'jpeg': b'...', 'cls': 12}

    The field is named by the extension in lower case. `__key__` is the directory and the file's name without
    its extension, which starts at the last dot. A sample that comes in as a dict keeps its fields; its `cls`
    is set anew.

    >>> sample = IterableWrapper([{"__key__": "train/tench/7", "jpg": b"..."}])
    >>> next(iter(sample.parse_label(classes=["ostrich", "tench"])))["cls"]
    1

    Args:
        source_datapipe: Pairs of a URL and its bytes, a stream or a buffer, or samples with `__url__` or
            `__key__`.
        classes: A `ClassMap`, the path of a saved one, the names in the order of their labels, or a function
            from the URL to the label. With a map, numbers are looked up like any name. Give the training
            set's map for validation when the two splits may not have the same directories.
        on_error: "raise", "skip", or a function (key, error) -> sample or None.

    Raises:
        ValueError: When a class is not in the map, a file has no directory or no extension, or names occur
            and neither `classes` nor the listing upstream can tell their labels.
    """

    def __init__(self, source_datapipe: Any, *, classes: Classes | None = None, on_error: OnError = "raise") -> None:
        check_on_error("parse_label", on_error)
        if not (classes is None or callable(classes) or isinstance(classes, (ClassMap, str, os.PathLike))):
            classes = ClassMap(classes, source="the names given as classes=")
        self.source_datapipe = source_datapipe
        self.classes = classes
        self.on_error = on_error

    def sample_function(self) -> Callable[[Any], dict[str, Any]]:
        label_of = self._label_function()

        def parse(item: Any) -> dict[str, Any]:
            if isinstance(item, dict):
                key = item.get("__url__") or item["__key__"]
                return {**item, "cls": label_of(key)}
            url, payload = item
            key, extension = split_name(url)
            label = label_of(url)
            return {"__key__": key, "__url__": url, extension: bytes_of(url, payload), "cls": label}

        return parse

    def _label_function(self) -> Callable[[str], Any]:
        classes = self.classes
        if isinstance(classes, (str, os.PathLike)):
            classes = ClassMap.load(classes)
        if isinstance(classes, ClassMap):
            return lambda url: label_in(classes, url)
        if callable(classes):
            return classes
        return self._number_or_listed_name()

    def _number_or_listed_name(self) -> Callable[[str], int]:
        # Asking for the map may mean a listing, so only the first name asks.
        listed: ClassMap | None = None

        def label_of(url: str) -> int:
            nonlocal listed
            directory = directory_of(url)
            if directory.isascii() and directory.isdigit():
                return int(directory)
            if listed is None:
                listed = class_map_of(self.source_datapipe)
            return label_in(listed, url)

        return label_of


def label_in(classes: ClassMap, url: str) -> int:
    """The label of the directory that `url` lies in.

    >>> label_in(ClassMap(["ostrich", "tench"]), "s3://photos/train/tench/1.jpg")
    1
    """
    directory = directory_of(url)
    if not directory:
        raise ValueError(f"parse_label: {url!r} lies in no directory that could be its class; pass classes=")
    try:
        return classes[directory]
    except ValueError as error:
        raise ValueError(f"parse_label: {url!r}: {error}") from None


def split_name(url: str) -> tuple[str, str]:
    """A sample's key and the name of its field. Only the last dot counts, so a dotted name stays whole.

    >>> split_name("s3://photos/train/tench/n01.v2_img.JPEG")
    ('tench/n01.v2_img', 'jpeg')
    """
    if url.startswith(("http://", "https://")):
        url = url.partition("?")[0]
    name, dot, extension = url.rpartition("/")[2].rpartition(".")
    if not dot or not extension:
        raise ValueError(
            f"parse_label: {url!r} has no extension to name its field by; "
            f"list such files out, for instance with masks='*.JPEG'"
        )
    directory = directory_of(url)
    return (f"{directory}/{name}" if directory else name), extension.lower()


def bytes_of(url: str, payload: Any) -> bytes:
    """The payload as bytes: without a copy from `io.BytesIO`, by `read()` from any other stream."""
    if isinstance(payload, bytes):
        return payload
    if isinstance(payload, io.BytesIO):
        return payload.getvalue()
    if hasattr(payload, "read"):
        return bytes(payload.read())
    if isinstance(payload, (bytearray, memoryview)):
        return bytes(payload)
    raise TypeError(
        f"parse_label: {url!r} came with a {type(payload).__name__}, neither bytes nor a stream; "
        f"put parse_label right after load_files_by_s3 or another loader of (url, stream) pairs"
    )


def class_map_of(pipe: Any) -> ClassMap:
    """The class map of the nearest pipe upstream that knows one, or knows the keys to make one from."""
    for source in upstream(pipe):
        listed: ClassMap | None = None
        if callable(getattr(type(source), "class_map", None)):
            listed = source.class_map()
        elif callable(getattr(type(source), "key_table", None)):
            table = source.key_table()
            if isinstance(table, StrKeys):
                listed = ClassMap.of_directories(table.directories)
        if listed is None:
            continue
        numbers = [name for name in listed if name.isascii() and name.isdigit()]
        if numbers:
            raise ValueError(
                f"parse_label: the directories mix numbers ({numbers[0]!r}) and names in {listed!r}; "
                f"pass classes=, which then counts for both"
            )
        return listed
    raise ValueError(
        "parse_label: the directories are names, and no listing upstream tells their labels; pass classes= a "
        "ClassMap, the path of a saved one, a list of names or a function from the URL to the label"
    )
