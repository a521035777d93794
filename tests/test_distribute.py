"""Keys shared out by a bare DataLoader, over its workers and over ranks."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import pytest
import torch.distributed
from torch.utils.data import DataLoader

from datapipes.iter import IterableWrapper

KEYS = [f"train/cat/{number}.jpg" for number in range(51)]


def batches(uneven: str) -> list[list[str]]:
    pipe = IterableWrapper(KEYS).distribute(uneven=uneven).batched(4, collate=None)
    return list(DataLoader(pipe, batch_size=None, num_workers=3, multiprocessing_context="fork"))


def batches_of_rank(rank: int, world_size: int, uneven: str, folder: Path, results: Any) -> None:
    store = torch.distributed.FileStore(str(folder / "store"), world_size)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=world_size)
    results.put((rank, batches(uneven)))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("uneven", ["drop", "pad", "keep"])
def test_workers_of_one_process_leave_nothing_out(uneven):
    assert sorted(key for batch in batches(uneven) for key in batch) == sorted(KEYS)


@pytest.mark.parametrize(("uneven", "given_out"), [("drop", 50), ("pad", 52)])
def test_ranks_with_workers_take_equal_numbers_of_steps_and_leave_out_less_than_a_rank_each(
    uneven, given_out, tmp_path
):
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    ranks = [context.Process(target=batches_of_rank, args=(rank, 2, uneven, tmp_path, results)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    found = dict(results.get() for _ in ranks)
    for rank in ranks:
        rank.join(60)
        assert rank.exitcode == 0
    assert len(found[0]) == len(found[1])
    keys = [key for rank in found.values() for batch in rank for key in batch]
    assert len(keys) == given_out and len(set(keys)) == min(given_out, len(KEYS))
