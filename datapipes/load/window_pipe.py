"""What every loader's pipe is around the window: its options, checked and kept, and the window run with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any, TypeVar

from datapipes.load.depth import DEEPEST, Depth
from datapipes.load.window import check_window, in_flight, pair
from datapipes.on_error import OnError, check_on_error
from datapipes.pipe import LoadPipe, Placed
from datapipes.transfer.request import Request, Transport, request_each
from datapipes.transfer.retry import Backoff

T_co = TypeVar("T_co", covariant=True)


class WindowPipe(LoadPipe[T_co]):
    """A loader over the in-flight window. A public loader names these options in its own signature."""

    function: str
    """The functional name."""
    deepest = DEEPEST
    """How many requests may be in flight where nobody says how many."""

    def __init__(
        self,
        source_datapipe: Any,
        *,
        max_in_flight: int | None,
        max_bytes: int,
        request_timeout_s: float,
        ordered: bool,
        on_error: OnError,
    ) -> None:
        check_window(self.function, max_in_flight, max_bytes, request_timeout_s)
        check_on_error(self.function, on_error)
        self.source_datapipe = source_datapipe
        self.max_in_flight = max_in_flight
        self.max_bytes = max_bytes
        self.request_timeout_s = request_timeout_s
        self.ordered = ordered
        self.on_error = on_error

    def through_window(
        self,
        placed: Iterator[Placed],
        transport: Transport,
        *,
        form_requests: Callable[[Iterator[Placed]], Iterator[Request]] = request_each,
        item_of: Callable[[Any, Any], Any] = pair,
        size_of: Callable[[Any], int] = len,
        backoff: Backoff | None = None,
    ) -> Iterator[Placed]:
        """`in_flight`, with the options of this pipe."""
        return in_flight(
            placed,
            transport,
            function=self.function,
            form_requests=form_requests,
            item_of=item_of,
            size_of=size_of,
            depth=Depth(self.max_in_flight, deepest=self.deepest),
            backoff=backoff,
            max_bytes=self.max_bytes,
            request_timeout_s=self.request_timeout_s,
            ordered=self.ordered,
            batch_size=self.batch_size,
            on_error=self.on_error,
        )


class FileLoader(WindowPipe[Any]):
    """URLs in, `(url, io.BytesIO)` out, over the transport that a subclass gives."""

    def transport(self) -> Transport:
        """Connects nothing before its first request."""
        raise NotImplementedError

    def flow(self, placed: Iterator[Placed]) -> Iterator[Placed]:
        yield from self.through_window(placed, self.transport(), item_of=_as_stream)


def _as_stream(url: str, body: bytes) -> tuple[str, BytesIO]:
    # Shares the bytes: nothing is copied before somebody writes.
    return url, BytesIO(body)
