"""The index of a shard: where every sample and field lies, and its checksum. One small file beside the shard.

`shard-000000.tar.npz` is a numpy archive, so that 1.28 million samples are arrays and load in a second. Its
schema is in docs/shard-format.md; `save` and `load` are its only writer and reader.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

SUFFIX = ".npz"
VERSION = 1
NO_LABEL = -1


class IndexedField(NamedTuple):
    """One field of a sample, as it lies in its shard."""

    name: str
    offset: int
    size: int
    crc32c: int


class IndexedSample(NamedTuple):
    """One sample, as it lies in its shard: from the first byte of its first header on."""

    key: str
    start: int
    fields: Sequence[IndexedField]
    label: int = NO_LABEL


@dataclass(frozen=True)
class ShardIndex:
    """What is known of a shard of n samples with m fields in all. Arrays are never changed.

    >>> fields = [IndexedField("jpg", 512, 3, 0xE16DCDEE)]
    >>> index = ShardIndex.of([IndexedSample("cat/1", 0, fields, label=7)], end=1024, shard_bytes=2048)
    >>> index.keys(), len(index), index == ShardIndex.load(index.save(), name="shard-000000.tar.npz")
    (['cat/1'], 1, True)
    """

    shard_bytes: int
    key_bytes: NDArray[np.uint8]
    key_ends: NDArray[np.int64]
    starts: NDArray[np.int64]
    """n + 1: where each sample's first header begins, and where the archive's end does."""
    labels: NDArray[np.int64]
    first_fields: NDArray[np.int64]
    """n + 1: sample i has the fields first_fields[i] to first_fields[i + 1]."""
    field_names: NDArray[np.str_]
    field_ids: NDArray[np.uint16]
    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    crc32c: NDArray[np.uint32]

    @classmethod
    def of(cls, samples: Iterable[IndexedSample], *, end: int, shard_bytes: int) -> ShardIndex:
        """The index of these samples, in a shard whose end-of-archive begins at `end`."""
        samples = list(samples)
        fields = [field for sample in samples for field in sample.fields]
        names = {name: number for number, name in enumerate(sorted({field.name for field in fields}))}
        keys = [sample.key.encode("utf-8", "surrogateescape") for sample in samples]
        return cls(
            shard_bytes=shard_bytes,
            key_bytes=np.frombuffer(b"".join(keys), np.uint8),
            key_ends=np.cumsum([len(key) for key in keys], dtype=np.int64),
            starts=np.array([*(sample.start for sample in samples), end], np.int64),
            labels=np.array([sample.label for sample in samples], np.int64),
            first_fields=np.cumsum([0, *(len(sample.fields) for sample in samples)], dtype=np.int64),
            field_names=np.array(list(names), np.str_),
            field_ids=np.array([names[field.name] for field in fields], np.uint16),
            offsets=np.array([field.offset for field in fields], np.int64),
            sizes=np.array([field.size for field in fields], np.int64),
            crc32c=np.array([field.crc32c for field in fields], np.uint32),
        )

    def __len__(self) -> int:
        return len(self.labels)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShardIndex) and all(
            np.array_equal(value, getattr(other, name)) for name, value in vars(self).items()
        )

    __hash__ = None  # type: ignore[assignment]

    def keys(self) -> list[str]:
        """Every key, in the shard's order."""
        text = self.key_bytes.tobytes()
        ends = self.key_ends.tolist()
        return [text[start:end].decode("utf-8", "surrogateescape") for start, end in zip([0, *ends[:-1]], ends)]

    def save(self) -> bytes:
        """The bytes of the index file; the same index gives the same bytes."""
        file = io.BytesIO()
        np.savez(file, version=np.int64(VERSION), **vars(self))
        return file.getvalue()

    @classmethod
    def load(cls, content: bytes, *, name: str) -> ShardIndex:
        """Read what `save` gave.

        Raises:
            ValueError: `content` is damaged, contradicts itself, or is of a later version.
        """
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as archive:
                arrays: dict[str, Any] = {key: archive[key] for key in archive.files}
            version = int(arrays.pop("version"))
            if version > VERSION:
                raise ValueError(f"it is of version {version}, and this reads up to {VERSION}")
            index = cls(shard_bytes=int(arrays.pop("shard_bytes")), **arrays)
            index._check()
        except (ValueError, TypeError, KeyError, EOFError, OSError, zipfile.BadZipFile) as error:
            raise ValueError(f"{name}: not a shard index ({error}); make it again with index_shards") from None
        return index

    def _check(self) -> None:
        n, m = len(self), len(self.offsets)
        lengths = (len(self.key_ends), len(self.starts) - 1, len(self.first_fields) - 1)
        of_fields = (len(self.field_ids), len(self.sizes), len(self.crc32c))
        if set(lengths) != {n} or set(of_fields) != {m} or self.first_fields[-1] != m:
            raise ValueError("its arrays do not fit together")
        for array in (self.starts, self.first_fields, self.key_ends):
            if (np.diff(array) < 0).any():
                raise ValueError("its samples are not in order")
