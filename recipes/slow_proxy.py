"""A distant server, on this machine: a TCP proxy that makes every request wait for a network's round trip.

    python recipes/slow_proxy.py 127.0.0.1:9000 --delay-ms 100

    with slow_proxy(server.endpoint_url, delay_s=0.1) as proxy:
        ... proxy.endpoint_url ...

What a client sends is held for the delay; what the server sends is spliced through by the kernel, so that the
proxy carries thousands of 110 KB objects a second and is not what a benchmark measures. A delay of 0 is the
same proxy without the distance, for comparison. Opening a connection is not delayed.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import select
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from recipes.local_process import LocalProcess, free_port

# Holds two images of 110 KB; a pipe's usual 64 KB would cost two rounds of the loop for one.
PIPE_BYTES = 1 << 18
_F_SETPIPE_SZ = getattr(fcntl, "F_SETPIPE_SZ", 1031)


@dataclass
class SlowProxy:
    """A running proxy at 127.0.0.1:`port`."""

    process: LocalProcess
    port: int
    scheme: str = "http"

    @property
    def endpoint_url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"


@contextmanager
def slow_proxy(target: str, *, delay_s: float, port: int | None = None) -> Iterator[SlowProxy]:
    """A proxy in a process of its own in front of `target`, a URL or HOST:PORT."""
    scheme, _, address = target.rpartition("://")
    port = port or free_port()
    command = [sys.executable, __file__, address, "--delay-ms", str(delay_s * 1000), "--port", str(port)]
    process = LocalProcess("slow-proxy", command, is_ready=lambda: _listens(port))
    with process:
        yield SlowProxy(process, port, scheme or "http")


class _Loop:
    """Every connection in one thread, one epoll."""

    def __init__(self, listener: socket.socket, target: tuple[str, int], delay_s: float) -> None:
        self.listener, self.target, self.delay_s = listener, target, delay_s
        self.poll = select.epoll()
        self.poll.register(listener, select.EPOLLIN)
        self.handlers: dict[int, Callable[[int], None]] = {listener.fileno(): self.accept}
        self.held: deque[tuple[float, _Connection, bytes]] = deque()
        self.spare_pipes: list[tuple[int, int]] = []

    def run(self) -> None:
        while True:
            # The delay is the same for all, so that the oldest is always the next due.
            wait_s = max(0.0, self.held[0][0] - time.monotonic()) if self.held else None
            for descriptor, event in self.poll.poll(wait_s):
                handler = self.handlers.get(descriptor)
                if handler is not None:
                    self.guarded(handler, event)
            while self.held and self.held[0][0] <= time.monotonic():
                _, connection, data = self.held.popleft()
                self.guarded(connection.deliver, data)

    def guarded(self, handler: Callable[[Any], None], argument: Any) -> None:
        """A connection that breaks ends; the rest go on."""
        try:
            handler(argument)
        except BlockingIOError:
            pass
        except OSError:
            owner = getattr(handler, "__self__", None)
            if isinstance(owner, _Connection):
                owner.close()

    def accept(self, _event: int) -> None:
        client, _ = self.listener.accept()
        upstream = socket.socket()
        upstream.setblocking(False)
        # Not waited for: a server whose queue of connections is full would hold up all the others.
        upstream.connect_ex(self.target)
        _Connection(client, upstream, self)


class _Connection:
    """One client and its own connection to the server."""

    def __init__(self, client: socket.socket, upstream: socket.socket, loop: _Loop) -> None:
        self.client, self.upstream, self.loop = client, upstream, loop
        self.client_sends = True
        self.unsent = bytearray()
        self.pipe: tuple[int, int] | None = None
        self.piped = 0
        self.closed = False
        self.watched = (select.EPOLLIN, select.EPOLLIN)
        for side, handler in ((client, self.on_client), (upstream, self.on_upstream)):
            side.setblocking(False)
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            loop.handlers[side.fileno()] = handler
            loop.poll.register(side, select.EPOLLIN)

    def on_client(self, event: int) -> None:
        if event & (select.EPOLLHUP | select.EPOLLERR):
            self.close()
        elif event & select.EPOLLOUT:
            self.drain()
        elif event & select.EPOLLIN:
            data = self.client.recv(1 << 18)
            self.client_sends = bool(data)
            self.loop.held.append((time.monotonic() + self.loop.delay_s, self, data))
            self.watch()

    def on_upstream(self, event: int) -> None:
        if event & select.EPOLLIN:
            self.fill()
        elif event & select.EPOLLOUT:
            self.send(b"")
        elif event:
            self.close()

    def deliver(self, data: bytes) -> None:
        """Pass on what was held; nothing means that the client has gone."""
        if data:
            self.send(data)
        else:
            self.close()

    def send(self, data: bytes) -> None:
        if self.closed:
            return
        self.unsent += data
        try:
            del self.unsent[: self.upstream.send(self.unsent)]
        except BlockingIOError:
            pass
        self.watch()

    def fill(self) -> None:
        """From the server into a pipe and on to the client, without a copy through this process."""
        if self.pipe is None:
            self.pipe = self.loop.spare_pipes.pop() if self.loop.spare_pipes else _pipe()
        count = os.splice(self.upstream.fileno(), self.pipe[1], PIPE_BYTES, flags=os.SPLICE_F_NONBLOCK)
        if count == 0:
            self.close()
            return
        self.piped += count
        self.drain()

    def drain(self) -> None:
        assert self.pipe is not None
        ends, client = self.pipe, self.client.fileno()
        try:
            while self.piped:
                self.piped -= os.splice(ends[0], client, self.piped, flags=os.SPLICE_F_NONBLOCK)
        except BlockingIOError:
            pass
        else:
            self.loop.spare_pipes.append(ends)
            self.pipe = None
        self.watch()

    def watch(self) -> None:
        """A client that does not keep up stops its own server; the others go on."""
        client = select.EPOLLIN * self.client_sends | select.EPOLLOUT * (self.piped > 0)
        upstream = select.EPOLLIN * (self.piped == 0) | select.EPOLLOUT * bool(self.unsent)
        if self.watched != (client, upstream):
            self.watched = (client, upstream)
            self.loop.poll.modify(self.client, client)
            self.loop.poll.modify(self.upstream, upstream)

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        for side in (self.client, self.upstream):
            del self.loop.handlers[side.fileno()]
            side.close()
        for end in self.pipe or ():
            os.close(end)


def _pipe() -> tuple[int, int]:
    ends = os.pipe()
    fcntl.fcntl(ends[1], _F_SETPIPE_SZ, PIPE_BYTES)
    return ends


def _listens(port: int) -> bool:
    socket.create_connection(("127.0.0.1", port), timeout=1).close()
    return True


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", help="HOST:PORT of the server")
    parser.add_argument("--delay-ms", type=float, default=100.0, help="of every request (default: 100)")
    parser.add_argument("--port", type=int, help="of 127.0.0.1 to listen on; a free one by default")
    args = parser.parse_args(argv)
    host, _, port = args.target.rpartition(":")
    with socket.create_server(("127.0.0.1", args.port or free_port()), backlog=4096) as listener:
        print(f"127.0.0.1:{listener.getsockname()[1]} is {args.target}, {args.delay_ms:g} ms away", flush=True)
        try:
            _Loop(listener, (host, int(port)), args.delay_ms / 1000).run()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
