"""One shard, written sample by sample, with its index beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastcrc.crc32 import iscsi as crc32c

from datapipes.catalog.manifest import Shard
from datapipes.catalog.sample_names import check_field, check_key
from datapipes.catalog.shard_index import NO_LABEL, SUFFIX, IndexedField, IndexedSample, ShardIndex
from datapipes.catalog.tar_format import END_OF_ARCHIVE
from datapipes.prepare.shard_target import Target
from datapipes.prepare.tar_member import member_headers, padding


class EncodedSample:
    """A sample as it goes into a shard: its members' headers and contents, fields in sorted order.

    >>> sample = EncodedSample({"__key__": "cat/1", "jpg": b"image", "cls": 7})
    >>> [name for name, *_ in sample.fields], sample.label, sample.nbytes
    (['cls', 'jpg'], 7, 2048)

    Raises:
        ValueError: no `__key__`, no field, or a name that would not come back the same.
        TypeError: a field that is neither bytes, nor text, nor a whole number.
    """

    def __init__(self, sample: Mapping[str, Any]) -> None:
        key = sample.get("__key__")
        if not isinstance(key, str):
            raise ValueError(f"ShardWriter: a sample needs __key__, a string, got {key!r}")
        check_key(key)
        self.key = key
        self.label = NO_LABEL
        self.fields: list[tuple[str, bytes, bytes]] = []
        self.nbytes = 0
        for field in sorted(sample):
            if field.startswith("__"):
                continue
            check_field(field)
            content = _encoded(key, field, sample[field])
            headers = member_headers(f"{key}.{field}", len(content))
            self.fields.append((field, headers, content))
            self.nbytes += len(headers) + len(content) + len(padding(len(content) % 512))
        if not self.fields:
            raise ValueError(f"ShardWriter: sample {key!r} has no field; give at least one, such as jpg")
        if "cls" in sample:
            self.label = int(next(content for field, _, content in self.fields if field == "cls"))


def _encoded(key: str, field: str, value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, int) and not isinstance(value, bool):
        return b"%d" % value
    raise TypeError(
        f"ShardWriter: field {field} of {key!r} is {type(value).__name__}; encode it to bytes (images as JPEG "
        "or PNG), or give text or a whole number"
    )


class ShardFile:
    """A shard on its way; `finish` lets it appear, its index first, so that no shard is without one."""

    def __init__(self, target: Target, name: str) -> None:
        self.name = name
        self.nbytes = 0
        self.samples: list[IndexedSample] = []
        self._target = target
        self._file = target.create(name)
        self._crc32c = 0
        self._keys: set[str] = set()

    def write(self, sample: EncodedSample) -> None:
        if sample.key in self._keys:
            raise ValueError(f"ShardWriter: the key {sample.key!r} comes twice; give every sample its own")
        self._keys.add(sample.key)
        start, fields = self.nbytes, []
        for field, headers, content in sample.fields:
            offset = self.nbytes + len(headers)
            fields.append(IndexedField(field, offset, len(content), crc32c(content)))
            for piece in (headers, content, padding(len(content) % 512)):
                self._put(piece)
        self.samples.append(IndexedSample(sample.key, start, fields, sample.label))

    def finish(self) -> Shard:
        end = self.nbytes
        self._put(END_OF_ARCHIVE)
        index = ShardIndex.of(self.samples, end=end, shard_bytes=self.nbytes).save()
        self._target.put(self.name + SUFFIX, index)
        self._file.commit()
        return Shard(self.name, len(self.samples), self.nbytes, self._crc32c, crc32c(index))

    def discard(self) -> None:
        self._file.discard()

    def _put(self, piece: bytes) -> None:
        if piece:
            self._file.write(piece)
            self._crc32c = crc32c(piece, self._crc32c)
            self.nbytes += len(piece)
