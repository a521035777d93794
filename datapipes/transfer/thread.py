"""A transport made of threads, for stores whose client only knows how to block."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

from datapipes.transfer.request import Request


class ThreadTransport:
    """Runs `read(request)` in threads, one for each request in flight at most.

    A thread cannot be stopped: what is cancelled runs on by itself, and its answer is dropped.

    Args:
        read: blocks, and returns the results of a request, one a key; raises `Transient` for what may pass.
        max_threads: how many read at once; further requests wait for a thread.
    """

    def __init__(self, read: Callable[[Request], Sequence[Any]], *, max_threads: int = 64) -> None:
        self._read = read
        self._max_threads = max_threads
        self._asked: queue.SimpleQueue[tuple[int, Request] | None] = queue.SimpleQueue()
        self._answered: queue.SimpleQueue[tuple[int, Any, Exception | None]] = queue.SimpleQueue()
        self._under_way: set[int] = set()
        self._threads = 0

    def start(self, ticket: int, request: Request) -> None:
        self._under_way.add(ticket)
        if len(self._under_way) > self._threads < self._max_threads:
            self._add_thread()
        self._asked.put((ticket, request))

    def finished(self, timeout_s: float) -> list[tuple[int, Any, Exception | None]]:
        answers = []
        try:
            answers.append(self._answered.get(timeout_s > 0, timeout_s))
            while True:
                answers.append(self._answered.get_nowait())
        except queue.Empty:
            pass
        known = [answer for answer in answers if answer[0] in self._under_way]
        self._under_way.difference_update(ticket for ticket, _, _ in known)
        return known

    def cancel(self, ticket: int) -> None:
        self._under_way.discard(ticket)
        # Its thread may hang for ever: another takes its turn.
        self._add_thread()

    def close(self) -> None:
        self._under_way.clear()
        for _ in range(self._threads):
            self._asked.put(None)

    def _add_thread(self) -> None:
        self._threads += 1
        threading.Thread(target=self._work, name="datapipes-load", daemon=True).start()

    def _work(self) -> None:
        while asked := self._asked.get():
            ticket, request = asked
            if ticket not in self._under_way:
                continue
            try:
                self._answered.put((ticket, self._read(request), None))
            except Exception as error:
                self._answered.put((ticket, None, error))
