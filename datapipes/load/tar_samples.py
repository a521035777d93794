"""From a shard's members to whole samples, each held against the shard's index where there is one."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from fastcrc.crc32 import iscsi as crc32c

from datapipes.catalog.sample_names import key_and_field
from datapipes.catalog.shard_index import ShardIndex
from datapipes.catalog.tar_format import TarDamage
from datapipes.catalog.tar_stream import Member
from datapipes.on_error import Skipped

Sample = dict[str, Any]


class Expected(NamedTuple):
    """What an index says of samples that follow each other in a shard: of each, its key and its checksums."""

    keys: Sequence[str]
    checksums: Sequence[Sequence[int]]

    @classmethod
    def of(cls, index: ShardIndex) -> Expected:
        bounds = index.first_fields.tolist()
        crcs = index.crc32c.tolist()
        return cls(index.keys(), [crcs[first:end] for first, end in itertools.pairwise(bounds)])


def read_samples(
    members: Iterable[Member], *, shard: str, expected: Expected | None = None
) -> Iterator[Sample | Skipped]:
    """Members of a shard in, samples out: neighbours whose names have the same key.

    A sample whose content is not what the index says comes out as `Skipped`, for the caller to settle, and the
    next one is read; an error that leaves nothing to go on with is raised.

    >>> members = [("cat/1.jpg", 0, 512, 5, b"image"), ("cat/1.cls", 1024, 1536, 1, b"7")]
    >>> list(read_samples(members, shard="a.tar"))
    [{'__key__': 'cat/1', '__url__': 'a.tar', 'jpg': b'image', 'cls': 7}]

    Raises:
        TarDamage: the archive is damaged, a key comes twice, or these are not the samples of the index.
    """
    seen: set[str] = set()
    prefix = "/"  # no name begins so: tar strips it
    sample: Sample = {}
    start = 0
    contents: list[bytes] = []
    for name, member_start, _, _, content in members:
        if name.startswith(prefix) and "/" not in (field := name[len(prefix) :].lower()):
            if field in sample:
                raise TarDamage(
                    f"{shard}: {name!r} comes again at offset {member_start}; each field of a sample may come once"
                )
            sample[field] = content
            contents.append(content)
            continue
        try:
            key, field = key_and_field(name)
        except ValueError as error:
            raise TarDamage(f"{shard}: at offset {member_start}: {error}") from None
        if not field:
            continue
        if sample:
            yield _whole(sample, contents, shard, start, len(seen) - 1, expected)
        if key in seen:
            raise TarDamage(
                f"{shard}: the key {key!r} comes again at offset {member_start}; a sample's members must "
                "stand together and keys be unique: sort the archive by name, or rename"
            )
        seen.add(key)
        prefix = key + "."
        sample = {"__key__": key, "__url__": shard, field: content}
        start, contents = member_start, [content]
    if sample:
        yield _whole(sample, contents, shard, start, len(seen) - 1, expected)
    if expected is not None and len(seen) != len(expected.keys):
        raise TarDamage(f"{shard}: {len(seen)} samples, and {len(expected.keys)} in its index; {_NOT_OF_THIS_SHARD}")


_NOT_OF_THIS_SHARD = "the index is not of this shard: make it again with index_shards, or fetch the shard again"


def _whole(
    sample: Sample, contents: list[bytes], shard: str, start: int, number: int, expected: Expected | None
) -> Sample | Skipped:
    """The sample, its label a number, and its content the one in the index."""
    if expected is not None:
        key = sample["__key__"]
        if number >= len(expected.keys) or expected.keys[number] != key:
            raise TarDamage(f"{shard}: {key!r} at offset {start} is not in its index there; {_NOT_OF_THIS_SHARD}")
        checksums = expected.checksums[number]
        if len(checksums) != len(contents):
            return _bad(sample, shard, start, f"{len(contents)} fields, and {len(checksums)} in its index")
        for content, checksum in zip(contents, checksums):
            if crc32c(content) != checksum:
                return _bad(sample, shard, start, "its bytes are not those of its index (crc32c)")
    label = sample.get("cls")
    if label is not None:
        # int() alone would take b"1_0" for 10.
        if not label.isdigit() and not label.strip().removeprefix(b"-").isdigit():
            return _bad(sample, shard, start, f"field cls holds {label[:20]!r}, which is no whole number")
        sample["cls"] = int(label)
    return sample


def _bad(sample: Sample, shard: str, start: int, what: str) -> Skipped:
    return Skipped(f"{shard}: {sample['__key__']}", f"{shard}: {sample['__key__']!r} at offset {start}: {what}")
