"""Which images an ImageNet source holds and where each lies: a tar of tars, a tar, or a folder, walked once."""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from datapipes.catalog.tar_format import walk
from datapipes.catalog.tar_stream import File
from datapipes.prepare.tar_member import member_headers
from datapipes.stages.image_formats import IMAGE_EXTENSIONS

_WNID_NAME = re.compile(r"(n\d{8})_")
_LABEL_BYTES = 512
"""A label's digits, in the block that they take in a tar."""


@dataclass(frozen=True)
class ImageIndex:
    """n images of one source, about 70 bytes each. Arrays are never changed.

    Args:
        path: the archive or folder.
        names: every image's path in it, one behind the other; `name(i)` is one of them.
        offsets: where contents begin in the archive; -1 in a folder.
        sizes: bytes of each image.
        header_bytes: what a sample takes in a shard besides the image: headers, and the label.
        class_ids: each image's class, an index of `class_names`, which stand as they were found.
        passed_over: files that are no images, or that the pattern does not take.
    """

    path: str
    names: NDArray[np.uint8]
    name_ends: NDArray[np.int64]
    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    header_bytes: NDArray[np.int32]
    class_ids: NDArray[np.int32]
    class_names: list[str]
    passed_over: int

    def __len__(self) -> int:
        return len(self.sizes)

    def name(self, i: int) -> str:
        start = int(self.name_ends[i - 1]) if i else 0
        return os.fsdecode(bytes(self.names[start : self.name_ends[i]]))

    def class_name(self, i: int) -> str:
        return self.class_names[int(self.class_ids[i])]

    def sample_bytes(self) -> NDArray[np.int64]:
        """What each sample takes in a shard."""
        return self.header_bytes + -(-self.sizes // 512) * 512

    def fingerprint(self) -> str:
        """Names, sizes and classes in 16 digits: the same for a source that did not change."""
        digest = xxh3_64_intdigest(self.names.data)
        for values in (self.sizes, self.class_ids, "\n".join(self.class_names).encode()):
            digest = xxh3_64_intdigest(values if isinstance(values, bytes) else values.data, seed=digest)
        return f"{digest:016x}"


def index_images(
    path: str, *, class_of: Callable[[str], str | None], file_pattern: str | None = None, data_type: str | None = None
) -> ImageIndex:
    """Walk a source once, headers only, about 20 us an image.

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp(), "n01440764")
    >>> folder.mkdir()
    >>> _ = (folder / "n01440764_10026.JPEG").write_bytes(b"image")
    >>> index = index_images(str(folder.parent), class_of=lambda name: None)
    >>> index.name(0), index.class_name(0), index.sizes.tolist()
    ('n01440764/n01440764_10026.JPEG', 'n01440764', [5])

    Args:
        path: a folder, a tar, or a tar of tars; the inner ones count as directories.
        class_of: says the class of what has one elsewhere, such as in a ground truth. What it says nothing of
            is of the class of its directory, or of the WNID that its name begins with.
        file_pattern: regular expression, searched in each path; what does not match is passed over, and its
            group 1 is the class.
        data_type: the image's field in samples, by default its extension.

    Raises:
        TarDamage: an archive is cut or damaged.
        ValueError: an image whose class nobody says, two that would have the same key, or no image at all.
    """
    pattern = None if file_pattern is None else re.compile(file_pattern)
    if pattern is not None and not pattern.groups:
        raise ValueError(f"imagenet_sharding: filePattern needs a group for the class, got {file_pattern!r}")
    names, name_ends = bytearray(), array("q")
    offsets, sizes, header_bytes, class_ids, hashes = array("q"), array("q"), array("i"), array("i"), array("Q")
    ids: dict[str, int] = {}
    passed_over = 0
    for name, offset, size in _folder_files(path) if os.path.isdir(path) else _archive_files(path):
        found = pattern.search(name) if pattern is not None else None
        if (pattern is not None and found is None) or name.rpartition(".")[2].lower() not in IMAGE_EXTENSIONS:
            passed_over += 1
            continue
        class_name = found[1] if found is not None else class_of(name) or _class_by_name(name)
        key = key_of(name, class_name)
        names += os.fsencode(name)
        name_ends.append(len(names))
        offsets.append(offset)
        sizes.append(size)
        header_bytes.append(_header_bytes(key, data_type or field_of(name)))
        class_ids.append(ids.setdefault(class_name, len(ids)))
        hashes.append(xxh3_64_intdigest(os.fsencode(key)))
    index = ImageIndex(
        path,
        np.frombuffer(names, np.uint8),
        np.frombuffer(name_ends, np.int64),
        np.frombuffer(offsets, np.int64),
        np.frombuffer(sizes, np.int64),
        np.frombuffer(header_bytes, np.int32),
        np.frombuffer(class_ids, np.int32),
        list(ids),
        passed_over,
    )
    if not len(index):
        raise ValueError(f"imagenet_sharding: no image in {path}, and {passed_over} other files; is it the right one?")
    _check_keys(index, np.frombuffer(hashes, np.uint64))
    return index


def key_of(name: str, class_name: str) -> str:
    """An image's key: class and base name, or the base name where the class is a bare ID of the ground truth.

    >>> key_of("n01440764.tar/n01440764_10026.JPEG", "n01440764"), key_of("ILSVRC2012_val_00000001.JPEG", "490")
    ('n01440764/n01440764_10026', 'ILSVRC2012_val_00000001')
    """
    stem = name.rpartition("/")[2].rpartition(".")[0].replace(".", "_")
    if class_name.isdigit() and f"/{class_name}/" not in f"/{name}":
        return stem
    return f"{class_name}/{stem}"


def field_of(name: str) -> str:
    """An image's field: its extension, and jpg for all that JPEG files are called."""
    extension = name.rpartition(".")[2].lower()
    return "jpg" if extension in ("jpeg", "jpe", "jfif") else extension


def _header_bytes(key: str, field: str) -> int:
    # All but names that are long or not ASCII have one block.
    if len(key) + len(field) < 100 > len(key) + 4 and key.isascii():
        return 512 + 512 + _LABEL_BYTES
    return len(member_headers(f"{key}.cls", 1)) + _LABEL_BYTES + len(member_headers(f"{key}.{field}", 1))


def _class_by_name(name: str) -> str:
    directory = name.rpartition("/")[0].rpartition("/")[2].removesuffix(".tar")
    if directory and directory != ".":
        return directory
    wnid = _WNID_NAME.match(name.rpartition("/")[2])
    if wnid is None:
        raise ValueError(
            f"imagenet_sharding: {name} lies in no class's directory; give its ground truth or the development kit "
            "as metaDataFile, or a filePattern whose group 1 is the class"
        )
    return wnid[1]


def _check_keys(index: ImageIndex, hashes: NDArray[np.uint64]) -> None:
    order = np.argsort(hashes, kind="stable")
    twice = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
    if len(twice):
        first, second = index.name(order[twice[0]]), index.name(order[twice[0] + 1])
        raise ValueError(
            f"imagenet_sharding: {first} and {second} would have the same key; take one of them with filePattern"
        )


def _folder_files(path: str) -> Iterator[tuple[str, int, int]]:
    """Every file below a folder, sorted: its path, -1, and its size."""
    for folder, folders, files in os.walk(path):
        folders.sort()
        for file in sorted(files):
            whole = os.path.join(folder, file)
            yield os.path.relpath(whole, path), -1, os.stat(whole).st_size


def _archive_files(path: str) -> Iterator[tuple[str, int, int]]:
    """Every file of an archive, and of the archives in it: its path, where its content begins, and its size."""
    file = os.open(path, os.O_RDONLY)
    try:
        yield from _members(file, path, "", 0, os.fstat(file).st_size)
    finally:
        os.close(file)


def _members(file: int, path: str, inside: str, start: int, end: int) -> Iterator[tuple[str, int, int]]:
    shard = f"{path}/{inside}".rstrip("/")
    for name, _, offset, size, _ in walk(_Part(file, start, end), shard=shard, contents=False):
        name = name.removeprefix("./")
        if name.endswith(".tar"):
            yield from _members(file, path, f"{inside}{name}/", offset, offset + size)
        else:
            yield inside + name, offset, size


class _Part(File):
    """A part of a file as a `Stream`: an archive in an archive."""

    __slots__ = ("_end",)

    def __init__(self, file: int, start: int, end: int) -> None:
        super().__init__(file)
        self.skip(start)
        self._end = end

    def take(self, size: int) -> bytes:
        return super().take(min(size, max(self._end - self.position, 0)))
