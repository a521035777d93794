"""A session with a Cassandra cluster, for the process that opens it, and what its refusals mean."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import cassandra
from cassandra import (
    ConsistencyLevel,
    DriverException,
    InvalidRequest,
    OperationTimedOut,
    ReadTimeout,
    Unauthorized,
)
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import (
    EXEC_PROFILE_DEFAULT,
    Cluster,
    ExecutionProfile,
    NoHostAvailable,
    Session,
    UnresolvableContactPoints,
)
from cassandra.io import libevreactor
from cassandra.metadata import protect_name
from cassandra.policies import DCAwareRoundRobinPolicy, ExponentialReconnectionPolicy, TokenAwarePolicy

from datapipes.catalog.cassandra_server import CassandraServer
from datapipes.catalog.secret import Secret
from datapipes.load.cassandra_bundle import cluster_of_bundle
from datapipes.load.cassandra_frames import FrameConnection, RowHandler

# Version 5 checks a CRC in Python: 60 us more a blob of 110 KB.
_PROTOCOL_VERSION = 4


@contextmanager
def cassandra_session(server: CassandraServer, function: str) -> Iterator[Session]:
    """One session; see `cassandra_sessions`."""
    with cassandra_sessions(server, function) as sessions:
        yield sessions[0]


@contextmanager
def cassandra_sessions(server: CassandraServer, function: str, count: int = 1) -> Iterator[list[Session]]:
    """Connect, and leave nothing open or running. It takes 15 to 50 ms next to the cluster.

    The driver opens one connection to each node a session, so `count` is also the number of those.

    Reads are answered by one replica (LOCAL_ONE), the nearest that holds the row (token-aware).

    Raises:
        ConnectionError: nobody answers, or the certificates do not fit.
        PermissionError: user name or password are wrong.
        ValueError, FileNotFoundError: certificates or bundle cannot be used.
    """
    cluster = None
    try:
        try:
            cluster = _cluster(server, function)
        except (UnresolvableContactPoints, DriverException) as error:
            raise meaning_of(error, server, function) from None
        try:
            sessions = [cluster.connect() for _ in range(count)]
        except (NoHostAvailable, DriverException, OSError) as error:
            raise meaning_of(error, server, function) from None
        for session in sessions:
            session.default_fetch_size = None
            session.client_protocol_handler = RowHandler
        yield sessions
    finally:
        if cluster is not None:
            cluster.shutdown()


def _cluster(server: CassandraServer, function: str) -> Cluster:
    profile = ExecutionProfile(
        load_balancing_policy=TokenAwarePolicy(DCAwareRoundRobinPolicy(server.local_dc or "")),
        consistency_level=ConsistencyLevel.LOCAL_ONE,
        row_factory=_rows_as_they_are,
        request_timeout=None,
    )
    options: dict[str, Any] = {
        "execution_profiles": {EXEC_PROFILE_DEFAULT: profile},
        "connection_class": FrameConnection,
        "protocol_version": _PROTOCOL_VERSION,
        "compression": False,
        "connect_timeout": server.connect_timeout_s,
        "control_connection_timeout": server.connect_timeout_s,
        "reconnection_policy": ExponentialReconnectionPolicy(0.5, 4.0, max_attempts=None),
        "idle_heartbeat_interval": 10,
    }
    if isinstance(server.password, Secret):
        options["auth_provider"] = PlainTextAuthProvider(server.username, server.password.reveal())
    if server.use_tls:
        options["ssl_context"] = _tls_context(server, function)
    if server.cloud_bundle is not None:
        return cluster_of_bundle(server, function, **options)
    return Cluster(list(server.hosts), port=server.port, **options)


def _tls_context(server: CassandraServer, function: str) -> ssl.SSLContext:
    password = server.client_key_password
    try:
        context = ssl.create_default_context(cafile=server.ca_certificate)
        context.check_hostname = server.check_hostname
        if server.client_certificate:
            secret = password.reveal() if isinstance(password, Secret) else ""
            context.load_cert_chain(server.client_certificate, server.client_key, lambda: secret)
    except OSError as error:
        files = [server.ca_certificate, server.client_certificate, server.client_key]
        raise ValueError(
            f"{function}: the certificates {', '.join(filter(None, files))} cannot be used: {error}; check the "
            "files' names, that they are PEM, and the key's password"
        ) from None
    return context


def _rows_as_they_are(names: Any, rows: Any) -> Any:
    return rows


def meaning_of(error: BaseException, server: CassandraServer, function: str) -> Exception:
    """The driver's error as a built-in one that names the server and says what to do."""
    where = f"{function}: {server.address}"
    causes = list(causes_of(error))
    reason = "; ".join(dict.fromkeys(str(cause).strip() for cause in causes)) or type(error).__name__
    if isinstance(error, NoHostAvailable) and not error.errors:
        reason = "no node is up"
    if any(isinstance(cause, (cassandra.AuthenticationFailed, Unauthorized)) for cause in causes):
        return PermissionError(f"{where} refused user {server.username!r}: {reason}; check username and password")
    if "certificate is not valid for" in reason:
        return ConnectionError(
            f"{where}: no TLS connection: {reason}; give hosts= the addresses that the certificates name, or pass "
            "check_hostname=False to trust every certificate of that authority"
        )
    if any(isinstance(cause, ssl.SSLError) or "certificate" in str(cause).lower() for cause in causes):
        return ConnectionError(f"{where}: no TLS connection: {reason}; check ca_certificate and the client's own")
    if isinstance(error, InvalidRequest):
        return ValueError(f"{where} refused the query: {error}; check table and columns")
    if isinstance(error, (OperationTimedOut, ReadTimeout, TimeoutError)):
        return TimeoutError(f"{where} did not answer in time: {reason}; see whether the cluster is well")
    if isinstance(error, UnresolvableContactPoints):
        return ConnectionError(f"{where}: no such host; check the names of hosts")
    if isinstance(error, (NoHostAvailable, OSError)):
        return ConnectionError(
            f"{where} is out of reach: {reason}; check hosts, port and use_tls, and that Cassandra runs there"
        )
    return RuntimeError(f"{where}: {type(error).__name__}: {error}; see the server's log")


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """What each host said, where the driver says only that none was available."""
    said = error.errors if isinstance(error, NoHostAvailable) else None
    if isinstance(said, dict) and said:
        yield from said.values()
    else:
        yield error


def quoted(table: str) -> str:
    """ "keyspace.table" as a query has it, capitals and all.

    >>> quoted("imagenette.Data"), quoted("imagenette.data")
    ('imagenette."Data"', 'imagenette.data')
    """
    return ".".join(protect_name(part) for part in table.split("."))


def key_column(session: Session, table: str, server: CassandraServer, function: str) -> str:
    """The column that a table's rows are found by.

    Raises:
        ValueError: there is no such table, or its key is not one column.
    """
    keyspace, name = table.split(".")
    known = session.cluster.metadata.keyspaces.get(keyspace)
    found = known.tables.get(name) if known else None
    if found is None:
        raise ValueError(f"{function}: no table {table} at {server.address}; create it first, with cqlsh -f")
    columns = [column.name for column in found.primary_key]
    if len(columns) != 1:
        raise ValueError(f"{function}: the key of {table} is {', '.join(columns)}; a key of one column is needed")
    column: str = columns[0]
    return column


# A forked child must not touch its parent's event loop; kept, because to free it would close its sockets.
_parents_loops: list[Any] = []


def _forget_parents_loop() -> None:
    _parents_loops.append(libevreactor._global_loop)
    libevreactor._global_loop = None


os.register_at_fork(after_in_child=_forget_parents_loop)
