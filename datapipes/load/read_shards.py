"""`read_tar_samples`: keys of samples in shards in, the samples out, neighbours fetched together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from typing import Any

from datapipes.catalog.s3_server import S3Server
from datapipes.catalog.tar_keys import TarSampleKey
from datapipes.load.cached_ranges import MIN_CACHE_BYTES, shard_transport
from datapipes.load.indexed_samples import AsTheyCome, samples_of
from datapipes.load.tar_samples import Sample
from datapipes.load.window import REQUEST_TIMEOUT_S
from datapipes.load.window_pipe import WindowPipe
from datapipes.on_error import OnError, Skipped
from datapipes.order.blocks import WINDOW_BLOCKS
from datapipes.pipe import Placed, functional_form
from datapipes.transfer.request import Request

LOOK_AHEAD = 256 * WINDOW_BLOCKS
"""Places: all that `distribute(block=256)` mixes with each other, so that its neighbours meet again."""
MAX_BYTES = 256 << 20
"""A window of 2,048 samples of ImageNet is 230 MB; with n workers a worker holds an n-th of it."""
MERGED_BYTES = 8 << 20
GAP_BYTES = 64 << 10
"""A request costs 60 to 100 us, in which a fast store delivers about so much: skip less by reading over it."""
_FUNCTION = "read_tar_samples"


def merged_requests(placed: Iterator[Placed], *, max_bytes: int = MAX_BYTES) -> Iterator[Request]:
    """Requests for neighbours in a shard, out of all keys within `LOOK_AHEAD` places and `max_bytes`.

    >>> keys = [TarSampleKey("a.tar", str(i), 1024 * i, 1024 * (i + 1), None) for i in (2, 0, 900, 1)]
    >>> [request.places for request in merged_requests(iter(enumerate(keys)))]
    [(1, 3, 0), (2,)]
    """
    following = next(placed, None)
    while following is not None:
        first, nbytes = following[0], 0
        by_shard: dict[str, list[Placed]] = defaultdict(list)
        while following is not None and following[0] < first + LOOK_AHEAD and nbytes < max_bytes:
            by_shard[following[1].shard].append(following)
            nbytes += following[1].end - following[1].start
            following = next(placed, None)
        requests = chain.from_iterable(map(_neighbours, by_shard.values()))
        yield from sorted(requests, key=lambda request: min(request.places))


def _neighbours(keys: list[Placed]) -> Iterator[Request]:
    keys.sort(key=lambda placed: placed[1].start)
    group: list[Placed] = []
    for each in keys:
        key = each[1]
        if group and (key.start - group[-1][1].end > GAP_BYTES or key.end - group[0][1].start > MERGED_BYTES):
            yield _request(group)
            group = []
        group.append(each)
    yield _request(group)


def _request(group: list[Placed]) -> Request:
    places, keys = zip(*group)
    return Request(places, keys)


def bytes_in(sample: Sample) -> int:
    """How much of `max_bytes` a sample takes."""
    total = 0
    for content in sample.values():
        if type(content) is bytes:
            total += len(content)
    return total


@functional_form("read_tar_samples")
class TarSampleReader(WindowPipe[Any]):
    """Keys of samples in shards in, the samples out, in that order (functional name: `read_tar_samples`).

    >>> import tempfile
    >>> from datapipes.iter import IterableWrapper
    >>> from datapipes.prepare.shard_writer import ShardWriter
    >>> folder = tempfile.mkdtemp()
    >>> with ShardWriter(f"{folder}/shard-%06d.tar") as writer:
    ...     for number in range(3):
    ...         writer.write({"__key__": f"cat/{number}", "jpg": b"image", "cls": number})
    >>> samples = IterableWrapper([folder]).list_tar_samples().distribute(block=256).read_tar_samples()
    >>> sorted(sample["cls"] for sample in samples)
    [0, 1, 2]

    Keys within 2,048 places of each other that are neighbours in a shard are fetched by one range request, of
    at most 8 MiB. That is what `distribute(block=256)` shuffles together. Headers are verified, and where the
    index has checksums, contents too.

    Args:
        source_datapipe: keys from `list_tar_samples`.
        server: of `s3://` URLs; by default what the AWS command line would use.
        max_in_flight: this many requests, always. By default 8 to 512, as latency and rate ask for.
        max_bytes: bound on payload on its way or waiting for its turn, in this process. Memory: this much.
        cache_dir: a local folder that keeps what was fetched, in parts of 4 MiB with checksums. The processes of
            a node share it, and fetch each part once; a second epoch fetches nothing that still is there.
        cache_bytes: how much the folder may hold. What was used longest ago goes first.
        request_timeout_s: deadline of an attempt, in seconds; 7 attempts.
        ordered: False lets a sample overtake others of its batch.
        on_error: "raise", "skip", or a callable (key, error) -> sample or None.

    Raises:
        ValueError: while iterating: a damaged sample, or one that is not what the index says.
        FileNotFoundError, PermissionError, ConnectionError, TimeoutError: the shard cannot be had.
    """

    function = _FUNCTION

    def __init__(
        self,
        source_datapipe: Any,
        *,
        server: S3Server = S3Server(),
        max_in_flight: int | None = None,
        cache_dir: str | None = None,
        cache_bytes: float = 100e9,
        max_bytes: int = MAX_BYTES,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        ordered: bool = True,
        on_error: OnError = "raise",
    ) -> None:
        super().__init__(
            source_datapipe,
            max_in_flight=max_in_flight,
            max_bytes=max_bytes,
            request_timeout_s=request_timeout_s,
            ordered=ordered,
            on_error=on_error,
        )
        if cache_bytes < MIN_CACHE_BYTES:
            raise ValueError(f"{_FUNCTION}: cache_bytes must be at least {MIN_CACHE_BYTES}, got {cache_bytes}")
        self.server = server
        self.cache_dir = cache_dir
        self.cache_bytes = cache_bytes

    def flow(self, placed: Iterator[Placed]) -> Iterator[Placed]:
        first, placed = _peeked(placed)
        if first is None:
            return iter(placed)
        return self.through_window(
            placed,
            shard_transport(
                first.shard,
                server=self.server,
                function=_FUNCTION,
                cache_dir=self.cache_dir,
                cache_bytes=self.cache_bytes,
                results_of=samples_of,
                sink_of=AsTheyCome,
            ),
            form_requests=lambda keys: merged_requests(keys, max_bytes=self.max_bytes),
            item_of=lambda key, sample: sample,
            size_of=bytes_in,
        )


def _peeked(placed: Iterator[Placed]) -> tuple[TarSampleKey | None, Iterator[Placed]]:
    """The first key, which says what kind of store they are in, and all of them again."""
    passed = []
    for each in placed:
        passed.append(each)
        if type(each[1]) is not Skipped:
            if not isinstance(each[1], TarSampleKey):
                raise TypeError(
                    f"{_FUNCTION}: expected keys from list_tar_samples, got {type(each[1]).__name__} "
                    f"({each[1]!r:.80}); for shards as a whole use open_tar_shards"
                )
            return each[1], chain(passed, placed)
    return None, iter(passed)
