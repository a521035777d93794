"""Cassandra as tests and benchmarks use it: a node, passwords, TLS, and its log in failures."""

from __future__ import annotations

import socket
import ssl
import uuid
from dataclasses import replace

import pytest
from cassandra.cluster import NoHostAvailable

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
    assert "hunter2" not in secure_cassandra.log_path.read_text()


def test_a_node_that_cannot_start_names_its_log(tmp_path):
    settings = node_settings(tmp_path, "127.0.0.1", free_port(), free_port()) | {"no_such_setting": 1}
    node = cassandra_node(tmp_path, settings, alone=True, fast_start=True)
    with pytest.raises(RuntimeError, match=r"(?s)ended with status 3.*/cassandra\.log ends:\n.*no_such_setting"):
        node.start()
