"""Samples whose places in a shard are known, out of the bytes around them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from datapipes.catalog.tar_format import TarDamage, walk
from datapipes.catalog.tar_keys import TarSampleKey
from datapipes.catalog.tar_stream import Stream
from datapipes.load.shard_ranges import range_of
from datapipes.load.stretch import Pieces, Stretch
from datapipes.load.tar_samples import Expected, Sample, read_samples
from datapipes.on_error import Skipped
from datapipes.transfer.request import Request


def samples_of(request: Request, stretch: Stretch) -> list[Sample | Exception]:
    """The sample of each key of a request, or what is wrong with it, out of the bytes that the keys span."""
    return _samples(request.keys, stretch, range_of(request)[1])


class AsTheyCome:
    """Makes the samples of a request from bytes that are still coming, each once its last byte is there.

    Of 110 KB that costs 18 us less than joining them when all 8 MiB are there, and out of the processor's cache.
    """

    def __init__(self, request: Request) -> None:
        self._keys = request.keys
        self._pieces: list[bytes] = []
        self._first = self._arrived = range_of(request)[1]
        self._samples: list[Sample | Exception] = []

    def take(self, pieces: list[bytes]) -> None:
        self._pieces += pieces
        self._arrived += sum(map(len, pieces))
        done = whole = len(self._samples)
        while whole < len(self._keys) and self._keys[whole].end <= self._arrived:
            whole += 1
        if whole == done:
            return
        self._samples += _samples(self._keys[done:whole], Pieces(self._pieces), self._first)
        needed_from = self._keys[whole].start if whole < len(self._keys) else self._arrived
        kept, self._first = len(self._pieces), self._arrived
        while kept and self._first > needed_from:
            kept -= 1
            self._first -= len(self._pieces[kept])
        del self._pieces[:kept]

    def results(self) -> list[Sample | Exception]:
        if len(self._samples) < len(self._keys):
            raise OSError(f"{self._keys[-1]}: the server ended its range before; see whether the shard is whole")
        return self._samples


def _samples(keys: Sequence[TarSampleKey], stretch: Stretch, first: int) -> list[Sample | Exception]:
    samples: list[Sample | Exception] = []
    stream = stretch.stream(first)
    for run in _runs(keys):
        if run[0].start < stream.position:
            stream = stretch.stream(first)
        stream.skip(run[0].start - stream.position)
        try:
            samples += _samples_in(run, stream)
        except Exception:
            # Which of them is it?
            samples += [_sample_or_error(key, stretch, first) for key in run]
            stream = stretch.stream(first)
    return samples


def _runs(keys: Sequence[TarSampleKey]) -> Iterator[Sequence[TarSampleKey]]:
    """Keys whose samples follow each other: read in one walk, a sample costs half of one that has its own."""
    begin = 0
    for place in range(1, len(keys)):
        before, key = keys[place - 1], keys[place]
        if key.start != before.end or (key.checksums is None) != (before.checksums is None):
            yield keys[begin:place]
            begin = place
    yield keys[begin:]


def _samples_in(run: Sequence[TarSampleKey], stream: Stream) -> list[Sample]:
    """The samples of keys that follow each other, from where `stream` stands.

    Raises:
        TarDamage: what is there is not what the index says, or is damaged.
    """
    names = [key.name for key in run]
    checksums = [key.checksums for key in run if key.checksums is not None]
    expected = Expected(names, checksums) if checksums else None
    shard, end = run[0].shard, run[-1].end
    samples: list[Sample] = []
    for sample in read_samples(walk(stream, shard=shard, end=end), shard=shard, expected=expected):
        if isinstance(sample, Skipped):
            raise TarDamage(sample.reason)
        samples.append(sample)
    if stream.position != end or [sample["__key__"] for sample in samples] != names:
        raise TarDamage(
            f"{run[0]}: something else is there now; list the shard again, or make its index with index_shards"
        )
    return samples


def _sample_or_error(key: TarSampleKey, stretch: Stretch, first: int) -> Sample | Exception:
    stream = stretch.stream(first)
    stream.skip(key.start - first)
    try:
        return _samples_in([key], stream)[0]
    except Exception as error:
        return error
