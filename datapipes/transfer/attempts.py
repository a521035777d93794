"""Requests under way: each with its deadline, and sent again where its error may pass."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from itertools import count
from typing import Any

from datapipes.transfer.request import Request, Transport
from datapipes.transfer.retry import Backoff, Transient, given_up


class Attempt:
    """A request under way."""

    __slots__ = ("answers_before", "deadline", "number", "request", "started_at")

    def __init__(self, request: Request, number: int, answers_before: int, started_at: float, deadline: float) -> None:
        self.request = request
        self.number = number
        self.answers_before = answers_before
        self.started_at = started_at
        self.deadline = deadline


class Attempts:
    """Sends requests over a transport and gives what became of them in the end.

    Args:
        function: the functional name that errors begin with.
        timeout_s: deadline of an attempt, in seconds.
        backoff: which errors go again, and when.
        slow_down: called when the store says that it is asked too much.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        function: str,
        timeout_s: float,
        backoff: Backoff | None = None,
        slow_down: Callable[[], None] = lambda: None,
    ) -> None:
        self.transport = transport
        self.function = function
        self.timeout_s = timeout_s
        self.backoff = backoff or Backoff()
        self.answers = 0
        """How many came so far, good and bad."""
        self._slow_down = slow_down
        self._under_way: dict[int, Attempt] = {}
        self._again: list[tuple[float, int, Request, int]] = []
        self._lost: list[tuple[Attempt, Any, Exception | None]] = []
        self._tickets = count()
        # Deadlines run on a clock that stands still while the consumer has the thread: what arrived meanwhile
        # is not late.
        self._away_s = 0.0
        self.looked_at = time.monotonic()
        """When answers were last taken in, on the monotonic clock."""

    def __len__(self) -> int:
        """Requests whose end is not known: under way, or waiting to go again."""
        return len(self._under_way) + len(self._again) + len(self._lost)

    def start(self, request: Request, number: int = 1) -> None:
        """Send it for the `number`-th time."""
        now = time.monotonic()
        deadline = now - self._away_s + self.timeout_s
        attempt = Attempt(request, number, self.answers, now, deadline)
        ticket = next(self._tickets)
        try:
            self.transport.start(ticket, request)
        except Exception as error:
            self._failed(attempt, error, now)
        else:
            self._under_way[ticket] = attempt

    def start_again(self, at_most: int) -> bool:
        """Send what is due again, up to `at_most` under way; False while the store is to be left alone."""
        now = time.monotonic()
        if now < self.backoff.quiet_until:
            return False
        while self._again and self._again[0][0] <= now and len(self._under_way) < at_most:
            _, _, request, number = heapq.heappop(self._again)
            self.start(request, number)
        return True

    def ended(self, wait: bool) -> list[tuple[Attempt, Any, Exception | None]]:
        """What was answered, or has failed for good; with `wait`, once something was or something is due."""
        now = time.monotonic()
        self._away_s += now - self.looked_at
        timeout_s = self._patience(now) if wait else 0.0
        if self._under_way:
            finished = self.transport.finished(timeout_s)
        else:
            finished = []
            if timeout_s:  # even a sleep of 0 s takes 60 us
                time.sleep(timeout_s)
        now = self.looked_at = time.monotonic()
        ended: list[tuple[Attempt, Any, Exception | None]] = []
        for ticket, results, error in finished:
            attempt = self._under_way.pop(ticket, None)
            if attempt is None:
                continue
            self.answers += 1
            if error is None:
                ended.append((attempt, results, None))
            else:
                self._failed(attempt, error, now)
        self._expire(now)
        if self._lost:
            ended += self._lost
            self._lost.clear()
        return ended

    def _patience(self, now: float) -> float:
        """Seconds until something has to be done, whatever the transport says."""
        if self._lost:
            return 0.0
        due = []
        if self._under_way:
            due.append(next(iter(self._under_way.values())).deadline + self._away_s)
        if self._again:
            due.append(max(self._again[0][0], self.backoff.quiet_until))
        if self.backoff.quiet_until > now:
            due.append(self.backoff.quiet_until)
        return max(0.0, min(due) - now) if due else 0.0

    def _expire(self, now: float) -> None:
        clock = now - self._away_s
        while self._under_way:
            ticket, attempt = next(iter(self._under_way.items()))
            if attempt.deadline > clock:
                break
            del self._under_way[ticket]
            self.transport.cancel(ticket)
            late = TimeoutError(
                f"{self.function}: no whole answer for {attempt.request.keys[0]} within {self.timeout_s:g} s; "
                "see whether the server is well, or raise request_timeout_s"
            )
            self._failed(attempt, Transient(late), now)

    def _failed(self, attempt: Attempt, error: Exception, now: float) -> None:
        if type(error) is Transient:
            if error.slow_down:
                self._slow_down()
            again_at = self.backoff.again_at(attempt.number, error, now)
            if again_at is not None:
                heapq.heappush(self._again, (again_at, next(self._tickets), attempt.request, attempt.number + 1))
                return
            error = given_up(error.error, attempt.number)
        self._lost.append((attempt, None, error))
