"""Byte ranges of shards, from wherever the shards are: the transports that tar readers use."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from datapipes.catalog.s3_server import S3Server, resolve
from datapipes.catalog.s3_transport import object_address, signed_transport
from datapipes.catalog.shard_store import local_path
from datapipes.load.stretch import OnDisk, Pieces, Stretch
from datapipes.transfer.curl import CurlTransport
from datapipes.transfer.curl_transfer import Get, Sink
from datapipes.transfer.request import Request, Transport
from datapipes.transfer.retry import Transient
from datapipes.transfer.thread import ThreadTransport


class ShardRange(NamedTuple):
    """Bytes `start` to `end` of a shard. Keys of samples look the same, and have more to them."""

    shard: str
    start: int
    end: int
    shard_bytes: int = 0
    version: str = ""
    checksums: None = None
    """None is known of these bytes, so that a cache has to verify its own."""

    def __str__(self) -> str:
        return f"{self.shard}: bytes {self.start} to {self.end}"


ResultsOf: TypeAlias = Callable[[Request, Stretch], Sequence[Any]]
"""What a request's keys get of the bytes that they span; an exception is the error of its key."""

SinkOf: TypeAlias = Callable[[Request], Sink]


def range_of(request: Request) -> tuple[str, int, int]:
    """The bytes to fetch for a request: what its keys span, all in one shard."""
    keys = request.keys
    return keys[0].shard, min(key.start for key in keys), max(key.end for key in keys)


def as_it_came(request: Request, stretch: Stretch) -> Sequence[Any]:
    """For a request of one key: what came, for the caller to take apart."""
    return (stretch,)


def whole_bytes(request: Request, stretch: Stretch) -> Sequence[Any]:
    """For a request of one key: its bytes."""
    content = bytes(stretch)
    _check_length(request, len(content))
    return (content,)


def _check_length(request: Request, found: int) -> None:
    shard, start, end = range_of(request)
    if found != end - start:
        raise OSError(f"{shard} is cut at offset {start + found}, and has bytes up to {end}; fetch or write it again")


def range_transport(
    shard: str, *, server: S3Server, function: str, results_of: ResultsOf = whole_bytes, sink_of: SinkOf | None = None
) -> Transport:
    """The transport for ranges of `shard` and of others that are kept in the same way.

    S3 and HTTP go through libcurl. A local file is read in this thread, for the kernel reads ahead on request;
    any other file system is read in threads.

    Args:
        results_of: by default the bytes of a request's one key.
        sink_of: makes the same of what comes over HTTP, while it comes.
    """
    options: dict[str, Any] = {"results_of": results_of, "join": Pieces, "sink_of": sink_of}
    if shard.startswith("s3://"):
        endpoint = resolve(server)

        def object_range(request: Request) -> Get:
            shard, start, end = range_of(request)
            return Get(object_address(endpoint, shard, function), start, end - start)

        return signed_transport(endpoint, function, address=object_range, **options)
    if shard.startswith(("http://", "https://")):
        return CurlTransport(function=function, address=_http_range, **options)
    if local_path(shard) is not None:
        return LocalRanges(results_of)
    return ThreadTransport(_FsspecRanges(results_of), max_threads=16)


def _http_range(request: Request) -> Get:
    shard, start, end = range_of(request)
    return Get(shard, start, end - start)


class LocalRanges:
    """Files of this machine. A request starts the kernel's read-ahead and is read when it is asked for."""

    def __init__(self, results_of: ResultsOf) -> None:
        self._results_of = results_of
        self._files: dict[str, int] = {}
        self._asked: dict[int, Request] = {}

    def start(self, ticket: int, request: Request) -> None:
        self._asked[ticket] = request
        shard, start, end = range_of(request)
        try:
            os.posix_fadvise(self._file(shard), start, end - start, os.POSIX_FADV_WILLNEED)
        except OSError:
            pass  # `finished` opens the file again, and its error reaches the reader.

    def finished(self, timeout_s: float) -> list[tuple[int, Any, Exception | None]]:
        if not self._asked:
            return []
        ticket, request = next(iter(self._asked.items()))
        del self._asked[ticket]
        try:
            shard, start, end = range_of(request)
            stretch = OnDisk(partial(os.pread, self._file(shard)), start, end)
            return [(ticket, self._results_of(request, stretch), None)]
        except Exception as error:
            return [(ticket, None, error)]

    def cancel(self, ticket: int) -> None:
        self._asked.pop(ticket, None)

    def close(self) -> None:
        self._asked.clear()
        while self._files:
            os.close(self._files.popitem()[1])

    def _file(self, shard: str) -> int:
        file = self._files.get(shard)
        if file is None:
            if len(self._files) >= 64:
                os.close(self._files.pop(next(iter(self._files))))
            file = self._files[shard] = os.open(local_path(shard) or shard, os.O_RDONLY)
        return file


class _FsspecRanges:
    def __init__(self, results_of: ResultsOf) -> None:
        self._results_of = results_of

    def __call__(self, request: Request) -> Sequence[Any]:
        import fsspec

        shard, start, end = range_of(request)
        system, path = fsspec.core.url_to_fs(shard)
        try:
            body = system.cat_file(path, start=start, end=end)
        except (ConnectionError, TimeoutError) as error:
            raise Transient(error) from None
        _check_length(request, len(body))
        return self._results_of(request, Pieces([body]))
