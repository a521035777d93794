"""What the processes of one rank agree on: the epoch, where it starts, and how far each worker is.

All of it lives in shared memory, for DataLoader tells its workers nothing once they run. Worker 0 conducts: it
alone writes the epoch, and the others wait for it.
"""

from __future__ import annotations

import time
from dataclasses import astuple
from typing import cast

import torch

from datapipes.dataset.account import TALLY_FIELDS, Tally

MAX_WORKERS = 128
# Batches that a worker may be ahead of the training loop: DataLoader's prefetch_factor is 2, so 256 is ample.
_LOGGED_STEPS = 256
_CONDUCTOR_TIMEOUT_S = 60.0

_ITERATION, _EPOCH, _START, _NUM_WORKERS, _REQUESTED, _RESUME_EPOCH, _RESUME_START, _HEADER_FIELDS = range(8)
_NONE = -1


def _shared_zeros(*shape: int) -> torch.Tensor:
    zeros = torch.zeros(shape, dtype=torch.int64)
    return cast(torch.Tensor, zeros.share_memory_())  # type: ignore[no-untyped-call]


class Epochs:
    """The shared state of one rank's dataset."""

    def __init__(self) -> None:
        self._header = _shared_zeros(_HEADER_FIELDS + TALLY_FIELDS)
        self._header[[_EPOCH, _REQUESTED, _RESUME_EPOCH]] = _NONE
        self._steps = _shared_zeros(MAX_WORKERS, 2)
        self._log = _shared_zeros(MAX_WORKERS, _LOGGED_STEPS, 2 + TALLY_FIELDS)

    @property
    def epoch(self) -> int:
        """The epoch that runs, or ran last; -1 before the first."""
        return int(self._header[_EPOCH])

    @property
    def start(self) -> int:
        """The place at which this epoch started: 0, or where it was resumed."""
        return int(self._header[_START])

    @property
    def num_workers(self) -> int:
        return int(self._header[_NUM_WORKERS])

    @property
    def before_start(self) -> Tally:
        """What had been delivered of this epoch before it was resumed at `start`."""
        return Tally(*self._header[_HEADER_FIELDS:].tolist())

    @property
    def requested(self) -> int | None:
        """The epoch that `set_epoch` asked for and no iteration has run yet."""
        requested = int(self._header[_REQUESTED])
        return None if requested == _NONE else requested

    def next_start(self) -> int:
        """Where the epoch starts that the next iteration runs."""
        requested, resume = int(self._header[_REQUESTED]), int(self._header[_RESUME_EPOCH])
        return int(self._header[_RESUME_START]) if resume != _NONE and requested in (_NONE, resume) else 0

    def request(self, epoch: int) -> None:
        """Let the next iteration run this epoch."""
        self._header[_REQUESTED] = epoch

    def resume(self, epoch: int, start: int, before: Tally) -> None:
        """Let the next iteration go on with `epoch` at place `start`."""
        self._header[_HEADER_FIELDS:] = torch.tensor(astuple(before), dtype=torch.int64)
        self._header[_RESUME_START] = start
        self._header[_RESUME_EPOCH] = epoch
        self._header[_REQUESTED] = _NONE

    def conduct(self, iteration: int, num_workers: int) -> None:
        """Worker 0: settle which epoch this iteration runs, and from where."""
        header = self._header
        requested, resume = int(header[_REQUESTED]), int(header[_RESUME_EPOCH])
        epoch = next(each for each in (requested, resume, self.epoch + 1) if each != _NONE)
        resumed = resume == epoch
        if not resumed:
            header[_HEADER_FIELDS:] = 0
        header[_EPOCH] = epoch
        header[_START] = int(header[_RESUME_START]) if resumed else 0
        header[_NUM_WORKERS] = num_workers
        header[[_REQUESTED, _RESUME_EPOCH]] = _NONE
        header[_ITERATION] = iteration

    def follow(self, iteration: int) -> None:
        """Any other worker: wait until worker 0 has settled this iteration."""
        give_up = time.monotonic() + _CONDUCTOR_TIMEOUT_S
        while int(self._header[_ITERATION]) != iteration:
            if time.monotonic() > give_up:
                raise RuntimeError(
                    f"as_dataset: worker 0 did not start within {_CONDUCTOR_TIMEOUT_S:.0f} s; look for its error, "
                    "and iterate over one DataLoader of a dataset at a time"
                )
            time.sleep(0.001)

    @property
    def iteration(self) -> int:
        return int(self._header[_ITERATION])

    def log(self, worker: int, step: int, tally: Tally) -> None:
        """Note what `worker` has delivered in its first `step` batches of this epoch."""
        row = torch.tensor((self.iteration, step, *astuple(tally)), dtype=torch.int64)
        self._log[worker, step % _LOGGED_STEPS] = row
        self._steps[worker] = row[:2]

    def delivered(self, worker: int, step: int | None = None) -> Tally:
        """What `worker` delivered in its first `step` batches; None = so far."""
        iteration, last = self._steps[worker].tolist()
        if iteration != self.iteration:
            return Tally()
        row = self._log[worker, (last if step is None else step) % _LOGGED_STEPS].tolist()
        if row[:2] != [iteration, last if step is None else step]:
            raise ValueError(
                f"position: worker {worker} has delivered {last:,} batches, and what it had after {step:,} is not "
                f"kept (the last {_LOGGED_STEPS} are); give the number of batches taken from this epoch's loader"
            )
        return Tally(*row[2:])
