"""The one in-flight window: keys in, payloads out, however many requests are under way in between."""

from __future__ import annotations

import heapq
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any

from datapipes.load.depth import Depth
from datapipes.load.request import Request, Transport, request_each
from datapipes.load.retry import Backoff, Transient, given_up
from datapipes.on_error import OnError, Skipped, settle
from datapipes.pipe import Placed

MAX_BYTES = 64 << 20
REQUEST_TIMEOUT_S = 20.0
EMIT_S = 0.001
HELD_PER_DEPTH = 4


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
    window = _Window(
        placed, transport, function, form_requests, size_of, depth or Depth(), max_bytes, request_timeout_s
    )
    window.backoff = backoff or Backoff()
    window.span = 1 if ordered else batch_size or sys.maxsize
    ready, left = window.ready, window.span
    look_again_at = 0.0
    try:
        while window.fill():
            while waiting := ready.get(window.turn):
                place, key, result = waiting.pop(0)
                if not waiting:
                    del ready[window.turn]
                left -= 1
                if left == 0:
                    window.turn += 1
                    left = window.span
                if key is not _PASSED:
                    window.release(result)
                    try:
                        result = _item(item_of, key, result)
                    except Exception as error:
                        result = settle(on_error, str(key), error)
                yield place, result
                if time.monotonic() >= look_again_at:
                    break
            window.collect(wait=not ready.get(window.turn))
            look_again_at = time.monotonic() + EMIT_S
    finally:
        transport.close()


_PASSED = object()


def _item(item_of: Callable[[Any, Any], Any], key: Any, result: Any) -> Any:
    if isinstance(result, Exception):
        raise result.error if type(result) is Transient else result
    return item_of(key, result)


class _Attempt:
    """A request under way."""

    __slots__ = ("answers_before", "deadline", "number", "request", "started_at")

    def __init__(self, request: Request, number: int, answers_before: int, started_at: float, deadline: float) -> None:
        self.request = request
        self.number = number
        self.answers_before = answers_before
        self.started_at = started_at
        self.deadline = deadline


class _Window:
    """The state of a flight: what is under way, what waits for its turn, what has to go again."""

    span = 1

    def __init__(
        self,
        placed: Iterable[Placed],
        transport: Transport,
        function: str,
        form_requests: Callable[[Iterator[Placed]], Iterator[Request]],
        size_of: Callable[[Any], int],
        depth: Depth,
        max_bytes: int,
        request_timeout_s: float,
    ) -> None:
        self.transport = transport
        self.function = function
        self.size_of = size_of
        self.depth = depth
        self.max_bytes = max_bytes
        self.request_timeout_s = request_timeout_s
        self.backoff: Backoff
        # A turn is what may come out in any order among itself: a place, or with ordered=False a batch.
        self.turn = 0
        self.ready: dict[int, list[tuple[int, Any, Any]]] = {}
        self._turn_of: dict[int, int] = {}
        self._requests = form_requests(self._numbered(placed))
        self._exhausted = False
        self._upstream_error: Exception | None = None
        self._attempts: dict[int, _Attempt] = {}
        self._tickets = count()
        self._again: list[tuple[float, int, Request, int]] = []
        self._answers = 0
        self._widest = 1
        self._held = 0
        self._held_bytes = 0
        self._mean_bytes = 0.0
        # Deadlines run on a clock that stands still while the consumer has the thread: what arrived meanwhile
        # is not late.
        self._away_s = 0.0
        self._looked_at = time.monotonic()

    def _numbered(self, placed: Iterable[Placed]) -> Iterator[Placed]:
        for number, (place, item) in enumerate(placed):
            if type(item) is Skipped:
                self.ready.setdefault(number // self.span, []).append((place, _PASSED, item))
            else:
                self._turn_of[place] = number // self.span
                yield place, item

    def fill(self) -> bool:
        """Start what there is room for; False when everything has come out."""
        now = time.monotonic()
        if now >= self.backoff.quiet_until:
            while self._again and self._again[0][0] <= now and len(self._attempts) < self.depth.present:
                _, _, request, number = heapq.heappop(self._again)
                self._start(request, number, now)
            while not self._exhausted and self._has_room():
                self._ask_next(now)
        if self._attempts or self._again or not self._exhausted or self.ready.get(self.turn):
            return True
        if self._upstream_error:
            raise self._upstream_error
        if self._turn_of:
            raise RuntimeError(f"{self.function}: no request was formed for place {min(self._turn_of)}")
        return False

    def _ask_next(self, now: float) -> None:
        try:
            request = next(self._requests, None)
        except Exception as error:
            # It is raised in its place, after all that came before it.
            request, self._upstream_error = None, error
        if request is None:
            self._exhausted = True
            return
        self._widest = max(self._widest, len(request.places))
        self._held += len(request.places)
        self._start(request, 1, now)

    def _has_room(self) -> bool:
        under_way = len(self._attempts) + len(self._again)
        if under_way == 0 and not self.ready.get(self.turn):
            return True
        return (
            under_way < self.depth.present
            and self._held < HELD_PER_DEPTH * self._widest * self.depth.present
            and self._held_bytes + (under_way + 1) * self._mean_bytes <= self.max_bytes
        )

    def _start(self, request: Request, number: int, now: float) -> None:
        ticket = next(self._tickets)
        deadline = now - self._away_s + self.request_timeout_s
        attempt = _Attempt(request, number, self._answers, now, deadline)
        try:
            self.transport.start(ticket, request)
        except Exception as error:
            self._failed(attempt, error, now)
        else:
            self._attempts[ticket] = attempt

    def collect(self, wait: bool) -> None:
        """Take in what was answered; with `wait`, until something was or something is due."""
        now = time.monotonic()
        self._away_s += now - self._looked_at
        timeout_s = self._patience(now) if wait else 0.0
        if self._attempts:
            finished = self.transport.finished(timeout_s)
        else:
            finished = []
            time.sleep(timeout_s)
        now = self._looked_at = time.monotonic()
        attempt = None
        for ticket, results, error in finished:
            known = self._attempts.pop(ticket, None)
            if known is None:
                continue
            self._answers += 1
            if error is None:
                attempt = known
                self._keep(known.request, results)
            else:
                self._failed(known, error, now)
        if attempt is not None:
            self.depth.answered(attempt.started_at, now, self._answers - attempt.answers_before)
        self._expire(now)

    def _patience(self, now: float) -> float:
        """Seconds until something has to be done, whatever the transport says."""
        due = []
        if self._attempts:
            due.append(next(iter(self._attempts.values())).deadline + self._away_s)
        if self._again:
            due.append(max(self._again[0][0], self.backoff.quiet_until))
        if not self._exhausted and self.backoff.quiet_until > now:
            due.append(self.backoff.quiet_until)
        return max(0.0, min(due) - now) if due else 0.0

    def _expire(self, now: float) -> None:
        clock = now - self._away_s
        while self._attempts:
            ticket, attempt = next(iter(self._attempts.items()))
            if attempt.deadline > clock:
                break
            del self._attempts[ticket]
            self.transport.cancel(ticket)
            late = TimeoutError(
                f"{self.function}: no whole answer for {attempt.request.keys[0]} "
                f"within {self.request_timeout_s:g} s; "
                "see whether the server is well, or raise request_timeout_s"
            )
            self._failed(attempt, Transient(late), now)

    def _failed(self, attempt: _Attempt, error: Exception, now: float) -> None:
        request = attempt.request
        if type(error) is Transient:
            if error.slow_down:
                self.depth.slow_down()
            again_at = self.backoff.again_at(attempt.number, error, now)
            if again_at is not None:
                heapq.heappush(self._again, (again_at, next(self._tickets), request, attempt.number + 1))
                return
            error = given_up(error.error, attempt.number)
        for place, key in zip(request.places, request.keys, strict=True):
            self.ready.setdefault(self._turn_of.pop(place), []).append((place, key, error))

    def _keep(self, request: Request, results: Any) -> None:
        size = 0
        for place, key, result in zip(request.places, request.keys, results, strict=True):
            if not isinstance(result, Exception):
                size += self.size_of(result)
            self.ready.setdefault(self._turn_of.pop(place), []).append((place, key, result))
        self._held_bytes += size
        self._mean_bytes += (size - self._mean_bytes) / min(self._answers, 16)

    def release(self, result: Any) -> None:
        """A result leaves: there is room for another."""
        self._held -= 1
        if not isinstance(result, Exception):
            self._held_bytes -= self.size_of(result)
