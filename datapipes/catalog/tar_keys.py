"""The key table of samples in shards: which bytes of which shard each sample is."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import xxhash
from numpy.typing import NDArray

from datapipes.catalog.keys import Indices
from datapipes.catalog.ragged import narrow, select_pieces, starts_of
from datapipes.catalog.shard_index import NO_LABEL, ShardIndex


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

    @staticmethod
    def table_of(keys: Iterable[TarSampleKey]) -> TarSampleKeys:
        """The table of keys that come one by one, from a stage behind the listing."""
        return TarSampleKeys.of_keys(keys)


class Shard(NamedTuple):
    """What the samples of a shard have in common; the version is "" where no index has checksums."""

    url: str
    nbytes: int
    version: str


class TarColumns(NamedTuple):
    """n samples with m fields in all, as arrays."""

    shards: list[Shard]
    shard_ids: NDArray[np.signedinteger[Any]]
    bounds: NDArray[np.int64]
    """n x 2: where a sample begins in its shard, and where the next one does."""
    names: NDArray[np.uint8]
    """All names, end to end."""
    name_ends: Indices
    crc32c: NDArray[np.uint32]
    """All fields' checksums, end to end."""
    field_ends: Indices
    labels: NDArray[np.signedinteger[Any]]
    """`NO_LABEL` where the index has none."""


class TarSampleKeys:
    """Every sample of some shards, or some of them in any order, about 65 B each.

    >>> from datapipes.catalog.shard_index import IndexedField, IndexedSample
    >>> samples = [IndexedSample("cat/1", 0, [IndexedField("jpg", 512, 3, 9)])]
    >>> table = TarSampleKeys.of(["a.tar"], [ShardIndex.of(samples, end=1024, shard_bytes=2048)], ['5f'])
    >>> table.take(np.array([0]))
    [TarSampleKey(shard='a.tar', name='cat/1', start=0, end=1024, checksums=(9,), shard_bytes=2048, version='5f')]
    """

    def __init__(self, columns: TarColumns) -> None:
        self.shards = columns.shards
        arrays = columns._replace(
            shard_ids=narrow(columns.shard_ids), labels=narrow(columns.labels), crc32c=columns.crc32c.view(np.int32)
        )[1:]
        self._tensors = [torch.from_numpy(each) for each in arrays]

    @property
    def columns(self) -> TarColumns:
        """The table as arrays; not a copy."""
        columns = TarColumns(self.shards, *(tensor.numpy() for tensor in self._tensors))
        return columns._replace(crc32c=columns.crc32c.view(np.uint32))

    @classmethod
    def of(cls, shards: Sequence[str], indexes: Sequence[ShardIndex], versions: Sequence[str]) -> TarSampleKeys:
        """The samples of `shards` in order; a shard whose index has no checksums has the version ""."""
        tables = []
        for shard, index, version in zip(shards, indexes, versions):
            columns = TarColumns(
                [Shard(shard, index.shard_bytes, version)],
                np.zeros(len(index), np.int64),
                np.stack([index.starts[:-1], index.starts[1:]], 1),
                index.key_bytes,
                index.key_ends,
                index.crc32c,
                index.first_fields[1:],
                index.labels,
            )
            tables.append(columns)
        return cls(_joined(tables))

    @classmethod
    def of_keys(cls, keys: Iterable[TarSampleKey]) -> TarSampleKeys:
        """These keys, in their order; a key has no label."""
        shards: dict[Shard, int] = {}
        shard_ids, bounds, name_ends, field_ends = [], [], [], []
        names, crc32c = bytearray(), array("I")
        for key in keys:
            shard_ids.append(shards.setdefault(Shard(key.shard, key.shard_bytes, key.version), len(shards)))
            bounds.append((key.start, key.end))
            names += key.name.encode("utf-8", "surrogateescape")
            name_ends.append(len(names))
            crc32c.extend(key.checksums or ())
            field_ends.append(len(crc32c))
        columns = TarColumns(
            list(shards),
            np.array(shard_ids, np.int64),
            np.array(bounds, np.int64).reshape(-1, 2),
            np.frombuffer(names, np.uint8),
            np.array(name_ends, np.int64),
            np.array(crc32c, np.uint32),
            np.array(field_ends, np.int64),
            np.full(len(shard_ids), NO_LABEL),
        )
        return cls(columns)

    @classmethod
    def joined(cls, tables: Iterable[TarSampleKeys]) -> TarSampleKeys:
        """All samples of all tables, in order."""
        return cls(_joined([table.columns for table in tables]))

    def select(self, indices: Indices) -> TarSampleKeys:
        """The samples at `indices`, in that order."""
        columns = self.columns
        names, name_ends = select_pieces(columns.names, columns.name_ends, indices)
        crc32c, field_ends = select_pieces(columns.crc32c, columns.field_ends, indices)
        ids, bounds, labels = columns.shard_ids[indices], columns.bounds[indices], columns.labels[indices]
        return TarSampleKeys(TarColumns(self.shards, ids, bounds, names, name_ends, crc32c, field_ends, labels))

    def __len__(self) -> int:
        return len(self._tensors[0])

    def take(self, indices: Indices) -> list[TarSampleKey]:
        columns = self.columns
        names = memoryview(columns.names)  # type: ignore[arg-type]
        chosen = zip(
            columns.shard_ids[indices].tolist(),
            columns.bounds[indices].tolist(),
            starts_of(columns.name_ends, indices).tolist(),
            columns.name_ends[indices].tolist(),
            starts_of(columns.field_ends, indices).tolist(),
            columns.field_ends[indices].tolist(),
        )
        keys = []
        for shard_id, (start, end), name_start, name_end, first_field, last_field in chosen:
            shard, nbytes, version = self.shards[shard_id]
            name = str(names[name_start:name_end], "utf-8", "surrogateescape")
            checksums = tuple(columns.crc32c[first_field:last_field].tolist()) if version else None
            keys.append(TarSampleKey(shard, name, start, end, checksums, nbytes, version))
        return keys

    def hashes(self, indices: Indices) -> NDArray[np.uint64]:
        digest = xxhash.xxh3_64_intdigest
        keys = self.take(indices)
        texts = (f"{key.shard}\0{key.name}".encode("utf-8", "surrogateescape") for key in keys)
        return np.fromiter((digest(text) for text in texts), np.uint64, len(keys))

    @property
    def nbytes(self) -> int:
        """What the table holds, in bytes."""
        return sum(tensor.nbytes for tensor in self._tensors)

    def __repr__(self) -> str:
        return f"TarSampleKeys({len(self):,} samples in {len(self.shards):,} shards)"


def _joined(tables: Sequence[TarColumns]) -> TarColumns:
    """One after the other: numbers of shards and ends of pieces go on where the table before stopped."""
    empty = TarColumns(
        [],
        np.zeros(0, np.int64),
        np.zeros((0, 2), np.int64),
        np.zeros(0, np.uint8),
        np.zeros(0, np.int64),
        np.zeros(0, np.uint32),
        np.zeros(0, np.int64),
        np.zeros(0, np.int64),
    )
    moved, shards, names, fields = [empty], 0, 0, 0
    for table in tables:
        moved.append(
            table._replace(
                shard_ids=table.shard_ids.astype(np.int64) + shards,
                name_ends=table.name_ends + names,
                field_ends=table.field_ends + fields,
            )
        )
        shards, names, fields = shards + len(table.shards), names + len(table.names), fields + len(table.crc32c)
    lists = [shard for table in moved for shard in table.shards]
    return TarColumns(lists, *(np.concatenate(arrays) for arrays in list(zip(*moved))[1:]))
