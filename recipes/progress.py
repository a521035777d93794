"""What a training run prints: a line an interval, averages over all processes since the last one."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from recipes.process_group import Member, sum_over_ranks


def counts_of(output: Tensor, labels: Tensor, loss: Tensor) -> Tensor:
    """float64 (4,), on the device: samples, summed loss, right at the first guess, right within five."""
    guesses = output.detach().topk(min(5, output.shape[1])).indices
    right = (guesses == labels[:, None]).double()
    samples = torch.full((), len(labels), dtype=torch.float64, device=output.device)
    return torch.stack([samples, loss.detach().double() * samples, right[:, 0].sum(), right.sum()])


class Progress:
    """Adds up steps and prints `Epoch: [e][i/n] Time Data Speed Loss Acc@1 Acc@5`.

    Sums stay on the device until a line is due, so that no step waits for the GPU.
    """

    def __init__(self, member: Member, epoch: int, steps: int) -> None:
        self.member = member
        self.epoch = epoch
        self.steps = steps
        self._began = self._line_began = time.monotonic()
        self._samples = self._data_s = self._line_data_s = 0.0
        self._line_steps = 0
        self._counts = self._no_counts()

    def waited(self, seconds: float) -> None:
        """Note what a step waited for its batch."""
        self._line_data_s += seconds

    def add(self, counts: Tensor) -> None:
        self._counts += counts
        self._line_steps += 1

    def line(self, step: int) -> None:
        """Print the line of `step`. Every process has to call it."""
        if not self._line_steps:
            return
        data = torch.tensor([self._line_data_s], dtype=torch.float64, device=self._counts.device)
        samples, loss, top1, top5, data_s = sum_over_ranks(torch.cat([self._counts, data]))
        now = time.monotonic()
        step_s = (now - self._line_began) / self._line_steps
        self._samples += samples
        self._data_s += data_s / self.member.world_size
        data_s /= self.member.world_size * self._line_steps
        width = len(str(self.steps))
        self.member.say(
            f"Epoch: [{self.epoch}][{step:{width}}/{self.steps}]  Time {step_s:6.3f}  "
            f"Data {data_s:6.3f} ({data_s / step_s:3.0%})  Speed {samples / (now - self._line_began):7.1f}  "
            f"Loss {loss / samples:7.4f}  Acc@1 {100 * top1 / samples:6.2f}  Acc@5 {100 * top5 / samples:6.2f}"
        )
        self._line_began, self._line_data_s, self._line_steps = now, 0.0, 0
        self._counts = self._no_counts()

    def summary(self) -> str:
        """What this run did of the epoch, up to the last line."""
        seconds = self._line_began - self._began
        if not self._samples:
            return f"Epoch: [{self.epoch}] was done before"
        return (
            f"Epoch: [{self.epoch}] {self._samples:,.0f} images in {seconds:.1f} s, {self._samples / seconds:.1f} "
            f"images/s, {self._data_s / seconds:.0%} of the time waiting for data"
        )

    def _no_counts(self) -> Tensor:
        return torch.zeros(4, dtype=torch.float64, device=self.member.device)
