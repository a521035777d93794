"""Images into Cassandra: data first, then metadata, so that what the metadata names is there.

A row's key is made from its table and its file's path. A run that was killed is simply run again: it writes
what is missing, and nothing twice.
"""

from __future__ import annotations

import queue
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cassandra import ConsistencyLevel
from cassandra.cluster import Session
from cassandra.metadata import protect_name
from cassandra.query import SimpleStatement

from datapipes.catalog.cassandra_server import CassandraServer
from datapipes.catalog.class_map import ClassMap
from datapipes.catalog.row_source import check_table
from datapipes.load.cassandra_session import cassandra_session, key_column, meaning_of, quoted
from datapipes.prepare.class_folders import ImageFile, ImageFormat, image_bytes
from datapipes.stages.threads import map_in_threads

# 16 writes of 110 KB under way are as fast as it gets on a node beside us; 64 MB bound larger ones.
MAX_IN_FLIGHT = 32
MAX_BYTES = 64 << 20
WRITE_TIMEOUT_S = 60.0
_NAMESPACE = uuid.UUID("7c0d6c1e-52a4-5f5e-9b0b-3d9e2f3c8a51")


@dataclass(frozen=True)
class Ingest:
    """What to write, and how.

    Args:
        root: the folder that every image's path is relative to.
        data_table, metadata_table: "keyspace.table".
        classes: names and labels.
        split: what the column or_split says.
        img_format: "UNCHANGED" stores a file's own bytes.
        img_size: pixels of the shorter side, where the format changes.
        masks: a folder with a second file for each image, at the same path but for its extension, which
            becomes the label; None = labels are classes. "" = no label column at all.
    """

    root: str
    data_table: str
    metadata_table: str
    classes: ClassMap
    split: str = ""
    img_format: ImageFormat = "UNCHANGED"
    img_size: int | None = None
    masks: str | None = None

    def __post_init__(self) -> None:
        check_table("extract", self.data_table)
        check_table("extract", self.metadata_table)

    def key_of(self, image: ImageFile) -> uuid.UUID:
        """The same for the same table and path, on any machine and day."""
        return uuid.uuid5(_NAMESPACE, f"{self.data_table}/{image.path}")

    def label_of(self, image: ImageFile) -> int | bytes | None:
        """What the data table's label column holds."""
        if self.masks is None:
            return self.classes[image.class_name]
        return mask_path(self.masks, image.path).read_bytes() if self.masks else None


def mask_path(masks: str, path: str) -> Path:
    """The mask's file for an image: at the same path, whatever its extension."""
    stem = Path(masks, path).with_suffix("")
    found = sorted(stem.parent.glob(f"{stem.name}.*"))
    if not found:
        raise FileNotFoundError(f"extract: no mask {stem}.* for image {path}; each image needs one")
    return found[0]


def write_images(
    images: Iterable[ImageFile],
    ingest: Ingest,
    server: CassandraServer,
    *,
    num_threads: int = 4,
    on_written: Callable[[int], Any] = lambda count: None,
) -> int:
    """Write every image and return how many; `on_written` is called with the number of those that are new.

    Raises:
        RuntimeError: a write failed after the driver's retries; the message names the file.
    """
    with cassandra_session(server, "extract") as session:
        writer = _Writer(session, ingest, server)
        for image, row in map_in_threads(images, lambda image: _row(image, ingest), num_threads):
            writer.write(image, row)
            on_written(writer.take_written())
        writer.finish()
        on_written(writer.take_written())
        return writer.written


def missing_images(images: Sequence[ImageFile], ingest: Ingest, server: CassandraServer) -> list[ImageFile]:
    """Those that the metadata table does not name yet."""
    written = {key for key, _ in _metadata_rows(ingest, server)}
    return [image for image in images if ingest.key_of(image) not in written]


def verify_counts(images: Sequence[ImageFile], ingest: Ingest, server: CassandraServer) -> dict[str, int]:
    """Count the rows of each class in the metadata table, and compare with the files.

    Raises:
        RuntimeError: a class has other counts than its folder.
    """
    wanted = {ingest.key_of(image): image.class_name for image in images}
    expected = Counter(wanted.values())
    found = Counter(wanted[key] for key, _ in _metadata_rows(ingest, server) if key in wanted)
    wrong = [f"{name}: {found[name]:,} of {count:,}" for name, count in expected.items() if found[name] != count]
    if wrong:
        raise RuntimeError(
            f"extract: {ingest.metadata_table} lacks rows of {len(wrong)} classes ({'; '.join(wrong[:5])}); "
            "run the same command again"
        )
    return dict(found)


def _metadata_rows(ingest: Ingest, server: CassandraServer) -> Iterator[tuple[uuid.UUID, Any]]:
    with cassandra_session(server, "extract") as session:
        id_col = key_column(session, ingest.metadata_table, server, "extract")
        query = f"SELECT {protect_name(id_col)}, label FROM {quoted(ingest.metadata_table)}"
        try:
            yield from session.execute(SimpleStatement(query, fetch_size=5000), timeout=WRITE_TIMEOUT_S)
        except Exception as error:
            raise meaning_of(error, server, "extract") from None


def _row(image: ImageFile, ingest: Ingest) -> tuple[ImageFile, tuple[bytes, int | bytes | None]]:
    try:
        data = image_bytes(Path(ingest.root, image.path), ingest.img_format, ingest.img_size)
        return image, (data, ingest.label_of(image))
    except FileNotFoundError:
        raise
    except Exception as error:
        raise OSError(f"extract: {image.path} cannot be read: {error}; replace or remove the file") from error


class _Writer:
    """Keeps writes under way; a row's metadata goes out when its data has been acknowledged."""

    def __init__(self, session: Session, ingest: Ingest, server: CassandraServer) -> None:
        self.written = 0
        self._reported = 0
        self._session = session
        self._ingest = ingest
        self._server = server
        self._done: queue.SimpleQueue[tuple[ImageFile, int, bool, Exception | None]] = queue.SimpleQueue()
        self._under_way = 0
        self._bytes = 0
        data_id = key_column(session, ingest.data_table, server, "extract")
        metadata_id = key_column(session, ingest.metadata_table, server, "extract")
        columns = [data_id, "data"] if ingest.masks == "" else [data_id, "data", "label"]
        self._data = self._prepared(ingest.data_table, columns)
        self._check_label_type()
        self._metadata = self._prepared(ingest.metadata_table, [metadata_id, "label", "or_label", "or_split"])

    def _check_label_type(self) -> None:
        """The driver would pack a number into a blob without a word."""
        if self._ingest.masks == "":
            return
        kind = self._data.column_metadata[2].type.cql_parameterized_type()
        if (kind == "blob") != (self._ingest.masks is not None):
            raise ValueError(
                f"extract: column label of {self._ingest.data_table} is of type {kind}, and labels are "
                f"{'classes' if self._ingest.masks is None else 'masks'}; pass --mask-dir for a blob, and only then"
            )

    def _prepared(self, table: str, columns: list[str]) -> Any:
        marks = ", ".join("?" * len(columns))
        query = f"INSERT INTO {quoted(table)} ({', '.join(map(protect_name, columns))}) VALUES ({marks})"
        try:
            prepared = self._session.prepare(query)
        except Exception as error:
            raise meaning_of(error, self._server, f"extract: table {table}") from None
        prepared.consistency_level = ConsistencyLevel.LOCAL_QUORUM
        prepared.is_idempotent = True
        return prepared

    def write(self, image: ImageFile, row: tuple[bytes, int | bytes | None]) -> None:
        data, label = row
        while self._under_way >= MAX_IN_FLIGHT or (self._under_way and self._bytes + len(data) > MAX_BYTES):
            self._settle()
        values = [self._ingest.key_of(image), data, label]
        self._bytes += len(data)
        self._under_way += 1
        self._send(image, len(data), self._data, values[: len(self._data.column_metadata)], is_data=True)

    def finish(self) -> None:
        while self._under_way:
            self._settle()

    def take_written(self) -> int:
        new, self._reported = self.written - self._reported, self.written
        return new

    def _settle(self) -> None:
        image, size, is_data, error = self._done.get()
        if error is not None:
            raise RuntimeError(
                f"extract: {image.path} was not written to {self._ingest.data_table}: "
                f"{meaning_of(error, self._server, 'extract')}; {self.written:,} images of this run are written, "
                "run the same command again to go on"
            )
        if is_data:
            label = self._ingest.classes[image.class_name]
            values = [self._ingest.key_of(image), label, image.class_name, self._ingest.split]
            self._send(image, size, self._metadata, values, is_data=False)
        else:
            self._under_way -= 1
            self._bytes -= size
            self.written += 1

    def _send(self, image: ImageFile, size: int, prepared: Any, values: Any, *, is_data: bool) -> None:
        future = self._session.execute_async(prepared, values, timeout=WRITE_TIMEOUT_S)
        future.add_callbacks(
            lambda _: self._done.put((image, size, is_data, None)),
            lambda error: self._done.put((image, size, is_data, error)),
        )
