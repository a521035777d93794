"""The start of a chain: any iterable, as core's `IterableWrapper` but with our forms known to editors."""

from __future__ import annotations

from typing import Any

from torch.utils.data.datapipes.iter import IterableWrapper as CoreIterableWrapper

from datapipes.pipe import Pipe


class IterableWrapper(CoreIterableWrapper[Any], Pipe[Any]):
    """Iterable in, its items out: where a chain begins.

    >>> list(IterableWrapper(["s3://bucket/train/", "s3://bucket/more/"]))
    ['s3://bucket/train/', 's3://bucket/more/']

    Args:
        iterable: what to iterate over, anew each time.
        deepcopy: copy it first, so that one pass cannot change what the next one sees.
    """

    def __init__(self, iterable: Any, deepcopy: bool = True) -> None:
        super().__init__(iterable, deepcopy=deepcopy)
