"""Rows from Cassandra: read_cassandra beside the driver and the C++ plugin, and at a distance.

One node on the same machine: client and server share its cores, so the rates are lower than a cluster's, and what a
client takes the server lacks; the ratios are what counts. 4,000 blobs of 110 KB, read in one process, in turn.

How the plugin takes part: see cassandra_plugin.py.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from statistics import median

import numpy as np
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, Session
from cassandra.concurrent import execute_concurrent_with_args
from cassandra.policies import RoundRobinPolicy
from cassandra.query import tuple_factory

from datapipes.catalog.cassandra_server import CassandraServer
from datapipes.iter import IterableWrapper
from recipes.benchmarks.cassandra_plugin import beside_the_plugin
from recipes.benchmarks.fresh_process import in_fresh_process, memory_over_epochs, resident_after_epochs
from recipes.benchmarks.harness import Bar, Figures, Table, alternate
from recipes.cassandra_server import cassandra_server
from recipes.slow_proxy import slow_proxy

PACKAGES = ("cassandra-driver",)
BLOBS = 4000
FEW = 500
BLOB_BYTES = 110_000
ROUNDS = 5
CONCURRENCIES = (8, 16, 32, 64)
DELAY_S = 0.1
# A new node compiles itself and compacts what was written for so long, on the cores that it shares with its clients.
WARM_UP_S = 45.0
START_S = 3.0
WATCH_S = 4.0
EPOCHS = 20


def measure() -> Iterable[Table]:
    with cassandra_server(fast_start=False) as running, plain_session(running.server) as session:
        keys = fill(session)
        warm_up(running.server, keys)
        yield beside_the_driver(running.server, session, keys)
        yield from beside_the_plugin(running.server, keys)
        yield at_a_distance(running.server, keys)
        resident_mb = in_fresh_process(memory_of_a_reader, running.server, keys)
        yield memory_over_epochs({"read_cassandra": resident_mb})


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
    columns = "id uuid PRIMARY KEY, label int, data blob"
    session.execute(f"CREATE TABLE bench.data ({columns}) WITH compression = {{'enabled': false}}")
    random = np.random.default_rng(0)
    keys = [uuid.UUID(bytes=random.bytes(16)) for _ in range(BLOBS)]
    insert = session.prepare("INSERT INTO bench.data (id, label, data) VALUES (?, ?, ?)")
    rows = ((key, number % 1000, random.bytes(BLOB_BYTES)) for number, key in enumerate(keys))
    execute_concurrent_with_args(session, insert, rows, concurrency=16, raise_on_first_error=True)
    return keys


def read_all(server: CassandraServer, keys: list[uuid.UUID]) -> None:
    samples = IterableWrapper(keys, deepcopy=False).read_cassandra(server=server, table="bench.data")
    assert sum(len(sample["bin"]) for sample in samples) == len(keys) * BLOB_BYTES


def warm_up(server: CassandraServer, keys: list[uuid.UUID]) -> None:
    until = time.monotonic() + WARM_UP_S
    while time.monotonic() < until:
        read_all(server, keys)


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


def memory_of_a_reader(server: CassandraServer, keys: list[uuid.UUID]) -> list[float]:
    return resident_after_epochs(lambda: read_all(server, keys), EPOCHS)
