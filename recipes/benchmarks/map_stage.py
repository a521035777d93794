"""What a map stage costs in `as_dataset`, over its own work."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from datapipes.dataset.chain import Map
from datapipes.dataset.maps import run_maps
from datapipes.iter import IterableWrapper
from recipes.benchmarks.harness import Bar, Table, alternate

SAMPLES = 200_000
STAGES = 8


def identity(sample: Any) -> Any:
    return sample


def measure() -> Iterable[Table]:
    """Eight stages that do nothing, fused and as core's pipes, less eight bare calls."""
    stage = Map("identity", identity, "raise", by_user=False)
    keys = list(range(SAMPLES))

    def fused(number: int) -> Callable[[], object]:
        return lambda: deque(run_maps(iter(enumerate(keys)), [stage] * number, seed=0, epoch=0), maxlen=0)

    def core(number: int) -> Callable[[], object]:
        pipe: Any = IterableWrapper(keys, deepcopy=False)
        for _ in range(number):
            pipe = pipe.map(identity)
        return lambda: deque(pipe, maxlen=0)

    def bare() -> None:
        for key in keys:
            identity(key)

    def empty() -> None:
        for _ in keys:
            pass

    figures = alternate(
        {"fused 1": fused(1), "fused 9": fused(1 + STAGES), "core 1": core(1), "core 9": core(1 + STAGES), "bare": bare,
         "empty": empty},
        rounds=7,
    )  # fmt: skip
    ns = {name: figure.median_wall_s / SAMPLES * 1e9 for name, figure in figures.items()}
    own = ns["bare"] - ns["empty"]
    fused_ns = (ns["fused 9"] - ns["fused 1"]) / STAGES - own
    core_ns = (ns["core 9"] - ns["core 1"]) / STAGES - own
    yield Table(
        "A stage that does nothing, a sample",
        ["stage", "ns over its own work"],
        [["the function itself", f"{own:.0f} (its own work)"], ["in as_dataset", f"{fused_ns:.0f}"],
         ["core's map, one pipe a stage", f"{core_ns:.0f}"]],
        [Bar("a map stage in as_dataset, ns a sample over its own work", fused_ns, at_most=100)],
    )  # fmt: skip
