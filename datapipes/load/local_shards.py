"""Samples of local shards, some shards side by side."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import cycle
from typing import TypeAlias

from datapipes.catalog.s3_server import S3Server
from datapipes.catalog.shard_store import COMPRESSED_SUFFIXES, local_path
from datapipes.catalog.tar_format import TarDamage, read_members, walk
from datapipes.catalog.tar_stream import File
from datapipes.load.decompress import decompressed
from datapipes.load.shard_chunks import know
from datapipes.load.tar_samples import Expected, Sample, read_samples
from datapipes.on_error import OnError, Skipped, said_by, settle

_FUNCTION = "open_tar_shards"
_COMPRESSED_CHUNK = 1 << 20
Turn: TypeAlias = tuple[str, Iterator[Sample | Skipped]]


def local_samples(
    shards: Iterable[str], *, interleave: int, checksums: bool, on_error: OnError
) -> Iterator[Sample | Skipped]:
    """A sample of each open shard in turn; what is damaged beyond going on ends its shard, as one `Skipped`."""
    following = iter(shards)
    turns: list[Turn] = []
    while True:
        while len(turns) < interleave and (shard := next(following, None)) is not None:
            turns.append((shard, _samples_of(shard, checksums)))
        if not turns:
            return
        try:
            # One turn of every open shard, until one ends.
            for turn in cycle(turns):
                sample = next(turn[1], None)
                if sample is None:
                    turns.remove(turn)
                    break
                if type(sample) is Skipped:
                    sample = settle(on_error, sample.key, said_by(_FUNCTION, TarDamage(sample.reason)))
                yield sample
        except (ValueError, OSError, EOFError) as error:
            turns.remove(turn)
            yield settle(on_error, turn[0], said_by(_FUNCTION, error))


def _samples_of(shard: str, checksums: bool) -> Iterator[Sample | Skipped]:
    index = know(shard, checksums=checksums, server=S3Server(), function=_FUNCTION).shard_index
    file = os.open(local_path(shard) or shard, os.O_RDONLY)
    try:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        if shard.endswith(COMPRESSED_SUFFIXES):
            members = read_members(decompressed(_chunks(file), shard), shard=shard)
        else:
            members = walk(File(file), shard=shard)
        yield from read_samples(members, shard=shard, expected=None if index is None else Expected.of(index))
    finally:
        os.close(file)


def _chunks(file: int) -> Iterator[bytes]:
    while chunk := os.read(file, _COMPRESSED_CHUNK):
        yield chunk
