"""Signed GET requests with small answers, several at a time and in this thread: what a listing is made of."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Any

from datapipes.catalog.s3_server import S3Endpoint
from datapipes.catalog.s3_transport import signed_transport
from datapipes.transfer.attempts import Attempts
from datapipes.transfer.curl_transfer import Get
from datapipes.transfer.request import Request
from datapipes.transfer.retry import Transient


class SignedGets:
    """At most `max_in_flight` GET requests; of those that wait, the one of the smallest rank goes first.

    Args:
        function: the functional name that errors begin with.
        parse: makes of a body what `answers` gives; its ValueError means that the body is broken.
        timeout_s: of one attempt, connecting included.
        needs_length: False where `parse` knows a body that was cut.
    """

    def __init__(
        self,
        function: str,
        endpoint: S3Endpoint,
        parse: Callable[[bytes], Any],
        *,
        timeout_s: float,
        max_in_flight: int,
        needs_length: bool = True,
    ) -> None:
        self.function = function
        self.endpoint = endpoint
        self.parse = parse
        self.max_in_flight = max_in_flight
        self._transport = signed_transport(
            endpoint,
            function,
            address=lambda request: Get(request.detail[0]),
            results_of=self._parsed,
            needs_length=needs_length,
        )
        self._attempts = Attempts(self._transport, function=function, timeout_s=timeout_s)
        self._waiting: list[tuple[Any, int, Request]] = []
        self._numbers = itertools.count()
        self._ended: list[tuple[Any, Any, Exception | None]] = []

    def ask(self, url: str, *, told_as: str, rank: Any, tag: Any) -> None:
        """Queue a request; errors call it `told_as`, and its answer comes with `tag`."""
        number = next(self._numbers)
        heapq.heappush(self._waiting, (rank, number, Request((number,), (told_as,), (url, tag))))
        # Sent at once: the asker may have much to do before it wants the answer.
        self._exchange(wait=False)

    def answers(self) -> list[tuple[Any, Any]]:
        """(tag, parsed body) of the requests that have succeeded; waits for the first.

        Raises:
            FileNotFoundError, PermissionError, ValueError, OSError: as `explain_s3` says.
            TimeoutError, ConnectionError: no answer within `timeout_s`, seven times.
        """
        if not self._attempts and not self._waiting and not self._ended:
            raise RuntimeError("SignedGets.answers: nothing was asked")
        while not self._ended:
            self._exchange(wait=True)
        ended, self._ended = self._ended, []
        for _, _, error in ended:
            if error is not None:
                raise error
        return [(tag, answer) for tag, answer, _ in ended]

    def close(self) -> None:
        """Drop what is under way, and close the connections."""
        self._waiting.clear()
        self._transport.close()

    def _exchange(self, *, wait: bool) -> None:
        if self._attempts.start_again(self.max_in_flight):
            while self._waiting and len(self._attempts) < self.max_in_flight:
                self._attempts.start(heapq.heappop(self._waiting)[2])
        for attempt, results, error in self._attempts.ended(wait):
            self._ended.append((attempt.request.detail[1], results and results[0], error))

    def _parsed(self, request: Request, body: bytes) -> tuple[Any]:
        try:
            return (self.parse(body),)
        except ValueError as broken:
            unreadable = OSError(
                f"{self.function}: the answer for {request.keys[0]} cannot be read ({broken}); "
                f"check that {self.endpoint.base_url} is an S3 server"
            )
            raise Transient(unreadable) from None
