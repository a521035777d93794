"""The one in-flight window: keys in, payloads out, however many requests are under way in between."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from datapipes.load.depth import Depth
from datapipes.load.flight import PASSED, Flight
from datapipes.load.heap import keep_freed_memory
from datapipes.on_error import OnError, said_by, settle
from datapipes.pipe import Placed
from datapipes.transfer.request import Request, Transport, request_each
from datapipes.transfer.retry import Backoff, Transient

MAX_BYTES = 64 << 20
REQUEST_TIMEOUT_S = 20.0
EMIT_S = 0.001
"""How long samples are given out before the window looks after its requests again: a look is a system call."""


def check_window(function: str, max_in_flight: int | None, max_bytes: int, request_timeout_s: float) -> None:
    """Refuse at construction what no window can work with."""
    if max_in_flight is not None and max_in_flight < 1:
        raise ValueError(f"{function}: max_in_flight must be at least 1, got {max_in_flight}")
    if max_bytes < 1:
        raise ValueError(f"{function}: max_bytes must be at least 1, got {max_bytes}")
    if not request_timeout_s > 0:
        raise ValueError(f"{function}: request_timeout_s must be more than 0, got {request_timeout_s}")


def pair(key: Any, result: Any) -> Any:
    """The item that `load_*` gives for a key: `(key, payload)`."""
    return key, result


def in_flight(
    placed: Iterable[Placed],
    transport: Transport,
    *,
    function: str,
    form_requests: Callable[[Iterator[Placed]], Iterator[Request]] = request_each,
    item_of: Callable[[Any, Any], Any] = pair,
    size_of: Callable[[Any], int] = len,
    depth: Depth | None = None,
    backoff: Backoff | None = None,
    max_bytes: int = MAX_BYTES,
    request_timeout_s: float = REQUEST_TIMEOUT_S,
    ordered: bool = True,
    batch_size: int | None = None,
    on_error: OnError = "raise",
) -> Iterator[Placed]:
    """Placed keys in, placed items out, one for one; `transport` is closed when this generator is.

    Between two samples the consumer may work: every millisecond, at an emission, the window looks after its
    requests. There is no thread.

    Args:
        placed: `(place, key)`; a `Skipped` instead of a key passes through, in its place.
        transport: what sends the requests; this generator owns it.
        function: the functional name that errors begin with.
        form_requests: a generator that turns placed keys into requests. It may look ahead, group, and leave
            the order; the items come out in order all the same. A key that it holds back while the window is
            full of later ones is asked for when all of those are answered: it should not hold one for long.
        item_of: what comes out for `(key, result)`; an error that it raises is the key's own.
        size_of: bytes of a result, for `max_bytes`.
        depth: how many requests are in flight; by default it follows latency and rate.
        backoff: which errors go again, and when; by default 7 attempts with up to 6.3 s between them.
        max_bytes: payload on its way or waiting for its turn; what is on its way counts by the mean size.
        request_timeout_s: deadline of an attempt, in seconds. A key fails after 7 attempts: at the latest
            after 7 times this and the 6.3 s between them.
        ordered: in place order. False: as they come, within each `batch_size` places, so that batches keep
            their samples.
        on_error: what a key becomes that cannot be had.
    """
    keep_freed_memory()
    flight = Flight(
        placed,
        transport,
        function=function,
        form_requests=form_requests,
        size_of=size_of,
        depth=depth or Depth(),
        backoff=backoff,
        max_bytes=max_bytes,
        request_timeout_s=request_timeout_s,
        span=1 if ordered else batch_size or sys.maxsize,
    )
    ready, left = flight.ready, flight.span
    look_again_at = 0.0
    try:
        while flight.fill():
            while waiting := ready.get(flight.turn):
                place, key, result, size = waiting.pop(0)
                if not waiting:
                    del ready[flight.turn]
                left -= 1
                if left == 0:
                    flight.turn += 1
                    left = flight.span
                if key is not PASSED:
                    flight.release(size)
                    try:
                        result = _item(item_of, key, result)
                    except Exception as error:
                        result = settle(on_error, str(key), said_by(function, error))
                yield place, result
                if time.monotonic() >= look_again_at:
                    break
            flight.collect(wait=not ready.get(flight.turn))
            look_again_at = time.monotonic() + EMIT_S
    finally:
        transport.close()


def _item(item_of: Callable[[Any, Any], Any], key: Any, result: Any) -> Any:
    if isinstance(result, Exception):
        raise result.error if type(result) is Transient else result
    return item_of(key, result)
