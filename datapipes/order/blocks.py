"""A shuffled order that keeps neighbours near each other, so that a loader can fetch several in one request.

Blocks of neighbouring keys are permuted, then the places inside a window of a few blocks are mixed. No more
than a window is ever written out. One block may be short: the last `n % block` keys. It stands anywhere in
the order, as every other block does.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from datapipes.order.permutation import Indices, checked, mix, permute

WINDOW_BLOCKS = 8
"""Blocks that are mixed with each other. With blocks of 256 a batch of 64 draws on eight stretches of the
listing instead of one, and a loader that looks a whole window ahead holds 2,048 samples: 230 MB of ImageNet."""


def permute_blocks(
    positions: Indices, n: int, *, block: int, seed: int = 0, epoch: int = 0, window: int = WINDOW_BLOCKS
) -> Indices:
    """Positions in a block-shuffled order of [0, n) in, the indices that stand there out.

    >>> permute_blocks(np.arange(10), 10, block=3, window=2)
    array([7, 8, 6, 9, 1, 3, 5, 2, 4, 0])

    With a window of one block, blocks stay whole and are only shuffled inside:

    >>> permute_blocks(np.arange(12), 12, block=3, window=1) // 3
    array([2, 2, 2, 3, 3, 3, 1, 1, 1, 0, 0, 0])

    Costs 70 ns an index where positions are asked for in runs, as batches are.

    Args:
        positions: int64, one-dimensional, each in [0, n).
        n: how many indices there are, 1 to 2^40.
        block: how many neighbouring indices stay together, at least 1.
        seed, epoch: any integers; each pair gives an order of its own.
        window: how many blocks are mixed with each other, at least 1; a window costs 8 bytes a key.

    Raises:
        ValueError: block, window or n is out of range.
        IndexError: a position is outside [0, n).
    """
    if block < 1 or window < 1:
        raise ValueError(f"permute_blocks: block and window must be at least 1, got {block} and {window}")
    positions = checked("permute_blocks", positions, n)
    block = min(block, n)
    width = window * block
    short_end, hole = _short_block(n, block, seed, epoch)
    windows = (positions + hole * (positions >= short_end)) // width
    order = np.empty_like(positions)
    by_window = np.argsort(windows, kind="stable")
    cuts = np.flatnonzero(np.diff(windows[by_window])) + 1
    for members in np.split(by_window, cuts) if len(positions) else []:
        number = int(windows[members[0]])
        first = number * width - hole * (number * width >= short_end)
        order[members] = _window_order(n, block, window, number, seed, epoch)[positions[members] - first]
    return order


def _short_block(n: int, block: int, seed: int, epoch: int) -> tuple[int, int]:
    """Where the short block's places end, and how many it lacks; past the end of all where no block is short."""
    full, short = divmod(n, block)
    if not short:
        return n, 0
    return _short_slot(full, seed, epoch) * block + short, block - short


def _short_slot(full: int, seed: int, epoch: int) -> int:
    # Drawing the short block's slot and permuting the full ones over the other slots is as even as permuting
    # them all, and needs no inverse permutation to find the short one again.
    return mix(seed, epoch, 1) * (full + 1) >> 64


# A reader walks from window to window; four leave room for several readers in a process.
@lru_cache(maxsize=4)
def _window_order(n: int, block: int, window: int, number: int, seed: int, epoch: int) -> Indices:
    """The indices of one window, in order."""
    full, short = divmod(n, block)
    slots = np.arange(number * window, min((number + 1) * window, full + (short > 0)), dtype=np.int64)
    if short:
        short_slot = _short_slot(full, seed, epoch)
        standing = slots[slots != short_slot]
        blocks = np.full(len(slots), full)
        blocks[slots != short_slot] = permute(standing - (standing > short_slot), full, seed=seed, epoch=epoch)
    else:
        blocks = permute(slots, full, seed=seed, epoch=epoch)
    indices = (blocks[:, None] * block + np.arange(block)).ravel()
    indices = indices[indices < n]
    inside = np.arange(len(indices), dtype=np.int64)
    return indices[permute(inside, len(inside), seed=mix(seed, epoch, 2), epoch=number)]
