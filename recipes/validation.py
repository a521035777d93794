"""Exact validation over all processes: each sample counted once, whatever the number of processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader

from datapipes.dataset import PipeDataset
from recipes.process_group import Member, sum_over_ranks
from recipes.progress import counts_of


@dataclass(frozen=True)
class Scores:
    samples: int
    loss: float
    top1: float
    """Percent."""
    top5: float

    def __str__(self) -> str:
        return f" * Acc@1 {self.top1:.3f} Acc@5 {self.top5:.3f} Loss {self.loss:.4f} ({self.samples:,} images)"


@torch.no_grad()
def validate(
    model: nn.Module,
    dataset: PipeDataset,
    loader: DataLoader[Any],
    member: Member,
    to_device: Callable[..., Any],
    autocast: Any,
) -> Scores:
    """Score `model`, which is not wrapped by DistributedDataParallel: processes may take different numbers of steps.

    Every process has to call it.

    Raises:
        RuntimeError: the proof fails that each sample was counted once.
    """
    model.eval()
    for buffer in model.buffers():
        # Batch statistics differ from process to process; all are to score the model that is saved.
        dist.broadcast(buffer, src=0)
    counts = torch.zeros(4, dtype=torch.float64, device=member.device)
    for batch in loader:
        images, labels = to_device(*batch)
        with autocast:
            output = model(images)
        counts += counts_of(output, labels, nn.functional.cross_entropy(output.float(), labels))
    model.train()
    samples, loss, top1, top5 = sum_over_ranks(counts)
    report = dataset.report()
    if not report.proven or samples != report.samples:
        raise RuntimeError(f"validate: {samples:.0f} samples were scored, but {report}")
    return Scores(int(samples), loss / samples, 100 * top1 / samples, 100 * top5 / samples)
