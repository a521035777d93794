"""The index of a shard that came without one, from its headers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from datapipes.catalog.sample_names import key_and_field
from datapipes.catalog.shard_index import IndexedField, IndexedSample, ShardIndex
from datapipes.catalog.tar_format import BLOCK, TarDamage, walk
from datapipes.catalog.tar_stream import File, Member


def scan_file(path: str) -> ShardIndex:
    """The index of a local shard, without checksums and labels: its headers alone are read."""
    file = os.open(path, os.O_RDONLY)
    try:
        members = walk(File(file), shard=path, contents=False)
        return index_of(members, path, os.fstat(file).st_size, _nothing)
    finally:
        os.close(file)


def _nothing(content: bytes) -> int:
    return 0


def index_of(members: Iterable[Member], shard: str, shard_bytes: int, checksum: Callable[[bytes], int]) -> ShardIndex:
    """The index of a shard with these members; labels are read where contents are."""
    samples: list[IndexedSample] = []
    fields: list[IndexedField] = []
    seen: set[str] = set()
    end = 0
    for name, start, offset, size, content in members:
        key, field = _key_and_field(name, start, shard)
        end = offset + size + -size % BLOCK
        if not field:
            continue
        if not samples or samples[-1].key != key:
            if key in seen:
                raise TarDamage(
                    f"{shard}: the key {key!r} comes again at offset {start}; a sample's members must stand "
                    "together and keys be unique: sort the archive by name, or rename"
                )
            seen.add(key)
            fields = []
            samples.append(IndexedSample(key, start, fields))
        if any(field == known.name for known in fields):
            raise TarDamage(f"{shard}: {name!r} comes again at offset {start}; each field may come once")
        fields.append(IndexedField(field, offset, size, checksum(content)))
        if field == "cls" and content.strip().removeprefix(b"-").isdigit():
            samples[-1] = samples[-1]._replace(label=int(content))
    return ShardIndex.of(samples, end=end, shard_bytes=shard_bytes)


def _key_and_field(name: str, start: int, shard: str) -> tuple[str, str]:
    try:
        return key_and_field(name)
    except ValueError as error:
        raise TarDamage(f"{shard}: at offset {start}: {error}") from None
