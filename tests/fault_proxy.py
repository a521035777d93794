"""An HTTP proxy that misbehaves on request: real sockets, real bytes, a fault for so many requests."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from recipes.local_process import free_port


@dataclass
class Fault:
    """What to do to one request. `after_bytes` counts the response's head and body."""

    kind: str
    after_bytes: int = 0
    status: int = 503


class FaultProxy:
    """Stands before the HTTP server at `target`; every request without a fault passes unchanged.

    Faults are queued and met by the next requests, one each, in the order of their arrival. With
    `only`, requests whose head does not contain that text pass and count as nothing.
    """

    def __init__(self, target: str) -> None:
        address = urlsplit(target)
        self.target = (address.hostname or "127.0.0.1", address.port or 80)
        self.port = free_port()
        self.endpoint_url = f"http://127.0.0.1:{self.port}"
        self.requests = 0
        self.only = ""
        self._faults: deque[Fault] = deque()
        self._always: Fault | None = None
        self._loop = asyncio.new_event_loop()
        self._never = asyncio.Event()
        # The loop itself holds its tasks weakly, and one that waits would be collected with what it waits for.
        self._serving: set[asyncio.Task[None] | None] = set()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fault-proxy", daemon=True)
        self._thread.start()
        self._ready.wait(10)

    def cut(self, after_bytes: int, times: int = 1) -> None:
        """Close in good order after so many bytes of the response."""
        self._add(Fault("cut", after_bytes), times)

    def reset(self, after_bytes: int, times: int = 1) -> None:
        """Reset the connection after so many bytes of the response."""
        self._add(Fault("reset", after_bytes), times)

    def answer(self, status: int, times: int = 1) -> None:
        """Answer with this status, and S3's error body for it, without asking the server."""
        self._add(Fault("answer", status=status), times)

    def hang(self, times: int | None = None, after_bytes: int = 0) -> None:
        """Send so many bytes of the response and no more; every request when `times` is None."""
        fault = Fault("hang", after_bytes)
        if times is None:
            self._always = fault
        else:
            self._add(fault, times)

    def heal(self) -> None:
        """No more faults; what hangs, hangs."""
        self._always = None
        self._faults.clear()

    def close(self) -> None:
        """Close the port and every connection: from now on connections are refused."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)

    def _add(self, fault: Fault, times: int) -> None:
        self._faults.extend([fault] * times)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", self.port))
        self._ready.set()
        self._loop.run_forever()
        server.close()
        # A connection that was accepted a moment ago gets its task only in the next round.
        self._loop.run_until_complete(asyncio.sleep(0))
        while tasks := asyncio.all_tasks(self._loop):
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.run_until_complete(server.wait_closed())
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving.add(asyncio.current_task())
        try:
            # Cancelled at close: the streams of asyncio would print it.
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while await self._one_request(reader, writer):
                    pass
        finally:
            writer.close()
            self._serving.discard(asyncio.current_task())

    async def _one_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection is good for another request."""
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.readexactly(_content_length(head))
        fault = self._next_fault(head)
        if fault is not None and fault.kind == "answer":
            writer.write(_error_response(fault.status))
            await writer.drain()
            return True
        # A connection a request, closed by the server: its end is the response's end.
        head = _without(head, b"connection").replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
        upstream_reader, upstream = await asyncio.open_connection(*self.target)
        try:
            upstream.write(head + body)
            left = fault.after_bytes if fault is not None else None
            while left is None or left > 0:
                data = await upstream_reader.read(1 << 16 if left is None else min(left, 1 << 16))
                if not data:
                    return False
                writer.write(data)
                await writer.drain()
                left = left and left - len(data)
        finally:
            upstream.close()
        assert fault is not None
        if fault.kind == "hang":
            await self._never.wait()
        if fault.kind == "reset":
            # Lingering for no time makes close() a reset.
            raw = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return False

    def _next_fault(self, head: bytes) -> Fault | None:
        if self.only.encode() not in head:
            return None
        self.requests += 1
        return self._faults.popleft() if self._faults else self._always


FaultProxyFactory = Callable[[str], FaultProxy]


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


def _without(head: bytes, header: bytes) -> bytes:
    lines = head.split(b"\r\n")
    return b"\r\n".join(line for line in lines if not line.lower().startswith(header + b":"))


def _error_response(status: int) -> bytes:
    code = {403: "AccessDenied", 429: "SlowDown", 500: "InternalError", 503: "SlowDown"}.get(status, "Error")
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>by the fault proxy</Message></Error>"
    head = f"HTTP/1.1 {status} {code}\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
    return (head + body).encode()
