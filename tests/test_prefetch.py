import pickle
import threading
import time

import pytest
from torch.utils.data.datapipes.iter import IterableWrapper

from datapipes.stages.prefetch import Prefetcher, read_ahead
from datapipes.stages.threads import LOOK_AHEAD_PER_THREAD, map_in_threads


def running(name):
    return [thread for thread in threading.enumerate() if thread.name.startswith(name)]


def test_items_come_in_order_and_length_is_kept():
    pipe = IterableWrapper(range(100)).prefetch(3)
    assert list(pipe) == list(pipe) == list(range(100))
    assert len(pipe) == 100
    assert list(IterableWrapper(range(30)).prefetch()) == list(range(30))
    assert not running("prefetch")


def test_at_most_buffer_size_items_are_read_ahead_while_the_consumer_works():
    read = []
    stream = read_ahead(map(read.append, range(100)), buffer_size=4)
    next(stream)
    deadline = time.monotonic() + 5
    while len(read) < 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.05)
    assert len(read) == 5
    stream.close()


def test_an_error_comes_in_its_place():
    def failing():
        yield 1
        yield 2
        raise OSError("cut")

    stream = read_ahead(failing(), buffer_size=10)
    assert [next(stream), next(stream)] == [1, 2]
    with pytest.raises(OSError, match="cut"):
        next(stream)
    assert not running("prefetch")


def test_closing_stops_a_thread_that_waits_for_a_free_slot():
    pipe = Prefetcher(IterableWrapper(range(10**9), deepcopy=False), buffer_size=2)
    stream = iter(pipe)
    assert next(stream) == 0
    time.sleep(0.05)
    assert len(running("prefetch")) == 1
    start = time.monotonic()
    del stream, pipe
    assert not running("prefetch")
    assert time.monotonic() - start < 5


def test_a_waiting_thread_costs_no_cpu():
    stream = read_ahead(iter(range(100)), buffer_size=2)
    next(stream)
    time.sleep(0.05)
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.1
    stream.close()


def test_the_pipe_pickles_unstarted_half_read_and_finished():
    pipe = Prefetcher(IterableWrapper(range(5)), 2)
    stream = iter(pipe)
    for steps in (0, 2, 3):
        for _ in range(steps):
            next(stream)
        assert list(pickle.loads(pickle.dumps(pipe))) == list(range(5))
    assert list(stream) == []


@pytest.mark.parametrize("buffer_size", [0, -1, 1.5, None, True])
def test_an_impossible_buffer_size_is_refused_at_once(buffer_size):
    with pytest.raises(ValueError, match="prefetch: buffer_size must be a whole number of at least 1"):
        IterableWrapper([]).prefetch(buffer_size)


def test_threads_keep_the_order_however_long_each_item_takes():
    def slow_at_first(number):
        time.sleep(0.02 if number % 7 == 0 else 0)
        return number

    assert list(map_in_threads(range(50), slow_at_first, 4)) == list(range(50))
    assert not running("map_in_threads")


def test_errors_of_the_function_and_of_the_source_come_in_their_place():
    def source():
        yield from (2, 1, 0)
        raise OSError("cut")

    stream = map_in_threads(source(), lambda number: 2 / number, 2)
    assert [next(stream), next(stream)] == [1, 2]
    with pytest.raises(ZeroDivisionError):
        next(stream)
    stream = map_in_threads(source(), str, 2)
    assert [next(stream) for _ in range(3)] == ["2", "1", "0"]
    with pytest.raises(OSError, match="cut"):
        next(stream)
    assert not running("map_in_threads")


def test_threads_look_ahead_within_bounds_and_end_on_close():
    read = []
    stream = map_in_threads((read.append(number) or number for number in range(1000)), str, 2)
    assert next(stream) == "0"
    assert len(read) <= 2 * LOOK_AHEAD_PER_THREAD
    stream.close()
    assert not running("map_in_threads")
