"""Tables for tests: a keyspace of their own, filled with rows whose content follows from their keys."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from datapipes.catalog.cassandra_server import CassandraServer
from datapipes.load.cassandra_session import cassandra_session


def data_of(key: uuid.UUID, size: int = 2000) -> bytes:
    """The bytes of a row, JPEG by its first three."""
    return b"\xff\xd8\xff" + hashlib.shake_128(key.bytes).digest(size)


def keys_of(count: int) -> list[uuid.UUID]:
    return [uuid.uuid5(uuid.NAMESPACE_OID, str(number)) for number in range(count)]


@contextmanager
def keyspace(server: CassandraServer, name: str | None = None) -> Iterator[tuple[str, Any]]:
    """A new keyspace's name and a session to work on it with; it is dropped at the end."""
    name = name or f"test_{uuid.uuid4().hex[:12]}"
    replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    with cassandra_session(server, "test") as session:
        session.execute(f"CREATE KEYSPACE {name} WITH replication = {replication}", timeout=60)
        try:
            yield name, session
        finally:
            session.execute(f"DROP KEYSPACE {name}", timeout=60)


def fill(session: Any, table: str, keys: Iterable[Any], *, size: int = 2000) -> None:
    """Create `table` with a row for each key; its label is the key's number modulo 10."""
    session.execute(f"CREATE TABLE {table} (id uuid PRIMARY KEY, label int, data blob)", timeout=60)
    insert = session.prepare(f"INSERT INTO {table} (id, label, data) VALUES (?, ?, ?)")
    for future in [
        session.execute_async(insert, (key, number % 10, data_of(key, size)), timeout=60)
        for number, key in enumerate(keys)
    ]:
        future.result()
