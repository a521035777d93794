"""Nodes that die, clusters that refuse: an epoch completes where it can, and ends with a name where it cannot."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from cassandra import ConsistencyLevel, ReadTimeout, Unavailable
from cassandra.query import SimpleStatement
from cassandra_tables import data_of, fill, keys_of
from settling import settles
from torch.utils.data import DataLoader
from torchrun import Torchrun

from datapipes.catalog.keys import UuidKeys
from datapipes.catalog.row_file import RowFile, save_row_file
from datapipes.catalog.row_source import RowSource
from datapipes.dataset.as_dataset import as_dataset
from datapipes.iter import IterableWrapper
from datapipes.load.cassandra_session import cassandra_session
from recipes.cassandra_server import LocalCassandra, cassandra_server
from recipes.imagenette import distrib_train_from_cassandra

KEYS = keys_of(400)
SMALL = "-a resnet10 --image-size 32 -b 8 --workers 1 --no-accel -p 2"


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[LocalCassandra, str]]:
    """Three nodes, each row on two, that admit 5 keys a query; and the table."""
    guardrail = {"partition_keys_in_select_warn_threshold": 2, "partition_keys_in_select_fail_threshold": 5}
    with cassandra_server(nodes=3, settings=guardrail) as running:
        with cassandra_session(running.server, "test") as session:
            replication = "{'class': 'SimpleStrategy', 'replication_factor': 2}"
            session.execute(f"CREATE KEYSPACE faults WITH replication = {replication}", timeout=60)
            fill(session, "faults.data_train", KEYS)
        # The commit log is written out every 100 ms.
        time.sleep(0.5)
        yield running, "faults.data_train"


def up(running: LocalCassandra, *nodes: int) -> None:
    """Have these nodes run, and only these."""
    for number, node in enumerate(running.nodes):
        if number not in nodes:
            node.kill()
        elif not node.running:
            node.launch()
    for number in nodes:
        running.nodes[number].wait_until_ready()


def epoch_of(cluster: tuple[LocalCassandra, str], repeats: int = 1, **options):
    running, table = cluster
    pipe = IterableWrapper(KEYS * repeats, deepcopy=False).read_cassandra(server=running.server, table=table, **options)
    return iter(pipe)


def check(found: list, repeats: int = 1) -> None:
    assert [item["__key__"] for item in found] == [str(key) for key in KEYS * repeats]
    assert all(item["jpg"] == data_of(key) for item, key in zip(found, KEYS * repeats))


def test_a_cluster_that_admits_fewer_keys_a_query_is_asked_for_fewer(cluster):
    check(list(epoch_of(cluster)))


def test_a_node_of_three_killed_under_a_running_loader_costs_no_sample(cluster):
    running, table = cluster
    keys = IterableWrapper(KEYS, deepcopy=False).distribute(uneven="keep", shuffle=False)
    pipe = keys.read_cassandra(server=running.server, table=table, max_in_flight=4).batched(8, collate=None)
    dataset = as_dataset(pipe)
    batches = iter(DataLoader(dataset, batch_size=None, num_workers=2))
    found = next(batches)
    running.kill(2)
    for batch in batches:
        found += batch
    check(found)
    assert "400 samples expected, each seen once, 0 skipped" in str(dataset.report())
    check(list(epoch_of(cluster)))


def test_a_node_of_three_that_crashed_comes_back_with_its_rows(cluster):
    running, table = cluster
    assert running.hosts == ("127.0.0.1", "127.0.0.2", "127.0.0.3")
    running.kill(2)
    assert not running.nodes[2].running
    running.start(2)
    every = SimpleStatement(f"SELECT id FROM {table}", consistency_level=ConsistencyLevel.ALL)
    with running.session("127.0.0.3") as session:
        assert len(list(retried(lambda: session.execute(every)))) == len(KEYS)


def retried(query):
    """A node that has just come back is not yet known to every other."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return query()
        except (ReadTimeout, Unavailable):
            if time.monotonic() > deadline:
                raise


def test_the_only_nodes_stopped_and_started_again_cost_no_sample(cluster):
    running, _ = cluster
    up(running, 0, 1)
    samples = epoch_of(cluster, repeats=2, max_in_flight=2, request_timeout_s=90)
    found = [next(samples)]
    up(running)
    with ThreadPoolExecutor(1) as thread:
        rest = thread.submit(list, samples)
        time.sleep(1)
        assert not rest.done()
        up(running, 0, 1)
        check(found + rest.result(), repeats=2)


def test_nodes_that_hang_end_the_loader_after_three_deadlines(cluster):
    running, _ = cluster
    up(running, 0, 1)
    samples = epoch_of(cluster, repeats=20, max_in_flight=2, request_timeout_s=1)
    next(samples)
    for node in (0, 1):
        running.pause(node)
    start = time.monotonic()
    try:
        with pytest.raises(TimeoutError, match=r"no whole answer for \S+ within 1 s; .* \(3 attempts\)"):
            list(samples)
    finally:
        for node in (0, 1):
            running.resume(node)
    assert 2.5 < time.monotonic() - start < 12


@pytest.fixture
def training(cluster, samples, tmp_path) -> Iterator[Torchrun]:
    """Training by torchrun in two processes with a worker each, from the cluster; more rows than will be read."""
    running, _ = cluster
    # Large, so that few of them are fetched ahead of a model that is slow on a CPU.
    image = next((samples / "train").rglob("*.JPEG")).read_bytes() + bytes(500_000)
    with cassandra_session(running.server, "test") as session:
        session.execute("CREATE TABLE IF NOT EXISTS faults.data_images (id uuid PRIMARY KEY, label int, data blob)")
        insert = session.prepare("INSERT INTO faults.data_images (id, label, data) VALUES (?, 0, ?)")
        for key in KEYS[:8]:
            session.execute(insert, (key, image))
    splits = np.arange(200_000) % 8, np.arange(8)
    rows = RowFile(UuidKeys.of(KEYS[:8]), RowSource("faults.data_images"), splits, 2)
    path = str(tmp_path / "split.npz")
    save_row_file(path, rows)
    command = ["--standalone", "--nproc_per_node=2", distrib_train_from_cassandra.__file__]
    command += [*f"--split-fn {path} {SMALL} --request-timeout 3".split(), "--output-dir", str(tmp_path / "run")]
    environment = {"CASSANDRA_HOSTS": ",".join(running.hosts), "CASSANDRA_PORT": str(running.port)}
    process = Torchrun(command, tmp_path / "log", environment=environment)
    yield process
    process.kill()


def test_nodes_killed_for_good_end_loader_and_torchrun_with_their_names_in_time(cluster, training):
    running, table = cluster
    up(running, 0, 1)
    keys = IterableWrapper(KEYS * 50, deepcopy=False)
    pipe = keys.read_cassandra(server=running.server, table=table, max_in_flight=2, request_timeout_s=3)
    assert settles(lambda: "Epoch: [0]" in training.output or training.poll() is not None, within_s=120)
    assert training.poll() is None, training.output
    samples = iter(DataLoader(pipe, batch_size=None, num_workers=2))
    next(samples), next(samples)  # one of each worker, which so has its connections
    start = time.monotonic()
    up(running)
    what = r"key [-0-9a-f]{36}( and \d+ more)?: 127\.0\.0\.1, 127\.0\.0\.2, 127\.0\.0\.3 port \d+ is out of reach"
    with pytest.raises(ConnectionError, match=what):
        list(samples)
    assert time.monotonic() - start < 20
    assert training.wait(40) == 1
    assert re.search(f"ConnectionError: read_cassandra: {what}", training.output), training.output[-5000:]
