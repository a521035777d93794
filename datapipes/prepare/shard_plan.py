"""Which samples go into which shard, decided before the first is written."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from datapipes.catalog.tar_format import END_OF_ARCHIVE


def shard_ends(nbytes: NDArray[np.int64], *, maxcount: int, maxsize: int) -> list[int]:
    """Sizes of samples in their order in; where each shard ends out, as `ShardWriter` would have filled them.

    >>> shard_ends(np.array([2048, 2048, 2048, 2048, 9000]), maxcount=3, maxsize=10_240)
    [3, 4, 5]

    Args:
        nbytes: what each sample takes in a shard, headers and padding included.
        maxcount: samples a shard, at most.
        maxsize: bytes a shard, at most, the archive's end included.
    """
    totals = np.cumsum(nbytes)
    ends: list[int] = []
    end = 0
    while end < len(nbytes):
        before = int(totals[end - 1]) if end else 0
        fitting = int(np.searchsorted(totals, before + maxsize - len(END_OF_ARCHIVE), side="right"))
        # What is too large for any shard is the writer's to refuse, by name.
        end = max(min(fitting, end + maxcount), end + 1)
        ends.append(end)
    return ends
