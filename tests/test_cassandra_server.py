"""Cassandra as tests and benchmarks use it: clusters, crashes, passwords, TLS, and its log in failures."""

from __future__ import annotations

import socket
import ssl
import time
import uuid
from dataclasses import replace

import psutil
import pytest
from cassandra import ConsistencyLevel, ReadTimeout, Unavailable
from cassandra.cluster import NoHostAvailable
from cassandra.query import SimpleStatement

from recipes.cassandra_node import cassandra_node, node_settings
from recipes.cassandra_server import cassandra_server
from recipes.local_process import free_port

KEYSPACE = "CREATE KEYSPACE {} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': {}}}"


def eventually(read, timeout_s):
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return read()
        except (ReadTimeout, Unavailable):
            if time.monotonic() > deadline:
                raise


def test_one_node_stores_and_answers(cassandra):
    blob = bytes(range(256)) * 400
    with cassandra.session() as session:
        session.execute(KEYSPACE.format("one_node", 1))
        session.execute("CREATE TABLE one_node.images (id uuid PRIMARY KEY, label int, data blob)")
        key = uuid.uuid4()
        session.execute("INSERT INTO one_node.images (id, label, data) VALUES (%s, 7, %s)", (key, blob))
        row = session.execute("SELECT label, data FROM one_node.images WHERE id = %s", (key,)).one()
    assert (row.label, row.data) == (7, blob)


def test_a_node_of_three_that_crashed_is_not_missed_and_comes_back():
    with cassandra_server(nodes=3) as cluster:
        assert cluster.hosts == ("127.0.0.1", "127.0.0.2", "127.0.0.3")
        with cluster.session() as session:
            session.execute(KEYSPACE.format("cluster", 2))
            session.execute("CREATE TABLE cluster.rows (id int PRIMARY KEY)")
            for number in range(30):
                every = SimpleStatement(
                    f"INSERT INTO cluster.rows (id) VALUES ({number})", consistency_level=ConsistencyLevel.ALL
                )
                session.execute(every)
        cluster.kill(2)
        with cluster.session("127.0.0.1") as session:
            # The others need up to 20 s of silence to take it for dead; until then they may ask it.
            assert eventually(lambda: len(list(session.execute("SELECT id FROM cluster.rows"))), timeout_s=60) == 30
        cluster.start(2)
        with cluster.session("127.0.0.3") as session:
            assert session.execute("SELECT count(*) FROM cluster.rows").one()[0] == 30
        processes = [psutil.Process(node.pid) for node in cluster.nodes]
        home = cluster.log_path.parent.parent
    assert not any(process.is_running() for process in processes)
    assert not home.exists()


def test_passwords_and_client_certificates_are_demanded():
    secure = cassandra_server(username="me", password="it's a secret", tls=True, client_key_password="k3y")
    with secure as cassandra:
        with cassandra.session() as session:
            assert session.execute("LIST ROLES OF me").one().super
        for name, password in [("me", "wrong"), ("cassandra", "cassandra")]:
            other = replace(cassandra, server=replace(cassandra.server, username=name, password=password))
            with pytest.raises(NoHostAvailable, match="AuthenticationFailed"), other.session():
                pass
        context = ssl.create_default_context(cafile=str(cassandra.certificates.authority))
        with (
            socket.create_connection((cassandra.hosts[0], cassandra.port), timeout=5) as plain,
            pytest.raises((ssl.SSLError, ConnectionError)),
            context.wrap_socket(plain, server_hostname="127.0.0.1") as encrypted,
        ):
            encrypted.sendall(bytes([4, 0, 0, 0, 5, 0, 0, 0, 0]))
            if encrypted.recv(9) == b"":
                raise ConnectionError("closed for want of a certificate")
        assert "it's a secret" not in cassandra.log_path.read_text()


def test_a_node_that_cannot_start_names_its_log(tmp_path):
    settings = node_settings(tmp_path, "127.0.0.1", free_port(), free_port()) | {"no_such_setting": 1}
    node = cassandra_node(tmp_path, settings, alone=True, fast_start=True)
    with pytest.raises(RuntimeError, match=r"(?s)ended with status 3.*/cassandra\.log ends:\n.*no_such_setting"):
        node.start()
