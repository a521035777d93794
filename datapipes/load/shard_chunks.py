"""Remote shards in, their bytes out in parts, some shards side by side and the next parts on their way."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from datapipes.catalog.list_tar import version_of
from datapipes.catalog.s3_server import S3Server
from datapipes.catalog.shard_index import SUFFIX, ShardIndex
from datapipes.catalog.shard_store import PLAIN_SUFFIX, read_file
from datapipes.catalog.tar_format import TarDamage
from datapipes.load.cached_ranges import shard_transport
from datapipes.load.depth import Depth
from datapipes.load.shard_ranges import ShardRange, as_it_came
from datapipes.load.shard_size import size_of_shard
from datapipes.load.stretch import Pieces
from datapipes.load.window import in_flight
from datapipes.pipe import Placed
from datapipes.transfer.request import Transport

PART_BYTES = 8 << 20
"""Eight of them hide 100 ms at 600 MB/s. A server spends some 300 us on a request: 7 us of CPU for each 110 KB in
parts of 4 MiB, and half of that in these."""


class Known(NamedTuple):
    """What is known of a shard before it is read."""

    nbytes: int
    shard_index: ShardIndex | None
    version: str
    """By its index where there is one, else by its size alone."""


class Opening(NamedTuple):
    """A shard in its turn: the same one may be read again later in the stream."""

    number: int
    shard: str


class Part(NamedTuple):
    """A stretch of a shard's bytes, or the error that came instead."""

    opening: Opening
    content: Pieces | Exception
    is_last: bool


def know(shard: str, *, checksums: bool, server: S3Server, function: str) -> Known:
    """The size of a shard and, where it is asked for and there, its index.

    Raises:
        TarDamage: the index is of a shard of another size.
    """
    nbytes = size_of_shard(shard, server=server, function=function)
    if not checksums or not shard.endswith(PLAIN_SUFFIX):
        return Known(nbytes, None, f"{nbytes} bytes")
    content = read_file(shard + SUFFIX, server=server, function=function)
    if content is None:
        return Known(nbytes, None, f"{nbytes} bytes")
    index = ShardIndex.load(content, name=shard + SUFFIX)
    if index.shard_bytes != nbytes:
        raise TarDamage(
            f"{shard}: it has {nbytes} bytes, and {index.shard_bytes} in its index: it is cut, or the index is of "
            "another; fetch or write the shard again"
        )
    return Known(nbytes, index, version_of(content))


class ShardParts:
    """The parts of some shards, `interleave` shards taking turns; iterating connects.

    Args:
        shards: paths or URLs, drawn as they are needed.
        known: filled with what is known of each shard, before its first part comes.
    """

    def __init__(
        self,
        shards: Iterable[str],
        *,
        interleave: int,
        checksums: bool,
        server: S3Server,
        max_bytes: int,
        request_timeout_s: float,
        function: str,
        cache_dir: str | None = None,
        cache_bytes: float = 0,
    ) -> None:
        self.known: dict[Opening, Known] = {}
        self.dropped: set[Opening] = set()
        self._shards = iter(shards)
        self._interleave = interleave
        self._checksums = checksums
        self._server = server
        self._max_bytes = max_bytes
        self._request_timeout_s = request_timeout_s
        self.function = function
        self._cache_dir = cache_dir
        self._cache_bytes = cache_bytes

    def drop(self, opening: Opening) -> None:
        """Ask for no more of this shard."""
        self.dropped.add(opening)

    def __iter__(self) -> Generator[Part, None, None]:
        first = next(self._shards, None)
        if first is None:
            return
        self._shards = _with_first(first, self._shards)
        transport = shard_transport(
            first,
            server=self._server,
            function=self.function,
            cache_dir=self._cache_dir,
            cache_bytes=self._cache_bytes,
            results_of=as_it_came,
        )
        yield from self._remote(transport)

    def _remote(self, transport: Transport) -> Iterator[Part]:
        failed: list[Part] = []
        asked: dict[int, tuple[Opening, ShardRange]] = {}

        def placed() -> Iterator[Placed]:
            for place, wanted in enumerate(self._ranges()):
                if isinstance(wanted, Part):
                    failed.append(wanted)
                else:
                    asked[place] = wanted
                    yield place, wanted[1]

        parts = in_flight(
            placed(),
            transport,
            function=self.function,
            item_of=lambda wanted, content: content,
            depth=Depth(),
            max_bytes=self._max_bytes,
            request_timeout_s=self._request_timeout_s,
            on_error=lambda key, error: error,
        )
        try:
            for place, content in parts:
                yield from failed
                failed.clear()
                opening, wanted = asked.pop(place)
                is_last = wanted.end == wanted.shard_bytes or isinstance(content, Exception)
                yield Part(opening, content, is_last)
            yield from failed
        finally:
            parts.close()  # type: ignore[attr-defined]

    def _ranges(self) -> Iterator[tuple[Opening, ShardRange] | Part]:
        """What to read, part by part, the open shards in turn."""
        open_shards: deque[tuple[Opening, int]] = deque()
        for number, (shard, known) in enumerate(self._looked_up()):
            opening = Opening(number, shard)
            if isinstance(known, Exception):
                yield Part(opening, known, True)
                continue
            self.known[opening] = known
            open_shards.append((opening, 0))
            while len(open_shards) >= self._interleave:
                yield from self._turn(open_shards)
        while open_shards:
            yield from self._turn(open_shards)

    def _turn(self, open_shards: deque[tuple[Opening, int]]) -> Iterator[tuple[Opening, ShardRange]]:
        opening, start = open_shards.popleft()
        if opening in self.dropped:
            return
        known = self.known[opening]
        end = min(start + PART_BYTES, known.nbytes)
        if end < known.nbytes:
            open_shards.append((opening, end))
        yield opening, ShardRange(opening.shard, start, end, known.nbytes, known.version)

    def _looked_up(self) -> Iterator[tuple[str, Known | Exception]]:
        def look(shard: str) -> Known | Exception:
            try:
                return know(shard, checksums=self._checksums, server=self._server, function=self.function)
            except Exception as error:
                return error

        ahead = 2 * self._interleave
        waiting: deque[tuple[str, Future[Known | Exception]]] = deque()
        with ThreadPoolExecutor(ahead, thread_name_prefix="datapipes-shards") as threads:
            try:
                for shard in self._shards:
                    waiting.append((shard, threads.submit(look, shard)))
                    if len(waiting) > ahead:
                        oldest, known = waiting.popleft()
                        yield oldest, known.result()
                while waiting:
                    oldest, known = waiting.popleft()
                    yield oldest, known.result()
            finally:
                threads.shutdown(wait=False, cancel_futures=True)


def _with_first(first: str, rest: Iterator[str]) -> Iterator[str]:
    yield first
    yield from rest
