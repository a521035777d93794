"""Whose turn it is: the places of an epoch, shared out over ranks and workers.

A place is a position in an epoch's order. A global batch is the next `batch_size * world_size` places, rank
after rank; a step is one global batch; a rank's workers take its steps in turn. Nothing here depends on what
ran before, so an epoch goes on from any place, at any number of ranks and workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Literal

import numpy as np

from datapipes.order.blocks import permute_blocks
from datapipes.order.permutation import MAX_N, Indices, permute


@dataclass(frozen=True)
class Plan:
    """A number of keys and how to share them out in; the places and key indices of every rank's batches out.

    >>> plan = Plan(10, batch_size=2, shuffle=False)
    >>> [places.tolist() for places in plan.batches(rank=1, world_size=2)]
    [[2, 3], [6, 7]]

    Ten places make two whole global batches of four; `uneven` says what becomes of the other two. "drop" leaves
    them out, for training; "pad" fills the last batch up from the order's beginning; "keep" visits each place
    once, for validation: the last global batch is shared out in runs as equal as can be.

    >>> [Plan(10, 2, uneven="pad").total(world_size=2), Plan(10, 2).dropped(world_size=2)]
    [12, 2]
    >>> [p.tolist() for rank in (0, 1) for p in Plan(10, 2, uneven="keep").batches(rank=rank, world_size=2)]
    [[0, 1], [4, 5], [8], [2, 3], [6, 7], [9]]

    To go on after k steps, start at place `k * batch_size * world_size` further on, at any world size:

    >>> [places.tolist() for places in plan.batches(rank=0, world_size=1, start=4)]
    [[4, 5], [6, 7], [8, 9]]

    Args:
        n: how many keys there are, 1 to 2^40.
        batch_size: samples a rank takes in a step.
        shuffle: whether an epoch has an order of its own, or the catalog's.
        seed: 0 to 2^63 - 1; each gives other orders.
        uneven: what becomes of places that do not fill a global batch. Under "drop" and "pad" every rank takes
            the same number of steps.
        block: how many neighbouring keys stay near each other when shuffled (see `permute_blocks`).

    Raises:
        ValueError: an option is out of range; later, a rank or worker is, or no global batch can be filled.
    """

    n: int
    batch_size: int
    shuffle: bool = True
    seed: int = 0
    uneven: Literal["drop", "pad", "keep"] = "drop"
    block: int | None = None

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ValueError(f"distribute: nothing to distribute, got {self.n} keys; check what the catalog lists")
        if self.n > MAX_N:
            raise ValueError(f"distribute: at most 2**40 keys, got {self.n}; distribute them in parts")
        if self.batch_size < 1:
            raise ValueError(f"distribute: batch_size must be at least 1, got {self.batch_size}; give one")
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"distribute: seed must be 0 to 2**63 - 1, got {self.seed}; choose one in range")
        if self.uneven not in ("drop", "pad", "keep"):
            raise ValueError(f'distribute: uneven must be "drop", "pad" or "keep", got {self.uneven!r}; choose one')
        if self.block is not None and self.block < 1:
            raise ValueError(f"distribute: block must be at least 1, got {self.block}; None shuffles key by key")

    def steps(self, world_size: int, start: int = 0) -> int:
        """How many steps are left from place `start`; under "keep", those of the rank with the most."""
        global_batch = self._global_batch(world_size)
        if start < 0:
            raise ValueError(f"distribute: a place must be at least 0, got {start}; resume from a saved position")
        left = max(0, self.n - start)
        return left // global_batch if self.uneven == "drop" else -(-left // global_batch)

    def steps_of(self, rank: int, world_size: int, start: int = 0) -> int:
        """How many steps this rank has left: `steps`, less the last one where "keep" leaves it nothing.

        >>> [Plan(5, batch_size=2, uneven="keep").steps_of(rank, world_size=2) for rank in (0, 1)]
        [1, 2]
        """
        steps = self.steps(world_size, start)
        tail = max(0, self.n - start) % self._global_batch(world_size)
        empty = self.uneven == "keep" and tail and (rank + 1) * tail // world_size == rank * tail // world_size
        return steps - 1 if empty else steps

    def total(self, world_size: int, start: int = 0) -> int:
        """One past the last place of an epoch that goes on at place `start`. Under "pad" it may exceed n."""
        end = start + self.steps(world_size, start) * self._global_batch(world_size)
        return min(end, max(start, self.n)) if self.uneven == "keep" else end

    def dropped(self, world_size: int, start: int = 0) -> int:
        """How many places at the end of the epoch nobody visits."""
        return max(0, self.n - self.total(world_size, start))

    def padded(self, world_size: int, start: int = 0) -> int:
        """How many places repeat the order's beginning at the end of the epoch."""
        return max(0, self.total(world_size, start) - self.n)

    def batches(
        self,
        *,
        rank: int,
        world_size: int,
        worker: int = 0,
        num_workers: int = 1,
        start: int = 0,
        first_step: int = 0,
    ) -> Iterator[Indices]:
        """The places of each batch of one worker of one rank, as int64 arrays, made when they are asked for.

        Step k of a run that began at place `start` goes to worker `k % num_workers`; a worker that has already
        given out `first_step` batches goes on behind them. Under "keep" only the last step can be short, and
        it is left out where it is empty.
        """
        if not 0 <= rank < world_size:
            raise ValueError(f"distribute: rank must be in [0, {world_size}), got {rank}; check RANK, WORLD_SIZE")
        if not 0 <= worker < num_workers:
            raise ValueError(f"distribute: worker must be in [0, {num_workers}), got {worker}; check num_workers")
        if first_step < 0:
            raise ValueError(f"distribute: first_step must be at least 0, got {first_step}; count batches from 0")
        global_batch = self._global_batch(world_size)
        end = self.total(world_size, start)

        def generate() -> Iterator[Indices]:
            for step in count(worker + first_step * num_workers, num_workers):
                first = start + step * global_batch
                if first >= end:
                    return
                places = min(global_batch, end - first)
                low, high = rank * places // world_size, (rank + 1) * places // world_size
                if low < high:
                    yield np.arange(first + low, first + high, dtype=np.int64)

        return generate()

    def indices(self, places: Indices, epoch: int) -> Indices:
        """The key indices, int64 in [0, n), that stand at these places in the epoch's order.

        >>> Plan(10, batch_size=2).indices(np.array([0, 1, 10]), epoch=3)
        array([0, 3, 0])
        """
        positions = np.asarray(places, dtype=np.int64) % self.n
        if not self.shuffle:
            return positions
        if self.block is None:
            return permute(positions, self.n, seed=self.seed, epoch=epoch)
        return permute_blocks(positions, self.n, block=self.block, seed=self.seed, epoch=epoch)

    def _global_batch(self, world_size: int) -> int:
        if world_size < 1:
            raise ValueError(f"distribute: world_size must be at least 1, got {world_size}; check WORLD_SIZE")
        global_batch = self.batch_size * world_size
        if self.uneven == "drop" and global_batch > self.n:
            raise ValueError(
                f"distribute: {self.n} keys do not fill one global batch of {global_batch} (batch_size "
                f'{self.batch_size} x world_size {world_size}), so that uneven="drop" would leave out all of them; '
                f'take a smaller batch_size, or uneven="pad" or "keep"'
            )
        return global_batch
