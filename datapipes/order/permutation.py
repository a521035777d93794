"""A seeded permutation that is computed where it is asked for, never stored.

An index of [0, n) is written as a pair (left, right) in Z_a x Z_b, with a = ceil(sqrt n) and b = ceil(n / a).
Each round adds to one half a random function of the other half: a Feistel network, hence a bijection of
[0, a * b). The few results at or past n (fewer than a of them) are put through again until they fall inside,
which keeps the bijection. The random functions are tables of about sqrt(n) entries: 1,132 at ImageNet's
1.28 M keys, 31,623 at 10^9.
"""

from __future__ import annotations

import hashlib
import math
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Indices: TypeAlias = NDArray[np.int64]
RoundTables: TypeAlias = tuple[Indices, Indices]

MAX_N = 2**40
"""A trillion keys; the tables then take 50 MB."""

# Six rounds are the fewest that no known attack on Feistel networks tells from a random permutation with less
# than the whole order to look at (Patarin 2001). They come in pairs: left, right.
_ROUND_PAIRS = 3

# So few indices cost less to sort (60 us) than to send through the rounds, and every one of their n!
# permutations can come up, as evenly as a 64-bit key allows.
_SORTED_UP_TO = 4096

# 128 KB an array: the five arrays of a round stay in a core's second-level cache.
_CHUNK = 2**14


def permute(positions: Indices, n: int, *, seed: int = 0, epoch: int = 0) -> Indices:
    """Positions in a shuffled order of [0, n) in, the indices that stand there out.

    The order is a function of (n, seed, epoch) alone; any part of it can be asked for by itself.

    >>> permute(np.arange(10), 10, seed=0, epoch=0)
    array([2, 3, 8, 9, 1, 0, 6, 5, 7, 4])
    >>> permute(np.array([3, 4]), 10**9, seed=0, epoch=1)
    array([843599587, 983419925])

    Costs about 15 ns an index, and once per (n, seed, epoch) 1 ms at n = 10^9.

    Args:
        positions: int64, one-dimensional, each in [0, n).
        n: how many indices there are, 1 to 2^40.
        seed, epoch: any integers; each pair gives an order of its own.

    Raises:
        ValueError: n is out of range.
        IndexError: a position is outside [0, n).
    """
    positions = checked("permute", positions, n)
    if n <= _SORTED_UP_TO:
        return _sorted_order(n, seed, epoch)[positions]
    tables = _round_tables(n, seed, epoch)
    order = np.empty_like(positions)
    for first in range(0, len(positions), _CHUNK):
        order[first : first + _CHUNK] = _walk(positions[first : first + _CHUNK], n, tables)
    return order


def checked(function: str, positions: Indices, n: int) -> Indices:
    """The positions as int64, once n and they are known to be in range."""
    if not 1 <= n <= MAX_N:
        raise ValueError(f"{function}: n must be 1 to 2**40, got {n}; order a larger catalog in parts")
    positions = np.asarray(positions, dtype=np.int64)
    if positions.size and (positions.min() < 0 or positions.max() >= n):
        low, high = positions.min(), positions.max()
        raise IndexError(f"{function}: positions must lie in [0, {n}), got {low} to {high}; wrap them with % n")
    return positions


def mix(*words: int) -> int:
    """Integers in, a 64-bit key out that looks random and depends on every one of them."""
    text = ",".join(str(int(word)) for word in words)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def _walk(positions: Indices, n: int, tables: RoundTables) -> Indices:
    """Put what falls outside [0, n) through the rounds again, until it falls inside."""
    order = _rounds(positions, tables)
    outside = np.flatnonzero(order >= n)
    while len(outside):
        order[outside] = _rounds(order[outside], tables)
        outside = outside[order[outside] >= n]
    return order


def _rounds(indices: Indices, tables: RoundTables) -> Indices:
    to_left, to_right = tables
    a, b = to_right.shape[1], to_left.shape[1]
    left = indices // b
    right = indices - left * b  # three times as fast as divmod
    for left_table, right_table in zip(to_left, to_right):
        left = _add_modulo(left, left_table[right], a)
        right = _add_modulo(right, right_table[left], b)
    order: Indices = left * b + right
    return order


def _add_modulo(x: Indices, y: Indices, modulus: int) -> Indices:
    """(x + y) % modulus for x, y < modulus. Unsigned, sum - modulus wraps to a huge number where it is not due."""
    total = (x + y).view(np.uint64)
    reduced: Indices = np.minimum(total, total - np.uint64(modulus)).view(np.int64)
    return reduced


# A reader asks for a batch at a time, so the tables have to outlive a call; a new epoch displaces an old one.
@lru_cache(maxsize=4)
def _round_tables(n: int, seed: int, epoch: int) -> RoundTables:
    """Random functions Z_b -> Z_a and Z_a -> Z_b, a row a round."""
    a = math.isqrt(n - 1) + 1
    b = -(-n // a)
    draws = (_random_words(mix(seed, epoch), _ROUND_PAIRS * (a + b)) >> np.uint64(32)).reshape(_ROUND_PAIRS, -1)
    to_left = draws[:, :b] * np.uint64(a) >> np.uint64(32)
    to_right = draws[:, b:] * np.uint64(b) >> np.uint64(32)
    return to_left.view(np.int64), to_right.view(np.int64)


@lru_cache(maxsize=16)
def _sorted_order(n: int, seed: int, epoch: int) -> Indices:
    # Each word carries its index in the low 12 bits: sorting takes two thirds of the time that argsort takes.
    low_bits = np.uint64(_SORTED_UP_TO - 1)
    words = _random_words(mix(seed, epoch), n) & ~low_bits | np.arange(n, dtype=np.uint64)
    return (np.sort(words) & low_bits).view(np.int64)


def _random_words(key: int, count: int) -> NDArray[np.uint64]:
    """The first words of the splitmix64 generator seeded with `key`: the same in every version of numpy."""
    word = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(key)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))
