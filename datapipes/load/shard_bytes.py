"""All the bytes of one shard, in order, from wherever it is."""

from __future__ import annotations

from collections.abc import Iterator

from datapipes.catalog.s3_server import S3Server
from datapipes.load.shard_chunks import PART_BYTES
from datapipes.load.shard_ranges import ShardRange, range_transport
from datapipes.load.shard_size import size_of_shard
from datapipes.load.window import in_flight

_MAX_BYTES = 64 << 20


def shard_bytes(shard: str, *, server: S3Server, function: str) -> Iterator[bytes]:
    """The shard's bytes in parts, the next ones on their way.

    Raises:
        FileNotFoundError, PermissionError, ConnectionError, TimeoutError: the shard cannot be had.
    """
    nbytes = size_of_shard(shard, server=server, function=function)
    starts = range(0, nbytes, PART_BYTES)
    ranges = (ShardRange(shard, start, min(start + PART_BYTES, nbytes)) for start in starts)
    transport = range_transport(shard, server=server, function=function)
    for _, (_, content) in in_flight(enumerate(ranges), transport, function=function, max_bytes=_MAX_BYTES):
        yield content
