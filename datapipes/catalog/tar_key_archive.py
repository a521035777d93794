"""Samples of shards as plain arrays for numpy's archive: names of shards once, 30 to 50 B a sample."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datapipes.catalog.ragged import narrow
from datapipes.catalog.tar_keys import Shard, TarColumns, TarSampleKeys


def packed_tar_keys(keys: TarSampleKeys) -> dict[str, NDArray[Any]]:
    """The table as arrays, each in as few bytes as its numbers take.

    >>> from datapipes.catalog.tar_keys import TarSampleKey
    >>> keys = TarSampleKeys.of_keys([TarSampleKey("a.tar", "cat/1", 0, 1024, (9, 7), 2048, "5f")])
    >>> unpacked_tar_keys(packed_tar_keys(keys)).take(np.array([0])) == keys.take(np.array([0]))
    True
    """
    columns = keys.columns
    starts, ends = columns.bounds.T
    return {
        "tar_shards": np.frombuffer(json.dumps(columns.shards).encode(), np.uint8),
        "tar_shard_ids": columns.shard_ids,
        "tar_starts": narrow(starts),
        "tar_sizes": narrow(ends - starts),
        "tar_names": columns.names,
        "tar_name_lengths": narrow(np.diff(columns.name_ends, prepend=0)),
        "tar_crc32c": columns.crc32c,
        "tar_field_counts": narrow(np.diff(columns.field_ends, prepend=0)),
        "tar_labels": columns.labels,
    }


def unpacked_tar_keys(arrays: dict[str, NDArray[Any]]) -> TarSampleKeys:
    """The table that `packed_tar_keys` took apart.

    Raises:
        ValueError: the arrays contradict each other.
        KeyError: one is missing.
    """
    shards = [Shard(str(url), int(nbytes), str(version)) for url, nbytes, version in _json(arrays["tar_shards"])]
    starts = arrays["tar_starts"].astype(np.int64)
    columns = TarColumns(
        shards,
        arrays["tar_shard_ids"].astype(np.int64),
        np.stack([starts, starts + arrays["tar_sizes"].astype(np.int64)], 1),
        arrays["tar_names"].astype(np.uint8),
        np.cumsum(arrays["tar_name_lengths"], dtype=np.int64),
        arrays["tar_crc32c"].astype(np.uint32),
        np.cumsum(arrays["tar_field_counts"], dtype=np.int64),
        arrays["tar_labels"].astype(np.int64),
    )
    n = len(columns.shard_ids)
    if {len(columns.bounds), len(columns.name_ends), len(columns.field_ends), len(columns.labels)} != {n}:
        raise ValueError("its arrays of samples are not equally long")
    names, fields = (int(ends[-1]) if n else 0 for ends in (columns.name_ends, columns.field_ends))
    if (names, fields) != (len(columns.names), len(columns.crc32c)):
        raise ValueError("its samples' names or checksums and their lengths disagree")
    if n and not 0 <= columns.shard_ids.min() <= columns.shard_ids.max() < len(shards):
        raise ValueError(f"it names shard {columns.shard_ids.max():,} of {len(shards):,}")
    return TarSampleKeys(columns)


def _json(text: NDArray[Any]) -> Any:
    return json.loads(text.astype(np.uint8).tobytes())
