"""A chain of pipes as the dataset that a DataLoader takes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import torch.distributed as dist
from torch.utils.data import IterableDataset, get_worker_info

from datapipes.dataset.account import Report, Tally, reduced_over_ranks, sum_of_hashes, wrapped
from datapipes.dataset.chain import read_chain
from datapipes.dataset.epochs import MAX_WORKERS, Epochs
from datapipes.dataset.randomness import put_back
from datapipes.dataset.run import run_chain
from datapipes.on_error import Skipped

# Keys are hashed for the proof so many at a time, so that a large table needs no second copy of its keys.
_KEYS_A_HASH = 1 << 16


def as_dataset(pipe: Any, *, rank: int | None = None, world_size: int | None = None) -> PipeDataset:
    """Chain in, dataset out: epochs, length, exact resume and an account of every sample.

    Lists the keys now, once, and shares them with the workers. The batch size is that of `batched` (or core's
    `batch`) in the chain; give the DataLoader `batch_size=None`.

    >>> from datapipes.iter import IterableWrapper
    >>> keys = IterableWrapper([f"train/cat/{i}.jpg" for i in range(10)])
    >>> dataset = as_dataset(keys.distribute(uneven="keep").batched(4))
    >>> [len(batch) for batch in dataset], len(dataset)
    ([4, 4, 2], 3)
    >>> print(dataset.report())
    epoch 0: 10 samples expected, each seen once, 0 skipped, 0.0 MB read

    Args:
        pipe: the end of a chain that has one `distribute`.
        rank, world_size: this process among those that train together. By default torch.distributed's, then
            torchrun's environment (RANK, WORLD_SIZE), then 0 of 1.

    Raises:
        ValueError: the chain has no `distribute`, batches twice, changes the order behind `distribute`, or
            has fewer keys than one global batch (see `distribute`).
    """
    if (rank is None) != (world_size is None):
        raise ValueError("as_dataset: rank and world_size go together; give both or neither")
    if rank is None or world_size is None:
        rank, world_size = present_rank()
    return PipeDataset(pipe, rank, world_size)


def present_rank() -> tuple[int, int]:
    """(rank, world_size) of this process: torch.distributed's, torchrun's, or (0, 1)."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


class PipeDataset(IterableDataset[Any]):
    """What `as_dataset` returns."""

    def __init__(self, pipe: Any, rank: int, world_size: int) -> None:
        self.chain = read_chain(pipe)
        self.rank, self.world_size = rank, world_size
        self.table = self.chain.distributor.key_table()
        batcher = self.chain.batcher
        self.plan = self.chain.distributor.plan(len(self.table), 1 if batcher is None else batcher.batch_size)
        self.plan.steps(world_size)
        self._epochs = Epochs()
        self._iterations = 0
        self._restored: dict[str, Any] | None = None
        self._first_step = 0
        self._tally = Tally()

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration run `epoch`. Forgotten, each iteration runs the epoch after the last one."""
        if epoch < 0:
            raise ValueError(f"set_epoch: an epoch is 0 or more, got {epoch}")
        self._epochs.request(epoch)

    def __len__(self) -> int:
        """Batches (samples, without `batched`) of this rank in the coming epoch, what was done before a resume
        left out."""
        return self.plan.steps_of(self.rank, self.world_size, self._epochs.next_start())

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        worker, num_workers = (0, 1) if info is None else (info.id, info.num_workers)
        if num_workers > MAX_WORKERS:
            raise ValueError(f"as_dataset: at most {MAX_WORKERS} workers a rank, got num_workers={num_workers}")
        self._begin(worker, num_workers, info.seed - info.id if info else 0)
        return self._run(worker, num_workers, in_worker=info is not None)

    def _begin(self, worker: int, num_workers: int, base_seed: int) -> None:
        """Settle epoch and start with the other workers. Not in the generator, so that a state asked for before
        the first batch is this epoch's."""
        epochs, restored = self._epochs, self._restored
        self._restored = None
        self._iterations += 1
        # The seed is one for all workers of an iteration, and new in each; persistent workers count on.
        iteration = wrapped(base_seed + self._iterations) if base_seed else epochs.iteration + 1
        if restored is not None and restored["num_workers"] != num_workers:
            raise ValueError(
                f"as_dataset: the state is of {restored['num_workers']} workers and this loader has {num_workers}; "
                "resume with as many, or save dataset.position(steps), which any number of ranks and workers takes"
            )
        if worker == 0:
            if restored is not None and epochs.requested in (None, restored["epoch"]):
                epochs.resume(restored["epoch"], restored["start"], Tally(**restored["before_start"]))
            epochs.conduct(iteration, num_workers)
        else:
            epochs.follow(iteration)
        goes_on = restored is not None and restored["epoch"] == epochs.epoch
        self._first_step = restored["step"] if restored is not None and goes_on else 0
        self._tally = Tally(**restored["tally"]) if restored is not None and goes_on else Tally()
        epochs.log(worker, self._first_step, self._tally)

    def _run(self, worker: int, num_workers: int, in_worker: bool) -> Iterator[Any]:
        epoch = self._epochs.epoch
        places = self.plan.batches(
            rank=self.rank,
            world_size=self.world_size,
            worker=worker,
            num_workers=num_workers,
            start=self._epochs.start,
            first_step=self._first_step,
        )
        step = self._first_step
        batches = run_chain(self.chain, self.plan, self.table, epoch, places)
        try:
            while True:
                if in_worker:
                    delivered = next(batches, None)
                else:
                    with put_back():
                        delivered = next(batches, None)
                if delivered is None:
                    return
                step += 1
                self._first_step = step
                self._tally = self._tally.add(delivered[1])
                self._epochs.log(worker, step, self._tally)
                if type(delivered[0]) is not Skipped:
                    yield delivered[0]
        finally:
            batches.close()  # type: ignore[attr-defined]

    def state_dict(self) -> dict[str, Any]:
        """Where this worker is: a few integers, what StatefulDataLoader saves with every batch."""
        return {
            "epoch": self._epochs.epoch,
            "start": self._epochs.start,
            "before_start": asdict(self._epochs.before_start),
            "num_workers": self._epochs.num_workers,
            "step": self._first_step,
            "tally": asdict(self._tally),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where a `state_dict` (StatefulDataLoader calls this) or a `position` was taken."""
        if "place" in state:
            if state["keys"] != len(self.table) or state["seed"] != self.plan.seed:
                raise ValueError(
                    f"load_state_dict: the state is of {state['keys']:,} keys with seed {state['seed']}, this dataset "
                    f"has {len(self.table):,} with seed {self.plan.seed}; resume with the data and seed it began with"
                )
            self._epochs.resume(state["epoch"], state["place"], Tally(**state["delivered"]))
        else:
            self._restored = state

    def position(self, steps: int) -> dict[str, Any]:
        """The state after this rank took `steps` batches of the running epoch's loader.

        Loads at any number of ranks and workers and any batch size. Every rank has to call it, after the same
        number of steps: it adds up what all of them delivered. Keep it for `load_state_dict`.
        """
        if self.chain.batcher is None:
            raise ValueError("position: it counts batches; put batched() into the chain")
        epochs = self._epochs
        delivered = Tally()
        for worker in range(epochs.num_workers):
            delivered = delivered.add(epochs.delivered(worker, len(range(worker, steps, epochs.num_workers))))
        global_batch = self.plan.batch_size * self.world_size
        end = self.plan.total(self.world_size, epochs.start)
        return {
            "epoch": epochs.epoch,
            "place": min(epochs.start + steps * global_batch, end),
            "delivered": asdict(reduced_over_ranks(delivered).add(epochs.before_start)),
            "keys": len(self.table),
            "seed": self.plan.seed,
        }

    def report(self) -> Report:
        """The account of the epoch that ran last, over all workers and ranks. Every rank has to call it."""
        epochs = self._epochs
        delivered = Tally()
        for worker in range(epochs.num_workers):
            delivered = delivered.add(epochs.delivered(worker))
        delivered = reduced_over_ranks(delivered).add(epochs.before_start)
        end = self.plan.total(self.world_size, epochs.start)
        matches = wrapped(delivered.seen_hash + delivered.skipped_hash) == self._hash_of_places(end, epochs.epoch)
        return Report(
            epoch=epochs.epoch,
            expected=end,
            samples=delivered.samples,
            skipped=delivered.skipped,
            repeated=max(0, end - len(self.table)),
            dropped=max(0, len(self.table) - end),
            nbytes=delivered.nbytes,
            proven=matches and delivered.samples + delivered.skipped == end,
        )

    def _hash_of_places(self, end: int, epoch: int) -> int:
        """The hash of the keys at places 0 to `end`: that of all keys, less the tail or with what wraps round."""
        n = len(self.table)
        if not hasattr(self, "_hash_of_all"):
            chunks = range(0, n, _KEYS_A_HASH)
            sums = (np.arange(first, min(first + _KEYS_A_HASH, n)) for first in chunks)
            self._hash_of_all = wrapped(sum(sum_of_hashes(self.table.hashes(each)) for each in sums))
        odd = np.arange(min(end, n), max(end, n))
        odd_hash = sum_of_hashes(self.table.hashes(self.plan.indices(odd, epoch)))
        return wrapped(self._hash_of_all + (odd_hash if end > n else -odd_hash))
