"""The processes that train together: how they meet, add up, and stop together."""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist


@dataclass(frozen=True)
class Member:
    """This process among them."""

    rank: int
    world_size: int
    local_rank: int
    device: torch.device

    def say(self, line: str) -> None:
        """Print from rank 0 alone."""
        if self.rank == 0:
            print(line, flush=True)


@contextmanager
def joined_processes(*, on_cpu: bool = False) -> Iterator[Member]:
    """Join the processes that torchrun started, or train alone without it; leave them at the end.

    A GPU each, and NCCL, where there are any; otherwise the CPU, and Gloo.
    """
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    on_gpu = torch.cuda.is_available() and not on_cpu
    if on_gpu and local_rank >= torch.cuda.device_count():
        raise ValueError(
            f"training: process {local_rank} of this machine has no GPU of its own among "
            f"{torch.cuda.device_count()}; start torchrun with --nproc_per_node={torch.cuda.device_count()}"
        )
    device = torch.device("cuda", local_rank) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    # Gloo beside NCCL, for what is agreed on without waiting for the GPU.
    backend = "cpu:gloo,cuda:nccl" if on_gpu else "gloo"
    store, rank, world_size = dist.HashStore(), 0, 1
    if "RANK" in os.environ:
        store, rank, world_size = next(dist.rendezvous("env://"))
        store = dist.PrefixStore(_name_of_this_start(store, rank, world_size), store)
    dist.init_process_group(backend, store=store, rank=rank, world_size=world_size)
    try:
        yield Member(dist.get_rank(), dist.get_world_size(), local_rank, device)
    finally:
        dist.destroy_process_group()


def _name_of_this_start(store: Any, rank: int, world_size: int) -> str:
    """A name that the processes agree on, other than that of any earlier start through the same store.

    torchrun keeps its store when it restarts processes, and a process that reads the address which a dead one left
    there waits for it in vain. A restart's number would not do: each machine counts its own.
    """
    own_name = uuid.uuid4().hex
    if rank != 0:
        store.set(f"hello/{rank}", own_name)
        start = str(store.get(f"start/{own_name}"), "ascii")
        store.set(f"heard/{start}/{rank}", "")
        return start
    waiting_for = set(range(1, world_size))
    while waiting_for:
        for other in sorted(waiting_for):
            # What stands there may be of an earlier start, until the right one has come and answered.
            store.set(f"start/{str(store.get(f'hello/{other}'), 'ascii')}", own_name)
            if store.check([f"heard/{own_name}/{other}"]):
                waiting_for.remove(other)
        time.sleep(0.01)
    return own_name


def sum_over_ranks(numbers: torch.Tensor) -> list[float]:
    """The sums of a float64 tensor's elements over all processes, each of which has to call it."""
    dist.all_reduce(numbers)
    return [float(number) for number in numbers.tolist()]


def from_rank_0(value: Any) -> Any:
    """Rank 0's value, on every rank."""
    values = [value]
    dist.broadcast_object_list(values, src=0, device=torch.device("cpu"))
    return values[0]


class StopRequest:
    """Turns SIGTERM and Ctrl-C, sent to any of the processes, into one decision of all to stop after a step.

    The processes tell each other while the next step runs, so that asking costs no waiting; the decision is a step
    late. A second signal ends the process at once.
    """

    def __init__(self, signals: Sequence[signal.Signals] = (signal.SIGTERM, signal.SIGINT)) -> None:
        self.signal_number = 0
        self._flag = torch.zeros(1, dtype=torch.int32)
        self._exchange: Any = None
        self._previous = {number: signal.signal(number, self._ask) for number in signals}

    def agreed(self) -> bool:
        """Whether any process had been asked by its last step. All call it after each step, and hear the same."""
        stop = self._last_answer()
        self._flag = torch.tensor([self.signal_number], dtype=torch.int32)
        self._exchange = dist.all_reduce(self._flag, op=dist.ReduceOp.MAX, async_op=True)
        return stop

    def agreed_now(self) -> bool:
        """The same without delay, where a wait does not matter."""
        return self.agreed() or self.agreed()

    @property
    def exit_status(self) -> int:
        """Not zero, so that torchrun does not take a stopped run for a finished one."""
        return 128 + (self.signal_number or signal.SIGTERM)

    def close(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _last_answer(self) -> bool:
        if self._exchange is None:
            return False
        self._exchange.wait()
        return bool(self._flag.item())

    def _ask(self, number: int, _frame: FrameType | None) -> None:
        self.signal_number = number
        for each, handler in self._previous.items():
            signal.signal(each, handler)
