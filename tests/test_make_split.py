"""Splits: nothing lost, nothing twice, balances exact, the same for the same seed."""

from __future__ import annotations

import time
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datapipes.catalog.keys import StrKeys, UuidKeys
from datapipes.prepare.balance import class_totals, split_counts
from datapipes.prepare.make_split import make_split, split_listing

counts = st.lists(st.integers(1, 200), min_size=1, max_size=12)
ratios = st.lists(st.integers(0, 9), min_size=1, max_size=4).filter(any)


def split_of(per_class, **options):
    labels = np.repeat(np.arange(len(per_class)), per_class)
    keys = UuidKeys(np.zeros((len(labels), 16), np.uint8))
    return labels, make_split(keys, labels, **options).splits


@given(counts, ratios, st.integers(0, 2**64 - 1))
def test_with_original_balance_every_sample_is_in_one_split(per_class, ratio, seed):
    labels, splits = split_of(per_class, ratio=ratio, seed=seed)
    assert sorted(np.concatenate(splits).tolist()) == list(range(len(labels)))
    for split, part in zip(splits, ratio):
        quota = Fraction(len(labels) * part, sum(ratio))
        assert abs(len(split) - quota) < len(ratio)
        for label, count in enumerate(per_class):
            assert abs((labels[split] == label).sum() - Fraction(count * part, sum(ratio))) < 1


@given(counts, ratios, st.data())
def test_with_weights_the_scarcest_class_is_used_whole_and_the_rest_in_proportion(per_class, ratio, data):
    weights = data.draw(st.lists(st.integers(0, 9), min_size=len(per_class), max_size=len(per_class)).filter(any))
    labels, splits = split_of(per_class, ratio=ratio, balance=weights)
    taken = np.concatenate(splits)
    assert len(set(taken.tolist())) == len(taken)
    found = np.bincount(labels[taken], minlength=len(per_class))
    scale = min(Fraction(count, weight) for count, weight in zip(per_class, weights) if weight)
    for count, weight, got in zip(per_class, weights, found.tolist()):
        assert abs(got - weight * scale) < 1 and got <= count
        if weight and Fraction(count, weight) == scale:
            assert got == count
    assert len(taken) == round(sum(weights) * scale)


@given(st.integers(1, 500), st.integers(1, 50), ratios)
def test_what_rounding_gives_or_takes_does_not_add_up_over_classes(classes, count, ratio):
    cells = split_counts([count] * classes, ratio)
    for total, part in zip(map(sum, zip(*cells)), ratio):
        assert abs(total - Fraction(classes * count * part, sum(ratio))) < len(ratio)


def test_the_cases_that_the_original_gets_wrong():
    assert class_totals([100, 10, 500], [5, 3, 1]) == [17, 10, 3]
    assert [sum(cell) for cell in split_counts([955], [8, 2])] == [955]
    assert [sorted(cell) for cell in split_counts([10], [1, 1, 1])] == [[3, 3, 4]]
    assert class_totals([30, 30], ["0.1", "0.2"]) == [15, 30]


@given(st.integers(0, 2**32), st.sampled_from(["original", "random", [1, 2, 3]]))
def test_the_same_seed_gives_the_same_splits(seed, balance):
    first = split_of([40, 40, 40], ratio=[8, 2], seed=seed, balance=balance)[1]
    again = split_of([40, 40, 40], ratio=[8, 2], seed=seed, balance=balance)[1]
    assert [split.tolist() for split in first] == [split.tolist() for split in again]
    other = split_of([40, 40, 40], ratio=[8, 2], seed=seed + 1, balance=balance)[1]
    assert [split.tolist() for split in first] != [split.tolist() for split in other]


def test_the_splits_of_seed_0_stay_what_they_are():
    splits = split_of([5, 5], ratio=[8, 2], seed=0)[1]
    assert [split.tolist() for split in splits] == [[2, 0, 8, 5, 7, 3, 1, 6], [9, 4]]


def test_a_split_is_not_in_the_order_of_classes():
    labels, (train, _) = split_of([100, 100], ratio=[8, 2])
    assert 40 < (np.diff(labels[train]) != 0).sum() < 120


def test_labels_with_gaps_keep_their_numbers():
    keys = StrKeys.of(map(str, range(6)))
    assert make_split(keys, np.array([3, 3, 9, 9, 9, 9]), ratio=[1, 1]).num_classes == 10


def test_keys_without_labels_are_split_all_the_same():
    made = make_split(StrKeys.of(map(str, range(10))), None, ratio=[8, 2])
    assert [len(split) for split in made.splits] == [8, 2] and made.num_classes == 0


def test_a_listing_of_any_store_is_split_by_its_directories():
    urls = [f"s3://bucket/train/{name}/{number}.jpg" for name in ("cat", "dog") for number in range(10)]
    made = split_listing(urls, ratio=(8, 2), balance=[1, 2])
    kept = [sum("/cat/" in key for key in made.keys_of(index).take(np.arange(len(made.splits[index]))))
            for index in (0, 1)]  # fmt: skip
    assert kept == [4, 1] and [len(split) for split in made.splits] == [12, 3]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"ratio": []}, "ratio needs parts of 0 or more"),
        ({"ratio": [1, -1]}, "ratio needs parts of 0 or more"),
        ({"ratio": ["x"]}, "'x' is not a number"),
        ({"balance": [1]}, "one weight for each of 2 classes, got 1"),
        ({"balance": [0, 0]}, "one above 0"),
        ({"balance": "even"}, "balance must be 'original', 'random' or a weight for each class, got 'even'"),
    ],
)
def test_what_cannot_be_is_refused(options, what):
    with pytest.raises(ValueError, match=f"make_split: .*{what}"):
        split_of([5, 5], **options)


def test_a_million_rows_take_little_time_and_memory():
    rows = 1_280_000
    keys = UuidKeys(np.random.default_rng(0).integers(0, 256, (rows, 16), dtype=np.uint8))
    labels = np.random.default_rng(1).integers(0, 1000, rows)
    tracemalloc.start()
    start = time.process_time()
    splits = make_split(keys, labels, ratio=[8, 2], balance="random").splits
    seconds = time.process_time() - start
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(splits[0]) > 100_000
    assert seconds < 2 and peak < 100e6, f"{seconds:.2f} s, {peak / 1e6:.0f} MB"
