"""How many samples of each class go to each split: whole numbers, exact, nothing lost to rounding."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Literal, TypeAlias

Number: TypeAlias = int | float | str | Fraction
Balance: TypeAlias = Literal["original", "random"] | Sequence[Number]


def class_totals(counts: Sequence[int], weights: Sequence[Number]) -> list[int]:
    """How many samples of each class to take, for totals in proportion to `weights`.

    The class that is scarcest for its weight is used whole, and the others follow it. Here 10 samples of
    weight 3 make a weight of 1 worth 10 / 3 samples, so 50 / 3 and 10 / 3 are wanted of the others.

    >>> class_totals([100, 10, 500], [5, 3, 1])
    [17, 10, 3]

    Args:
        counts: samples that there are, a class.
        weights: one a class, of any scale. A class of weight 0 is left out.

    Raises:
        ValueError: weights are not one a class, negative, all 0, or ask for a class that has no samples.
    """
    exact = [_exact(weight) for weight in weights]
    if len(exact) != len(counts):
        raise ValueError(f"make_split: balance needs one weight for each of {len(counts)} classes, got {len(exact)}")
    if min(exact, default=Fraction(0)) < 0 or not any(exact):
        raise ValueError(f"make_split: balance needs weights of 0 or more, and one above 0, got {list(weights)}")
    for place, (count, weight) in enumerate(zip(counts, exact)):
        if weight and not count:
            raise ValueError(f"make_split: class {place} has no samples but weight {weight}; give it 0")
    scale = min(count / weight for count, weight in zip(counts, exact) if weight)
    wanted = [weight * scale for weight in exact]
    return apportion(wanted, round(sum(wanted)))


def apportion(wanted: Sequence[Fraction], total: int) -> list[int]:
    """`wanted`, each rounded down or up, so that they add up to `total`: largest remainders are rounded up.

    >>> apportion([Fraction(10, 3)] * 3, 10)
    [4, 3, 3]
    """
    given = [quota.numerator // quota.denominator for quota in wanted]
    by_remainder = sorted(range(len(wanted)), key=lambda place: given[place] - wanted[place])
    for place in by_remainder[: total - sum(given)]:
        given[place] += 1
    return given


def split_counts(totals: Sequence[int], ratio: Sequence[Number]) -> list[list[int]]:
    """For each class, how many of its samples each split gets.

    Every sample goes somewhere, and every count is its exact share rounded down or up. What rounding gave or
    took so far is carried to the next class, or the first split would gain at each one: 1,000 classes of 10,
    cut in three, give 3,334, 3,333 and 3,333, not 4,000, 3,000 and 3,000.

    >>> split_counts([955], [8, 2]), split_counts([10, 10, 10], [1, 1, 1])
    ([[764, 191]], [[4, 3, 3], [3, 4, 3], [3, 3, 4]])

    Raises:
        ValueError: the ratio has a negative part, or is all 0.
    """
    exact = [_exact(part) for part in ratio]
    if min(exact, default=Fraction(0)) < 0 or not any(exact):
        raise ValueError(f"make_split: ratio needs parts of 0 or more, and one above 0, got {list(ratio)}")
    shares = [part / sum(exact) for part in exact]
    owed = [Fraction(0)] * len(shares)
    counts = []
    for total in totals:
        quotas = [total * share for share in shares]
        given = [quota.numerator // quota.denominator for quota in quotas]
        inexact = [place for place, quota in enumerate(quotas) if quota.denominator > 1]
        inexact.sort(key=lambda place: given[place] - quotas[place] - owed[place])
        for place in inexact[: total - sum(given)]:
            given[place] += 1
        owed = [debt + quota - got for debt, quota, got in zip(owed, quotas, given)]
        counts.append(given)
    return counts


def _exact(number: Number) -> Fraction:
    """What was written, 0.1 being a tenth and not the nearest binary fraction."""
    try:
        return number if isinstance(number, Fraction) else Fraction(str(number))
    except ValueError:
        raise ValueError(f"make_split: {number!r} is not a number") from None
