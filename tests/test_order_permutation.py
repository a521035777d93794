from __future__ import annotations

import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datapipes.order.blocks import WINDOW_BLOCKS, permute_blocks
from datapipes.order.permutation import MAX_N, permute

IMAGENET = 1_281_167
SEEDS = st.integers(0, 2**63 - 1)


@given(n=st.integers(1, 20_000), seed=SEEDS, epoch=st.integers(0, 1000))
@settings(deadline=None)
def test_every_index_comes_up_once(n: int, seed: int, epoch: int) -> None:
    assert np.array_equal(np.sort(permute(np.arange(n), n, seed=seed, epoch=epoch)), np.arange(n))


@given(n=st.integers(1, 9_000), block=st.integers(1, 700), window=st.integers(1, 9), seed=SEEDS)
@settings(deadline=None)
def test_every_index_comes_up_once_in_blocks(n: int, block: int, window: int, seed: int) -> None:
    order = permute_blocks(np.arange(n), n, block=block, window=window, seed=seed)
    assert np.array_equal(np.sort(order), np.arange(n))


@given(n=st.integers(1, MAX_N // 2**10), seed=SEEDS, data=st.data())
@settings(deadline=None, max_examples=30)
def test_any_part_of_the_order_can_be_asked_for_by_itself(n: int, seed: int, data: st.DataObject) -> None:
    asked = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=20))
    for order in (permute, lambda p, n, seed: permute_blocks(p, n, block=5, seed=seed)):
        together = order(np.array(asked), n, seed=seed)
        assert together.tolist() == [int(order(np.array([p]), n, seed=seed)[0]) for p in asked]
        assert len(set(together.tolist())) == len(set(asked)) and 0 <= together.min() <= together.max() < n


@given(n=st.integers(2, 3000), block=st.integers(1, 100), window=st.integers(1, 9), seed=SEEDS)
@settings(deadline=None)
def test_a_window_holds_whole_blocks(n: int, block: int, window: int, seed: int) -> None:
    order = permute_blocks(np.arange(n), n, block=block, window=window, seed=seed)
    sizes = np.bincount(np.arange(n) // block)
    place, blocks_left = 0, len(sizes)
    while place < n:
        size, held = 0, set()
        while len(held) < min(window, blocks_left):
            held.add(int(order[place + size]) // block)
            size += 1
        size = int(sum(sizes[number] for number in held))
        assert set((order[place : place + size] // block).tolist()) == held
        place, blocks_left = place + size, blocks_left - len(held)


def test_the_short_block_stands_anywhere() -> None:
    slots = {
        int(np.flatnonzero(permute_blocks(np.arange(10), 10, block=3, window=1, seed=s) == 9)[0]) for s in range(99)
    }
    assert slots == {0, 3, 6, 9}


def test_the_order_of_a_seed_is_a_contract() -> None:
    """A saved position means nothing once these change."""
    assert permute(np.arange(6), 6, seed=1, epoch=2).tolist() == [3, 2, 0, 1, 4, 5]
    assert permute(np.array([0, 5000, IMAGENET - 1]), IMAGENET, seed=7, epoch=3).tolist() == [1088815, 802916, 859410]
    assert permute_blocks(np.arange(10), 10, block=3, window=2).tolist() == [7, 8, 6, 9, 1, 3, 5, 2, 4, 0]


def test_seeds_and_epochs_give_orders_of_their_own() -> None:
    orders = [permute(np.arange(50), 10**6, seed=s, epoch=e) for s in range(30) for e in range(30)]
    assert len({order.tobytes() for order in orders}) == 900


@pytest.mark.parametrize("n", [2, 3, 4])
def test_small_orders_come_up_evenly(n: int) -> None:
    rounds = 6000
    seen: dict[bytes, int] = {}
    for seed in range(rounds):
        order = permute(np.arange(n), n, seed=seed).tobytes()
        seen[order] = seen.get(order, 0) + 1
    permutations = int(np.prod(np.arange(1, n + 1)))
    assert len(seen) == permutations
    assert chi_square(np.array(list(seen.values()))) < 5


@pytest.mark.parametrize("n", [1000, 5000, IMAGENET, 10**9])
def test_the_first_index_is_evenly_spread_over_seeds(n: int) -> None:
    first = np.array([permute(np.array([0]), n, seed=seed)[0] for seed in range(2000)])
    assert chi_square(np.bincount(first * 20 // n, minlength=20)) < 5


@pytest.mark.parametrize("n", [4096, 4097, 100_003, IMAGENET])
def test_neighbours_in_the_order_are_unrelated(n: int) -> None:
    order = permute(np.arange(n), n, seed=5)
    for lag in (1, 2, 1132):
        assert abs(np.corrcoef(order[:-lag], order[lag:])[0, 1]) < 5 / np.sqrt(n)
    steps = (np.diff(order) % n) * 50 // n
    assert chi_square(np.bincount(steps, minlength=50)) < 5
    assert abs(np.corrcoef(order, np.arange(n))[0, 1]) < 5 / np.sqrt(n)
    assert np.count_nonzero(order == np.arange(n)) < 10


def chi_square(counts: np.ndarray) -> float:
    """In standard deviations from what even counts would give."""
    freedom = len(counts) - 1
    return float((((counts - counts.mean()) ** 2 / counts.mean()).sum() - freedom) / np.sqrt(2 * freedom))


def test_the_first_batch_of_a_billion_comes_at_once_in_little_memory() -> None:
    places = np.arange(256)
    permute(places, 10**9, seed=1)
    tracemalloc.start()
    begun = time.process_time()
    for order in (permute, lambda p, n, seed: permute_blocks(p, n, block=256, seed=seed)):
        order(places, 10**9, seed=2)
    took_s, peak = time.process_time() - begun, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert took_s < 0.1 and peak < 16 * 2**20, (took_s, peak)


def test_an_epoch_of_imagenet_is_ordered_in_little_time() -> None:
    begun = time.process_time()
    permute(np.arange(IMAGENET), IMAGENET, seed=1)
    assert time.process_time() - begun < 4 * 0.05


@pytest.mark.parametrize("n", [0, -1, MAX_N + 1])
def test_n_out_of_range_is_refused(n: int) -> None:
    with pytest.raises(ValueError, match=rf"permute: n must be 1 to 2\*\*40, got {n}; "):
        permute(np.arange(1), n)


def test_positions_out_of_range_are_refused() -> None:
    with pytest.raises(IndexError, match=r"permute: positions must lie in \[0, 10\), got 9 to 10; "):
        permute(np.array([9, 10]), 10)
    with pytest.raises(IndexError, match=r"permute_blocks: positions must lie in \[0, 10\), got -1 to 3; "):
        permute_blocks(np.array([3, -1]), 10, block=2)


def test_a_block_or_window_of_none_is_refused() -> None:
    with pytest.raises(ValueError, match="permute_blocks: block and window must be at least 1, got 0 and 8"):
        permute_blocks(np.arange(3), 3, block=0)
    assert WINDOW_BLOCKS == 8


def test_no_positions_give_no_indices() -> None:
    assert permute(np.array([], np.int64), 5).size == permute_blocks(np.array([], np.int64), 5, block=2).size == 0
