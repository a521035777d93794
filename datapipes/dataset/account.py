"""The account of an epoch: what every worker of every rank delivered, and the proof that nothing is amiss."""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields
from typing import Any

import numpy as np
import torch
import torch.distributed as dist


@dataclass
class Tally:
    """Running sums of one worker. Hashes add up modulo 2^64, so order and sharing do not matter."""

    samples: int = 0
    skipped: int = 0
    nbytes: int = 0
    seen_hash: int = 0
    skipped_hash: int = 0

    def add(self, other: Tally) -> Tally:
        return Tally(*(wrapped(mine + theirs) for mine, theirs in zip(astuple(self), astuple(other))))


TALLY_FIELDS = len(fields(Tally))


def wrapped(number: int) -> int:
    """`number` modulo 2^64, as the signed integer that a tensor holds.

    >>> wrapped(2**64 - 1), wrapped(2**63 - 1 + 2)
    (-1, -9223372036854775807)
    """
    return (number + 2**63) % 2**64 - 2**63


def sum_of_hashes(hashes: np.ndarray[Any, np.dtype[np.uint64]]) -> int:
    """The order-free hash of a set of keys."""
    return wrapped(int(np.add.reduce(hashes, dtype=np.uint64)))


def reduced_over_ranks(tally: Tally) -> Tally:
    """The sum over ranks; every rank has to call it. Without torch.distributed, the tally itself."""
    if not (dist.is_available() and dist.is_initialized()):
        return tally
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    sums = torch.tensor(astuple(tally), dtype=torch.int64, device=device)
    dist.all_reduce(sums)
    return Tally(*sums.tolist())


@dataclass(frozen=True)
class Report:
    """The account of one epoch so far, over all ranks and workers."""

    epoch: int
    expected: int
    """Samples that a complete epoch delivers or skips."""
    samples: int
    skipped: int
    repeated: int
    """Of the expected, those seen twice because `uneven="pad"` filled the last global batch with them."""
    dropped: int
    """Keys of the data set that `uneven="drop"` left out of this epoch."""
    nbytes: int
    proven: bool
    """True when count and hash say that every expected key came exactly once, as a sample or as skipped."""

    def __str__(self) -> str:
        if self.proven:
            verdict = "each seen once" if not self.skipped else "each seen once or skipped"
        elif self.samples + self.skipped < self.expected:
            verdict = f"{self.samples + self.skipped:,} so far"
        else:
            verdict = f"NOT each seen once: {self.samples + self.skipped:,} came, and their hash is another"
        line = f"epoch {self.epoch}: {self.expected:,} samples expected, {verdict}, {self.skipped:,} skipped"
        if self.repeated:
            line += f", {self.repeated:,} repeated to fill the last batch"
        if self.dropped:
            line += f", {self.dropped:,} left out at the end"
        return f"{line}, {self.nbytes / 1e6:,.1f} MB read"
