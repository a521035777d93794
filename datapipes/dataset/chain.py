"""Reads a chain of pipes back into what `as_dataset` runs: keys, stages, batches, stages on batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch.utils.data import get_worker_info

from datapipes.on_error import OnError
from datapipes.order.distribute import Distributor
from datapipes.pipe import MapPipe, core_batch_size, core_map_function, reorders_samples, sources_of
from datapipes.stages.batched import SampleBatcher
from datapipes.stages.prefetch import Prefetcher


@dataclass(frozen=True)
class Map:
    """A plain function of one sample, and how its errors are settled."""

    name: str
    function: Callable[[Any], Any]
    on_error: OnError
    by_user: bool
    """Whether the function is the user's: then it may draw random numbers, and stays out of threads."""
    num_threads: int = 1


@dataclass(frozen=True)
class Chain:
    """One chain, taken apart. `stages` run on samples, `batch_stages` on batches."""

    distributor: Distributor
    stages: list[Any]
    batcher: SampleBatcher | None
    batch_stages: list[Any]


def read_chain(end: Any) -> Chain:
    """Walk from the last pipe up to `distribute`; refuse what would break order or count."""
    stages: list[Any] = []
    batcher: SampleBatcher | None = None
    batch_stages: list[Any] = []
    pipe = end
    while not isinstance(pipe, Distributor):
        name = type(pipe).__name__
        sources = sources_of(pipe)
        if not sources:
            raise ValueError(
                "as_dataset: the chain has no distribute(), so nothing says whose turn it is; put .distribute() "
                f"right behind the stage that lists keys (the chain begins with {name})"
            )
        if len(sources) > 1:
            raise ValueError(
                f"as_dataset: {name} joins {len(sources)} pipes behind distribute(); join the keys before it"
            )
        if reorders_samples(pipe):
            raise ValueError(
                f"as_dataset: {name} would change the order behind distribute(); take it out, "
                "distribute(shuffle=True) already shuffles and shares the keys"
            )
        if getattr(pipe, "expands", False):
            raise ValueError(
                f"as_dataset: {name} streams whole shards, so its samples have no place in an order; "
                "use .list_tar_samples().distribute(block=256).read_tar_samples(), or a bare DataLoader"
            )
        batch_size = core_batch_size(pipe)
        if isinstance(pipe, SampleBatcher) or batch_size is not None:
            if batcher is not None:
                raise ValueError("as_dataset: the chain batches twice; keep one batched()")
            batcher = pipe if isinstance(pipe, SampleBatcher) else SampleBatcher([], batch_size or 1, collate=None)
            stages, batch_stages = [], stages
        else:
            stages.append(pipe)
        pipe = sources[0]
    if batcher is not None and batcher.drop_last and pipe.uneven == "keep":
        raise ValueError(
            'as_dataset: batched(drop_last=True) would lose what distribute(uneven="keep") is there to keep; '
            "leave one of the two out"
        )
    return Chain(pipe, stages[::-1], batcher, batch_stages[::-1])


def as_map(pipe: Any) -> Map | None:
    """The map that a pipe is, ours or core's; None for a flow and for what we do not know."""
    name = type(pipe).__name__.removesuffix("IterDataPipe")
    if isinstance(pipe, MapPipe):
        num_threads = getattr(pipe, "num_threads", 1)
        return Map(name, pipe.sample_function(), pipe.on_error, pipe.runs_user_code, num_threads)
    function = core_map_function(pipe)
    if function is not None:
        return Map(name, function, "raise", by_user=True)
    return None


def fused(pipes: list[Any]) -> list[Any]:
    """The stages to run: neighbouring maps as one list, any other pipe as itself.

    Where a stage decodes in threads, the list ends before the user's first function, which stays out of them.
    A `prefetch` behind the user's functions is left out in a process that also trains: its thread would draw
    from the random state of the training loop.
    """
    in_worker = get_worker_info() is not None
    stages: list[Any] = []
    user_code_ran = False
    for pipe in pipes:
        stage = as_map(pipe)
        if stage is None:
            if not (isinstance(pipe, Prefetcher) and user_code_ran and not in_worker):
                stages.append(pipe)
            continue
        user_code_ran |= stage.by_user
        last = stages[-1] if stages and isinstance(stages[-1], list) else None
        if last is None or (stage.by_user and any(earlier.num_threads > 1 for earlier in last)):
            stages.append([stage])
        else:
            last.append(stage)
    return stages
