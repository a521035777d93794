"""The pipes that read keys from row files and split files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from datapipes.catalog.key_archive import all_keys, join_keys
from datapipes.catalog.keys import KeyTable
from datapipes.catalog.row_file import RowFile, load_row_file
from datapipes.catalog.row_source import RowSource
from datapipes.pipe import Pipe, functional_form


class _FileLister(Pipe[Any]):
    """The keys of the files that the source names, and the table that they are in."""

    function: str
    _sources: dict[RowSource | None, str] | None = None
    """Tables and the first file of each, remembered so that no worker reads the files again for them."""

    def key_table(self) -> KeyTable:
        """Every key in the files' order, at 16 B a UUID."""
        tables = [self._keys(path, rows) for path, rows in self._files()]
        return join_keys(tables)

    def row_source(self) -> RowSource | None:
        """The table and columns that the files name, for the stage that reads the rows."""
        if self._sources is None:
            for _ in self._files():
                pass
        sources = self._sources or {}
        if len(sources) > 1:
            (one, one_path), (other, other_path) = list(sources.items())[:2]
            raise ValueError(
                f"{self.function}: {one_path} is of table {one.table if one else None}, {other_path} of "
                f"{other.table if other else None}; read one table a chain"
            )
        return next(iter(sources), None)

    def __iter__(self) -> Iterator[Any]:
        for path, rows in self._files():
            yield from all_keys(self._keys(path, rows))

    def __len__(self) -> int:
        return len(self.key_table())

    def _keys(self, path: str, rows: RowFile) -> KeyTable:
        raise NotImplementedError

    def _files(self) -> Iterator[tuple[str, RowFile]]:
        sources: dict[RowSource | None, str] = {}
        for path in self.source_datapipe:
            rows = load_row_file(path, function=self.function)
            sources.setdefault(rows.source, path)
            yield path, rows
        self._sources = sources


@functional_form("list_rows_by_file")
class RowFileLister(_FileLister):
    """Names of row files in, the key of every row out (functional name: `list_rows_by_file`).

    A row file is what `cache_uuids.py` writes, or a split file, whose splits are then ignored.

    >>> from uuid import UUID
    >>> from datapipes.catalog.keys import UuidKeys
    >>> from datapipes.catalog.row_file import RowFile, save_row_file
    >>> from torch.utils.data.datapipes.iter import IterableWrapper
    >>> save_row_file("memory://train.rows", RowFile(UuidKeys.of([UUID(int=7), UUID(int=8)])))
    >>> [key.int for key in IterableWrapper(["memory://train.rows"]).list_rows_by_file()]
    [7, 8]

    Args:
        source_datapipe: paths, or URLs that fsspec opens.

    Raises:
        ValueError: when read: a file is cut short, or is a pickle that asks for more than arrays and UUIDs.
    """

    function = "list_rows_by_file"

    def __init__(self, source_datapipe: Any) -> None:
        self.source_datapipe = source_datapipe

    def _keys(self, path: str, rows: RowFile) -> KeyTable:
        return rows.keys


@functional_form("split_by_file")
class SplitFileReader(_FileLister):
    """Names of split files in, the keys of one split out, in its order (functional name: `split_by_file`).

    The keys may be of any store, so that one split file serves a table, a bucket or a set of shards.

    >>> import numpy as np
    >>> from datapipes.catalog.keys import StrKeys
    >>> from datapipes.catalog.row_file import RowFile, save_row_file
    >>> from torch.utils.data.datapipes.iter import IterableWrapper
    >>> keys = StrKeys.of(["s3://b/cat/1.jpg", "s3://b/cat/2.jpg", "s3://b/dog/1.jpg"])
    >>> save_row_file("memory://split.npz", RowFile(keys, splits=(np.array([2, 0]), np.array([1]))))
    >>> list(IterableWrapper(["memory://split.npz"]).split_by_file(index=0))
    ['s3://b/dog/1.jpg', 's3://b/cat/1.jpg']

    Args:
        source_datapipe: paths, or URLs that fsspec opens.
        index: which split, from 0: in the order of the ratios that `create_split.py` was given.

    Raises:
        IndexError: when read: the file has no such split.
        ValueError: when read: a file is cut short, or is a pickle that asks for more than arrays and UUIDs.
    """

    function = "split_by_file"

    def __init__(self, source_datapipe: Any, *, index: int) -> None:
        if index < 0:
            raise ValueError(f"split_by_file: index must be 0 or more, got {index}")
        self.source_datapipe = source_datapipe
        self.index = index

    def _keys(self, path: str, rows: RowFile) -> KeyTable:
        if self.index >= len(rows.splits):
            raise IndexError(
                f"split_by_file: {path} has {len(rows.splits)} splits, none with index {self.index}; "
                "indexes start at 0, and a row file without splits is for list_rows_by_file"
            )
        return rows.keys_of(self.index)
