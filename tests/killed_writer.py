"""A writer that is killed, again and again, to see what it leaves behind."""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

FORK = multiprocessing.get_context("fork")


def kill_at_random(write: Callable[[Any], None], *, runs: int, within_s: float) -> Iterator[int]:
    """`write(kept)` in a process of its own, killed a moment after it has set `kept`; gives that, run by run."""
    chance = random.Random(1)
    for _ in range(runs):
        kept = FORK.Value("i", -1)
        writer = FORK.Process(target=write, args=(kept,))
        writer.start()
        while kept.value == -1:
            assert writer.is_alive(), "killed_writer: it ended before it began to write"
            time.sleep(0.001)
        time.sleep(chance.uniform(0.0, within_s))
        writer.kill()
        writer.join()
        yield kept.value
