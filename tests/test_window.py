"""The in-flight window: order, bounds, retries, deadlines, and an end that leaves nothing behind."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from itertools import islice, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from settling import settles

from datapipes.load.depth import Depth
from datapipes.load.window import in_flight
from datapipes.on_error import Skipped
from datapipes.transfer.request import Request
from datapipes.transfer.retry import Backoff, Transient
from datapipes.transfer.thread import ThreadTransport


def placed_keys(n, first=0, gap=1):
    return [(first + gap * i, f"key-{i}") for i in range(n)]


def echo_after(seconds):
    def read(request):
        time.sleep(seconds(request.keys[0]))
        return [str(key).encode() for key in request.keys]

    return read


def scattered(key):
    return random.Random(key).random() * 0.004


def load(placed, read, **options):
    return in_flight(placed, ThreadTransport(read), function="load", **options)


def test_answers_come_out_in_the_order_of_places():
    placed = placed_keys(300, first=7, gap=3)
    assert list(load(placed, echo_after(scattered))) == [(p, (k, k.encode())) for p, k in placed]


def test_unordered_answers_overtake_each_other_only_within_a_batch():
    stream = load(placed_keys(300), echo_after(scattered), ordered=False, batch_size=50)
    places = [place for place, _ in stream]
    assert places != sorted(places)
    assert [sorted(places[i : i + 50]) for i in range(0, 300, 50)] == [
        list(range(i, i + 50)) for i in range(0, 300, 50)
    ]


def test_unordered_without_a_batch_gives_every_place_once():
    places = [place for place, _ in load(placed_keys(111), echo_after(scattered), ordered=False)]
    assert sorted(places) == list(range(111))


def test_what_was_skipped_before_passes_through_in_its_place():
    skipped = Skipped("key-1", "truncated")
    placed = [(0, "key-0"), (1, skipped), (2, "key-2"), (3, Skipped("key-3", "odd"))]
    assert [item for _, item in load(placed, echo_after(scattered))] == [
        ("key-0", b"key-0"),
        skipped,
        ("key-2", b"key-2"),
        placed[3][1],
    ]
    assert list(load([(5, skipped)], echo_after(scattered))) == [(5, skipped)]
    assert list(load([], echo_after(scattered))) == []


def by_last_digit(placed: Iterator[tuple[int, str]]) -> Iterator[Request]:
    """Groups of four keys with the same last digit, out of a look-ahead of forty."""
    while ahead := list(islice(placed, 40)):
        for digit in random.Random(len(ahead)).sample("0123456789", 10):
            group = [(place, key) for place, key in ahead if key.endswith(digit)]
            for i in range(0, len(group), 4):
                places, keys = zip(*group[i : i + 4], strict=True)
                yield Request(places, keys)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 130), st.integers(1, 9), st.booleans(), st.sampled_from([1, 7, 64]))
def test_groups_formed_out_of_order_come_out_in_order(n, depth, ordered, batch):
    placed = placed_keys(n)
    options = {"depth": Depth(fixed=depth), "ordered": ordered, "batch_size": batch}
    got = list(load(placed, echo_after(lambda key: 0), form_requests=by_last_digit, **options))
    assert sorted(got) == [(place, (key, key.encode())) for place, key in placed]
    assert [place // batch for place, _ in got] == [place // batch for place, _ in placed]
    if ordered:
        assert got == sorted(got)


def test_no_more_requests_are_in_flight_than_asked_for():
    at_once, most = [], []

    def read(request):
        at_once.append(request)
        most.append(len(at_once))
        time.sleep(0.001)
        at_once.remove(request)
        return request.keys

    assert len(list(load(placed_keys(100), read, depth=Depth(fixed=3)))) == 100
    assert max(most) == 3


def test_payload_that_waits_for_its_turn_is_bounded_by_bytes():
    """The first key is late, so all others pile up behind it: 20 of 1 MB, not 200."""
    asked = []

    def read(request):
        asked.append(request.keys[0])
        time.sleep(0.5 if request.keys[0] == "key-0" else 0)
        return [bytes(1 << 20)]

    stream = load(placed_keys(200), read, max_bytes=20 << 20)
    next(stream)
    assert 15 <= len(asked) <= 21
    assert len(list(stream)) == 199


def test_a_key_of_a_group_fails_alone():
    def read(request):
        return [FileNotFoundError(f"load: no {key}") if key == "key-3" else key for key in request.keys]

    items = [item for _, item in load(placed_keys(9), read, form_requests=by_last_digit, on_error="skip")]
    assert items[3] == Skipped("key-3", "load: no key-3")
    assert [key for key, _ in items[:3] + items[4:]] == [f"key-{i}" for i in range(9) if i != 3]


def test_an_error_is_raised_in_its_place_after_all_that_came_before():
    def read(request):
        if request.keys[0] == "key-20":
            raise PermissionError("load: access to key-20 denied")
        time.sleep(scattered(request.keys[0]))
        return request.keys

    got = []
    with pytest.raises(PermissionError, match="key-20 denied"):
        for place, _ in load(placed_keys(100), read):
            got.append(place)
    assert got == list(range(20))


def test_an_error_of_the_source_is_raised_after_all_that_came_before():
    def keys():
        yield from placed_keys(20)
        raise ZeroDivisionError

    got = []
    with pytest.raises(ZeroDivisionError):
        for place, _ in load(keys(), echo_after(scattered)):
            got.append(place)
    assert got == list(range(20))


def test_a_callable_gives_the_sample_that_takes_the_place():
    def read(request):
        raise OSError(f"load: {request.keys[0]} is broken")

    def grey_for_the_first(key, error):
        return (key, b"grey") if key == "key-0" else None

    items = list(load(placed_keys(2), read, on_error=grey_for_the_first))
    assert items == [(0, ("key-0", b"grey")), (1, Skipped("key-1", "load: key-1 is broken"))]


def test_transient_errors_are_tried_again_and_others_are_not():
    tries = {}

    def read(request):
        key = request.keys[0]
        tries[key] = tries.get(key, 0) + 1
        if key == "key-1" and tries[key] < 3:
            raise Transient(ConnectionError("load: reset"))
        if key == "key-2":
            raise FileNotFoundError("load: gone")
        return [key]

    kinds = [type(item) for _, item in load(placed_keys(4), read, on_error="skip")]
    assert kinds == [tuple, tuple, Skipped, tuple]
    assert tries == {"key-0": 1, "key-1": 3, "key-2": 1, "key-3": 1}


def test_an_overloaded_store_is_left_alone_by_all_requests():
    asked_at = []

    def read(request):
        asked_at.append(time.monotonic())
        if len(asked_at) == 4:
            raise Transient(ConnectionError("load: 503"), slow_down=True, retry_after_s=0.4)
        time.sleep(0.01)
        return request.keys

    assert len(list(load(placed_keys(30), read, depth=Depth(fixed=2)))) == 30
    gaps = [b - a for a, b in pairwise(asked_at)]
    assert max(gaps) > 0.3
    # Not waited for more than once, though a busy machine may stop for as long by itself.
    assert sum(gap > 0.3 for gap in gaps) <= 3


def test_a_hung_request_is_given_up_at_its_deadline():
    release = threading.Event()

    def read(request):
        if request.keys[0] == "key-5":
            release.wait()
        return request.keys

    before = time.monotonic()
    stream = load(placed_keys(10), read, request_timeout_s=0.05, backoff=Backoff(first_wait_s=0.01))
    with pytest.raises(TimeoutError, match=r"load: no whole answer for key-5 within 0.05 s.*7 attempts"):
        list(stream)
    assert 0.35 < time.monotonic() - before < 9
    release.set()


def test_seven_attempts_wait_longer_each_time():
    backoff, failure = Backoff(), Transient(ConnectionError("load: reset"))
    waits = [backoff.again_at(attempt, failure, now=5.0) for attempt in range(1, 8)]
    assert waits.pop() is None
    assert all(0.5 <= (wait - 5) / (0.1 * 2**number) <= 1 for number, wait in enumerate(waits))
    assert sum(wait - 5 for wait in waits) <= 6.3


def test_time_that_the_consumer_takes_is_not_held_against_a_request():
    stream = load(placed_keys(30), echo_after(lambda key: 0.02), request_timeout_s=0.1, depth=Depth(fixed=4))
    for place, _ in stream:
        if place in (0, 11):
            time.sleep(0.3)


def test_closing_half_way_leaves_no_thread():
    before = threading.active_count()
    stream = load(placed_keys(1000), echo_after(scattered))
    next(stream)
    stream.close()
    assert settles(lambda: threading.active_count() <= before)


def test_a_grouper_that_loses_a_key_is_found_out():
    def loses(placed):
        for place, key in placed:
            if place != 2:
                yield Request((place,), (key,))

    with pytest.raises(RuntimeError, match="load: no request was formed for place 2"):
        list(load(placed_keys(5), echo_after(scattered), form_requests=loses))


def test_the_window_costs_little():
    """A few us a key, where a bare S3 transfer costs 63 us; the bound leaves room for a busy machine."""

    class Immediate:
        def __init__(self):
            self.waiting = []

        def start(self, ticket, request):
            self.waiting.append((ticket, request.keys, None))

        def finished(self, timeout_s):
            answers, self.waiting = self.waiting, []
            return answers

        def cancel(self, ticket):
            raise AssertionError

        def close(self):
            pass

    placed = placed_keys(20_000)
    began = time.process_time()
    assert sum(1 for _ in in_flight(placed, Immediate(), function="load")) == 20_000
    assert (time.process_time() - began) / 20_000 < 20e-6
