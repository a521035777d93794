"""Row files and split files: a list of keys, the table they are in, and, in a split file, who gets which.

Two formats. A name that ends in .npz gives numpy's archive: plain arrays, which no reader has to trust, at
16 B a UUID. Any other name gives the pickle that readers of this trade exchange, with an object array of UUIDs
among its fields; it is read without running it (see safe_pickle.py). Samples of shards are kept in archives alone.
"""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass, field
from typing import Any

import fsspec
import numpy as np

from datapipes.catalog.key_archive import (
    all_keys,
    key_table_from,
    npz_of,
    packed_keys,
    read_npz,
    select_keys,
    unpacked_keys,
)
from datapipes.catalog.keys import Indices, KeyTable
from datapipes.catalog.row_source import RowSource, data_table_of
from datapipes.catalog.safe_pickle import load_safe_pickle
from datapipes.catalog.tar_keys import TarSampleKeys


@dataclass(frozen=True)
class RowFile:
    """What a row file or a split file holds.

    Args:
        keys: every key: UUIDs, text, or samples of shards.
        source: the table that the keys are in; None for keys of another store.
        splits: for each split the indices of its keys, in its order; empty in a row file.
        num_classes: how many classes the labels tell apart; 0 = not known.
    """

    keys: KeyTable
    source: RowSource | None = None
    splits: tuple[Indices, ...] = field(default=(), repr=False)
    num_classes: int = 0

    def keys_of(self, index: int) -> KeyTable:
        """The keys of one split, in its order."""
        return select_keys(self.keys, self.splits[index])


def load_row_file(path: str, *, function: str = "load_row_file") -> RowFile:
    """Read a row or split file of either format, from a path or any URL that fsspec knows.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is cut short, asks for code to be run, or lacks what such a file has.
    """
    name = f"{function}: {path}"
    with fsspec.open(path, "rb") as file:
        content = file.read()
    fields = _fields_in_npz(content, name) if content.startswith(b"PK") else load_safe_pickle(content, name=name)
    try:
        if not isinstance(fields, dict) or "row_keys" not in fields:
            raise ValueError("it has no field row_keys")
        keys = fields["row_keys"]
        keys = keys if isinstance(keys, KeyTable) else key_table_from(keys)
        splits = tuple(_checked_split(split, len(keys)) for split in fields.get("split") or ())
        return RowFile(keys, _source_in(fields), splits, int(fields.get("num_classes") or 0))
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise ValueError(f"{name}: {error}; write it again with create_split.py or cache_uuids.py") from None


def save_row_file(path: str, rows: RowFile) -> None:
    """Write `rows`: numpy's archive where `path` ends in .npz, else the pickle.

    Raises:
        ValueError: a pickle is asked for of keys that only an archive holds.
    """
    if path.endswith(".npz"):
        content = _npz(rows)
    elif isinstance(rows.keys, TarSampleKeys):
        raise ValueError(
            f"save_row_file: {path}: a pickle holds no samples of shards; give it a name that ends in .npz"
        )
    else:
        keys = np.empty(len(rows.keys), object)
        keys[:] = list(all_keys(rows.keys))
        fields = {**_fields_of(rows), "row_keys": keys, "split": [np.asarray(split) for split in rows.splits] or None}
        content = pickle.dumps(fields, protocol=4)
    with fsspec.open(path, "wb") as file:
        file.write(content)


def _checked_split(split: Any, rows: int) -> Indices:
    indices = np.asarray(split)
    if indices.ndim != 1 or (len(indices) and indices.dtype.kind not in "iu"):
        raise ValueError(f"a split must be a list of row numbers, got {indices!r:.80}")
    outside = indices[(indices < 0) | (indices >= rows)]
    if len(outside):
        raise ValueError(f"a split names row {outside[0]:,} of {rows:,} rows")
    return indices.astype(np.int64)


def _source_in(fields: dict[str, Any]) -> RowSource | None:
    """The table, under any of the names that versions of these files gave it."""
    config = fields.get("config") or {}
    metadata_table: str | None
    if fields.get("table_suffix") is not None:
        keyspace, suffix = fields["keyspace"], fields["table_suffix"]
        table, metadata_table = f"{keyspace}.data_{suffix}", f"{keyspace}.metadata_{suffix}"
    elif fields.get("data_table"):
        table, metadata_table = fields["data_table"], fields.get("metadata_table")
    elif config.get("data_table") or config.get("table"):
        metadata_table = config.get("table")
        table = config.get("data_table") or data_table_of(config["table"])
    else:
        return None
    known = {
        "id_col": fields.get("id_col") or fields.get("data_id_col") or config.get("id_col"),
        "label_col": fields.get("label_col") or fields.get("data_label_col"),
        "data_col": fields.get("data_col"),
        "label_type": fields.get("label_type"),
    }
    return RowSource(table, metadata_table=metadata_table, **{name: value for name, value in known.items() if value})


def _fields_of(rows: RowFile) -> dict[str, Any]:
    """All but keys and splits, under the names that the first version of these files gave them."""
    source = rows.source
    split_fields = {"num_classes": rows.num_classes} if rows.splits else {}
    if source is None:
        return split_fields
    if not rows.splits:
        config = {"table": source.metadata_table, "id_col": source.id_col, "data_table": source.table}
        return {"config": config}
    columns = {
        "id_col": source.id_col,
        "data_col": source.data_col,
        "label_type": source.label_type,
        "label_col": source.label_col,
    }
    keyspace, _, table = source.table.partition(".")
    if table.startswith("data_"):
        return {"keyspace": keyspace, "table_suffix": table.removeprefix("data_"), **columns, **split_fields}
    tables = {"data_table": source.table, "metadata_table": source.metadata_table}
    return {**tables, **columns, **split_fields}


def _npz(rows: RowFile) -> bytes:
    arrays = {f"split_{index}": split for index, split in enumerate(rows.splits)}
    return npz_of({"about": np.array(json.dumps(_fields_of(rows))), **packed_keys(rows.keys), **arrays})


def _fields_in_npz(content: bytes, name: str) -> dict[str, Any]:
    arrays = read_npz(content, name)
    try:
        splits = [arrays[f"split_{index}"] for index in range(sum(key.startswith("split_") for key in arrays))]
        return {**json.loads(str(arrays["about"])), "row_keys": unpacked_keys(arrays), "split": splits}
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{name}: not a row or split file: {error}; write it again") from None
