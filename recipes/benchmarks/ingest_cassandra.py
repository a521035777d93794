"""Into Cassandra and on to a split: files written beside bare inserts, and ImageNet's metadata read and split.

One node on the same machine, which shares its cores with the client.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from cassandra.cluster import Session
from cassandra.concurrent import execute_concurrent_with_args
from cassandra.query import BatchStatement, BatchType

from datapipes.catalog.cassandra_server import CassandraServer
from datapipes.catalog.class_map import ClassMap
from datapipes.catalog.row_source import RowSource
from datapipes.prepare.cassandra_ingest import Ingest, write_images
from datapipes.prepare.class_folders import list_images
from datapipes.prepare.make_split import make_split
from datapipes.prepare.metadata import read_metadata
from recipes.benchmarks.fresh_process import Taken, in_fresh_process, taken
from recipes.benchmarks.harness import Bar, Table, alternate
from recipes.benchmarks.load_cassandra import faster, plain_session
from recipes.cassandra_server import cassandra_server

PACKAGES = ("cassandra-driver",)
IMAGES = 1000
IMAGE_BYTES = 110_000
ROUNDS = 5
# With more, the driver finds the socket full and refuses.
WRITES_AT_ONCE = (2, 4, 8)
IMAGENET_ROWS = 1_281_167
BATCH = 100
LARGE = RowSource("bench.data_large", metadata_table="bench.metadata_large")


def measure() -> Iterable[Table]:
    settings = {"write_request_timeout": "60s"}
    with cassandra_server(fast_start=False, settings=settings) as running, plain_session(running.server) as session:
        create_tables(session)
        yield ingest(running.server, session)
        yield metadata_and_splits(running.server, session)


def create_tables(session: Session) -> None:
    options = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    session.execute(f"CREATE KEYSPACE bench WITH replication = {options}")
    for table in ("data_written", "data_bare"):
        columns = "id uuid PRIMARY KEY, label int, data blob"
        session.execute(f"CREATE TABLE bench.{table} ({columns}) WITH compression = {{'enabled': false}}")
    for table in ("metadata_written", "metadata_bare", "metadata_large"):
        columns = "id uuid PRIMARY KEY, label int, or_label text, or_split text"
        session.execute(f"CREATE TABLE bench.{table} ({columns})")


def ingest(server: CassandraServer, session: Session) -> Table:
    """Files into rows, beside prepared inserts of the same bytes, read beforehand, at the best concurrency."""
    with tempfile.TemporaryDirectory() as folder:
        blob = np.random.default_rng(1).bytes(IMAGE_BYTES)
        Path(folder, "train", "cat").mkdir(parents=True)
        for number in range(IMAGES):
            Path(folder, "train", "cat", f"{number}.jpg").write_bytes(blob)
        images = list(list_images(folder, "train"))
        ours = Ingest(folder, "bench.data_written", "bench.metadata_written", ClassMap(["cat"]), "train")
        data = session.prepare("INSERT INTO bench.data_bare (id, label, data) VALUES (?, ?, ?)")
        metadata = session.prepare(
            "INSERT INTO bench.metadata_bare (id, label, or_label, or_split) VALUES (?, ?, ?, ?)"
        )
        keys = [ours.key_of(image) for image in images]

        def bare(number: int) -> None:
            for query, rows in (
                (data, [(key, 0, blob) for key in keys]),
                (metadata, [(key, 0, "cat", "train") for key in keys]),
            ):
                execute_concurrent_with_args(session, query, rows, concurrency=number, raise_on_first_error=True)

        trials = alternate({str(n): (lambda number=n: bare(number)) for n in WRITES_AT_ONCE}, rounds=2)
        best = int(min(trials, key=lambda name: min(trials[name].wall_s)))
        ways: dict[str, tuple[int, Callable[[], object]]] = {
            "write_images, from files": (len(images), lambda: write_images(images, ours, server)),
            f"prepared inserts from memory, {best} at once": (len(images), lambda: bare(best)),
        }
        figures = alternate({name: run for name, (_, run) in ways.items()}, ROUNDS)
    rows = [[name, f"{count / figures[name].median_wall_s:.0f}"] for name, (count, _) in ways.items()]
    bar = Bar("its rate, of bare prepared inserts'", faster(figures, ways, *ways), at_least=0.95)
    return Table("Ingest: data and metadata", ["writer", "images/s"], rows, [bar])


def metadata_and_splits(server: CassandraServer, session: Session, rows: int = IMAGENET_ROWS) -> Table:
    fill_metadata(session, rows)
    read, split, own_mb = in_fresh_process(read_and_split, server, rows)
    bars = [
        Bar(f"seconds to split {rows:,} rows", split.seconds, at_most=2),
        Bar("MB over the table's own", split.peak_mb, at_most=100),
    ]
    lines = [
        [f"metadata of {rows:,} rows read", f"{read.seconds:.1f} s, {rows / read.seconds:,.0f} rows/s", read.peak_mb],
        ["they are split 8 to 2, balance random", f"{split.seconds:.2f} s", split.peak_mb],
    ]
    table = [[what, how_fast, f"{peak_mb:.0f}"] for what, how_fast, peak_mb in lines]
    notes = f"The peak is over what the process had when that began. Keys and labels themselves are {own_mb:.0f} MB."
    return Table("Metadata and splits, in a process of their own", ["what", "how fast", "peak, MB"], table, bars, notes)


def fill_metadata(session: Session, rows: int) -> None:
    """Batches over many partitions are for a single node alone, where they are five times as fast as inserts."""
    insert = session.prepare("INSERT INTO bench.metadata_large (id, label, or_label, or_split) VALUES (?, ?, ?, ?)")
    random = np.random.default_rng(2)
    sent: list[object] = []
    for first in range(0, rows, BATCH):
        batch = BatchStatement(BatchType.UNLOGGED)
        for number in range(first, min(first + BATCH, rows)):
            label = number % 1000
            batch.add(insert, (uuid.UUID(bytes=random.bytes(16)), label, f"n{label:08d}", "train"))
        sent.append(session.execute_async(batch))
        if len(sent) == 4:
            sent.pop(0).result()  # type: ignore[attr-defined]
    for future in sent:
        future.result()  # type: ignore[attr-defined]


def read_and_split(server: CassandraServer, rows: int) -> tuple[Taken, Taken, float]:
    """What reading took, what splitting took, and the bytes of keys and labels in MB."""
    with taken() as read:
        metadata = read_metadata(server, LARGE)
    assert len(metadata.keys) == rows and metadata.labels is not None
    with taken() as split:
        made = make_split(metadata.keys, metadata.labels, ratio=(8, 2), balance="random")
    assert len(made.splits) == 2
    return read, split, (16 * rows + metadata.labels.nbytes) / 1e6
