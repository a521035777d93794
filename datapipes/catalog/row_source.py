"""Which table the rows of a key list are in, and which of its columns hold what."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

LABEL_TYPES = ("int", "image", "blob", "none")
_TABLE = re.compile(r"\w+\.\w+")


@dataclass(frozen=True)
class RowSource:
    """A table of data and its columns, as split and row files carry them.

    Args:
        table: "keyspace.table", with a row per image.
        id_col: the column with the key.
        label_col: the column with the label.
        data_col: the column with the file's bytes.
        label_type: what a label is: "int" a class, "image" or "blob" a second file such as a mask, "none" no
            label.
        metadata_table: "keyspace.table" with key and class alone, which is quick to read whole.
    """

    table: str
    id_col: str = "id"
    label_col: str = "label"
    data_col: str = "data"
    label_type: str = "int"
    metadata_table: str | None = None

    def __post_init__(self) -> None:
        check_table("RowSource", self.table)
        if self.label_type not in LABEL_TYPES:
            raise ValueError(f"RowSource: label_type must be one of {', '.join(LABEL_TYPES)}, got {self.label_type!r}")


@runtime_checkable
class HasRowSource(Protocol):
    """A pipe that knows where the rows of its keys are."""

    def row_source(self) -> RowSource | None: ...


def check_table(function: str, table: str) -> None:
    """Refuse a name that is not "keyspace.table"; it becomes part of a query, so nothing else may pass.

    >>> check_table("read_cassandra", "data_train")
    Traceback (most recent call last):
    ValueError: read_cassandra: a table is named keyspace.table, such as imagenette.train, got 'data_train'
    """
    if not _TABLE.fullmatch(table):
        raise ValueError(f"{function}: a table is named keyspace.table, such as imagenette.train, got {table!r}")


def data_table_of(metadata_table: str) -> str:
    """The table of data that goes with one of metadata, by the names that both have in this layout.

    >>> data_table_of("imagenette.metadata_train")
    'imagenette.data_train'
    """
    keyspace, _, table = metadata_table.rpartition(".")
    if table.startswith("metadata"):
        table = "data" + table.removeprefix("metadata")
    return f"{keyspace}.{table}"


def find_row_source(pipe: Any) -> RowSource | None:
    """What the nearest split or row file before `pipe` says of its table, through any stages between."""
    # Who fills a table needs no pipes, and so no torch.
    from datapipes.pipe import upstream

    for stage in upstream(pipe):
        if isinstance(stage, HasRowSource):
            source: RowSource | None = stage.row_source()
            return source
    return None
