"""The random state that a user's transform sees: a function of seed, epoch and place, and of nothing else."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

_MASK = 2**64 - 1


def mixed(*numbers: int) -> int:
    """64 well-mixed bits of these numbers (splitmix64's finalizer, chained).

    >>> mixed(0, 1, 2) != mixed(0, 2, 1)
    True
    """
    state = 0x9E3779B97F4A7C15
    for number in numbers:
        state = (state ^ number) * 0xBF58476D1CE4E5B9 & _MASK
        state = (state ^ state >> 27) * 0x94D049BB133111EB & _MASK
        state ^= state >> 31
    return state


def seed_all(state: int) -> None:
    """Seed torch's CPU generator, numpy's and random's: 7 us, the price of the same crops at any world size."""
    torch.default_generator.manual_seed(state & 0x7FFFFFFFFFFFFFFF)
    np.random.seed(state & 0xFFFFFFFF)
    random.seed(state)


@contextmanager
def put_back() -> Iterator[None]:
    """Leave the three generators as they were, for a training loop in the same process."""
    states = torch.default_generator.get_state(), np.random.get_state(), random.getstate()
    try:
        yield
    finally:
        torch.default_generator.set_state(states[0])
        np.random.set_state(states[1])
        random.setstate(states[2])
