"""Contenders in turn, medians, ratios: the one way in which every benchmark here measures.

    python -m recipes.benchmarks              # all of them, into docs/benchmarks/
    python -m recipes.benchmarks load_s3      # one

A benchmark is a module with `measure() -> Iterable[Table]`. Contenders alternate within a round, so that a machine
that speeds up or slows down does so for all of them; each figure is the median over rounds. Absolute figures hold
for one machine on one day; the ratios are what a claim rests on.
"""

from __future__ import annotations

import gc
import importlib.metadata
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date


@dataclass
class Figures:
    """What one contender took, a number a round."""

    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)

    @property
    def median_wall_s(self) -> float:
        return statistics.median(self.wall_s)

    @property
    def median_cpu_s(self) -> float:
        return statistics.median(self.cpu_s)


@dataclass
class Bar:
    """A claim: `value` has to reach `at_least`, or stay at or under `at_most`."""

    claim: str
    value: float
    at_least: float | None = None
    at_most: float | None = None

    @property
    def holds(self) -> bool:
        return (self.at_least is None or self.value >= self.at_least) and (
            self.at_most is None or self.value <= self.at_most
        )

    def __str__(self) -> str:
        wanted = f"at least {self.at_least:g}" if self.at_least is not None else f"at most {self.at_most:g}"
        return f"{'met' if self.holds else 'MISSED'}: {self.claim}: {self.value:.3g}, wanted {wanted}"


@dataclass
class Table:
    """One comparison, as it goes into docs/benchmarks."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    bars: list[Bar] = field(default_factory=list)
    notes: str = ""

    def markdown(self) -> str:
        lines = [f"## {self.title}", "", "| " + " | ".join(self.columns) + " |"]
        lines.append("| --- |" + " ---: |" * (len(self.columns) - 1))
        lines += ["| " + " | ".join(row) + " |" for row in self.rows]
        if self.bars:
            lines += ["", *(f"- {bar}" for bar in self.bars)]
        if self.notes:
            lines += ["", self.notes]
        return "\n".join(lines) + "\n"


def alternate(contenders: dict[str, Callable[[], object]], rounds: int = 5, warm_up: bool = True) -> dict[str, Figures]:
    """Time each contender once a round, in turn; CPU is this process's own, all threads."""
    if warm_up:
        for run in contenders.values():
            run()
    figures = {name: Figures() for name in contenders}
    # The first collection to look at all that torch's import made takes 0.25 s, from whoever has his turn by chance.
    # Later ones come of what a contender itself leaves behind, and are his.
    gc.collect()
    for _ in range(rounds):
        for name, run in contenders.items():
            cpu_before, before = own_cpu_s(), time.perf_counter()
            run()
            figures[name].wall_s.append(time.perf_counter() - before)
            figures[name].cpu_s.append(own_cpu_s() - cpu_before)
    return figures


def own_cpu_s() -> float:
    """User and system seconds of this process and of the children that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def surroundings(*packages: str) -> str:
    """Date, hardware and versions, for the head of a results page."""
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    return (
        f"{date.today()}, {os.cpu_count()} cores ({_processor()}), {memory_gb:.0f} GB, "
        f"{platform.system()} {platform.release().split('-')[0]}, Python {platform.python_version()}"
        + (f", {versions}" if versions else "")
    )


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"
