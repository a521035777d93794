"""How many requests are worth having in flight: as many as the latency hides, and no more."""

from __future__ import annotations

import math
from collections import deque

SHALLOWEST = 8
DEEPEST = 512
GAIN = 2.0
PROBE_EVERY_S = 10.0


class Depth:
    """The present number of requests in flight; it follows latency x rate, as TCP's BBR does.

    By Little's law a store that answers `rate` requests a second, each after `latency`, has rate x latency
    of them in flight; twice as many find out whether it could do more. Beside the server that is under 8, and
    deeper only costs CPU (63 us an object at 8, 87 us at 256). At 100 ms it doubles every 100 ms
    until the rate stops rising: several hundred after 0.7 s.

    The latency is the shortest seen, since longer ones include a queue of our own making. It is forgotten
    after 10 s and learnt anew with a few requests in flight: with many, the queue would pass for distance and
    the depth would double for ever.

    Args:
        fixed: a user's `max_in_flight`: this many, always.
        deepest: the bound, in requests.
    """

    def __init__(self, fixed: int | None = None, *, deepest: int = DEEPEST) -> None:
        self.present = fixed or min(SHALLOWEST, deepest)
        self._fixed = fixed
        self._deepest = deepest
        self._latency_s = math.inf
        self._learnt_at = 0.0
        # The best rate of each of the last rounds; a round is as long as a request takes.
        self._rates: deque[float] = deque([0.0], maxlen=8)
        self._round_began = 0.0
        self._cap = 2 * self.present
        self._probing_since: float | None = None

    def answered(self, started_at: float, now: float, answers: int) -> None:
        """Learn from one answer: when it was asked for, and how many answers came since then."""
        if self._fixed:
            return
        latency_s = max(now - started_at, 1e-6)
        if latency_s < self._latency_s:
            self._latency_s, self._learnt_at = latency_s, now
        if self._probing_since is not None:
            if started_at < self._probing_since:
                # Asked for when the queue was long.
                self._latency_s = math.inf
                return
            self._probing_since = None
            self._cap = self._deepest
            self._round_began = now
        elif started_at >= self._round_began:
            if now - self._learnt_at > PROBE_EVERY_S:
                self._probe(now)
                return
            self._rates.append(0.0)
            self._round_began = now
            self._cap = 2 * self.present
        self._rates[-1] = max(self._rates[-1], answers / latency_s)
        worthwhile = math.ceil(GAIN * max(self._rates) * self._latency_s)
        self.present = min(max(SHALLOWEST, worthwhile), self._cap, self._deepest)

    def slow_down(self) -> None:
        """Halve: the store said that this is too much. What is now learnt of its rate decides from here."""
        if not self._fixed:
            self.present = max(1, self.present // 2)
            self._cap = self.present
            self._rates.clear()
            self._rates.append(0.0)

    def _probe(self, now: float) -> None:
        self._latency_s = math.inf
        self._probing_since = now
        self.present = min(SHALLOWEST, self._deepest)
