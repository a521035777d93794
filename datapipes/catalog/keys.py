"""Key tables: every key of a data set in one compact object that workers share without copying.

The arrays are torch tensors, because a tensor travels to a spawned worker as a handle to shared memory and to
a forked one as the same pages; numpy views of them do the work.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable
from uuid import UUID

import numpy as np
import torch
import xxhash
from numpy.typing import NDArray

Indices = NDArray[np.int64]


@runtime_checkable
class KeyTable(Protocol):
    """n keys, addressed by index."""

    def __len__(self) -> int: ...

    def take(self, indices: Indices) -> list[Any]:
        """The keys at these indices."""

    def hashes(self, indices: Indices) -> NDArray[np.uint64]:
        """A 64-bit hash of each key, the same in every process: what the epoch's proof adds up."""


class StrKeys:
    """URLs or paths: directories stored once, base names end to end. 32 B a URL of ImageNet's shape.

    >>> table = StrKeys.of(["s3://b/train/cat/1.jpg", "s3://b/train/dog/7.jpg"])
    >>> table.take(np.array([1, 0]))
    ['s3://b/train/dog/7.jpg', 's3://b/train/cat/1.jpg']
    >>> table.directories
    ['s3://b/train/cat/', 's3://b/train/dog/']
    """

    def __init__(
        self, directories: list[str], directory_ids: NDArray[np.int32], names: bytes, ends: NDArray[np.int64]
    ) -> None:
        self.directories = directories
        self._directory_ids = torch.from_numpy(directory_ids)
        self._names = torch.frombuffer(bytearray(names or b"\0"), dtype=torch.uint8)
        self._ends = torch.from_numpy(ends)

    @classmethod
    def of(cls, keys: Iterable[str]) -> StrKeys:
        """Drain `keys` in about 0.5 us each, without a list of them."""
        ids: dict[str, int] = {}
        directory_ids, ends, names = array("i"), array("q"), bytearray()
        for key in keys:
            directory, slash, name = key.rpartition("/")
            directory_ids.append(ids.setdefault(directory + slash, len(ids)))
            names += name.encode("utf-8", "surrogateescape")
            ends.append(len(names))
        return cls(list(ids), np.array(directory_ids, np.int32), bytes(names), np.array(ends, np.int64))

    def __len__(self) -> int:
        return len(self._ends)

    def take(self, indices: Indices) -> list[str]:
        ends = self._ends.numpy()
        names = memoryview(self._names.numpy())  # type: ignore[arg-type]
        starts = np.where(indices > 0, ends[indices - 1], 0).tolist()
        directories = self.directories
        return [
            directories[directory] + str(names[start:end], "utf-8", "surrogateescape")
            for directory, start, end in zip(
                self._directory_ids.numpy()[indices].tolist(), starts, ends[indices].tolist()
            )
        ]

    def hashes(self, indices: Indices) -> NDArray[np.uint64]:
        digest = xxhash.xxh3_64_intdigest
        keys = self.take(indices)
        return np.fromiter((digest(key.encode("utf-8", "surrogateescape")) for key in keys), np.uint64, len(keys))

    @property
    def nbytes(self) -> int:
        """What the table holds, in bytes."""
        arrays = (self._directory_ids, self._names, self._ends)
        return sum(tensor.nbytes for tensor in arrays) + sum(map(len, self.directories))

    def __repr__(self) -> str:
        return f"StrKeys({len(self):,} keys in {len(self.directories):,} directories)"


class UuidKeys:
    """UUIDs at 16 B each.

    >>> UuidKeys.of([UUID(int=7)]).take(np.array([0]))
    [UUID('00000000-0000-0000-0000-000000000007')]
    """

    def __init__(self, packed: NDArray[np.uint8]) -> None:
        if packed.ndim != 2 or packed.shape[1] != 16:
            raise ValueError(f"UuidKeys: expected n x 16 bytes, got an array of shape {packed.shape}")
        self._packed = torch.from_numpy(packed)

    @classmethod
    def of(cls, keys: Iterable[UUID]) -> UuidKeys:
        packed = b"".join(key.bytes for key in keys)
        return cls(np.frombuffer(bytearray(packed), np.uint8).reshape(-1, 16))

    def __len__(self) -> int:
        return len(self._packed)

    @property
    def packed(self) -> NDArray[np.uint8]:
        """The keys as they are held, n x 16 bytes; not a copy."""
        return self._packed.numpy()

    def take(self, indices: Indices) -> list[UUID]:
        packed = self._packed.numpy()[indices].tobytes()
        return [UUID(bytes=packed[start : start + 16]) for start in range(0, len(packed), 16)]

    def hashes(self, indices: Indices) -> NDArray[np.uint64]:
        digest = xxhash.xxh3_64_intdigest
        packed = self._packed.numpy()[indices].tobytes()
        starts = range(0, len(packed), 16)
        return np.fromiter((digest(packed[start : start + 16]) for start in starts), np.uint64, len(starts))

    @property
    def nbytes(self) -> int:
        """What the table holds, in bytes."""
        return self._packed.nbytes

    def __repr__(self) -> str:
        return f"UuidKeys({len(self):,} keys)"


def key_table_of(source: Any) -> KeyTable:
    """The table that `source` offers, or one made by draining it; a kind of key may bring its own `table_of`.

    >>> key_table_of(["a/1.jpg", "a/2.jpg"])
    StrKeys(2 keys in 1 directories)
    """
    if callable(getattr(type(source), "key_table", None)):
        table: KeyTable = source.key_table()
        return table
    keys = iter(source)
    first = next(keys, None)
    if first is None:
        return StrKeys.of([])
    if isinstance(first, UUID):
        return UuidKeys.of(itertools.chain([first], keys))
    if isinstance(first, str):
        return StrKeys.of(itertools.chain([first], keys))
    if callable(getattr(type(first), "table_of", None)):
        own: KeyTable = type(first).table_of(itertools.chain([first], keys))
        return own
    raise TypeError(
        f"distribute: keys must be str (URLs, paths), uuid.UUID or of list_tar_samples, got {type(first).__name__} "
        f"({first!r:.80}); put distribute() right behind the stage that lists keys, before anything is loaded"
    )
