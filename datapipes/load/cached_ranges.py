"""A transport that keeps what it fetches on the local disk, for the next epoch and the other workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from datapipes.catalog.s3_server import S3Server
from datapipes.load.part_files import OpenPart, PartFiles
from datapipes.load.shard_ranges import ResultsOf, ShardRange, SinkOf, range_of, range_transport
from datapipes.load.stretch import OnDisk, Pieces
from datapipes.transfer.request import Request, Transport

PART_BYTES = 4 << 20
MIN_CACHE_BYTES = 16 * PART_BYTES
_OTHERS_EVERY_S = 0.005
_PATIENCE_WITH_OTHERS_S = 5.0


class Part(NamedTuple):
    """Part `number` of a shard; `name` says which contents are meant, for a shard may be written anew."""

    shard: str
    number: int
    end: int
    name: str

    @property
    def start(self) -> int:
        return self.number * PART_BYTES


class CachedRanges:
    """Ranges of shards out of `files`, and what is not there from the transport that `connect` makes.

    Parts of 4 MiB are fetched whole, each by one process of the node, while others wait for the file. Nothing
    is connected before something is missing.
    """

    def __init__(self, files: PartFiles, connect: Callable[[], Transport], results_of: ResultsOf) -> None:
        self._files = files
        self._results_of = results_of
        self._connect = connect
        self._inner: Transport | None = None
        self._tickets = count()
        self._asked: dict[int, tuple[Request, set[Part]]] = {}
        self._fetches: dict[int, Part] = {}
        self._fetching: dict[Part, int] = {}
        self._by_others: dict[Part, float] = {}
        self._fresh: dict[Part, bytes] = {}
        self._claimed: set[Part] = set()
        self._keep = True

    def start(self, ticket: int, request: Request) -> None:
        missing = {part for part in parts_of(request) if not self._files.has(part.name)}
        self._asked[ticket] = (request, missing)
        for part in missing:
            self._get(part)

    def _get(self, part: Part) -> None:
        if part in self._fetching or part in self._by_others:
            return
        if self._files.claim(part.name):
            self._claimed.add(part)
            self._fetch(part)
        else:
            self._by_others[part] = time.monotonic()

    def _fetch(self, part: Part) -> None:
        if self._inner is None:
            self._inner = self._connect()
        ticket = next(self._tickets)
        self._fetches[ticket], self._fetching[part] = part, ticket
        self._inner.start(ticket, Request((0,), (ShardRange(part.shard, part.start, part.end),)))

    def finished(self, timeout_s: float) -> list[tuple[int, Any, Exception | None]]:
        give_up_at = time.monotonic() + timeout_s
        while True:
            answers = self._assembled()
            left_s = 0.0 if answers else max(0.0, give_up_at - time.monotonic())
            self._look_at_others()
            if self._fetches and self._inner is not None:
                wait_s = min(left_s, _OTHERS_EVERY_S) if self._by_others else left_s
                for ticket, results, error in self._inner.finished(wait_s):
                    answers += self._fetched(ticket, results, error)
            elif left_s:
                time.sleep(min(left_s, _OTHERS_EVERY_S))
            answers = answers or self._assembled()
            if answers or time.monotonic() >= give_up_at:
                return answers

    def _look_at_others(self) -> None:
        now = time.monotonic()
        for part, since in list(self._by_others.items()):
            if self._files.has(part.name):
                del self._by_others[part]
                self._arrived(part)
            elif now - since > _PATIENCE_WITH_OTHERS_S:
                del self._by_others[part]
                self._fetch(part)
            elif self._files.claim(part.name):
                del self._by_others[part]
                self._claimed.add(part)
                # It may have appeared, and its process let go, between the two questions.
                if self._files.has(part.name):
                    self._let_go(part)
                    self._arrived(part)
                else:
                    self._fetch(part)

    def _fetched(self, ticket: int, results: Any, error: Exception | None) -> list[tuple[int, Any, Exception | None]]:
        part = self._fetches.pop(ticket)
        del self._fetching[part]
        failed: list[tuple[int, Any, Exception | None]] = []
        if error is not None:
            for asked, (_, missing) in list(self._asked.items()):
                if part in missing:
                    del self._asked[asked]
                    failed.append((asked, None, error))
        else:
            self._fresh[part] = results[0]
            if self._keep:
                try:
                    self._files.write(part.name, results[0])
                except OSError:
                    # A full disk costs the cache, not the epoch.
                    self._keep = False
            self._arrived(part)
        self._let_go(part)
        return failed

    def _arrived(self, part: Part) -> None:
        for _, missing in self._asked.values():
            missing.discard(part)

    def _let_go(self, part: Part) -> None:
        if part in self._claimed:
            self._claimed.discard(part)
            self._files.release(part.name)

    def _assembled(self) -> list[tuple[int, Any, Exception | None]]:
        answers: list[tuple[int, Any, Exception | None]] = []
        for ticket, (request, missing) in list(self._asked.items()):
            if missing:
                continue
            results = self._results(request, missing)
            if results is not None:
                del self._asked[ticket]
                answers.append((ticket, results, None))
                # One at a time, as a disk gives them: made before their turn, samples leave the processor's cache.
                break
        if self._fresh:
            wanted = {part for request, _ in self._asked.values() for part in parts_of(request)}
            self._fresh = {part: content for part, content in self._fresh.items() if part in wanted}
        return answers

    def _results(self, request: Request, missing: set[Part]) -> Sequence[Any] | None:
        """What the request's keys get; None where a part has gone or gone bad, which is then fetched again."""
        # What the reader verifies by checksums of its own is verified here only if that fails.
        if all(key.checksums is not None for key in request.keys):
            with ExitStack() as files:
                stretch = self._unverified(request, missing, files)
                results = None if stretch is None else self._results_of(request, stretch)
            if results is None or not any(isinstance(result, Exception) for result in results):
                return results
        verified = self._verified(request, missing)
        return None if verified is None else self._results_of(request, verified)

    def _unverified(self, request: Request, missing: set[Part], files: ExitStack) -> OnDisk | None:
        parts: dict[int, bytes | OpenPart] = {}
        for part in parts_of(request):
            fresh = self._fresh.get(part)
            found = self._files.open(part.name, part.end - part.start) if fresh is None else fresh
            if found is None:
                self._ask_again(part, missing)
                continue
            parts[part.number] = found
            if not isinstance(found, bytes):
                files.enter_context(found)
        return None if missing else OnDisk(partial(_read_at, parts), *range_of(request)[1:])

    def _verified(self, request: Request, missing: set[Part]) -> Pieces | None:
        _, start, end = range_of(request)
        pieces = []
        for part in parts_of(request):
            first, last = max(start, part.start) - part.start, min(end, part.end) - part.start
            fresh = self._fresh.get(part)
            piece = fresh[first:last] if fresh is not None else self._files.read(part.name, first, last)
            if piece is None:
                self._ask_again(part, missing)
            else:
                pieces.append(piece)
        return None if missing else Pieces(pieces)

    def _ask_again(self, part: Part, missing: set[Part]) -> None:
        missing.add(part)
        self._get(part)

    def cancel(self, ticket: int) -> None:
        _, missing = self._asked.pop(ticket, (None, set()))
        for part in missing:
            if any(part in others for _, others in self._asked.values()):
                continue
            self._by_others.pop(part, None)
            fetch = self._fetching.pop(part, None)
            if fetch is not None and self._inner is not None:
                del self._fetches[fetch]
                self._inner.cancel(fetch)
            self._let_go(part)

    def close(self) -> None:
        for part in list(self._claimed):
            self._let_go(part)
        if self._inner is not None:
            self._inner.close()
        self._files.close()


def _read_at(parts: dict[int, bytes | OpenPart], size: int, offset: int) -> bytes:
    """Bytes of a shard, out of the parts of it that are at hand."""
    pieces: list[bytes] = []
    while size > 0 and (part := parts.get(offset // PART_BYTES)) is not None:
        start = offset % PART_BYTES
        end = min(start + size, PART_BYTES)
        piece = part[start:end]
        if len(piece) == size and not pieces:
            return piece
        if not piece:
            break
        pieces.append(piece)
        size -= len(piece)
        offset += len(piece)
    return b"".join(pieces)


def parts_of(request: Request) -> list[Part]:
    """The parts that the bytes asked for lie in."""
    key = request.keys[0]
    shard, start, end = range_of(request)
    numbers = range(start // PART_BYTES, -(-end // PART_BYTES))
    return [
        Part(shard, number, min((number + 1) * PART_BYTES, key.shard_bytes), f"{shard}\0{key.version}\0{number}")
        for number in numbers
    ]


def shard_transport(
    shard: str,
    *,
    server: S3Server,
    function: str,
    cache_dir: str | None,
    cache_bytes: float,
    results_of: ResultsOf,
    sink_of: SinkOf | None = None,
) -> Transport:
    """The transport for `shard` and others in the same store, with a cache in front of it if asked for."""

    def connect() -> Transport:
        return range_transport(shard, server=server, function=function)

    if cache_dir is None:
        return range_transport(shard, server=server, function=function, results_of=results_of, sink_of=sink_of)
    return CachedRanges(PartFiles(cache_dir, int(cache_bytes)), connect, results_of)
