"""The key table of samples in shards: which bytes of which shard each sample is."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
import xxhash
from numpy.typing import NDArray

from datapipes.catalog.keys import Indices
from datapipes.catalog.shard_index import ShardIndex


class TarSampleKey(NamedTuple):
    """One sample of a shard: bytes `start` to `end`, from its first header to the next sample's.

    >>> print(TarSampleKey("s3://b/shard-000000.tar", "cat/1", 0, 2048, (1, 2)))
    s3://b/shard-000000.tar: 'cat/1' at offset 0
    """

    shard: str
    name: str
    start: int
    end: int
    checksums: tuple[int, ...] | None
    """crc32c of each field, in the shard's order; None where no index has them."""
    shard_bytes: int = 0
    version: str = ""
    """Changes when the shard is written anew; what a cache knows it by."""

    def __str__(self) -> str:
        return f"{self.shard}: {self.name!r} at offset {self.start}"


class TarSampleKeys:
    """Every sample of some shards, about 60 B each.

    >>> from datapipes.catalog.shard_index import IndexedField, IndexedSample
    >>> samples = [IndexedSample("cat/1", 0, [IndexedField("jpg", 512, 3, 9)])]
    >>> table = TarSampleKeys.of(["a.tar"], [ShardIndex.of(samples, end=1024, shard_bytes=2048)], ['5f'])
    >>> table.take(np.array([0]))
    [TarSampleKey(shard='a.tar', name='cat/1', start=0, end=1024, checksums=(9,), shard_bytes=2048, version='5f')]
    """

    def __init__(
        self,
        shards: list[str],
        first_samples: NDArray[np.int64],
        bounds: NDArray[np.int64],
        names: NDArray[np.uint8],
        name_ends: NDArray[np.int64],
        first_fields: NDArray[np.int64],
        crc32c: NDArray[np.uint32],
        shard_bytes: list[int],
        versions: list[str],
    ) -> None:
        self.shards = shards
        self.shard_bytes = shard_bytes
        self.versions = versions
        self._first_samples = torch.from_numpy(first_samples)
        self._bounds = torch.from_numpy(bounds)
        self._names = torch.from_numpy(names)
        self._name_ends = torch.from_numpy(name_ends)
        self._first_fields = torch.from_numpy(first_fields)
        self._crc32c = torch.from_numpy(crc32c.view(np.int32))

    @classmethod
    def of(cls, shards: Sequence[str], indexes: Sequence[ShardIndex], versions: Sequence[str]) -> TarSampleKeys:
        """The samples of `shards` in order; a shard whose index has no checksums has the version ""."""
        empty = [np.zeros(0, np.int64)]
        ends = [np.append(0, index.key_ends)[-1] for index in indexes]
        fields = [len(index.offsets) for index in indexes]
        name_bases = np.cumsum([0, *ends])
        field_bases = np.cumsum([0, *fields])
        return cls(
            list(shards),
            np.cumsum([0, *(len(index) for index in indexes)], dtype=np.int64),
            np.concatenate([np.stack([index.starts[:-1], index.starts[1:]], 1) for index in indexes])
            if indexes
            else np.zeros((0, 2), np.int64),
            np.concatenate([*(index.key_bytes for index in indexes), np.zeros(1, np.uint8)]),
            np.concatenate([*(index.key_ends + base for index, base in zip(indexes, name_bases)), *empty]),
            np.concatenate(
                [*(index.first_fields[:-1] + base for index, base in zip(indexes, field_bases)), field_bases[-1:]]
            ).astype(np.int64),
            np.concatenate([*(index.crc32c for index in indexes), np.zeros(0, np.uint32)]),
            [index.shard_bytes for index in indexes],
            list(versions),
        )

    def __len__(self) -> int:
        return len(self._bounds)

    def take(self, indices: Indices) -> list[TarSampleKey]:
        shard_numbers = np.searchsorted(self._first_samples.numpy(), indices, side="right") - 1
        bounds = self._bounds.numpy()[indices].tolist()
        ends = self._name_ends.numpy()
        name_starts = np.where(indices > 0, ends[indices - 1], 0).tolist()
        fields = self._first_fields.numpy()
        crc32c = self._crc32c.numpy().view(np.uint32)
        names = memoryview(self._names.numpy())  # type: ignore[arg-type]
        return [
            TarSampleKey(
                self.shards[shard],
                str(names[name_start:name_end], "utf-8", "surrogateescape"),
                start,
                end,
                tuple(crc32c[first_field:last_field].tolist()) if self.versions[shard] else None,
                self.shard_bytes[shard],
                self.versions[shard],
            )
            for shard, (start, end), name_start, name_end, first_field, last_field in zip(
                shard_numbers.tolist(),
                bounds,
                name_starts,
                ends[indices].tolist(),
                fields[indices].tolist(),
                fields[indices + 1].tolist(),
            )
        ]

    def hashes(self, indices: Indices) -> NDArray[np.uint64]:
        digest = xxhash.xxh3_64_intdigest
        keys = self.take(indices)
        texts = (f"{key.shard}\0{key.name}".encode("utf-8", "surrogateescape") for key in keys)
        return np.fromiter((digest(text) for text in texts), np.uint64, len(keys))

    @property
    def nbytes(self) -> int:
        """What the table holds, in bytes."""
        return sum(value.nbytes for value in vars(self).values() if isinstance(value, torch.Tensor))

    def sizes_of_shards(self) -> list[int]:
        """How many samples each shard has."""
        return [end - first for first, end in pairwise(self._first_samples.tolist())]

    def __repr__(self) -> str:
        return f"TarSampleKeys({len(self):,} samples in {len(self.shards):,} shards)"
