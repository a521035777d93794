"""Whose turn it is, decided on keys, before any I/O."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from torch.utils.data import get_worker_info

from datapipes.catalog.class_map import ClassMap
from datapipes.catalog.keys import KeyTable, StrKeys, key_table_of
from datapipes.order.plan import Plan
from datapipes.pipe import Pipe, functional_form

# Keys are taken from the table so many at a time: enough to spread numpy's cost, little enough to start at once.
_KEYS_A_TAKE = 1024


@functional_form("distribute")
class Distributor(Pipe[Any]):
    """Keys in, this process's share of them out, in the epoch's order (functional name: `distribute`).

    The order of an epoch is a pure function of the keys, the seed and the epoch; the share, of rank and worker.
    Under `as_dataset` a global batch holds the same keys in the same order at any number of ranks and workers.
    With a bare `DataLoader` rank and worker come from core's `apply_sharding`, the epoch from its shared seed.

    >>> from datapipes.iter import IterableWrapper
    >>> keys = IterableWrapper([f"train/cat/{i}.jpg" for i in range(6)])
    >>> list(keys.distribute(shuffle=False))[:2]
    ['train/cat/0.jpg', 'train/cat/1.jpg']
    >>> sorted(keys.distribute(seed=1)) == sorted(keys)
    True

    Args:
        source_datapipe: yields keys: URLs, paths or UUIDs.
        shuffle: permute the keys anew each epoch. The permutation is computed, not stored: 25 ns a key.
        seed: the same seed gives the same orders in every process and on every machine.
        uneven: what to do with the keys that do not fill a last global batch. "drop" leaves them out of this
            epoch, "pad" repeats keys from the order's beginning, "keep" gives each key once although the ranks
            may then take different numbers of steps (for validation, not for training under DDP).
        block: permute blocks of so many neighbouring keys and mix within a few of them, so that a loader can
            fetch neighbours in one request (tar shards).

    Raises:
        ValueError: there are no keys, or fewer than one global batch under "drop".
        TypeError: the source yields something that is not a key.
    """

    def __init__(
        self,
        source_datapipe: Any,
        *,
        shuffle: bool = True,
        seed: int = 0,
        uneven: Literal["drop", "pad", "keep"] = "drop",
        block: int | None = None,
    ) -> None:
        Plan(n=1, batch_size=1, shuffle=shuffle, seed=seed, uneven=uneven, block=block)
        self.source_datapipe = source_datapipe
        self.is_shuffled = shuffle
        self.seed = seed
        self.uneven = uneven
        self.block = block
        self._instance = (0, 1)
        self._world_size = 1
        self._epoch = 0
        self._class_map: ClassMap | None = None

    def key_table(self) -> KeyTable:
        """Every key, listed now."""
        table = key_table_of(self.source_datapipe)
        if isinstance(table, StrKeys):
            self._class_map = ClassMap.of_directories(table.directories)
        return table

    def class_map(self) -> ClassMap:
        """The names of the keys' parent directories, sorted: what `parse_label` asks for when given no classes.

        It is remembered from the last listing, so that no worker lists again for it.
        """
        if self._class_map is None:
            table = self.key_table()
            if self._class_map is None:
                raise ValueError(f"parse_label: {table!r} has no directories to take class names from; pass classes=")
        return self._class_map

    def plan(self, n: int, batch_size: int) -> Plan:
        """The arithmetic of an epoch over `n` keys."""
        return Plan(
            n=n,
            batch_size=batch_size,
            shuffle=self.is_shuffled,
            seed=self.seed,
            uneven=self.uneven,
            block=self.block,
        )

    def apply_sharding(self, num_of_instances: int, instance_id: int, sharding_group: Any = None) -> None:
        """What a bare DataLoader calls in each of its processes, with ranks x workers counted through, ranks first."""
        self._instance = (instance_id, num_of_instances)
        worker = get_worker_info()
        num_workers = 1 if worker is None else worker.num_workers
        # Whoever calls it with other numbers than core's DataLoader means instances of equal standing.
        self._world_size = num_of_instances if num_of_instances % num_workers else num_of_instances // num_workers

    def set_shuffle(self, shuffle: bool) -> Distributor:
        """What a bare DataLoader calls when it is given `shuffle=`."""
        self.is_shuffled = shuffle
        return self

    def set_seed(self, seed: int) -> Distributor:
        """What a bare DataLoader calls before each epoch, with a number that all its processes share."""
        self._epoch = seed
        return self

    def __iter__(self) -> Iterator[Any]:
        table = self.key_table()
        plan, places = self._share(len(table))
        epoch, self._epoch = self._epoch, self._epoch + 1
        for start in range(0, len(places), _KEYS_A_TAKE):
            taken = np.array(places[start : start + _KEYS_A_TAKE])
            yield from table.take(plan.indices(taken, epoch))

    def __len__(self) -> int:
        return len(self._share(len(self.source_datapipe))[1])

    def _share(self, n: int) -> tuple[Plan, range]:
        """Without `as_dataset` there are no batches to keep whole: instances take turns key by key.

        Ranks get equal numbers, under "drop" and "pad". So do their first workers, their second and so on,
        for the instances count through the ranks first: what each of them batches makes equal numbers of steps.
        """
        instance, instances = self._instance
        plan = self.plan(n, batch_size=1)
        return plan, range(instance, plan.total(self._world_size), instances)
