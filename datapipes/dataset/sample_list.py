"""`samples` and `targets` as torchvision's datasets have them, without a Python object for each of a million."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray

from datapipes.catalog.keys import StrKeys

_CHUNK = 4096


class Targets(Sequence[int]):
    """The label of each sample: a read-only list of int, 4 B each.

    >>> targets = Targets(np.array([0, 0, 1], np.int32))
    >>> targets[2], targets[:2], list(targets), targets == [0, 0, 1]
    (1, [0, 0], [0, 0, 1], True)
    """

    def __init__(self, labels: NDArray[np.int32]) -> None:
        # A tensor, so that worker processes share its memory instead of getting a copy.
        self._labels = torch.from_numpy(labels)

    def __len__(self) -> int:
        return len(self._labels)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        picked = self._labels.numpy()[index]
        return picked.tolist() if isinstance(index, slice) else int(picked)

    def __iter__(self) -> Iterator[int]:
        return iter(self._labels.tolist())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self._labels.numpy(), dtype=dtype)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Targets({len(self):,} labels)"


class SampleList(Sequence[tuple[str, int]]):
    """`(url, label)` of each sample: a read-only list of pairs, about 40 B each.

    >>> keys = StrKeys.of(["s3://b/cat/1.jpg", "s3://b/dog/2.jpg"])
    >>> samples = SampleList(keys, Targets(np.array([0, 1], np.int32)))
    >>> samples[1], len(samples), samples[:1]
    (('s3://b/dog/2.jpg', 1), 2, [('s3://b/cat/1.jpg', 0)])

    Args:
        order: where the key of each sample stands in `keys`; None = in the same place.
    """

    def __init__(self, keys: StrKeys, targets: Targets, order: NDArray[np.int64] | None = None) -> None:
        self._keys = keys
        self.targets = targets
        self._order = None if order is None else torch.from_numpy(order)

    def __len__(self) -> int:
        return len(self.targets)

    @overload
    def __getitem__(self, index: int) -> tuple[str, int]: ...
    @overload
    def __getitem__(self, index: slice) -> list[tuple[str, int]]: ...
    def __getitem__(self, index: int | slice) -> tuple[str, int] | list[tuple[str, int]]:
        if isinstance(index, slice):
            return list(zip(self.urls(range(*index.indices(len(self)))), self.targets[index]))
        label = self.targets[index]
        return self.urls([index if index >= 0 else index + len(self)])[0], label

    def __iter__(self) -> Iterator[tuple[str, int]]:
        for start in range(0, len(self), _CHUNK):
            yield from self[start : start + _CHUNK]

    def urls(self, indices: Sequence[int]) -> list[str]:
        """The URLs of these samples, each index from 0 to len - 1."""
        places = np.asarray(indices, np.int64)
        return self._keys.take(places if self._order is None else self._order.numpy()[places])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"SampleList({len(self):,} samples)"
