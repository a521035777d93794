"""Cassandra as tests and benchmarks use it: clusters, crashes, passwords, TLS, and its log in failures."""

from __future__ import annotations

import socket
import ssl
import time
import uuid
from dataclasses import replace

import pytest
from cassandra import ConsistencyLevel, ReadTimeout, Unavailable
from cassandra.cluster import NoHostAvailable
from cassandra.query import SimpleStatement

from recipes.cassandra_node import cassandra_node, node_settings
from recipes.local_process import free_port

KEYSPACE = "CREATE KEYSPACE {} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': {}}}"


def test_one_node_stores_and_answers(cassandra):
    blob = bytes(range(256)) * 400
    with cassandra.session() as session:
        session.execute(KEYSPACE.format("one_node", 1))
        session.execute("CREATE TABLE one_node.images (id uuid PRIMARY KEY, label int, data blob)")
        key = uuid.uuid4()
        session.execute("INSERT INTO one_node.images (id, label, data) VALUES (%s, 7, %s)", (key, blob))
        row = session.execute("SELECT label, data FROM one_node.images WHERE id = %s", (key,)).one()
    assert (row.label, row.data) == (7, blob)


def test_a_node_of_three_that_crashed_comes_back_with_its_rows(cassandra_cluster):
    assert cassandra_cluster.hosts == ("127.0.0.1", "127.0.0.2", "127.0.0.3")
    with cassandra_cluster.session() as session:
        session.execute(KEYSPACE.format("three", 2))
        session.execute("CREATE TABLE three.rows (id int PRIMARY KEY)")
        insert = session.prepare("INSERT INTO three.rows (id) VALUES (?)")
        insert.consistency_level = ConsistencyLevel.ALL
        for number in range(30):
            session.execute(insert, [number])
    # The commit log is written out every 100 ms.
    time.sleep(0.5)
    cassandra_cluster.kill(2)
    assert not cassandra_cluster.nodes[2].running
    cassandra_cluster.start(2)
    every = SimpleStatement("SELECT id FROM three.rows", consistency_level=ConsistencyLevel.ALL)
    with cassandra_cluster.session("127.0.0.3") as session:
        assert len(list(retried(lambda: session.execute(every)))) == 30


def retried(query):
    """A node that has just come back is not yet known to every other."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return query()
        except (ReadTimeout, Unavailable):
            if time.monotonic() > deadline:
                raise


def test_passwords_and_client_certificates_are_demanded(secure_cassandra):
    with secure_cassandra.session() as session:
        assert session.execute("LIST ROLES OF me").one().super
    for name, password in [("me", "wrong"), ("cassandra", "cassandra")]:
        other = replace(secure_cassandra, server=replace(secure_cassandra.server, username=name, password=password))
        with pytest.raises(NoHostAvailable, match="AuthenticationFailed"), other.session():
            pass
    context = ssl.create_default_context(cafile=str(secure_cassandra.certificates.authority))
    with (
        socket.create_connection((secure_cassandra.hosts[0], secure_cassandra.port), timeout=5) as plain,
        pytest.raises((ssl.SSLError, ConnectionError)),
        context.wrap_socket(plain, server_hostname="127.0.0.1") as encrypted,
    ):
        encrypted.sendall(bytes([4, 0, 0, 0, 5, 0, 0, 0, 0]))
        if encrypted.recv(9) == b"":
            raise ConnectionError("closed for want of a certificate")
    assert "it's a secret" not in secure_cassandra.log_path.read_text()


def test_a_node_that_cannot_start_names_its_log(tmp_path):
    settings = node_settings(tmp_path, "127.0.0.1", free_port(), free_port()) | {"no_such_setting": 1}
    node = cassandra_node(tmp_path, settings, alone=True, fast_start=True)
    with pytest.raises(RuntimeError, match=r"(?s)ended with status 3.*/cassandra\.log ends:\n.*no_such_setting"):
        node.start()
