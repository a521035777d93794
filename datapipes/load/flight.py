"""A flight's bookkeeping: when a request may start, and where its answers wait for their turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from datapipes.load.depth import Depth
from datapipes.on_error import Skipped
from datapipes.pipe import Placed
from datapipes.transfer.attempts import Attempts
from datapipes.transfer.request import Request, Transport
from datapipes.transfer.retry import Backoff

HELD_PER_DEPTH = 4
"""Places asked for and not yet given out, per request in flight: room for a late one to hold others up."""

PASSED = object()
"""The key of an item that came in as `Skipped` and goes out as it is."""


class Flight:
    """The state of a window: what may be asked for, and what has come and waits for its turn."""

    def __init__(
        self,
        placed: Iterable[Placed],
        transport: Transport,
        *,
        function: str,
        form_requests: Callable[[Iterator[Placed]], Iterator[Request]],
        size_of: Callable[[Any], int],
        depth: Depth,
        backoff: Backoff | None,
        max_bytes: int,
        request_timeout_s: float,
        span: int,
    ) -> None:
        self.function = function
        self.size_of = size_of
        self.depth = depth
        self.max_bytes = max_bytes
        self._attempts = Attempts(
            transport,
            function=function,
            timeout_s=request_timeout_s,
            backoff=backoff,
            slow_down=depth.slow_down,
        )
        # A turn is `span` places that may come out in any order: one, or with ordered=False a batch.
        self.span = span
        self.turn = 0
        self.ready: dict[int, list[tuple[int, Any, Any, int]]] = {}
        self._turn_of: dict[int, int] = {}
        self._requests = form_requests(self._numbered(placed))
        self._exhausted = False
        self._upstream_error: Exception | None = None
        self._widest = 1
        self._held = 0
        self._held_bytes = 0
        self._mean_bytes = 0.0
        self._kept = 0

    def _numbered(self, placed: Iterable[Placed]) -> Iterator[Placed]:
        for number, (place, item) in enumerate(placed):
            if type(item) is Skipped:
                self.ready.setdefault(number // self.span, []).append((place, PASSED, item, 0))
            else:
                self._turn_of[place] = number // self.span
                yield place, item

    def fill(self) -> bool:
        """Start what there is room for; False when everything has come out."""
        if self._attempts.start_again(self.depth.present):
            while not self._exhausted and self._has_room():
                self._ask_next()
        if self._attempts or not self._exhausted or self.ready.get(self.turn):
            return True
        if self._upstream_error:
            raise self._upstream_error
        if self._turn_of:
            raise RuntimeError(f"{self.function}: no request was formed for place {min(self._turn_of)}")
        return False

    def _ask_next(self) -> None:
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
        self._attempts.start(request)

    def _has_room(self) -> bool:
        under_way = len(self._attempts)
        if under_way == 0 and not self.ready.get(self.turn):
            return True
        return (
            under_way < self.depth.present
            and self._held < HELD_PER_DEPTH * self._widest * self.depth.present
            and self._held_bytes + (under_way + 1) * self._mean_bytes <= self.max_bytes
        )

    def collect(self, wait: bool) -> None:
        """Take in what was answered; with `wait`, until something was or something is due."""
        answered = None
        for attempt, results, error in self._attempts.ended(wait):
            request = attempt.request
            if error is None:
                answered = attempt
                self._keep(request, results)
                continue
            for place, key in zip(request.places, request.keys, strict=True):
                self.ready.setdefault(self._turn_of.pop(place), []).append((place, key, error, 0))
        if answered is not None:
            now, answers = self._attempts.looked_at, self._attempts.answers - answered.answers_before
            self.depth.answered(answered.started_at, now, answers)

    def _keep(self, request: Request, results: Any) -> None:
        total = 0
        for place, key, result in zip(request.places, request.keys, results, strict=True):
            size = 0 if isinstance(result, Exception) else self.size_of(result)
            total += size
            self.ready.setdefault(self._turn_of.pop(place), []).append((place, key, result, size))
        self._held_bytes += total
        self._kept += 1
        self._mean_bytes += (total - self._mean_bytes) / min(self._kept, 16)

    def release(self, size: int) -> None:
        """A result of so many bytes leaves: there is room for another."""
        self._held -= 1
        self._held_bytes -= size
