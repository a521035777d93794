"""The pipes that read rows of a Cassandra table: keys in, rows or samples out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from datapipes.catalog.cassandra_server import CassandraServer
from datapipes.catalog.row_source import LABEL_TYPES, RowSource, check_table, find_row_source
from datapipes.load.cassandra_session import cassandra_sessions
from datapipes.load.cassandra_transport import CassandraTransport, Patience, Row, RowQueries
from datapipes.load.window import REQUEST_TIMEOUT_S
from datapipes.load.window_pipe import WindowPipe
from datapipes.on_error import OnError
from datapipes.pipe import Placed, functional_form

# At 100 ms the rate that a node gives next door takes 60 MB on their way, and more waiting for their turn:
# in six rounds of turns 256 MB let through 0.79 to 1.02 of it, median 0.98, and 192 MB 0.77 to 0.85, median 0.83;
# 64 MB 0.5. Next to the cluster 15 MB are used.
MAX_BYTES = 256 << 20

_MAGIC = {
    b"\xff\xd8\xff": "jpg",
    b"\x89PNG": "png",
    b"II*\0": "tif",
    b"MM\0*": "tif",
    b"GIF8": "gif",
    b"BM": "bmp",
    b"RIFF": "webp",
}


@functional_form("load_from_cassandra")
class CassandraLoader(WindowPipe[Any]):
    """Keys in, `(key, row)` out, a row being `(label, data)` (functional name: `load_from_cassandra`).

    Rows come in the order of their keys, however many are on their way. Several keys of one node are asked for
    in one query. A chain of keys from a split or row file knows its table; a chain of other keys is told:

    >>> from datapipes.catalog.cassandra_server import CassandraServer
    >>> from torch.utils.data.datapipes.iter import IterableWrapper
    >>> keys = IterableWrapper(["0c4a1e0f-5a5b-5f0e-9d3c-7b0f3f3d9a11"])
    >>> rows = keys.load_from_cassandra(server=CassandraServer("10.0.0.1"), table="imagenette.data_train")
    >>> type(rows).__name__, len(rows)
    ('CassandraLoader', 1)

    Nothing has been connected to so far: a process connects when it first asks for a row.

    Args:
        source_datapipe: keys, `uuid.UUID` or text.
        server: the cluster.
        table: "keyspace.table"; None = what the split or row file before this stage says, as for each column.
        id_col, label_col, data_col: the columns; "id", "label" and "data" where no file says otherwise.
        label_type: "int" for a class, "image" or "blob" for bytes such as a mask, "none" for tables without.
        max_in_flight: how many queries are on their way, of up to 16 rows each; None = as many as the latency
            takes.
        max_bytes: bound on rows on their way or waiting for their turn, in this process.
        connections: connections to each node. One carries 4,000 rows of 110 KB a second where nothing but the
            round trip slows it; over a real long-distance link, where a connection has at most its TCP window
            under way, take 4 to 8.
        request_timeout_s: deadline of one query, in seconds, which is sent three times. Where nobody takes
            it, because the nodes are down, this is also how long they have to come back (up to half as much more).
        ordered: in the order of the keys; False = as they come, within each batch.
        on_error: "raise", "skip", or a function `(key, error)` that gives another item or None.

    Raises:
        LookupError: a key has no row.
        ValueError: no such table or column, or a key that is not of the column's type.
        PermissionError: wrong user name or password.
        ConnectionError: nobody answers, or the certificates do not fit.
        TimeoutError: a node took a query and did not answer it in time.
    """

    function = "load_from_cassandra"

    def __init__(
        self,
        source_datapipe: Any,
        *,
        server: CassandraServer = CassandraServer(),
        table: str | None = None,
        id_col: str | None = None,
        label_col: str | None = None,
        data_col: str | None = None,
        label_type: str | None = None,
        max_in_flight: int | None = None,
        max_bytes: int = MAX_BYTES,
        connections: int = 1,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        ordered: bool = True,
        on_error: OnError = "raise",
    ) -> None:
        super().__init__(
            source_datapipe,
            max_in_flight=max_in_flight,
            max_bytes=max_bytes,
            request_timeout_s=request_timeout_s,
            ordered=ordered,
            on_error=on_error,
        )
        if connections < 1:
            raise ValueError(f"{self.function}: connections must be at least 1, got {connections}")
        if table is not None:
            check_table(self.function, table)
        if label_type is not None and label_type not in LABEL_TYPES:
            raise ValueError(f"{self.function}: label_type must be one of {', '.join(LABEL_TYPES)}, got {label_type!r}")
        self.server = server
        self.table = table
        self.id_col = id_col
        self.label_col = label_col
        self.data_col = data_col
        self.label_type = label_type
        self.connections = connections

    def flow(self, placed: Iterator[Placed]) -> Iterator[Placed]:
        source = self.row_source()
        with cassandra_sessions(self.server, self.function, self.connections) as sessions:
            queries = RowQueries(sessions[0], source, self.server, self.function)
            transport = CassandraTransport(sessions, queries, self.server, self.function)
            yield from self.through_window(
                placed,
                transport,
                form_requests=transport.form_requests,
                item_of=lambda key, row: self._item(key, row, source),
                size_of=_size_of,
                backoff=Patience(self.request_timeout_s),
            )

    def row_source(self) -> RowSource:
        """The table and columns to read: those given, else those of the file that the keys come from."""
        found = find_row_source(self.source_datapipe)
        if found is None and self.table is None:
            raise ValueError(
                f"{self.function}: no table is named, neither by a split or row file before this stage nor by "
                "table=; pass table='keyspace.table'"
            )
        given = {
            "table": self.table,
            "id_col": self.id_col,
            "label_col": self.label_col,
            "data_col": self.data_col,
            "label_type": self.label_type,
        }
        chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        return RowSource(**chosen) if found is None else replace(found, **chosen)

    def _item(self, key: Any, row: Row | None, source: RowSource) -> Any:
        if row is None or row.data is None:
            what = "row" if row is None else f"data in column {source.data_col}"
            raise LookupError(
                f"{self.function}: key {key} has no {what} in table {source.table} of {self.server.address}; "
                "check that the split or row file is of this table, or pass on_error='skip'"
            )
        return key, row


@functional_form("read_cassandra")
class CassandraReader(CassandraLoader):
    """Keys in, samples out: `load_from_cassandra`, ready for `decode` (functional name: `read_cassandra`).

    A sample is `{"__key__": "0c4a1e0f-...", "jpg": b"...", "cls": 3}`. The data's own first bytes name its
    field: jpg, png, tif, gif, bmp, webp, else bin. A label of label_type "image" or "blob" is the field
    "mask.png" or the like; with "none" there is no label.

    >>> from datapipes.load.cassandra_transport import Row
    >>> sample_of("0c4a1e0f", Row(3, b"\\xff\\xd8\\xff..."), "int")
    {'__key__': '0c4a1e0f', 'jpg': b'\\xff\\xd8\\xff...', 'cls': 3}

    Args and errors are those of `load_from_cassandra`. Table and columns come from the split or row file that
    the keys are from, through any stages between:

        IterableWrapper(["split.npz"]).split_by_file(index=0).distribute().read_cassandra(server=server)
    """

    function = "read_cassandra"

    def _item(self, key: Any, row: Row | None, source: RowSource) -> Any:
        key, row = super()._item(key, row, source)
        return sample_of(key, row, source.label_type)


def sample_of(key: Any, row: Row, label_type: str) -> dict[str, Any]:
    """A row as a sample."""
    sample = {"__key__": str(key), image_extension(row.data): row.data}
    if label_type == "int":
        sample["cls"] = row.label
    elif label_type != "none" and row.label is not None:
        sample[f"mask.{image_extension(row.label)}"] = row.label
    return sample


def image_extension(data: bytes) -> str:
    """The extension that a file of these bytes would have.

    >>> image_extension(b"\\x89PNG\\r\\n"), image_extension(b"some text")
    ('png', 'bin')
    """
    return next((name for magic, name in _MAGIC.items() if data.startswith(magic)), "bin")


def _size_of(row: Row | None) -> int:
    return 0 if row is None or row.data is None else row.nbytes
