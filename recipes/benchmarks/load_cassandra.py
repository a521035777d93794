"""Rows from Cassandra: read_cassandra beside the driver and the C++ plugin, at a distance, and the way in.

One node on the same machine: client and server share its cores, so the rates are lower than a cluster's, and what a
client takes the server lacks; the ratios are what counts. 4,000 blobs of 110 KB, read in one process, in turn.

The C++ plugin needs an environment of its own, so it takes part where CASSANDRA_PEER_IN_ORDER and
CASSANDRA_PEER_OUT_OF_ORDER name commands that run it: `{host}`, `{port}`, `{ids}` (a file, a UUID a line) and
`{table}` are filled in, and for each epoch the command prints a JSON object with `rate` (images/s) and `us` (CPU of
an image).
"""

from __future__ import annotations

import json
import os
import resource
import shlex
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import numpy as np
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, Session
from cassandra.concurrent import execute_concurrent_with_args
from cassandra.policies import RoundRobinPolicy
from cassandra.query import tuple_factory

from datapipes.catalog.cassandra_server import CassandraServer
from datapipes.catalog.class_map import ClassMap
from datapipes.catalog.row_source import RowSource
from datapipes.iter import IterableWrapper
from datapipes.prepare.cassandra_ingest import Ingest, write_images
from datapipes.prepare.class_folders import list_images
from datapipes.prepare.make_split import make_split
from datapipes.prepare.metadata import read_metadata
from recipes.benchmarks.harness import Bar, Figures, Table, alternate, own_cpu_s
from recipes.cassandra_server import cassandra_server
from recipes.slow_proxy import slow_proxy

PACKAGES = ("cassandra-driver",)
BLOBS = 4000
FEW = 500
BLOB_BYTES = 110_000
ROUNDS = 5
CONCURRENCIES = (8, 16, 32, 64)
# With more, the driver finds the socket full and refuses.
WRITES_AT_ONCE = (2, 4, 8)
DELAY_S = 0.1
START_S = 3.0
WATCH_S = 4.0
EPOCHS = 20
METADATA_ROWS = 200_000
IMAGENET_ROWS = 1_281_167


def measure() -> Iterable[Table]:
    with cassandra_server(fast_start=False) as running, plain_session(running.server) as session:
        keys = fill(session)
        yield beside_the_driver(running.server, session, keys)
        yield from beside_the_plugin(running.server, keys)
        yield at_a_distance(running.server, keys)
        yield memory_of_a_reader(running.server, keys)
        yield ingest(running.server, session)
        yield metadata_and_splits(running.server, session)


@contextmanager
def plain_session(server: CassandraServer) -> Iterator[Session]:
    """The driver as it comes."""
    profile = ExecutionProfile(load_balancing_policy=RoundRobinPolicy(), row_factory=tuple_factory, request_timeout=60)
    cluster = Cluster(list(server.hosts), port=server.port, execution_profiles={EXEC_PROFILE_DEFAULT: profile})
    try:
        yield cluster.connect()
    finally:
        cluster.shutdown()


def fill(session: Session) -> list[uuid.UUID]:
    options = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    session.execute(f"CREATE KEYSPACE bench WITH replication = {options}")
    for table in ("data", "data_written", "data_bare"):
        columns = "id uuid PRIMARY KEY, label int, data blob"
        session.execute(f"CREATE TABLE bench.{table} ({columns}) WITH compression = {{'enabled': false}}")
    for table in ("metadata_written", "metadata_bare", "metadata_large"):
        columns = "id uuid PRIMARY KEY, label int, or_label text, or_split text"
        session.execute(f"CREATE TABLE bench.{table} ({columns})")
    random = np.random.default_rng(0)
    keys = [uuid.UUID(bytes=random.bytes(16)) for _ in range(BLOBS)]
    insert = session.prepare("INSERT INTO bench.data (id, label, data) VALUES (?, ?, ?)")
    rows = ((key, number % 1000, random.bytes(BLOB_BYTES)) for number, key in enumerate(keys))
    execute_concurrent_with_args(session, insert, rows, concurrency=16, raise_on_first_error=True)
    return keys


def read_all(server: CassandraServer, keys: list[uuid.UUID]) -> None:
    samples = IterableWrapper(keys, deepcopy=False).read_cassandra(server=server, table="bench.data")
    assert sum(len(sample["bin"]) for sample in samples) == len(keys) * BLOB_BYTES


def beside_the_driver(server: CassandraServer, session: Session, keys: list[uuid.UUID]) -> Table:
    query = session.prepare("SELECT id, label, data FROM bench.data WHERE id = ?")

    def concurrently(number: int) -> None:
        found = execute_concurrent_with_args(
            session,
            query,
            [(key,) for key in keys],
            concurrency=number,
            raise_on_first_error=True,
            results_generator=True,
        )
        assert sum(len(result.result_or_exc[0][2]) for result in found) == len(keys) * BLOB_BYTES

    def one_by_one() -> None:
        assert sum(len(session.execute(query, (key,))[0][2]) for key in keys[:FEW]) == FEW * BLOB_BYTES

    trials = alternate(
        {str(number): (lambda number=number: concurrently(number)) for number in CONCURRENCIES}, rounds=2
    )
    best = int(min(trials, key=lambda name: min(trials[name].wall_s)))
    ways: dict[str, tuple[int, Callable[[], object]]] = {
        "read_cassandra": (BLOBS, lambda: read_all(server, keys)),
        f"execute_concurrent_with_args, {best} at once": (BLOBS, lambda: concurrently(best)),
        "execute, one by one": (FEW, one_by_one),
    }
    figures = alternate({name: run for name, (_, run) in ways.items()}, ROUNDS)
    ours, concurrent, single = ways
    cpu_us = {name: figures[name].median_cpu_s / count * 1e6 for name, (count, _) in ways.items()}
    bars = [
        Bar("its rate, of execute_concurrent_with_args's", faster(figures, ways, ours, concurrent), at_least=2.5),
        Bar("its rate, of one by one", faster(figures, ways, ours, single), at_least=5),
        Bar("its CPU a row, of execute_concurrent_with_args's", cpu_us[ours] / cpu_us[concurrent], at_most=0.4),
    ]
    rows = [
        [
            name,
            f"{count / figures[name].median_wall_s:.0f}",
            f"{faster(figures, ways, ours, name):.2f}",
            f"{cpu_us[name]:.0f}",
        ]
        for name, (count, _) in ways.items()
    ]
    columns = ["client", "rows/s", "ours is faster by", "client CPU a row, us"]
    return Table("Beside the driver, default settings", columns, rows, bars)


def faster(
    figures: dict[str, Figures], ways: dict[str, tuple[int, Callable[[], object]]], ours: str, other: str
) -> float:
    """The median of the rounds' own ratios: what slowed one in a round slowed the next as well."""
    pairs = zip(figures[other].wall_s, figures[ours].wall_s, strict=True)
    return median(theirs / mine for theirs, mine in pairs) * ways[ours][0] / ways[other][0]


def beside_the_plugin(server: CassandraServer, keys: list[uuid.UUID]) -> Iterator[Table]:
    """Our epochs and the plugin's in turn, ours in exact order in both comparisons."""
    bars, rows = [], []
    for order, at_least in (("in order", 1.1), ("out of order", 1.0)):
        command = os.environ.get(f"CASSANDRA_PEER_{order.replace(' ', '_').upper()}")
        if command is None:
            continue
        rates, cpu_us = [], []
        for _ in range(ROUNDS):
            theirs = run_plugin(command, server, keys)
            mine = own_epochs(server, keys)
            rates.append((mine[0], theirs[0]))
            cpu_us.append((mine[1], theirs[1]))
        for place, name in enumerate(("read_cassandra", f"C++ plugin, {order}")):
            rows.append([name, f"{median(r[place] for r in rates):.0f}", f"{median(c[place] for c in cpu_us):.0f}"])
        bars += [
            Bar(f"its rate, of the plugin's {order}", median(m / t for m, t in rates), at_least=at_least),
            Bar(f"its CPU a row, of the plugin's {order}", median(m / t for m, t in cpu_us), at_most=0.7),
        ]
    if rows:
        yield Table("Beside the C++ plugin", ["reader", "rows/s", "client CPU a row, us"], rows, bars)


def run_plugin(command: str, server: CassandraServer, keys: list[uuid.UUID]) -> tuple[float, float]:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as ids:
        ids.write("\n".join(map(str, keys)))
        ids.flush()
        filled = command.format(host=server.hosts[0], port=server.port, ids=ids.name, table="bench.data")
        said = subprocess.run(shlex.split(filled), capture_output=True, text=True, check=True).stdout
    epochs = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return median(epoch["rate"] for epoch in epochs), median(epoch["us"] for epoch in epochs)


def own_epochs(server: CassandraServer, keys: list[uuid.UUID], epochs: int = 3) -> tuple[float, float]:
    """Rate and CPU of a steady reader: epochs on end, the first not counted, as the plugin counts its own."""
    samples = iter(
        IterableWrapper(keys * (epochs + 1), deepcopy=False).read_cassandra(server=server, table="bench.data")
    )
    for _ in keys:
        next(samples)
    start, cpu_s = time.perf_counter(), own_cpu_s()
    count = sum(1 for sample in samples if sample["bin"])
    return count / (time.perf_counter() - start), (own_cpu_s() - cpu_s) / count * 1e6


def at_a_distance(server: CassandraServer, keys: list[uuid.UUID]) -> Table:
    rates: dict[float, list[float]] = {0.0: [], DELAY_S: []}
    for _ in range(3):
        for delay_s, found in rates.items():
            with slow_proxy(f"{server.hosts[0]}:{server.port}", delay_s=delay_s) as proxy:
                found.append(settled_rate(CassandraServer(port=proxy.port), keys * 40))
    rows = [[f"{delay_s * 1e3:.0f} ms", f"{median(found):.0f}"] for delay_s, found in rates.items()]
    ratio = median(far / near for near, far in zip(*rates.values(), strict=True))
    bar = Bar(f"rate with {DELAY_S * 1e3:.0f} ms added, of the rate without", ratio, at_least=0.8)
    title = f"Behind a proxy, default settings, after the first {START_S:.0f} s"
    return Table(title, ["delay", "rows/s"], rows, [bar])


def settled_rate(server: CassandraServer, keys: list[uuid.UUID]) -> float:
    samples = IterableWrapper(keys, deepcopy=False).read_cassandra(server=server, table="bench.data")
    began = time.perf_counter()
    first = settled_at = 0.0
    for number, _ in enumerate(samples):
        now = time.perf_counter()
        if now - began > START_S and not first:
            first, settled_at = number, now
        if now - began > START_S + WATCH_S:
            return (number - first) / (now - settled_at)
    raise RuntimeError(f"load_cassandra: {len(keys)} rows were read within {START_S + WATCH_S} s; give it more")


def memory_of_a_reader(server: CassandraServer, keys: list[uuid.UUID]) -> Table:
    resident = []
    for _ in range(EPOCHS):
        read_all(server, keys)
        resident.append(resident_mb())
    growth = resident[-1] / resident[2]
    bar = Bar(f"memory after {EPOCHS} epochs, of that after 3", growth, at_most=1.03)
    rows = [[str(epoch), f"{resident[epoch - 1]:.0f}"] for epoch in (1, 3, 10, EPOCHS)]
    return Table("Memory of a reader", ["after epoch", "resident, MB"], rows, [bar])


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def ingest(server: CassandraServer, session: Session) -> Table:
    """Files into rows, beside prepared inserts of the same bytes, read beforehand, at the best concurrency."""
    with tempfile.TemporaryDirectory() as folder:
        blob = np.random.default_rng(1).bytes(BLOB_BYTES)
        Path(folder, "train", "cat").mkdir(parents=True)
        for number in range(FEW * 2):
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


def metadata_and_splits(server: CassandraServer, session: Session) -> Table:
    insert = session.prepare("INSERT INTO bench.metadata_large (id, label) VALUES (?, ?)")
    random = np.random.default_rng(2)
    rows = ((uuid.UUID(bytes=random.bytes(16)), number % 1000) for number in range(METADATA_ROWS))
    execute_concurrent_with_args(session, insert, rows, concurrency=64, raise_on_first_error=True)
    source = RowSource("bench.data_large", metadata_table="bench.metadata_large")
    read_metadata(server, source)
    before, start = resident_mb(), time.perf_counter()
    metadata = read_metadata(server, source)
    read_s, read_mb = time.perf_counter() - start, resident_mb() - before
    assert len(metadata.keys) == METADATA_ROWS and metadata.labels is not None
    repeats = -(-IMAGENET_ROWS // METADATA_ROWS)
    keys = type(metadata.keys)(np.tile(metadata.keys.packed, (repeats, 1))[:IMAGENET_ROWS])  # type: ignore[call-arg, attr-defined]
    labels = np.tile(metadata.labels, repeats)[:IMAGENET_ROWS]
    peak, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3, time.perf_counter()
    make_split(keys, labels, ratio=(8, 2), balance="random")
    split_s = time.perf_counter() - start
    split_mb = max(0.0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3 - max(peak, resident_mb()))
    bars = [
        Bar(f"seconds to split {IMAGENET_ROWS:,} rows", split_s, at_most=2),
        Bar("MB over the table's own", split_mb, at_most=100),
    ]
    table = [
        ["metadata read", f"{METADATA_ROWS / read_s:,.0f} rows/s", f"{read_mb:.0f} MB for {METADATA_ROWS:,} rows"],
        [f"split of {IMAGENET_ROWS:,} rows", f"{split_s:.2f} s", f"{split_mb:.0f} MB over what was there"],
    ]
    return Table("Metadata and splits", ["what", "how fast", "memory"], table, bars)
