"""A function over a flow in several threads, in order: for work that releases the GIL, as decoding does."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

# Items in flight for each thread: one at work and two waiting, so that a slow item does not starve the rest.
LOOK_AHEAD_PER_THREAD = 3


def map_in_threads(items: Iterable[T], function: Callable[[T], R], num_threads: int) -> Iterator[R]:
    """`function` of each item, in the order of `items`.

    `items` is read in the caller's thread, at most 3 items a thread ahead. An error, of `items` or of
    `function`, comes in its place. Closing the generator waits for the calls at work (at most one a thread),
    drops the rest and ends the threads.

    >>> list(map_in_threads(range(5), lambda x: x * x, num_threads=2))
    [0, 1, 4, 9, 16]
    """
    source = iter(items)
    at_work: deque[Future[R]] = deque()
    source_error: Exception | None = None
    exhausted = False
    pool = ThreadPoolExecutor(num_threads, thread_name_prefix="map_in_threads")
    try:
        while True:
            while not exhausted and len(at_work) < num_threads * LOOK_AHEAD_PER_THREAD:
                try:
                    item = next(source)
                except StopIteration:
                    exhausted = True
                except Exception as error:
                    exhausted, source_error = True, error
                else:
                    at_work.append(pool.submit(function, item))
            if not at_work:
                break
            yield at_work.popleft().result()
        if source_error is not None:
            raise source_error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
