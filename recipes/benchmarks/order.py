"""What an epoch's order costs: computed here, stored with numpy's permutation."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterable
from itertools import count

import numpy as np

from datapipes.catalog.keys import StrKeys
from datapipes.order.plan import Plan
from recipes.benchmarks.harness import Bar, Table, alternate

IMAGENET = 1_281_167


def measure() -> Iterable[Table]:
    """Each call orders a new epoch, so nothing is found in a cache."""
    whole, batch = np.arange(IMAGENET), np.arange(256)
    imagenet, blocks = Plan(IMAGENET, 256), Plan(IMAGENET, 256, block=256)
    billion = Plan(10**9, 256)
    epochs = count()
    ways: dict[str, Callable[[], object]] = {
        "1.28 M keys": lambda: imagenet.indices(whole, next(epochs)),
        "1.28 M keys, block=256": lambda: blocks.indices(whole, next(epochs)),
        "1.28 M keys, stored: numpy's permutation": lambda: np.random.default_rng(next(epochs)).permutation(IMAGENET),
        "first batch of 10^9 keys": lambda: billion.indices(batch, next(epochs)),
    }
    ms = {name: figure.median_wall_s * 1e3 for name, figure in alternate(ways, rounds=9).items()}
    tracemalloc.start()
    billion.indices(batch, next(epochs))
    peak_mb = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    urls = (f"s3://imagenet/train/n{i // 1300:08d}/n{i // 1300:08d}_{i % 1300 * 37}.JPEG" for i in range(IMAGENET))
    bytes_a_key = StrKeys.of(urls).nbytes / IMAGENET
    rows = [[name, f"{value:.2f}"] for name, value in ms.items()]
    yield Table(
        "Ordering an epoch",
        ["order", "ms"],
        rows,
        [
            Bar("one rank's epoch order of 1.28 M keys, ms", ms["1.28 M keys"], at_most=50),
            Bar(
                "key table of 1.28 M ImageNet URLs, bytes a key; the order itself stores nothing",
                bytes_a_key,
                at_most=40,
            ),
            Bar("first batch of 10^9 keys, ms", ms["first batch of 10^9 keys"], at_most=100),
            Bar("memory of that first batch, MB", peak_mb, at_most=16),
        ],
    )
