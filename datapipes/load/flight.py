"""A flight's bookkeeping: when a request may start, how long it may take, and where its answers wait."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any

from datapipes.load.depth import Depth
from datapipes.on_error import Skipped
from datapipes.pipe import Placed
from datapipes.transfer.request import Request, Transport
from datapipes.transfer.retry import Backoff, Transient, given_up

HELD_PER_DEPTH = 4
"""Places asked for and not yet given out, per request in flight: room for a late one to hold others up."""

PASSED = object()
"""The key of an item that came in as `Skipped` and goes out as it is."""


class Attempt:
    """A request under way."""

    __slots__ = ("answers_before", "deadline", "number", "request", "started_at")

    def __init__(self, request: Request, number: int, answers_before: int, started_at: float, deadline: float) -> None:
        self.request = request
        self.number = number
        self.answers_before = answers_before
        self.started_at = started_at
        self.deadline = deadline


class Flight:
    """The state of a window: what is under way, what waits for its turn, what has to go again."""

    def __init__(
        self,
        placed: Iterable[Placed],
        transport: Transport,
        *,
        function: str,
        form_requests: Callable[[Iterator[Placed]], Iterator[Request]],
        size_of: Callable[[Any], int],
        depth: Depth,
        backoff: Backoff,
        max_bytes: int,
        request_timeout_s: float,
        span: int,
    ) -> None:
        self.transport = transport
        self.function = function
        self.size_of = size_of
        self.depth = depth
        self.max_bytes = max_bytes
        self.request_timeout_s = request_timeout_s
        self.backoff = backoff
        # A turn is `span` places that may come out in any order: one, or with ordered=False a batch.
        self.span = span
        self.turn = 0
        self.ready: dict[int, list[tuple[int, Any, Any]]] = {}
        self._turn_of: dict[int, int] = {}
        self._requests = form_requests(self._numbered(placed))
        self._exhausted = False
        self._upstream_error: Exception | None = None
        self._attempts: dict[int, Attempt] = {}
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
                self.ready.setdefault(number // self.span, []).append((place, PASSED, item))
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
        attempt = Attempt(request, number, self._answers, now, deadline)
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

    def _failed(self, attempt: Attempt, error: Exception, now: float) -> None:
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
