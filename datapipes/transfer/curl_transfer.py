"""One transfer of libcurl's: what it asks for, and what has come of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import pycurl

from datapipes.transfer.request import Request

_PIECES_A_MEAL = 32
"""Half a megabyte: with more, what came first is out of the processor's cache again."""


class Get(NamedTuple):
    """An HTTP GET: of everything, or of `n_bytes` from `first_byte` on."""

    url: str
    first_byte: int = 0
    n_bytes: int | None = None


class Sink(Protocol):
    """Takes a body as it comes, to make something of it while the processor still has it at hand."""

    def take(self, pieces: list[bytes]) -> None:
        """The next pieces; the list is the caller's."""

    def results(self) -> Sequence[Any]:
        """The results of the request, one a key, of a body that is whole."""


class Transfer:
    """A libcurl handle, used again and again, and what it fetches at present."""

    __slots__ = (
        "fresh_until", "get", "handle", "header_lines", "is_near", "pieces", "ranged", "request", "sink", "ticket",
    )  # fmt: skip

    def __init__(self, *, has_sinks: bool) -> None:
        self.handle = pycurl.Curl()
        self.fresh_until = 0.0
        self.ranged = False
        self.is_near = False
        self.pieces: list[bytes] = []
        self.header_lines: list[bytes] = []
        self.handle.setopt(pycurl.WRITEFUNCTION, self._receive if has_sinks else self.pieces.append)
        self.handle.setopt(pycurl.HEADERFUNCTION, self.header_lines.append)

    def begin(self, ticket: int, request: Request, get: Get, sink: Sink | None) -> None:
        self.ticket, self.request, self.get = ticket, request, get
        self.sink: Any = sink
        handle = self.handle
        handle.setopt(pycurl.URL, get.url)
        if get.n_bytes is not None:
            handle.setopt(pycurl.RANGE, f"{get.first_byte}-{get.first_byte + get.n_bytes - 1}")
        elif self.ranged:
            handle.unsetopt(pycurl.RANGE)
        self.ranged = get.n_bytes is not None
        self.pieces.clear()
        self.header_lines.clear()

    def _receive(self, piece: bytes) -> None:
        self.pieces.append(piece)
        if len(self.pieces) >= _PIECES_A_MEAL:
            self.feed()

    def feed(self) -> bool:
        """Give the sink what came; False where there is none, or what comes is not the range asked for."""
        if self.sink is None or not self._is_the_range():
            return False
        self.sink.take(self.pieces)
        self.pieces.clear()
        return True

    def _is_the_range(self) -> bool:
        # Not by getinfo(), which libcurl does not answer while it hands on a piece.
        status = next((line for line in reversed(self.header_lines) if line.startswith(b"HTTP/")), b"")
        content_range = self.headers().get("content-range", "").replace("=", " ")
        whole = f"bytes {self.get.first_byte}-{self.get.first_byte + (self.get.n_bytes or 0) - 1}/"
        return b" 206" in status and content_range.startswith(whole)

    def headers(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        for line in self.header_lines:
            name, colon, value = line.decode("latin-1").partition(":")
            if colon:
                headers[name.strip().lower()] = value.strip()
        return headers
