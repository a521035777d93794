"""Pieces of different lengths, end to end in one array: names, or the checksums of a sample's fields."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from datapipes.catalog.keys import Indices

_CHUNK = 65_536


def starts_of(ends: Indices, indices: Indices) -> Indices:
    """Where the pieces at `indices` begin: where the one before each ends."""
    return np.where(indices > 0, ends[indices - 1], 0)


def select_pieces(values: NDArray[Any], ends: Indices, indices: Indices) -> tuple[NDArray[Any], Indices]:
    """The pieces at `indices` end to end, in that order, and their own ends.

    >>> text, ends = np.frombuffer(b"catdogmouse", np.uint8), np.array([3, 6, 11])
    >>> values, ends = select_pieces(text, ends, np.array([2, 0]))
    >>> values.tobytes(), ends.tolist()
    (b'mousecat', [5, 8])
    """
    starts = starts_of(ends, indices)
    lengths = ends[indices] - starts
    new_ends = np.cumsum(lengths, dtype=np.int64)
    parts = [values[:0]]
    # The place of every element is 8 B: a chunk of them at a time.
    for at in range(0, len(indices), _CHUNK):
        chunk = slice(at, at + _CHUNK)
        shifts = np.repeat(starts[chunk] + lengths[chunk] - np.cumsum(lengths[chunk]), lengths[chunk])
        parts.append(values[shifts + np.arange(len(shifts))])
    return np.concatenate(parts), new_ends


def narrow(values: NDArray[Any]) -> NDArray[np.signedinteger[Any]]:
    """The same numbers, none under -1, in as few bytes each as they take.

    >>> narrow(np.array([127, -1])).dtype, narrow(np.array([128])).dtype, narrow(np.array([], np.int64)).dtype
    (dtype('int8'), dtype('int16'), dtype('int8'))
    """
    return values.astype(np.min_scalar_type(-1 - int(values.max(initial=0))))
