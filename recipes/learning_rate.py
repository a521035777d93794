"""The learning rate as a function of how much has been seen, and of nothing else.

Not of steps: a run that resumes with another number of processes takes other steps, and goes on at the same rate.
"""

from __future__ import annotations

import math


def learning_rate(
    epochs_done: float, *, epochs: int, base: float, warmup_epochs: float | None = None, schedule: str = "cosine"
) -> float:
    """The rate after `epochs_done`, a fraction where an epoch is under way.

    >>> rates = [learning_rate(done, epochs=10, base=1.0) for done in (0, 0.5, 1, 5.5, 10)]
    >>> [round(rate, 3) for rate in rates]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    # Large batches diverge at full rate from random weights; five epochs are Goyal et al.'s, for 90.
    warmup = min(5.0, epochs / 10) if warmup_epochs is None else warmup_epochs
    if epochs_done < warmup:
        return base * epochs_done / warmup
    if schedule == "step":
        return base * 0.1 ** (epochs_done // 30)
    share = (epochs_done - warmup) / max(epochs - warmup, 1e-9)
    return base * (1 + math.cos(math.pi * min(share, 1.0))) / 2
