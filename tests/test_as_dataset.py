"""as_dataset over real DataLoaders: every sample once, exact resume, the same crops everywhere, no leak."""

from __future__ import annotations

import gc
import itertools
import os
import pickle
import random
import threading

import numpy as np
import psutil
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from settling import settles
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from datapipes.dataset import as_dataset
from datapipes.iter import IterableWrapper


def number_of(key: str) -> int:
    return int(key.rsplit("/", 1)[1])


def with_randomness(key: str) -> tuple[int, float, float, float]:
    return number_of(key), float(torch.rand(())), float(np.random.rand()), random.random()


def fails_on_five(key: str) -> int:
    if number_of(key) == 5:
        raise OSError(f"cannot read {key}")
    return number_of(key)


def is_not_five(key: str) -> bool:
    return number_of(key) != 5


def keys_pipe(n: int) -> IterableWrapper:
    return IterableWrapper([f"train/cat/{i}" for i in range(n)], deepcopy=False)


def numbers_dataset(n, batch_size=4, rank=0, world_size=1, function=number_of, **options):
    chain = keys_pipe(n).distribute(**options).map(function).batched(batch_size, collate=None)
    return as_dataset(chain, rank=rank, world_size=world_size)


def loader_of(dataset, num_workers=0, stateful=False, **options):
    kind = StatefulDataLoader if stateful else DataLoader
    return kind(dataset, batch_size=None, num_workers=num_workers, **options)


def numbers_in(batches) -> list[int]:
    return [number for batch in batches for number in batch]


@pytest.mark.parametrize("num_workers", [0, 1, 3])
def test_every_sample_comes_once_and_the_report_proves_it(num_workers):
    dataset = numbers_dataset(50, uneven="keep")
    loader = loader_of(dataset, num_workers)
    for epoch in range(2):
        assert sorted(numbers_in(loader)) == list(range(50))
        report = dataset.report()
        assert (report.epoch, report.samples, report.expected, report.proven) == (epoch, 50, 50, True)
        assert "each seen once" in str(report)


def test_spawned_workers_get_the_same_keys_as_forked_ones():
    forked = loader_of(numbers_dataset(40), 2, multiprocessing_context="fork")
    spawned_dataset = numbers_dataset(40)
    spawned = loader_of(spawned_dataset, 2, multiprocessing_context="spawn")
    assert list(forked) == list(spawned)
    assert spawned_dataset.report().proven


def test_global_batches_are_the_same_at_any_number_of_ranks_and_workers():
    reference = list(numbers_dataset(100, batch_size=12))
    for world_size, num_workers in [(1, 2), (2, 0), (2, 3), (3, 1), (4, 2)]:
        ranks = [
            list(loader_of(numbers_dataset(100, 12 // world_size, rank, world_size), num_workers))
            for rank in range(world_size)
        ]
        assert [numbers_in(parts) for parts in zip(*ranks)] == reference


def test_length_is_the_number_of_steps_on_every_rank():
    for uneven, expected in [("drop", 4), ("pad", 5), ("keep", 5)]:
        for rank in (0, 1):
            dataset = numbers_dataset(37, 4, rank, 2, uneven=uneven)
            assert len(dataset) == expected == len(list(loader_of(dataset, 2)))


def test_forgetting_set_epoch_still_gives_each_epoch_its_own_order():
    for options in ({}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}):
        dataset = numbers_dataset(40)
        loader = loader_of(dataset, **options)
        epochs = [numbers_in(loader) for _ in range(3)]
        assert epochs[0] != epochs[1] != epochs[2]
        assert dataset.report().epoch == 2
        dataset.set_epoch(0)
        assert numbers_in(loader) == epochs[0]


def test_random_state_is_a_function_of_seed_epoch_and_place_alone():
    reference = list(itertools.chain(*numbers_dataset(48, 12, function=with_randomness)))
    for world_size, num_workers in [(1, 2), (2, 1), (3, 2)]:
        ranks = [
            list(
                loader_of(
                    numbers_dataset(48, 12 // world_size, r, world_size, function=with_randomness),
                    num_workers,
                )
            )
            for r in range(world_size)
        ]
        assert [tuple(sample) for parts in zip(*ranks) for part in parts for sample in part] == reference
    again = numbers_dataset(48, 12, function=with_randomness)
    again.set_epoch(1)
    crops = {sample[0]: sample[1:] for batch in again for sample in batch}
    assert all(crops[sample[0]] != sample[1:] for sample in reference)


def test_the_training_loops_own_random_state_is_left_alone():
    torch.manual_seed(3), np.random.seed(3), random.seed(3)
    expected = [(torch.rand(()).item(), np.random.rand(), random.random()) for _ in range(4)]
    torch.manual_seed(3), np.random.seed(3), random.seed(3)
    drawn = []
    for _ in numbers_dataset(16, 4, function=with_randomness):
        drawn.append((torch.rand(()).item(), np.random.rand(), random.random()))
    assert drawn == expected


@pytest.mark.parametrize("num_workers,persistent", [(0, False), (2, False), (2, True)])
@pytest.mark.parametrize("taken", [0, 1, 5, 12])
def test_a_stateful_loader_resumes_at_the_next_unseen_sample(num_workers, persistent, taken):
    def fresh():
        return loader_of(
            numbers_dataset(50, 4, function=with_randomness),
            num_workers,
            stateful=True,
            persistent_workers=persistent,
        )

    expected_loader = fresh()
    first_epoch, second_epoch = list(expected_loader), list(expected_loader)
    interrupted = fresh()
    batches = iter(interrupted)
    seen = [next(batches) for _ in range(taken)]
    state = pickle.loads(pickle.dumps(interrupted.state_dict()))
    resumed = fresh()
    resumed.load_state_dict(state)
    rest = list(resumed)
    assert seen + rest == first_epoch
    assert resumed.dataset.report().proven
    assert list(resumed) == second_epoch


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(9, 60),
    before=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    after=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    steps=st.integers(0, 4),
    uneven=st.sampled_from(["keep", "pad", "drop"]),
)
def test_a_position_resumes_with_any_other_number_of_ranks(n, before, after, steps, uneven):
    seen: list[int] = []
    totals: dict[str, int] = {}
    world_size, batch_size = before
    for rank in range(world_size):
        dataset = numbers_dataset(n, batch_size, rank, world_size, uneven=uneven)
        batches = iter(dataset)
        taken = list(itertools.islice(batches, steps))
        seen += numbers_in(taken)
        state = dataset.position(len(taken))
        for name, value in state["delivered"].items():
            totals[name] = totals.get(name, 0) + value
        batches.close()
    # What reduced_over_ranks does in a process group, here with every rank in one process.
    state["place"] = min(steps * batch_size * world_size, n if uneven == "keep" else state["place"])
    state["delivered"] = {name: (value + 2**63) % 2**64 - 2**63 for name, value in totals.items()}
    world_size, batch_size = after
    left = n - state["place"]
    if uneven == "drop" and left < world_size * batch_size:
        return
    for rank in range(world_size):
        dataset = numbers_dataset(n, batch_size, rank, world_size, uneven=uneven)
        dataset.load_state_dict(pickle.loads(pickle.dumps(state)))
        seen += numbers_in(dataset)
    report_of_last = dataset.report()
    assert len(seen) == report_of_last.expected
    if uneven == "keep":
        assert sorted(seen) == list(range(n))
    elif uneven == "pad":
        assert set(seen) == set(range(n)) and len(seen) - n < max(world_size * batch_size, before[0] * before[1])
    else:
        assert len(set(seen)) == len(seen) and n - len(seen) < world_size * batch_size


@pytest.mark.parametrize("num_workers", [0, 2])
def test_the_proof_holds_over_a_resume_in_mid_epoch(num_workers):
    dataset = numbers_dataset(50, 4, uneven="keep")
    batches = iter(loader_of(dataset, num_workers))
    seen = [next(batches) for _ in range(5)]
    state = dataset.position(5)
    del batches
    resumed = numbers_dataset(50, 7, uneven="keep")
    resumed.load_state_dict(state)
    resumed.set_epoch(0)
    assert len(resumed) == 5
    rest = list(loader_of(resumed, 3))
    assert sorted(numbers_in(seen) + numbers_in(rest)) == list(range(50))
    report = resumed.report()
    assert report.proven and report.samples == 50


def test_a_skipped_sample_leaves_its_own_batch_one_short_and_moves_no_other():
    whole = list(numbers_dataset(24, 4))
    chain = keys_pipe(24).distribute().filter(is_not_five).map(number_of).batched(4, collate=None)
    dataset = as_dataset(chain)
    assert list(dataset) == [[number for number in batch if number != 5] for batch in whole]
    report = dataset.report()
    assert (report.samples, report.skipped, report.proven) == (23, 1, True)


def test_an_error_of_a_users_function_names_stage_and_sample():
    dataset = numbers_dataset(24, 4, function=fails_on_five)
    with pytest.raises(OSError, match="cannot read train/cat/5") as raised:
        list(dataset)
    if hasattr(raised.value, "add_note"):
        assert "for train/cat/5" in raised.value.__notes__[0]


def test_the_report_does_not_prove_an_epoch_that_was_cut_short():
    dataset = numbers_dataset(24, 4)
    batches = iter(dataset)
    next(batches)
    batches.close()
    report = dataset.report()
    assert not report.proven and "4 so far" in str(report)


def test_a_sample_that_comes_twice_breaks_the_proof():
    from datapipes.dataset.account import Tally

    dataset = numbers_dataset(8, 4)
    list(dataset)
    tally = dataset._tally
    assert dataset.report().proven
    dataset._epochs.log(0, 2, Tally(tally.samples, 0, 0, tally.seen_hash + 1, 0))
    assert not dataset.report().proven and "NOT each seen once" in str(dataset.report())


@pytest.mark.parametrize("persistent", [False, True])
def test_a_hundred_epochs_leave_threads_files_and_memory_as_they_were(persistent):
    dataset = numbers_dataset(16, 4)
    loader = loader_of(dataset, 1, persistent_workers=persistent)
    process = psutil.Process()
    for _ in range(5):
        list(loader)
    gc.collect()
    threads, files, memory = threading.active_count(), process.num_fds(), process.memory_info().rss
    for _ in range(100 if persistent else 30):
        list(loader)
    assert settles(lambda: threading.active_count() <= threads and process.num_fds() <= files + 1)
    assert process.memory_info().rss < memory + 20e6


def test_a_hundred_epochs_in_this_process_leave_nothing_behind():
    dataset = numbers_dataset(64, 4)
    process = psutil.Process()
    list(dataset)
    threads, files = threading.active_count(), process.num_fds()
    for _ in range(100):
        list(dataset)
    assert settles(lambda: threading.active_count() <= threads and process.num_fds() <= files)
    assert dataset.report().epoch == 100


@pytest.mark.parametrize(
    "chain,message",
    [
        (lambda keys: keys.map(number_of), "no distribute"),
        (lambda keys: keys.distribute().shuffle(), "change the order behind distribute"),
        (lambda keys: keys.distribute().sharding_filter(), "change the order behind distribute"),
        (lambda keys: keys.distribute().batched(2).batched(2), "batches twice"),
        (lambda keys: keys.distribute().batched(11), "11"),
    ],
)
def test_a_chain_that_could_lose_samples_is_refused(chain, message):
    with pytest.raises(ValueError, match=message):
        as_dataset(chain(keys_pipe(10)))


def test_no_keys_at_all_is_an_error():
    with pytest.raises(ValueError, match="distribute: "):
        as_dataset(keys_pipe(0).distribute().batched(2))


def test_a_state_of_other_data_or_workers_is_refused():
    dataset = numbers_dataset(24, 4)
    next(iter(dataset))
    with pytest.raises(ValueError, match="24 keys"):
        numbers_dataset(25, 4).load_state_dict(dataset.position(1))
    other = numbers_dataset(24, 4)
    other.load_state_dict({**dataset.state_dict(), "num_workers": 3})
    with pytest.raises(ValueError, match="3 workers"):
        iter(other)


def test_a_chain_that_batches_with_core_works_too():
    chain = keys_pipe(12).distribute(shuffle=False).map(number_of).batch(5)
    assert [list(batch) for batch in as_dataset(chain)] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


def test_ranks_come_from_torchruns_environment(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    dataset = as_dataset(keys_pipe(8).distribute(shuffle=False).batched(2, collate=None))
    assert (dataset.rank, dataset.world_size) == (1, 2)
    assert os.environ["RANK"] == "1" and next(iter(dataset)) == ["train/cat/2", "train/cat/3"]
