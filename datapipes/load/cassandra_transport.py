"""Rows of a Cassandra table by key: several keys of one replica in one query, answers as they come."""

from __future__ import annotations

import math
import queue
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from cassandra import InvalidRequest, ReadFailure
from cassandra.cluster import Session
from cassandra.metadata import protect_name
from cassandra.protocol import ErrorMessage, OverloadedErrorMessage
from cassandra.query import BoundStatement, PreparedStatement

from datapipes.catalog.cassandra_server import CassandraServer
from datapipes.catalog.row_source import RowSource
from datapipes.load.cassandra_session import causes_of, meaning_of, quoted
from datapipes.pipe import Placed
from datapipes.transfer.request import Request
from datapipes.transfer.retry import Backoff, Transient

# At 16 blobs of 110 KB a query costs the client 64 us a blob, at 8 it is 78 and at 1 it is 190. A cluster may
# refuse more than 20 (Astra does), and 2 MB an answer is what a node is comfortable with.
MAX_GROUP = 16
GROUP_BYTES = 2 << 20
_FIRST_GROUP = 4


class Row(NamedTuple):
    """A row's label (an int, or the bytes of a mask, or None) and its data, the bytes of a file."""

    label: Any
    data: bytes

    @property
    def nbytes(self) -> int:
        return len(self.data) + (len(self.label) if isinstance(self.label, bytes) else 0)


class RowQueries:
    """The two prepared queries of a table, and how its keys are spelled."""

    def __init__(self, session: Session, source: RowSource, server: CassandraServer, function: str) -> None:
        columns = [source.id_col, source.data_col]
        if source.label_type != "none":
            columns.append(source.label_col)
        selected = ", ".join(map(protect_name, columns))
        self.source = source
        try:
            base = f"SELECT {selected} FROM {quoted(source.table)} WHERE {protect_name(source.id_col)}"
            self.one: PreparedStatement = session.prepare(f"{base} = ?")
            self.several: PreparedStatement = session.prepare(f"{base} IN ?")
        except Exception as error:
            raise meaning_of(error, server, f"{function}: table {source.table}") from None
        self.keyspace = self.one.column_metadata[0].keyspace_name
        self._key_type = self.one.column_metadata[0].type
        self._check_types(function)

    def _check_types(self, function: str) -> None:
        found = [column[3].cql_parameterized_type() for column in self.one.result_metadata]
        wanted = {"int": ("int", "smallint", "tinyint", "bigint", "varint")}.get(self.source.label_type, ("blob",))
        if found[1] != "blob":
            raise ValueError(
                f"{function}: column {self.source.data_col} of {self.source.table} is of type {found[1]}, "
                "not blob; pass data_col= the column with the file's bytes"
            )
        if len(found) > 2 and found[2] not in wanted:
            raise ValueError(
                f"{function}: column {self.source.label_col} of {self.source.table} is of type {found[2]}, which "
                f"is no label of type {self.source.label_type!r}; pass another label_type= or label_col="
            )

    def bindable(self, key: Any) -> Any:
        """A key as the table has it: text becomes a UUID where the column is one."""
        if isinstance(key, str) and self._key_type.typename == "uuid":
            try:
                return UUID(key)
            except ValueError:
                raise ValueError(f"it is not a UUID, as column {self.source.id_col} is") from None
        return key

    def routing_key(self, key: Any) -> bytes:
        packed: bytes = self._key_type.serialize(key, 4)
        return packed


class CassandraTransport:
    """Asks for groups of rows, asynchronously, over the driver's connections.

    A group that its replica refuses or fails is asked for row by row, so that one bad row, or a cluster that
    admits fewer keys a query, costs no other row.

    Args:
        sessions: open sessions, asked in turn; whoever opened them closes them.
        queries: the table's.
    """

    def __init__(
        self,
        sessions: Sequence[Session],
        queries: RowQueries,
        server: CassandraServer,
        function: str,
    ) -> None:
        self._sessions = sessions
        self._metadata = sessions[0].cluster.metadata
        self._queries = queries
        self._server = server
        self._function = function
        self._answered: queue.SimpleQueue[tuple[int, int | None, Any]] = queue.SimpleQueue()
        self._under_way: dict[int, _Asked] = {}
        self._largest_group = MAX_GROUP
        self._mean_bytes = GROUP_BYTES / _FIRST_GROUP

    @property
    def group_size(self) -> int:
        """How many keys are worth one query, given how large rows have been."""
        return max(1, min(self._largest_group, round(GROUP_BYTES / max(self._mean_bytes, 1.0))))

    def form_requests(self, placed: Iterator[Placed]) -> Iterator[Request]:
        """Groups of keys whose first replica is the same node, looking ahead as far as that takes."""
        groups: dict[Any, list[Placed]] = {}
        for taken, item in enumerate(placed):
            replica = self._replica(item[1])
            group = groups.setdefault(replica, [])
            group.append(item)
            if len(group) >= self.group_size:
                yield _request(groups.pop(replica))
            elif len(groups) > 1 and taken % self.group_size == 0:
                # What waits longest is asked for before its turn comes, full or not.
                oldest = next(iter(groups))
                if groups[oldest][0][0] < item[0] - 2 * self.group_size * len(groups):
                    yield _request(groups.pop(oldest))
        for group in groups.values():
            yield _request(group)

    def _replica(self, key: Any) -> Any:
        if len(self._metadata.all_hosts()) == 1:
            return None
        try:
            routing_key = self._queries.routing_key(self._queries.bindable(key))
        except Exception:
            return None  # said by `start`, as this key's own error
        replicas = self._metadata.get_replicas(self._queries.keyspace, routing_key)
        return next((replica for replica in replicas if replica.is_up), None)

    def start(self, ticket: int, request: Request) -> None:
        asked = _Asked(len(request.keys))
        keys = []
        for index, key in enumerate(request.keys):
            try:
                bound = self._queries.bindable(key)
                self._queries.routing_key(bound)
            except Exception as error:
                asked.results[index] = ValueError(f"{self._function}: key {key!r:.80}: {error}")
            else:
                asked.indices.setdefault(bound, []).append(index)
                keys.append(bound)
        self._under_way[ticket] = asked
        if not keys:
            self._answered.put((ticket, None, []))
        elif len(asked.indices) == 1:
            self._send(ticket, None, self._queries.one, keys[0], keys[0])
        else:
            self._send(ticket, None, self._queries.several, list(asked.indices), keys[0])

    def _send(self, ticket: int, part: int | None, query: PreparedStatement, value: Any, routed_by: Any) -> None:
        statement = BoundStatement(query, routing_key=self._queries.routing_key(routed_by)).bind((value,))
        future = self._sessions[ticket % len(self._sessions)].execute_async(statement)
        future.add_callbacks(
            lambda rows: self._answered.put((ticket, part, rows)),
            lambda error: self._answered.put((ticket, part, error)),
        )

    def finished(self, timeout_s: float) -> list[tuple[int, Any, Exception | None]]:
        answers = []
        try:
            arrived = self._answered.get(timeout_s > 0, timeout_s)
            while True:
                answer = self._take(*arrived)
                if answer is not None:
                    answers.append(answer)
                arrived = self._answered.get_nowait()
        except queue.Empty:
            return answers

    def _take(self, ticket: int, part: int | None, rows: Any) -> tuple[int, Any, Exception | None] | None:
        asked = self._under_way.get(ticket)
        if asked is None:
            return None
        if isinstance(rows, Exception):
            error = self._judged(rows, list(asked.indices)[part or 0], 1 if part is not None else len(asked.indices))
            if type(error) is Transient:
                del self._under_way[ticket]
                return ticket, None, error
            if part is None and len(asked.indices) > 1:
                self._ask_one_by_one(ticket, asked, rows)
                return None
            asked.fill(list(asked.indices)[part or 0], error)
        else:
            for row in rows or ():
                asked.fill(row[0], Row(row[2] if len(row) > 2 else None, row[1]))
                self._mean_bytes += (len(row[1] or b"") - self._mean_bytes) / 64
        if part is not None:
            asked.parts_left -= 1
            if asked.parts_left:
                return None
        del self._under_way[ticket]
        return ticket, asked.results, None

    def _judged(self, error: Exception, key: Any, count: int) -> Exception:
        """Whether the same query, for `count` keys from `key` on, may well succeed if it is sent again."""
        others = f" and {count - 1} more" if count > 1 else ""
        meant = meaning_of(error, self._server, f"{self._function}: key {key}{others}")
        if isinstance(meant, PermissionError) or isinstance(error, (ErrorMessage, InvalidRequest, ReadFailure)):
            return meant
        overloaded = any(isinstance(cause, OverloadedErrorMessage) for cause in causes_of(error))
        return Transient(meant, slow_down=overloaded)

    def _ask_one_by_one(self, ticket: int, asked: _Asked, error: Exception) -> None:
        if isinstance(error, InvalidRequest):
            self._largest_group = max(1, len(asked.indices) // 2)
        asked.parts_left = len(asked.indices)
        for part, key in enumerate(asked.indices):
            self._send(ticket, part, self._queries.one, key, key)

    def cancel(self, ticket: int) -> None:
        self._under_way.pop(ticket, None)

    def close(self) -> None:
        self._under_way.clear()


class _Asked:
    """A request under way: where each key's row goes. A key may come twice, where an epoch wraps round."""

    __slots__ = ("indices", "parts_left", "results")

    def __init__(self, count: int) -> None:
        self.indices: dict[Any, list[int]] = {}
        self.results: list[Any] = [None] * count
        self.parts_left = 0

    def fill(self, key: Any, result: Any) -> None:
        for index in self.indices[key]:
            self.results[index] = result


def _request(group: Sequence[Placed]) -> Request:
    return Request([place for place, _ in group], [key for _, key in group])


class Patience(Backoff):
    """Waits `patience_s` for a node that starts again, where nobody answers; a hung query is sent three times."""

    def __init__(self, patience_s: float) -> None:
        # Waits of 0.1 to 1.6 s, then of 2 s, each 3/4 of that on average.
        super().__init__(max_attempts=6 + math.ceil(patience_s / 1.5), first_wait_s=0.1, longest_wait_s=2.0)

    def again_at(self, attempt: int, failure: Transient, now: float) -> float | None:
        if isinstance(failure.error, TimeoutError):
            return super().again_at(attempt, failure, now) if attempt < 3 else None
        return super().again_at(attempt, failure, now)
