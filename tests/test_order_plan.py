from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datapipes.order.plan import Plan

NS = st.integers(1, 400)
SIZES = st.integers(1, 9)
WORLDS = st.integers(1, 7)
WORKERS = st.integers(1, 4)
UNEVEN = st.sampled_from(["drop", "pad", "keep"])


def a_plan(n: int, batch_size: int, world_size: int, uneven: str, **options: object) -> Plan:
    if uneven == "drop":
        n = max(n, batch_size * world_size)
    return Plan(n, batch_size, uneven=uneven, **options)  # type: ignore[arg-type]


def steps_of(
    plan: Plan, rank: int, world_size: int, num_workers: int = 1, start: int = 0, steps: int | None = None
) -> list[list[int]]:
    """A rank's batches as a DataLoader hands them on: its workers in turn."""
    streams = [
        plan.batches(rank=rank, world_size=world_size, worker=w, num_workers=num_workers, start=start)
        for w in range(num_workers)
    ]
    batches = []
    while len(batches) != steps:
        batch = next(streams[len(batches) % num_workers], None)
        if batch is None:
            break
        batches.append(batch.tolist())
    return batches


def epoch_of(plan: Plan, world_size: int, num_workers: int = 1, start: int = 0, steps: int | None = None) -> list[int]:
    """All places, step after step, rank after rank."""
    ranks = [steps_of(plan, rank, world_size, num_workers, start, steps) for rank in range(world_size)]
    longest = max(map(len, ranks))
    return [p for step in range(longest) for rank in ranks if step < len(rank) for p in rank[step]]


@given(n=NS, size=SIZES, world=WORLDS, workers=WORKERS, uneven=UNEVEN, start=st.integers(0, 400))
@settings(deadline=None)
def test_ranks_and_workers_visit_the_places_once_and_in_order(
    n: int, size: int, world: int, workers: int, uneven: str, start: int
) -> None:
    plan = a_plan(n, size, world, uneven)
    end = plan.total(world, start)
    assert epoch_of(plan, world, workers, start) == list(range(start, end))
    global_batch = size * world
    if start < plan.n:
        assert plan.dropped(world, start) == plan.n - min(end, plan.n) < (global_batch if uneven == "drop" else 1)
        assert plan.padded(world, start) == max(end, plan.n) - plan.n < (global_batch if uneven == "pad" else 1)


@given(n=NS, size=SIZES, world=WORLDS, workers=WORKERS, uneven=UNEVEN, start=st.integers(0, 400))
@settings(deadline=None)
def test_every_rank_takes_the_steps_it_was_promised(
    n: int, size: int, world: int, workers: int, uneven: str, start: int
) -> None:
    plan = a_plan(n, size, world, uneven)
    taken = [steps_of(plan, rank, world, workers, start) for rank in range(world)]
    assert [len(batches) for batches in taken] == [plan.steps_of(rank, world, start) for rank in range(world)]
    assert max(map(len, taken)) == plan.steps(world, start)
    if uneven != "keep":
        assert {len(batch) for batches in taken for batch in batches} <= {size}
        assert {len(batches) for batches in taken} == {plan.steps(world, start)}
    elif plan.steps(world, start):
        tail = [len(batches[-1]) if len(batches) == plan.steps(world, start) else 0 for batches in taken]
        assert max(tail) - min(tail) <= 1


@given(n=NS, per_rank=st.integers(1, 3), worlds=st.permutations([1, 2, 3, 6]), workers=WORKERS, seed=st.integers(0, 9))
@settings(deadline=None)
def test_a_global_batch_is_the_same_at_any_world_and_workers(
    n: int, per_rank: int, worlds: list[int], workers: int, seed: int
) -> None:
    def keys(world: int, num_workers: int) -> list[list[int]]:
        plan = a_plan(n, 6 * per_rank // world, world, "pad", seed=seed)
        ranks = [steps_of(plan, rank, world, num_workers) for rank in range(world)]
        together = [[p for run in step for p in run] for step in zip(*ranks)]
        return [plan.indices(np.array(places), epoch=1).tolist() for places in together]

    assert keys(worlds[0], 1) == keys(worlds[1], workers)


@given(n=NS, uneven=UNEVEN, runs=st.lists(st.tuples(WORLDS, SIZES, WORKERS, st.integers(0, 5)), min_size=1, max_size=5))
@settings(deadline=None)
def test_an_epoch_goes_on_at_any_world_size_from_any_step(
    n: int, uneven: str, runs: list[tuple[int, int, int, int]]
) -> None:
    n = max(n, *(world * size for world, size, _, _ in runs))
    seen: list[int] = []
    start = 0
    for world, size, workers, steps in runs:
        plan = Plan(n, size, uneven=uneven)  # type: ignore[arg-type]
        seen += epoch_of(plan, world, workers, start, steps)
        start += min(steps, plan.steps(world, start)) * world * size
    world, size, workers, _ = runs[0]
    plan = Plan(n, size, uneven=uneven)  # type: ignore[arg-type]
    seen += epoch_of(plan, world, workers, start)
    assert seen == list(range(plan.total(world, start) if uneven != "keep" else n))
    assert uneven != "drop" or n - len(seen) < max(w * s for w, s, _, _ in runs)


@given(n=NS, size=SIZES, world=WORLDS, workers=WORKERS, done=st.integers(0, 20))
@settings(deadline=None)
def test_a_worker_goes_on_behind_the_batches_it_has_given_out(
    n: int, size: int, world: int, workers: int, done: int
) -> None:
    plan = Plan(n, size, uneven="keep")
    for worker in range(workers):
        share = {"rank": world - 1, "world_size": world, "worker": worker, "num_workers": workers}
        whole = [places.tolist() for places in plan.batches(**share)]
        assert [places.tolist() for places in plan.batches(**share, first_step=done)] == whole[done:]


@given(n=NS, uneven=UNEVEN, block=st.sampled_from([None, 1, 5, 500]), shuffle=st.booleans(), seed=st.integers(0, 99))
@settings(deadline=None)
def test_the_places_of_an_epoch_are_every_key_once(
    n: int, uneven: str, block: int | None, shuffle: bool, seed: int
) -> None:
    plan = Plan(n, 1, uneven=uneven, block=block, shuffle=shuffle, seed=seed)  # type: ignore[arg-type]
    keys = plan.indices(np.arange(n), epoch=2)
    assert sorted(keys.tolist()) == list(range(n))
    assert shuffle or keys.tolist() == list(range(n))


@pytest.mark.parametrize("shuffle", [False, True])
def test_padding_repeats_the_orders_beginning(shuffle: bool) -> None:
    plan = Plan(10, 4, uneven="pad", shuffle=shuffle)
    keys = plan.indices(np.arange(plan.total(world_size=2)), epoch=5)
    assert plan.padded(world_size=2) == 6
    assert np.array_equal(keys[10:], keys[:6])


def test_a_tiny_set_is_padded_more_than_once_round() -> None:
    plan = Plan(3, 4, uneven="pad", shuffle=False)
    assert plan.indices(np.concatenate(list(plan.batches(rank=1, world_size=2))), 0).tolist() == [1, 2, 0, 1]


def test_a_plan_pickles_and_its_batches_are_made_one_by_one() -> None:
    plan = pickle.loads(pickle.dumps(Plan(10**12, 256)))
    assert next(plan.batches(rank=1, world_size=8)).tolist() == list(range(256, 512))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 0}, "distribute: nothing to distribute, got 0 keys; "),
        ({"n": 2**41}, "distribute: at most 2\\*\\*40 keys, got 2199023255552; "),
        ({"batch_size": 0}, "distribute: batch_size must be at least 1, got 0; "),
        ({"seed": -1}, "distribute: seed must be 0 to 2\\*\\*63 - 1, got -1; "),
        ({"uneven": "even"}, "distribute: uneven must be .*, got 'even'; "),
        ({"block": 0}, "distribute: block must be at least 1, got 0; "),
    ],
)
def test_an_option_out_of_range_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Plan(**{"n": 5, "batch_size": 2, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("share", "message"),
    [
        ({"rank": 2}, r"distribute: rank must be in \[0, 2\), got 2; "),
        ({"worker": -1}, r"distribute: worker must be in \[0, 1\), got -1; "),
        ({"first_step": -1}, "distribute: first_step must be at least 0, got -1; "),
        ({"start": -1}, "distribute: a place must be at least 0, got -1; "),
        ({"world_size": 0, "rank": 0}, "distribute: "),
        ({"world_size": 3}, r"distribute: 5 keys do not fill one global batch of 6 \(batch_size 2 x world_size 3\)"),
    ],
)
def test_a_share_out_of_range_is_refused_before_the_first_batch(share: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Plan(5, 2).batches(**{"rank": 0, "world_size": 2, **share})


def test_more_ranks_than_keys_are_served_when_asked_to_keep_or_pad() -> None:
    kept = [steps_of(Plan(3, 2, uneven="keep"), rank, 5) for rank in range(5)]
    assert [p for rank in kept for batch in rank for p in batch] == [0, 1, 2]
    assert all(len(steps_of(Plan(3, 2, uneven="pad"), rank, 5)) == 1 for rank in range(5))
