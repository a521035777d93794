"""The driver's connection, receiving: a frame is read where it is parsed, and a blob is copied once.

The driver gathers what it receives in one growing buffer and copies all that is left of it after every frame.
With many answers on the way that is quadratic: 100 queries of 8 blobs over a link of 100 ms fell from 3,450 rows
a second to 700. It also copies a blob five times. Here a connection reads one frame at a time into a buffer
that it keeps, and rows are cut out of it: two copies, one of them the kernel's.
"""

from __future__ import annotations

import ssl
import struct
from typing import Any

from cassandra.connection import _Frame
from cassandra.io.libevreactor import LibevConnection, libev
from cassandra.protocol import ProtocolHandler, ResultMessage

_HEADER = struct.Struct(">BBhBi")
_INT = struct.Struct(">i")
_RESULT, _ROWS = 0x08, 2
_MORE_PAGES, _NO_METADATA = 0x02, 0x04
_SMALLEST_BUFFER = 1 << 16
# What one wake-up may read before other connections get their turn.
_TURN_BYTES = 8 << 20


class FrameConnection(LibevConnection):  # type: ignore[misc]
    """A connection of protocol version 4 that reads frame by frame."""

    # A write of 110 KB goes out in one call, not in 28.
    out_buffer_size = 1 << 20
    # Where a socket is full, the driver refuses requests, as if the host were gone. Here they wait for it: who
    # sends bounds what is under way.
    _socket_writable = property(lambda self: True, lambda self, writable: None)

    def __init__(self, *args: Any, **options: Any) -> None:
        self._buffer = bytearray(_SMALLEST_BUFFER)
        self._header: tuple[int, int, int, int, int] | None = None
        self._wanted = _HEADER.size
        self._have = 0
        super().__init__(*args, **options)

    def handle_read(self, watcher: Any, revents: int, errno: int | None = None) -> None:
        """Called by the driver's event loop when there is something to read."""
        if revents & libev.EV_ERROR:
            super().handle_read(watcher, revents, errno)
            return
        received = 0
        while received < _TURN_BYTES or self._holds_more():
            try:
                with memoryview(self._buffer) as view:
                    count = self._socket.recv_into(view[self._have : self._wanted])
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            except OSError as error:
                self.defunct(error)
                return
            if not count:
                self.close()
                return
            received += count
            self._have += count
            if self._have == self._wanted and not self._step():
                return

    def _holds_more(self) -> bool:
        """TLS decrypts a record at a time, and what it holds back wakes nobody."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def _step(self) -> bool:
        """A header or a body is whole: go on to what comes next. False once the connection has closed."""
        self._have = 0
        if self._header is None:
            self._header = _HEADER.unpack_from(self._buffer)
            self._wanted = self._header[-1]
            if len(self._buffer) < self._wanted:
                self._buffer = bytearray(self._wanted)
            if self._wanted:
                return True
        version, flags, stream, opcode, length = self._header
        self._header, self._wanted = None, _HEADER.size
        frame = _Frame(version & 0x7F, flags, stream, opcode, _HEADER.size, length + _HEADER.size)
        with memoryview(self._buffer) as view:
            self.process_msg(frame, view[:length])
        return not (self.is_closed or self.is_defunct)


class RowHandler(ProtocolHandler):  # type: ignore[misc]
    """Decodes rows of blobs and numbers; anything else it leaves to the driver."""

    @classmethod
    def decode_message(
        cls,
        protocol_version: int,
        user_type_map: Any,
        stream_id: int,
        flags: int,
        opcode: int,
        body: Any,
        decompressor: Any,
        result_metadata: Any,
    ) -> Any:
        """The driver's hook: a message from a frame's body."""
        plain_rows = opcode == _RESULT and not flags and _INT.unpack_from(body)[0] == _ROWS
        if plain_rows and result_metadata and _INT.unpack_from(body, 4)[0] == _NO_METADATA:
            message = ResultMessage(_ROWS)
            message.column_names = [column[2] for column in result_metadata]
            message.column_types = [column[3] for column in result_metadata]
            message.parsed_rows = _rows(body, message.column_types, protocol_version)
            message.stream_id, message.trace_id = stream_id, None
            message.custom_payload = message.warnings = None
            return message
        return super().decode_message(
            protocol_version, user_type_map, stream_id, flags, opcode, bytes(body), decompressor, result_metadata
        )


def _rows(body: Any, types: list[Any], protocol_version: int) -> list[tuple[Any, ...]]:
    """Rows behind the 12 bytes that say: rows, no metadata, so many columns."""
    (count,) = _INT.unpack_from(body, 12)
    at = 16
    rows = []
    for _ in range(count):
        row: list[Any] = []
        for kind in types:
            (size,) = _INT.unpack_from(body, at)
            at += 4
            if size < 0:
                row.append(None)
                continue
            row.append(kind.from_binary(bytes(body[at : at + size]), protocol_version))
            at += size
        rows.append(tuple(row))
    return rows
