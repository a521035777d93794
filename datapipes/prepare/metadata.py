"""Keys and classes of a table, read whole from its metadata table or from a cache of that."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
from cassandra.metadata import protect_name
from cassandra.query import SimpleStatement
from numpy.typing import NDArray

from datapipes.catalog.cassandra_server import CassandraServer
from datapipes.catalog.key_archive import key_table_from, npz_of, packed_keys, read_npz, unpacked_keys
from datapipes.catalog.keys import KeyTable, UuidKeys
from datapipes.catalog.row_source import RowSource, check_table
from datapipes.load.cassandra_session import cassandra_session, key_column, meaning_of, quoted

# 110,000 rows a second next to the server; pages of 5,000 give 70,000.
PAGE_ROWS = 20_000
PAGE_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Metadata:
    """Every key of a table, in the order of the metadata table, with its class.

    Args:
        keys: UUIDs or text.
        labels: a class for each key; None where the table has no classes.
        source: the table of data that the keys are of.
    """

    keys: KeyTable
    labels: NDArray[np.int64] | None
    source: RowSource


def key_column_of(server: CassandraServer, table: str, function: str) -> str:
    """The column that the rows of `table` are found by.

    Raises:
        ValueError: there is no such table, or its key is not one column.
        PermissionError, ConnectionError: as `load_from_cassandra` has them.
    """
    check_table(function, table)
    with cassandra_session(server, f"{function}: table {table}") as session:
        return key_column(session, table, server, function)


def read_metadata(
    server: CassandraServer, source: RowSource, *, with_labels: bool = True, function: str = "read_metadata"
) -> Metadata:
    """Read the metadata table of `source`, page by page; 1.28 M rows take 12 s and 16 + 8 B a row.

    Raises:
        ValueError: no such table or column.
        PermissionError, ConnectionError, TimeoutError: as `load_from_cassandra` has them.
    """
    table = source.metadata_table or source.table
    check_table(function, table)
    packed, texts, labels = bytearray(), [], []
    for page in _pages(server, table, source, with_labels, function):
        if isinstance(page[0][0], UUID):
            packed += b"".join([row[0].bytes for row in page])
        else:
            texts += [row[0] for row in page]
        if with_labels:
            labels.append(_labels(page, table, source.label_col, function))
    keys = key_table_from(texts) if texts else UuidKeys(np.frombuffer(packed, np.uint8).reshape(-1, 16))
    joined = np.concatenate(labels) if labels else np.zeros(0, np.int64)
    return Metadata(keys, joined if with_labels else None, source)


def _pages(
    server: CassandraServer, table: str, source: RowSource, with_labels: bool, function: str
) -> Iterator[list[Any]]:
    columns = [source.id_col, source.label_col] if with_labels else [source.id_col]
    query = f"SELECT {', '.join(map(protect_name, columns))} FROM {quoted(table)}"
    with cassandra_session(server, f"{function}: table {table}") as session:
        try:
            result = session.execute(SimpleStatement(query, fetch_size=PAGE_ROWS), timeout=PAGE_TIMEOUT_S)
            while True:
                if result.current_rows:
                    yield result.current_rows
                if not result.has_more_pages:
                    return
                result.fetch_next_page()
        except Exception as error:
            raise meaning_of(error, server, f"{function}: table {table}") from None


def _labels(page: list[Any], table: str, label_col: str, function: str) -> NDArray[np.int64]:
    try:
        return np.fromiter((row[1] for row in page), np.int64, len(page))
    except TypeError:
        odd = next(row for row in page if not isinstance(row[1], int))
        raise ValueError(
            f"{function}: row {odd[0]} of {table} has {odd[1]!r:.40} in column {label_col}, which is no class; "
            "pass label_col= the column with the class, or label_type 'none'"
        ) from None


def save_metadata(path: str, metadata: Metadata) -> None:
    """Keep `metadata` in a file, as plain arrays whatever its name."""
    arrays = packed_keys(metadata.keys) | {"about": np.array(json.dumps(asdict(metadata.source)))}
    if metadata.labels is not None:
        arrays["labels"] = metadata.labels
    Path(path).write_bytes(npz_of(arrays))


def load_metadata(path: str) -> Metadata:
    """What `save_metadata` wrote.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is cut short, or something else.
    """
    arrays = read_npz(Path(path).read_bytes(), f"load_metadata: {path}")
    try:
        keys, source = unpacked_keys(arrays), RowSource(**json.loads(str(arrays["about"])))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"load_metadata: {path} is no cache of metadata: {error}; write it again") from None
    return Metadata(keys, arrays.get("labels"), source)
