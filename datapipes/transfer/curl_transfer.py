"""One transfer of libcurl's: what it asks for, and what has come of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import pycurl

from datapipes.transfer.request import Request

_PIECES_A_MEAL = 32
"""Half a megabyte, or what one round of libcurl's brings: beyond, what came first is out of the processor's cache."""


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
        "fits", "fresh_until", "get", "handle", "header_lines", "is_near", "pieces", "ranged", "request", "sink",
        "ticket",
    )  # fmt: skip

    def __init__(self) -> None:
        self.handle = pycurl.Curl()
        self.fresh_until = 0.0
        self.ranged = False
        self.is_near = False
        self.pieces: list[bytes] = []
        self.header_lines: list[bytes] = []
        self.handle.setopt(pycurl.WRITEFUNCTION, self.pieces.append)
        self.handle.setopt(pycurl.HEADERFUNCTION, self.header_lines.append)

    def begin(self, ticket: int, request: Request, get: Get, sink: Sink | None) -> None:
        self.ticket, self.request, self.get = ticket, request, get
        self.sink: Any = sink
        self.fits: bool | None = None
        handle = self.handle
        handle.setopt(pycurl.URL, get.url)
        if get.n_bytes is not None:
            handle.setopt(pycurl.RANGE, f"{get.first_byte}-{get.first_byte + get.n_bytes - 1}")
        elif self.ranged:
            handle.unsetopt(pycurl.RANGE)
        self.ranged = get.n_bytes is not None
        self.pieces.clear()
        self.header_lines.clear()

    @property
    def has_a_meal(self) -> bool:
        return len(self.pieces) >= _PIECES_A_MEAL

    def feed(self) -> bool:
        """Give the sink what came; False where there is none, or what comes is not the range asked for."""
        if self.sink is None:
            return False
        if self.fits is None:
            self.fits = self._is_the_range()
        if not self.fits:
            return False
        self.sink.take(self.pieces)
        self.pieces.clear()
        return True

    def _is_the_range(self) -> bool:
        content_range = self.headers().get("content-range", "").replace("=", " ")
        whole = f"bytes {self.get.first_byte}-{self.get.first_byte + (self.get.n_bytes or 0) - 1}/"
        return self.handle.getinfo(pycurl.RESPONSE_CODE) == 206 and content_range.startswith(whole)

    def headers(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        for line in self.header_lines:
            name, colon, value = line.decode("latin-1").partition(":")
            if colon:
                headers[name.strip().lower()] = value.strip()
        return headers
