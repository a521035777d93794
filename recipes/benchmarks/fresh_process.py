"""What a piece of work takes, in a process of its own: memory that earlier work freed would hide the peak."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec, TypeVar

from recipes.benchmarks.harness import Bar, Table

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


@dataclass
class Taken:
    """Seconds, and the peak of resident memory over what there was at the start; both known at the end."""

    seconds: float = 0.0
    peak_mb: float = 0.0


@contextmanager
def taken() -> Iterator[Taken]:
    """Measure the block within. Linux alone: the kernel's own high-water mark is set back first."""
    Path("/proc/self/clear_refs").write_text("5")
    before, start = _status_mb("VmRSS"), time.perf_counter()
    measured = Taken()
    yield measured
    measured.seconds = time.perf_counter() - start
    measured.peak_mb = _status_mb("VmHWM") - before


def in_fresh_process(
    function: Callable[Arguments, Result], *arguments: Arguments.args, **options: Arguments.kwargs
) -> Result:
    """What `function`, of a module's top level, returns when a new interpreter runs it."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments, **options).result()


def resident_after_epochs(read: Callable[[], object], epochs: int) -> list[float]:
    """Resident MB after each of so many calls of `read`."""
    found = []
    for _ in range(epochs):
        read()
        found.append(_status_mb("VmRSS"))
    return found


def memory_over_epochs(resident_mb: dict[str, list[float]]) -> Table:
    """A column a reader. Its peak may be reached in the first epochs, and must not rise after half of them."""
    epochs = len(next(iter(resident_mb.values())))
    half = epochs // 2
    rows = [[str(n), *(f"{found[n - 1]:.0f}" for found in resident_mb.values())] for n in (1, 3, half, epochs)]
    bars = [
        Bar(
            f"{name}: peak of epochs {half + 1} to {epochs}, of that of 1 to {half}",
            max(found[half:]) / max(found[:half]),
            at_most=1.03,
        )
        for name, found in resident_mb.items()
    ]
    columns = ["after epoch", *(f"{name}: resident, MB" for name in resident_mb)]
    return Table("Memory of a reader in a process of its own, imports included", columns, rows, bars)


def _status_mb(name: str) -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{name}:")[1].split()[0]) * 1024 / 1e6
