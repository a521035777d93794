"""A bounded buffer filled by one background thread, so that reading goes on while the training step runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

from datapipes.pipe import FlowPipe, Placed, functional_form


@functional_form("prefetch")
class Prefetcher(FlowPipe[Any]):
    """Takes any items and yields them unchanged, read ahead in the background (functional name: `prefetch`).

    >>> from datapipes.iter import IterableWrapper
    >>> list(IterableWrapper(range(5)).prefetch(buffer_size=2))
    [0, 1, 2, 3, 4]

    Everything before it runs in one thread of its own. That helps where the work before it waits (network,
    disk) or releases the GIL (decode); a DataLoader with workers reads ahead by itself. Place it last.

    Args:
        source_datapipe: Any items.
        buffer_size: Items read ahead at most, and so the memory that it may cost: after `batched`, batches.

    Raises:
        ValueError: When `buffer_size` is less than 1.
    """

    def __init__(self, source_datapipe: Any, buffer_size: int = 10) -> None:
        if isinstance(buffer_size, bool) or not isinstance(buffer_size, int) or buffer_size < 1:
            raise ValueError(f"prefetch: buffer_size must be a whole number of at least 1, got {buffer_size!r}")
        self.source_datapipe = source_datapipe
        self.buffer_size = buffer_size

    def flow(self, placed: Iterator[Placed]) -> Iterator[Placed]:
        return read_ahead(placed, self.buffer_size)


def read_ahead(items: Iterator[Any], buffer_size: int) -> Iterator[Any]:
    """`items`, read by a background thread at most `buffer_size` ahead.

    An error comes in its place. Closing the generator stops the thread as soon as the item that it is
    reading has come, and returns when it has ended.

    >>> list(read_ahead(iter("abc"), buffer_size=2))
    ['a', 'b', 'c']
    """
    buffer: SimpleQueue[tuple[Any, BaseException | None, bool]] = SimpleQueue()
    # The thread takes a slot before it reads, so a close that frees a slot wakes it without any polling.
    free_slots = threading.Semaphore(buffer_size)
    closed = threading.Event()

    def fill() -> None:
        try:
            while True:
                free_slots.acquire()
                if closed.is_set():
                    return
                buffer.put((next(items), None, False))
        except StopIteration:
            buffer.put((None, None, True))
        except BaseException as error:
            buffer.put((None, error, True))

    # A daemon, so that a generator that nobody closed does not keep the interpreter from exiting.
    thread = threading.Thread(target=fill, name="prefetch", daemon=True)
    thread.start()
    try:
        while True:
            item, error, is_last = buffer.get()
            if error is not None:
                raise error
            if is_last:
                return
            free_slots.release()
            yield item
    finally:
        closed.set()
        free_slots.release()
        thread.join()
