"""Runs a chain for one worker: its keys through the stages, gathered into batches, each with its tally."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datapipes.catalog.keys import KeyTable
from datapipes.dataset.account import Tally, sum_of_hashes
from datapipes.dataset.chain import Chain, fused
from datapipes.dataset.maps import run_maps
from datapipes.dataset.randomness import mixed
from datapipes.on_error import Skipped
from datapipes.order.plan import Plan
from datapipes.pipe import FlowPipe, LoadPipe, Placed, fed_by
from datapipes.stages.batched import SampleBatcher
from datapipes.stages.threads import map_in_threads

Places = NDArray[np.int64]
Flow = Generator[Placed, None, None]
# Sets a batch's random state apart from that of its first sample.
_BATCH_SALT = 0xBA7C4


def run_chain(
    chain: Chain, plan: Plan, table: KeyTable, epoch: int, batches: Iterable[Places]
) -> Iterator[tuple[Any, Tally]]:
    """Yield `(batch, tally)` for each of `batches`; without a batcher, `(sample or Skipped, tally)`.

    All runs on demand, in order and in this thread, but for what `prefetch`, `decode(num_threads=)` and the
    loaders' requests do ahead of it; closing the generator closes them all.
    """
    waiting: deque[Places] = deque()
    sizes: deque[int] = deque()
    tallies: deque[Tally] = deque()
    flows: list[Any] = [_placed_keys(plan, table, epoch, batches, waiting)]
    for stage in fused(chain.stages):
        flows.append(_start(stage, flows[-1], plan.seed, epoch, plan.batch_size, sizes))

    def tallied(samples: Flow) -> Flow:
        for placed in _gathered(samples, waiting):
            tallies.append(_tally(placed, plan, table, epoch, sizes))
            yield placed[0][0], placed[0][1] if chain.batcher is None else _collated(placed, chain.batcher)

    flows.append(tallied(flows[-1]))
    for stage in fused(chain.batch_stages):
        flows.append(_start(stage, flows[-1], mixed(plan.seed, _BATCH_SALT), epoch, plan.batch_size, sizes))
    try:
        for _, batch in flows[-1]:
            yield batch, tallies.popleft()
    finally:
        for flow in reversed(flows):
            flow.close()


def _placed_keys(plan: Plan, table: KeyTable, epoch: int, batches: Iterable[Places], waiting: deque[Places]) -> Flow:
    for places in batches:
        waiting.append(places)
        yield from zip(places.tolist(), table.take(plan.indices(places, epoch)))


def _start(stage: Any, flow: Flow, seed: int, epoch: int, batch_size: int, sizes: deque[int]) -> Any:
    if isinstance(stage, list):
        num_threads = max(each.num_threads for each in stage)
        if num_threads == 1:
            return run_maps(flow, stage, seed, epoch)
        return map_in_threads(flow, lambda placed: next(run_maps(iter([placed]), stage, seed, epoch)), num_threads)
    if isinstance(stage, LoadPipe):
        stage.batch_size = batch_size
        return _weighed(stage.flow(flow), sizes)
    if isinstance(stage, FlowPipe):
        return stage.flow(flow)
    return _one_for_one(stage, flow)


def _weighed(flow: Any, sizes: deque[int]) -> Flow:
    """Note how many bytes came with each item, in the order in which items come."""
    try:
        for place, item in flow:
            sizes.append(payload_bytes(item))
            yield place, item
    finally:
        flow.close()


def payload_bytes(item: Any) -> int:
    """The bytes that a loader brought: a stream's, or those of a sample's fields.

    >>> payload_bytes(("s3://b/1.jpg", BytesIO(b"four"))), payload_bytes({"__key__": "1", "jpg": b"four"})
    (4, 4)
    """
    fields = item.values() if isinstance(item, dict) else item if type(item) is tuple else ()
    total = 0
    for field in fields:
        if isinstance(field, bytes):
            total += len(field)
        elif isinstance(field, BytesIO):
            total += field.getbuffer().nbytes
    return total


def _one_for_one(pipe: Any, flow: Flow) -> Flow:
    """Run a pipe that we do not know as the iterator it is, and hold it to one item out for one in."""
    pulled: deque[tuple[int, Any]] = deque()

    def feed() -> Iterator[Any]:
        for place, item in flow:
            pulled.append((place, item))
            if type(item) is not Skipped:
                yield item

    name = type(pipe).__name__
    for result in fed_by(pipe, feed()):
        while pulled and type(pulled[0][1]) is Skipped:
            yield pulled.popleft()
        if len(pulled) != 1:
            raise RuntimeError(
                f"as_dataset: {name} took {len(pulled)} samples before it gave one, so their order and count "
                "cannot be kept; make it a function of one sample and use .map(), or put it before distribute()"
            )
        yield pulled.popleft()[0], result
    if any(type(item) is not Skipped for _, item in pulled):
        raise RuntimeError(f"as_dataset: {name} ended before its input did, so samples would be lost")
    yield from pulled


def _gathered(flow: Any, waiting: deque[Places]) -> Iterator[list[Placed]]:
    """The samples of one batch after another, each batch in the order of its places."""
    placed: list[Placed] = []
    for each in flow:
        placed.append(each)
        if len(placed) == len(waiting[0]):
            waiting.popleft()
            placed.sort(key=lambda pair: pair[0])
            yield placed
            placed = []
    if placed or waiting:
        raise RuntimeError(
            f"as_dataset: the chain ended {len(waiting)} batches early; a stage behind distribute() lost samples"
        )


def _tally(placed: list[Placed], plan: Plan, table: KeyTable, epoch: int, sizes: deque[int]) -> Tally:
    hashes = table.hashes(plan.indices(np.array([place for place, _ in placed], np.int64), epoch))
    skipped = np.array([type(item) is Skipped for _, item in placed])
    nbytes = sum(sizes.popleft() for _ in placed) if sizes else 0
    return Tally(
        samples=int((~skipped).sum()),
        skipped=int(skipped.sum()),
        nbytes=nbytes,
        seen_hash=sum_of_hashes(hashes[~skipped]),
        skipped_hash=sum_of_hashes(hashes[skipped]),
    )


def _collated(placed: list[Placed], batcher: SampleBatcher) -> Any:
    samples = [item for _, item in placed if type(item) is not Skipped]
    if not samples:
        raise RuntimeError(
            f"as_dataset: every one of the {len(placed)} samples of a batch was skipped, the first because: "
            f"{placed[0][1].reason}"
        )
    return batcher.collate_samples(samples)
