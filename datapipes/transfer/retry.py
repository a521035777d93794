"""The one layer of retries: which errors go again, and when."""

from __future__ import annotations

import random


class Transient(Exception):
    """A transport's word that `error` may pass if the request is sent again.

    Args:
        error: what the user sees once the attempts are used up; a built-in type.
        slow_down: the store is overloaded, so no other request should go out either for a while.
        retry_after_s: how long the store asked to be left alone (`Retry-After`), in seconds.
    """

    def __init__(self, error: Exception, *, slow_down: bool = False, retry_after_s: float = 0.0) -> None:
        super().__init__(error)
        self.error = error
        self.slow_down = slow_down
        self.retry_after_s = retry_after_s


class Backoff:
    """Doubling, jittered waits, shared by all the requests of a window.

    Seven attempts wait 6.3 s between them at most, unless the store asks for more. The jitter has a generator
    of its own: the random state of the training loop is not touched.
    """

    def __init__(self, max_attempts: int = 7, first_wait_s: float = 0.1, longest_wait_s: float = 60.0) -> None:
        self.max_attempts = max_attempts
        self.first_wait_s = first_wait_s
        self.longest_wait_s = longest_wait_s
        self.quiet_until = 0.0
        """Until this moment of the monotonic clock nothing new is sent: the store is overloaded."""
        self._jitter = random.Random()

    def again_at(self, attempt: int, failure: Transient, now: float) -> float | None:
        """When to send again what failed at its `attempt`-th try, or None when it has had its tries."""
        if attempt >= self.max_attempts:
            return None
        wait_s = self.first_wait_s * 2.0 ** (attempt - 1) * self._jitter.uniform(0.5, 1.0)
        wait_s = min(max(wait_s, failure.retry_after_s), self.longest_wait_s)
        if failure.slow_down:
            self.quiet_until = max(self.quiet_until, now + wait_s)
        return now + wait_s


def given_up(error: Exception, attempts: int) -> Exception:
    """`error`, saying how often it was tried.

    >>> given_up(ConnectionError("load_files_by_s3: http://127.0.0.1:9 refused the connection"), 7)
    ConnectionError('load_files_by_s3: http://127.0.0.1:9 refused the connection (7 attempts)')
    """
    error.args = (f"{error} ({attempts} attempts)",)
    return error
