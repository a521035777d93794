"""HTTP as a transport: libcurl's multi interface, one thread, any number of connections."""

from __future__ import annotations

import math
import os
import select
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pycurl

from datapipes.load.http_error import HttpAnswer, explain_curl, explain_status
from datapipes.load.request import Request
from datapipes.load.retry import Transient

REFRESH_S = 60.0
_OPTIONS = {
    # What one read may take from a socket. libcurl hands it on in pieces of 16 KB all the same.
    pycurl.BUFFERSIZE: 512 << 10,
    pycurl.NOSIGNAL: 1,
    pycurl.TCP_NODELAY: 1,
    pycurl.TCP_KEEPALIVE: 1,
    # With HTTP/2 all requests would share one connection, and one congestion window.
    pycurl.HTTP_VERSION: pycurl.CURL_HTTP_VERSION_1_1,
    pycurl.PROTOCOLS: pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS,
}


class Get(NamedTuple):
    """An HTTP GET: of everything, or of `n_bytes` from `first_byte` on."""

    url: str
    first_byte: int = 0
    n_bytes: int | None = None


def whole_body(request: Request, body: bytes) -> Sequence[Any]:
    """The results of a request for one key: the body is its payload."""
    return (body,)


class CurlTransport:
    """Sends each request as an HTTP GET and answers with the bytes.

    A body that was cut short is an error, never a result: its length is checked against `Content-Length`, and
    where a range was asked for, against that. Connections are kept and used again.

    Args:
        function: the functional name that errors begin with.
        address: what to get for a request.
        options: pycurl options of every request, signing say; asked again once a minute, for credentials that
            expire.
        results_of: the results of a request, one a key, in its body.
        explain: the error of an answer whose status is neither 200 nor 206.
    """

    def __init__(
        self,
        *,
        function: str,
        address: Callable[[Request], Get],
        options: Callable[[], dict[int, Any]] = dict,
        results_of: Callable[[Request, bytes], Sequence[Any]] = whole_body,
        explain: Callable[[str, object, HttpAnswer], Exception] = explain_status,
    ) -> None:
        self._function = function
        self._address = address
        self._options = options
        self._results_of = results_of
        self._explain = explain
        self._multi: Any = pycurl.CurlMulti()
        self._epoll = select.epoll()
        self._masks: dict[int, int] = {}
        self._running = 0
        self._idle: list[_Transfer] = []
        self._under_way: dict[int, _Transfer] = {}
        self._transfer_of: dict[Any, _Transfer] = {}
        self._multi.setopt(pycurl.M_MAXCONNECTS, 1024)
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch)
        self._inherited = False
        _open.add(self)

    def start(self, ticket: int, request: Request) -> None:
        get = self._address(request)
        transfer = self._idle.pop() if self._idle else self._new_transfer()
        if time.monotonic() > transfer.fresh_until:
            self._refresh(transfer)
        transfer.begin(ticket, request, get)
        self._under_way[ticket] = transfer
        self._multi.add_handle(transfer.handle)
        # Sends the request now, not when the consumer comes back for the next sample.
        self._act(pycurl.SOCKET_TIMEOUT, 0)

    def finished(self, timeout_s: float) -> list[tuple[int, Any, Exception | None]]:
        now = time.monotonic()
        give_up_at = now + timeout_s
        answers = self._done()
        while True:
            wait_s = 0.0 if answers else max(0.0, give_up_at - now)
            # Asked for here: told by a callback of libcurl's it would cost two calls an object.
            timer_ms = self._multi.timeout()
            timer_at = now + timer_ms / 1000 if timer_ms >= 0 else math.inf
            for fd, event in self._epoll.poll(min(wait_s, timer_at - now), 256):
                self._act(fd, _curl_event(event))
            now = time.monotonic()
            if now >= timer_at:
                self._act(pycurl.SOCKET_TIMEOUT, 0)
            answers += self._done()
            if answers or now >= give_up_at:
                return answers

    def cancel(self, ticket: int) -> None:
        transfer = self._under_way.pop(ticket)
        self._multi.remove_handle(transfer.handle)
        self._running -= 1
        self._idle.append(transfer)

    def close(self) -> None:
        if self._inherited or self._multi is None:
            return
        for transfer in self._under_way.values():
            self._multi.remove_handle(transfer.handle)
        for transfer in self._transfer_of.values():
            transfer.handle.close()
        self._multi.close()
        self._multi = None
        self._epoll.close()
        self._under_way, self._transfer_of, self._idle = {}, {}, []

    def _new_transfer(self) -> _Transfer:
        transfer = _Transfer()
        self._transfer_of[transfer.handle] = transfer
        return transfer

    def _refresh(self, transfer: _Transfer) -> None:
        for option, value in (_OPTIONS | self._options()).items():
            transfer.handle.setopt(option, value)
        transfer.fresh_until = time.monotonic() + REFRESH_S

    def _act(self, fd: int, event: int) -> None:
        _, self._running = self._multi.socket_action(fd, event)

    def _watch(self, what: int, fd: int, multi: Any, data: Any) -> None:
        if what == pycurl.POLL_REMOVE:
            if self._masks.pop(fd, None) is not None:
                self._epoll.unregister(fd)
            return
        mask = select.EPOLLIN if what & pycurl.POLL_IN else 0
        if what & pycurl.POLL_OUT:
            mask |= select.EPOLLOUT
        if fd not in self._masks:
            self._epoll.register(fd, mask)
        elif self._masks[fd] != mask:
            self._epoll.modify(fd, mask)
        self._masks[fd] = mask

    def _done(self) -> list[tuple[int, Any, Exception | None]]:
        answers: list[tuple[int, Any, Exception | None]] = []
        left = len(self._under_way) - self._running
        while left > 0:
            left, whole, failed = self._multi.info_read(256)
            for handle in whole:
                answers.append(self._answer(handle, 0, ""))
            for handle, code, message in failed:
                answers.append(self._answer(handle, code, message))
        return answers

    def _answer(self, handle: Any, code: int, message: str) -> tuple[int, Any, Exception | None]:
        transfer = self._transfer_of[handle]
        self._multi.remove_handle(handle)
        del self._under_way[transfer.ticket]
        self._idle.append(transfer)
        request = transfer.request
        try:
            if code:
                raise explain_curl(self._function, request.keys[0], code, message)
            return transfer.ticket, self._results_of(request, self._body(transfer)), None
        except Exception as error:
            return transfer.ticket, None, error

    def _body(self, transfer: _Transfer) -> bytes:
        status = transfer.handle.getinfo(pycurl.RESPONSE_CODE)
        body = b"".join(transfer.pieces)
        transfer.pieces.clear()
        key = transfer.request.keys[0]
        if status not in (200, 206):
            retry_after_s = float(transfer.handle.getinfo(pycurl.RETRY_AFTER))
            answer = HttpAnswer(transfer.get.url, status, transfer.headers(), body, retry_after_s)
            raise self._explain(self._function, key, answer)
        # libcurl has checked the length if there was one, and the last chunk's mark if there were chunks.
        length = transfer.handle.getinfo(pycurl.CONTENT_LENGTH_DOWNLOAD_T)
        if length < 0 and "transfer-encoding" not in transfer.headers():
            raise Transient(
                ConnectionError(
                    f"{self._function}: {key}: the server gave no Content-Length, so that a cut body "
                    "cannot be told from a whole one; ask it to give one"
                )
            )
        return body if transfer.get.n_bytes is None else self._range_of(transfer, status, body)

    def _range_of(self, transfer: _Transfer, status: int, body: bytes) -> bytes:
        """The range that was asked for; some servers answer with status 200, and some with everything."""
        first, n_bytes = transfer.get.first_byte, transfer.get.n_bytes
        content_range = transfer.headers().get("content-range", "")
        if status == 200 and not content_range:
            body = body[first : first + (n_bytes or 0)]
        elif not content_range.replace("=", " ").startswith(f"bytes {first}-"):
            body = b""
        if len(body) != n_bytes:
            raise OSError(
                f"{self._function}: {transfer.request.keys[0]}: bytes {first} to {first + (n_bytes or 0)} were "
                f"asked for, the server gave {content_range or len(body)}; the object is not what was indexed"
            )
        return body


class _Transfer:
    """A libcurl handle, used again and again, and what it fetches at present."""

    __slots__ = ("fresh_until", "get", "handle", "header_lines", "pieces", "ranged", "request", "ticket")

    def __init__(self) -> None:
        self.handle = pycurl.Curl()
        self.fresh_until = 0.0
        self.ranged = False
        self.pieces: list[bytes] = []
        self.header_lines: list[bytes] = []
        self.handle.setopt(pycurl.WRITEFUNCTION, self.pieces.append)
        self.handle.setopt(pycurl.HEADERFUNCTION, self.header_lines.append)

    def begin(self, ticket: int, request: Request, get: Get) -> None:
        self.ticket, self.request, self.get = ticket, request, get
        handle = self.handle
        handle.setopt(pycurl.URL, get.url)
        if get.n_bytes is not None:
            handle.setopt(pycurl.RANGE, f"{get.first_byte}-{get.first_byte + get.n_bytes - 1}")
        elif self.ranged:
            handle.unsetopt(pycurl.RANGE)
        self.ranged = get.n_bytes is not None
        self.pieces.clear()
        self.header_lines.clear()

    def headers(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        for line in self.header_lines:
            name, colon, value = line.decode("latin-1").partition(":")
            if colon:
                headers[name.strip().lower()] = value.strip()
        return headers


def _curl_event(event: int) -> int:
    readable = pycurl.CSELECT_IN if event & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR) else 0
    return readable | pycurl.CSELECT_OUT if event & select.EPOLLOUT else readable


_open: weakref.WeakSet[CurlTransport] = weakref.WeakSet()
_inherited: list[CurlTransport] = []


def _leave_to_the_parent() -> None:
    """In a forked child, keep what the parent has open and never close it.

    Its epoll set and TLS sessions are one with the parent's: to tidy them up here would hang the parent.
    """
    for transport in _open:
        transport._inherited = True
        _inherited.append(transport)


os.register_at_fork(after_in_child=_leave_to_the_parent)
