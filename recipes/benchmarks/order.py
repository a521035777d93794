"""What an epoch's order costs, beside storing it with numpy. Prints a Markdown table.

    python recipes/benchmarks/order.py

Every round times each way once, in turn; a row is the median of its rounds. Each call orders a new epoch, so
nothing is found in a cache. Bars: 1.28 million keys in at most 50 ms, the first batch of 10^9 in at most 100 ms.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from datapipes.order.plan import Plan

IMAGENET = 1_281_167
ROUNDS = 9


def measure() -> list[dict[str, Any]]:
    """A row a way: its name and the median of its rounds in ms."""
    whole, batch = np.arange(IMAGENET), np.arange(256)
    imagenet, blocks = Plan(IMAGENET, 256), Plan(IMAGENET, 256, block=256)
    billion = Plan(10**9, 256)
    ways: dict[str, Callable[[int], Any]] = {
        "1.28 M keys": lambda epoch: imagenet.indices(whole, epoch),
        "1.28 M keys, block=256": lambda epoch: blocks.indices(whole, epoch),
        "1.28 M keys, stored: numpy's permutation": lambda epoch: np.random.default_rng(epoch).permutation(IMAGENET),
        "first batch of 10^9 keys": lambda epoch: billion.indices(batch, epoch),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for epoch in range(ROUNDS):
        for name, way in ways.items():
            begun = time.perf_counter()
            way(epoch)
            times[name].append((time.perf_counter() - begun) * 1e3)
    return [{"way": name, "ms": statistics.median(rounds)} for name, rounds in times.items()]


def main() -> None:
    print("| order | ms |\n|---|---:|")
    for row in measure():
        print(f"| {row['way']} | {row['ms']:.2f} |")


if __name__ == "__main__":
    main()
