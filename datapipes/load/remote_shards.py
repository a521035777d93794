"""Samples of remote shards, as the parts of several arrive in turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import closing

from datapipes.catalog.tar_format import TarDamage, walk
from datapipes.catalog.tar_stream import Bytes
from datapipes.load.decompress import decompressed
from datapipes.load.shard_chunks import Opening, ShardParts
from datapipes.load.stretch import Pieces
from datapipes.load.tar_samples import Expected, Sample, read_samples
from datapipes.on_error import OnError, Skipped, said_by, settle


def remote_samples(source: ShardParts, *, on_error: OnError) -> Iterator[Sample | Skipped]:
    """The samples of the shards that `source` reads, shard after shard in turn as their parts come.

    What is damaged beyond going on, an archive's structure, ends its shard: one `Skipped` stands for the rest.
    """
    arrivals = _Arrivals(source)
    readers: dict[Opening, Iterator[Sample | Skipped]] = {}
    with closing(arrivals):
        while (shard := arrivals.next_shard()) is not None:
            if shard in source.dropped:
                continue
            if shard not in readers:
                readers[shard] = _samples_of(shard, arrivals)
            try:
                # What a shard's newest part holds is read when the part after it is there: until then its
                # reader might have to wait for it, inside a sample.
                waiting = arrivals.waiting[shard]
                samples = readers[shard]
                while waiting or shard in arrivals.whole:
                    sample = next(samples, None)
                    if sample is None:
                        del readers[shard]
                        source.drop(shard)
                        break
                    if type(sample) is Skipped:
                        sample = settle(on_error, sample.key, said_by(source.function, TarDamage(sample.reason)))
                    yield sample
            except (ValueError, OSError, EOFError) as error:
                source.drop(shard)
                yield settle(on_error, shard.shard, said_by(source.function, error))


class _Arrivals:
    """Parts as they arrive, sorted by shard."""

    def __init__(self, source: ShardParts) -> None:
        self.source = source
        self.waiting: dict[Opening, deque[Pieces | Exception]] = {}
        self.whole: set[Opening] = set()
        self._parts = iter(source)
        self._due: deque[Opening] = deque()

    def next_shard(self) -> Opening | None:
        """The shard whose turn it is: a part of it came. None when all have come."""
        if not self._due and not self._take():
            return None
        return self._due.popleft()

    def chunks_of(self, shard: Opening) -> Iterator[bytes]:
        """The bytes of one shard; what comes in between of others is kept for them."""
        waiting = self.waiting[shard]
        while True:
            while not waiting:
                if shard in self.whole or not self._take():
                    return
            content = waiting.popleft()
            if isinstance(content, Exception):
                raise content
            yield from content

    def close(self) -> None:
        self._parts.close()

    def _take(self) -> bool:
        part = next(self._parts, None)
        if part is None:
            return False
        if part.opening not in self.source.dropped:
            self.waiting.setdefault(part.opening, deque()).append(part.content)
            if part.is_last:
                self.whole.add(part.opening)
        self._due.append(part.opening)
        return True


def _samples_of(opening: Opening, arrivals: _Arrivals) -> Iterator[Sample | Skipped]:
    known = arrivals.source.known.get(opening)
    expected = Expected.of(known.shard_index) if known is not None and known.shard_index is not None else None
    shard = opening.shard
    chunks = decompressed(arrivals.chunks_of(opening), shard)
    return read_samples(walk(Bytes(chunks), shard=shard), shard=shard, expected=expected)
