"""What ends a moment after the call that ended it: threads of queues, sockets, children."""

import gc
import time


def settles(condition, within_s=10.0) -> bool:
    """Whether `condition()` comes true in time. A DataLoader's queue thread, for one, outlives its loader by a tick."""
    deadline = time.monotonic() + within_s
    while not condition() and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.02)
    return bool(condition())
