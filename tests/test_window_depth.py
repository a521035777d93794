"""How deep the window goes, against simulated stores in simulated time."""

from __future__ import annotations

import heapq
import itertools
import random

import pytest

from datapipes.load.depth import DEEPEST, SHALLOWEST, Depth


def simulate(depth, *, latency_s, rate, seconds, jitter=0.2, seed=0):
    """A store that answers each request after `latency_s` at the earliest, and `rate` of them a second at most.

    Returns (time, depth, answers so far) at every answer.
    """
    chance = random.Random(seed)
    under_way, history = [], []
    now = served_until = 0.0
    answers = 0
    while now < seconds:
        while len(under_way) < depth.present:
            served_until = max(served_until, now) + 1 / rate
            back_at = max(served_until, now + 1e-4) + latency_s * (1 + jitter * chance.random())
            heapq.heappush(under_way, (back_at, now, answers))
        now, started_at, answers_before = heapq.heappop(under_way)
        answers += 1
        depth.answered(started_at, now, answers - answers_before)
        history.append((now, depth.present, answers))
    return history


def test_beside_the_server_it_stays_shallow():
    for seed in range(5):
        history = simulate(Depth(), latency_s=0.0004, rate=9000, seconds=4, seed=seed)
        assert max(present for _, present, _ in history) <= 4 * SHALLOWEST
        assert sum(present for _, present, _ in history) / len(history) <= 2 * SHALLOWEST


def test_a_queue_of_its_own_making_does_not_pass_for_distance():
    """A store that serves one after the other: a deeper window only makes answers later."""
    history = simulate(Depth(), latency_s=0.0, rate=2000, seconds=60, jitter=0)
    assert max(present for _, present, _ in history) <= 4 * SHALLOWEST


@pytest.mark.parametrize("latency_s", [0.03, 0.1, 0.2])
def test_at_a_distance_it_deepens_until_the_store_gives_its_all(latency_s):
    rate = 2000
    history = simulate(Depth(), latency_s=latency_s, rate=rate, seconds=12 * latency_s + 3)
    settled = [(now, answers) for now, _, answers in history if now > 12 * latency_s]
    (began, first), (ended, last) = settled[0], settled[-1]
    assert (last - first) / (ended - began) > 0.95 * rate


def test_at_100_ms_several_hundred_are_in_flight_within_a_second():
    history = simulate(Depth(), latency_s=0.1, rate=4000, seconds=1)
    assert history[-1][1] >= 400
    for (_, before, _), (_, after, _) in itertools.pairwise(history):
        assert after <= 2 * before


def test_learning_the_latency_anew_costs_a_twentieth_at_most():
    history = simulate(Depth(), latency_s=0.1, rate=2000, seconds=42)
    settled = [(now, answers) for now, _, answers in history if now > 2]
    (began, first), (ended, last) = settled[0], settled[-1]
    assert (last - first) / (ended - began) > 0.95 * 2000
    assert min(present for now, present, _ in history if now > 2) == SHALLOWEST


def test_it_follows_when_the_distance_changes():
    depth = Depth()
    simulate(depth, latency_s=0.001, rate=3000, seconds=3)
    assert depth.present <= 4 * SHALLOWEST
    history = simulate(depth, latency_s=0.1, rate=3000, seconds=14)
    (began, _, first), (ended, _, last) = history[-6000], history[-1]
    assert (last - first) / (ended - began) > 0.9 * 3000


def test_an_overloaded_store_halves_it():
    depth = Depth()
    simulate(depth, latency_s=0.1, rate=4000, seconds=1)
    before = depth.present
    depth.slow_down()
    assert depth.present == before // 2


def test_bounds():
    assert Depth().present == SHALLOWEST
    assert Depth(deepest=3).present == 3
    fixed = Depth(fixed=20)
    assert {present for _, present, _ in simulate(fixed, latency_s=0.1, rate=5000, seconds=2)} == {20}
    assert max(p for _, p, _ in simulate(Depth(), latency_s=1, rate=1e5, seconds=10)) == DEEPEST
