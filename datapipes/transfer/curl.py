"""HTTP as a transport: libcurl's multi interface, one thread, any number of connections."""

from __future__ import annotations

import math
import os
import select
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import pycurl

from datapipes.transfer.curl_transfer import Get, Sink, Transfer
from datapipes.transfer.http_error import HttpAnswer, explain_curl, explain_status
from datapipes.transfer.request import Request
from datapipes.transfer.retry import Transient

REFRESH_S = 60.0
NEAR_TRANSFERS = 64
"""Up to so many, libcurl is asked about all of them at once (15 % less CPU); beyond, epoll names those to look at."""
_LAST_SELECTABLE_FD = 800
# While the last near transfers end beside far ones, each kind is looked at so often.
_BOTH_S = 0.002
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
        join: makes a body of the pieces in which it came.
        sink_of: what takes a request's range as it comes, in place of `join` and `results_of`. These are asked all
            the same where the server answers with something else than that range.
        explain: the error of an answer whose status is neither 200 nor 206.
        needs_length: False where `results_of` knows a cut body by what is in it: some servers end an answer
            by closing the connection.
    """

    def __init__(
        self,
        *,
        function: str,
        address: Callable[[Request], Get],
        options: Callable[[], dict[int, Any]] = dict,
        results_of: Callable[[Request, bytes], Sequence[Any]] = whole_body,
        join: Callable[[list[bytes]], Any] = b"".join,
        sink_of: Callable[[Request], Sink] | None = None,
        explain: Callable[[str, object, HttpAnswer], Exception] = explain_status,
        needs_length: bool = True,
    ) -> None:
        self._function = function
        self._address = address
        self._options = options
        self._results_of = results_of
        self._join = join
        self._sink_of = sink_of
        self._explain = explain
        self._needs_length = needs_length
        self._near: Any = pycurl.CurlMulti()
        self._far: Any = pycurl.CurlMulti()
        self._epoll = select.epoll()
        self._masks: dict[int, int] = {}
        # select() knows descriptors up to 1,023 only, and this process has some already.
        self._near_has_room_for = NEAR_TRANSFERS if self._epoll.fileno() < _LAST_SELECTABLE_FD else 0
        self._idle: list[Transfer] = []
        self._under_way: dict[int, Transfer] = {}
        self._transfer_of: dict[Any, Transfer] = {}
        self._far_count = 0
        self._near.setopt(pycurl.M_MAXCONNECTS, NEAR_TRANSFERS)
        self._far.setopt(pycurl.M_MAXCONNECTS, 1024)
        self._far.setopt(pycurl.M_SOCKETFUNCTION, self._watch)
        self._inherited = False
        _open.add(self)

    def start(self, ticket: int, request: Request) -> None:
        get = self._address(request)
        transfer = self._idle.pop() if self._idle else self._new_transfer()
        if time.monotonic() > transfer.fresh_until:
            self._refresh(transfer)
        transfer.begin(ticket, request, get, self._sink_of(request) if self._sink_of else None)
        transfer.is_near = len(self._under_way) < self._near_has_room_for
        self._under_way[ticket] = transfer
        if transfer.is_near:
            # Sent by the next `finished`: to look at all transfers for each new one costs more than it gains.
            self._near.add_handle(transfer.handle)
        else:
            self._far_count += 1
            self._far.add_handle(transfer.handle)
            self._far.socket_action(pycurl.SOCKET_TIMEOUT, 0)

    def finished(self, timeout_s: float) -> list[tuple[int, Any, Exception | None]]:
        give_up_at = time.monotonic() + timeout_s
        while True:
            answers: list[tuple[int, Any, Exception | None]] = []
            has_near = len(self._under_way) > self._far_count
            if has_near:
                self._near.perform()
                answers += self._done(self._near)
            if self._far_count:
                wait_s = 0.0 if answers else max(0.0, give_up_at - time.monotonic())
                self._look_at_far(min(wait_s, _BOTH_S) if has_near else wait_s)
                answers += self._done(self._far)
            if self._sink_of is not None:
                self._feed()
            left_s = give_up_at - time.monotonic()
            if answers or left_s <= 0:
                return answers
            if not self._far_count:
                self._wait_for_near(left_s)

    def _feed(self) -> None:
        for transfer in self._under_way.values():
            if transfer.has_a_meal:
                transfer.feed()

    def _wait_for_near(self, timeout_s: float) -> None:
        # A timer of libcurl's may end a wait on sockets: to try a host's next address, say.
        timer_ms = self._near.timeout()
        wait_s = min(timeout_s, timer_ms / 1000) if timer_ms >= 0 else timeout_s
        if self._near.select(wait_s) == -1:
            # It has no socket yet, while a name is looked up.
            time.sleep(min(wait_s, _BOTH_S))

    def _look_at_far(self, timeout_s: float) -> None:
        # Asked for here: told by a callback of libcurl's it would cost two calls an object.
        timer_ms = self._far.timeout()
        timer_at = time.monotonic() + timer_ms / 1000 if timer_ms >= 0 else math.inf
        for fd, event in self._epoll.poll(min(timeout_s, timer_ms / 1000 if timer_ms >= 0 else timeout_s), 256):
            self._far.socket_action(fd, _curl_event(event))
        if time.monotonic() >= timer_at:
            self._far.socket_action(pycurl.SOCKET_TIMEOUT, 0)

    def cancel(self, ticket: int) -> None:
        self._idle.append(self._taken_off(self._under_way[ticket]))

    def _taken_off(self, transfer: Transfer) -> Transfer:
        (self._near if transfer.is_near else self._far).remove_handle(transfer.handle)
        self._far_count -= not transfer.is_near
        del self._under_way[transfer.ticket]
        return transfer

    def close(self) -> None:
        if self._inherited or self._near is None:
            return
        for transfer in list(self._under_way.values()):
            self._taken_off(transfer)
        for transfer in self._transfer_of.values():
            transfer.handle.close()
        self._near.close()
        self._far.close()
        self._near = self._far = None
        self._epoll.close()
        self._under_way, self._transfer_of, self._idle = {}, {}, []

    def _new_transfer(self) -> Transfer:
        transfer = Transfer()
        self._transfer_of[transfer.handle] = transfer
        return transfer

    def _refresh(self, transfer: Transfer) -> None:
        for option, value in (_OPTIONS | self._options()).items():
            transfer.handle.setopt(option, value)
        transfer.fresh_until = time.monotonic() + REFRESH_S

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

    def _done(self, multi: Any) -> list[tuple[int, Any, Exception | None]]:
        answers: list[tuple[int, Any, Exception | None]] = []
        left = 1
        while left > 0:
            left, whole, failed = multi.info_read(256)
            for handle in whole:
                answers.append(self._answer(handle, 0, ""))
            for handle, code, message in failed:
                answers.append(self._answer(handle, code, message))
        return answers

    def _answer(self, handle: Any, code: int, message: str) -> tuple[int, Any, Exception | None]:
        transfer = self._taken_off(self._transfer_of[handle])
        self._idle.append(transfer)
        request = transfer.request
        try:
            if code:
                raise explain_curl(self._function, request.keys[0], transfer.get.url, code, message)
            if transfer.feed():
                return transfer.ticket, transfer.sink.results(), None
            return transfer.ticket, self._results_of(request, self._body(transfer)), None
        except Exception as error:
            return transfer.ticket, None, error
        finally:
            transfer.sink = None

    def _body(self, transfer: Transfer) -> Any:
        status = transfer.handle.getinfo(pycurl.RESPONSE_CODE)
        body = self._join(transfer.pieces) if status in (200, 206) else b"".join(transfer.pieces)
        transfer.pieces.clear()
        key = transfer.request.keys[0]
        if status not in (200, 206):
            retry_after_s = float(transfer.handle.getinfo(pycurl.RETRY_AFTER))
            answer = HttpAnswer(transfer.get.url, status, transfer.headers(), body, retry_after_s)
            raise self._explain(self._function, key, answer)
        # libcurl has checked the length if there was one, and the last chunk's mark if there were chunks.
        length = transfer.handle.getinfo(pycurl.CONTENT_LENGTH_DOWNLOAD_T)
        if length < 0 and self._needs_length and "transfer-encoding" not in transfer.headers():
            raise Transient(
                ConnectionError(
                    f"{self._function}: {key}: the server gave no Content-Length, so that a cut body "
                    "cannot be told from a whole one; ask it to give one"
                )
            )
        return body if transfer.get.n_bytes is None else self._range_of(transfer, status, body)

    def _range_of(self, transfer: Transfer, status: int, body: Any) -> Any:
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
