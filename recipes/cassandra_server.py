"""A real Apache Cassandra on this machine: one node or a cluster, with passwords or TLS where asked.

    with cassandra_server() as cassandra:
        ... cassandra.server ...                 # a CassandraServer, as our pipes take it
    with cassandra_server(nodes=3) as cluster:   # on 127.0.0.1, 127.0.0.2 and 127.0.0.3
        cluster.kill(2)

From a shell: `python recipes/servers.py cassandra`. The first start downloads Cassandra (70 MB from Maven
Central) into ~/.cache/remote-datapipes; later ones take about 6 s.
"""

from __future__ import annotations

import shutil
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable, Session
from cassandra.policies import WhiteListRoundRobinPolicy

from datapipes.catalog.cassandra_server import CassandraServer
from datapipes.catalog.secret import Secret
from recipes.cassandra_node import PASSWORD_SETTINGS, cassandra_node, encryption_settings, node_settings
from recipes.certificates import Certificates, write_certificates
from recipes.local_process import LocalProcess, free_port, temporary_folder


@dataclass
class LocalCassandra:
    """A running cluster of one or more nodes, all at the same port."""

    nodes: list[LocalProcess]
    server: CassandraServer
    certificates: Certificates | None = None

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(self.server.hosts)

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def log_path(self) -> Path:
        return self.nodes[0].log_path

    @property
    def pid(self) -> int:
        return self.nodes[0].pid

    def kill(self, node: int = 0) -> None:
        """End a node as a crash would; only writes of its last 100 ms may be missing when it is back."""
        self.nodes[node].kill()

    def start(self, node: int = 0) -> None:
        """Start a node again after `kill`, with its data."""
        self.nodes[node].start()

    def pause(self, node: int = 0) -> None:
        """Let a node hold its connections and answer nothing, until `resume`."""
        self.nodes[node].pause()

    def resume(self, node: int = 0) -> None:
        self.nodes[node].resume()

    def stop(self) -> None:
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            list(pool.map(LocalProcess.stop, self.nodes))

    @contextmanager
    def session(self, host: str | None = None) -> Iterator[Session]:
        """A session of the plain driver, for tables and test rows; its contact is `host` alone if named."""
        cluster = _connect(self.server, (host,) if host else self.hosts)
        try:
            yield cluster.connect()
        finally:
            cluster.shutdown()


@contextmanager
def cassandra_server(
    *,
    nodes: int = 1,
    port: int | None = None,
    folder: Path | None = None,
    username: str | None = None,
    password: str | None = None,
    tls: bool = False,
    client_key_password: str | None = None,
    fast_start: bool = True,
    settings: Mapping[str, Any] | None = None,
) -> Iterator[LocalCassandra]:
    """Cassandra 5.0 on 127.0.0.1 and, for more `nodes`, the addresses after it.

    Args:
        nodes: 1 has 1 GB of heap; more have 320 MB each, tokens evenly spread.
        port: for CQL; a free one by default.
        folder: keeps data and logs; by default a temporary one, removed at the end.
        username, password: of a superuser; others are refused.
        tls: CQL only encrypted and only for clients with a certificate of `certificates`.
        client_key_password: encrypts the client's private key.
        fast_start: 4 s of CPU less until it is ready; slower ever after, so not for benchmarks.
        settings: for cassandra.yaml, over our own.
    """
    home = (folder or temporary_folder("cassandra")).resolve()
    hosts = [f"127.0.0.{number}" for number in range(1, nodes + 1)]
    certificates = (
        write_certificates(home / "certificates", hosts, client_key_password=client_key_password) if tls else None
    )
    port, storage_port = port or free_port(), free_port()
    server = CassandraServer(
        hosts=hosts,
        port=port,
        username=username,
        password=password,
        ca_certificate=str(certificates.authority) if certificates else None,
        client_certificate=str(certificates.client) if certificates else None,
        client_key=str(certificates.client_key) if certificates else None,
        client_key_password=client_key_password,
    )
    running = LocalCassandra([], server, certificates)
    for number, host in enumerate(hosts):
        node = node_settings(home / host, host, port, storage_port)
        node["initial_token"] = str(number * 2**64 // nodes - 2**63)
        if username is not None:
            node |= PASSWORD_SETTINGS
        if certificates is not None:
            node |= encryption_settings(certificates)
        node |= settings or {}
        running.nodes.append(cassandra_node(home / host, node, alone=nodes == 1, fast_start=fast_start))
    try:
        _start(running)
    except BaseException:
        # The folder stays: the error names a log that lies in it.
        running.stop()
        raise
    try:
        yield running
    finally:
        if folder is None:
            # A stop takes 3 s, to write out what is removed here.
            for number in range(nodes):
                running.kill(number)
        running.stop()
        if folder is None:
            shutil.rmtree(home, ignore_errors=True)


def _start(cluster: LocalCassandra) -> None:
    # All at once: the first is the seed, for which the others wait.
    for node in cluster.nodes:
        node.launch()
    for node in cluster.nodes:
        node.wait_until_ready()
    if cluster.server.username is not None:
        _replace_superuser(cluster)
    _wait(lambda: all(_knows_all(cluster, host) for host in cluster.hosts), "nodes to find each other")


def _replace_superuser(running: LocalCassandra) -> None:
    """Make the wanted user; the one that every new Cassandra has, cassandra, may no longer log in."""
    name, password = running.server.username, _revealed(running.server.password)
    if _may_log_in(running):
        return
    first = replace(running, server=replace(running.server, username="cassandra", password="cassandra"))
    _wait(lambda: _may_log_in(first), "the first superuser")
    with first.session() as session:
        session.execute(f'CREATE ROLE "{name}" WITH PASSWORD = %s AND LOGIN = true AND SUPERUSER = true', [password])
    with running.session() as session:
        session.execute("ALTER ROLE cassandra WITH LOGIN = false AND SUPERUSER = false")


def _may_log_in(running: LocalCassandra) -> bool:
    try:
        with running.session():
            return True
    except NoHostAvailable:
        return False


def _knows_all(cluster: LocalCassandra, host: str) -> bool:
    with cluster.session(host) as session:
        return len(session.cluster.metadata.all_hosts()) == len(cluster.hosts)


def _wait(condition: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"cassandra_server: waited {timeout_s:.0f} s for {what}")
        time.sleep(0.1)


def _connect(server: CassandraServer, hosts: tuple[str, ...]) -> Cluster:
    context = None
    if server.use_tls:
        context = ssl.create_default_context(cafile=server.ca_certificate)
        context.check_hostname = False
        context.load_cert_chain(server.client_certificate, server.client_key, _revealed(server.client_key_password))
    credentials = None
    if server.username is not None:
        credentials = PlainTextAuthProvider(server.username, _revealed(server.password))
    # A plain driver would go on to the other nodes; who names one host wants to hear that one.
    profile = ExecutionProfile(WhiteListRoundRobinPolicy(hosts), request_timeout=30)
    return Cluster(
        hosts,
        server.port,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        auth_provider=credentials,
        ssl_context=context,
        protocol_version=4,
        # The driver's 5 s are little for a sign-in while other nodes start on the same cores.
        connect_timeout=30,
        control_connection_timeout=30,
    )


def _revealed(secret: str | Secret | None) -> str | None:
    return secret.reveal() if isinstance(secret, Secret) else secret
