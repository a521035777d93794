"""Runs the benchmarks and writes their tables to docs/benchmarks/."""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from pathlib import Path

from recipes.benchmarks.harness import Bar, Table, surroundings

FOLDER = Path(__file__).parent
RESULTS = FOLDER.parents[1] / "docs" / "benchmarks"
NOT_BENCHMARKS = {"__init__", "__main__", "harness"}
PACKAGES = ("torch", "torchvision", "numpy", "pillow")


def main(argv: list[str] | None = None) -> int:
    every = sorted(path.stem for path in FOLDER.glob("*.py") if hasattr(_module(path.stem), "measure"))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"which; all of {', '.join(every)} when left out")
    chosen = parser.parse_args(argv).names or every
    bars: list[Bar] = []
    for name in chosen:
        started = time.monotonic()
        module = _module(name)
        tables: list[Table] = []
        for table in module.measure():
            tables.append(table)
            print(table.markdown(), flush=True)
        head = f"# {(module.__doc__ or name).splitlines()[0]}\n\n`python -m recipes.benchmarks {name}`: "
        page = head + surroundings(*PACKAGES, *getattr(module, "PACKAGES", ())) + ".\n\n"
        page += "\n".join(table.markdown() for table in tables)
        RESULTS.mkdir(parents=True, exist_ok=True)
        (RESULTS / f"{name}.md").write_text(page)
        print(f"{name}: {time.monotonic() - started:.0f} s\n")
        bars += [bar for table in tables for bar in table.bars]
    print(*bars, sep="\n")
    return 0 if all(bar.holds for bar in bars) else 1


def _module(name: str) -> object:
    return importlib.import_module(f"recipes.benchmarks.{name}") if name not in NOT_BENCHMARKS else None


if __name__ == "__main__":
    sys.exit(main())
