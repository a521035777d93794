"""Batches: so many samples, collated into tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate

from datapipes.pipe import Pipe, functional_form


def collate(samples: list[Any]) -> Any:
    """A list of samples in, one batch out.

    Tuples become a tuple of columns, dicts a dict of columns. Numbers become one tensor (int64 for int,
    float64 for float), tensors and numpy arrays of one shape are stacked, and everything else (strings,
    bytes, PIL images, nested dicts) stays a list.

    >>> collate([(torch.zeros(2), 7, "a"), (torch.ones(2), 8, "b")])
    (tensor([[0., 0.],
            [1., 1.]]), tensor([7, 8]), ['a', 'b'])

    In a worker process the stacked tensors are written straight into shared memory.

    Raises:
        ValueError: When shapes, lengths or fields differ from sample to sample.
    """
    first = samples[0]
    if isinstance(first, dict):
        for sample in samples:
            if sample.keys() != first.keys():
                raise ValueError(
                    f"batched: samples have different fields, {', '.join(first)} and {', '.join(sample)}; "
                    f'pick the common ones with to_tuple("jpg;png", "cls") before batched()'
                )
        return {field: collate_column([sample[field] for sample in samples], field) for field in first}
    return collate_column(samples, "sample")


def collate_column(values: Sequence[Any], field: str) -> Any:
    """The values of one field, as a tensor where they can be one."""
    first = values[0]
    if isinstance(first, (tuple, list)):
        lengths = {len(value) for value in values}
        if len(lengths) > 1:
            raise ValueError(
                f"batched: {field} has from {min(lengths)} to {max(lengths)} elements; "
                f"make them one length before batched(), or pass collate=None for a list of samples"
            )
        columns = [collate_column(column, f"element {index} of {field}") for index, column in enumerate(zip(*values))]
        return type(first)(*columns) if hasattr(first, "_fields") else tuple(columns)
    if isinstance(first, (torch.Tensor, np.ndarray)):
        shapes = {tuple(value.shape) for value in values}
        if len(shapes) > 1:
            two = " and ".join(map(str, sorted(shapes)[:2]))
            raise ValueError(
                f"batched: {field} has different shapes, such as {two}; resize or crop the images to one "
                f"size before batched(), or pass collate=None for a list of samples"
            )
        if isinstance(first, np.ndarray):
            if first.dtype.kind not in "biufc":
                return list(values)
            # A tensor cannot share an array that is read-only (Pillow's) or runs backwards (a flip).
            return default_collate([torch.from_numpy(np.require(value, None, ["C", "W"])) for value in values])
        return default_collate(list(values))
    if isinstance(first, (int, float, np.number, np.bool_)):
        return default_collate(list(values))
    return list(values)


@functional_form("batched")
class SampleBatcher(Pipe[Any]):
    """Takes samples and yields batches of `batch_size` of them (functional name: `batched`).

    >>> from datapipes.iter import IterableWrapper
    >>> list(IterableWrapper([("a", 1), ("b", 2), ("c", 3)]).batched(2))
    [(['a', 'b'], tensor([1, 2])), (['c'], tensor([3]))]

    Under `as_dataset`, where the order of samples is planned in batches, a batch is what was planned: a
    sample that was skipped leaves its own batch one short.

    Args:
        source_datapipe: Samples.
        batch_size: Samples a batch.
        collate: From a list of samples to a batch; None leaves the list. The default stacks numbers, arrays
            and tensors, and leaves the rest as lists: see `datapipes.stages.batched.collate`.
        drop_last: Leave out a last batch that is not full.

    Raises:
        ValueError: When `batch_size` is less than 1, or samples do not fit together in one batch.
    """

    def __init__(
        self,
        source_datapipe: Any,
        batch_size: int,
        *,
        collate: Callable[[list[Any]], Any] | None = collate,
        drop_last: bool = False,
    ) -> None:
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise ValueError(f"batched: batch_size must be a whole number of at least 1, got {batch_size!r}")
        if collate is not None and not callable(collate):
            raise TypeError(f"batched: collate must be a function of a list of samples, or None, got {collate!r}")
        self.source_datapipe = source_datapipe
        self.batch_size = batch_size
        self.collate_samples: Callable[[list[Any]], Any] = list if collate is None else collate
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[Any]:
        samples = []
        for sample in self.source_datapipe:
            samples.append(sample)
            if len(samples) == self.batch_size:
                yield self.collate_samples(samples)
                samples = []
        if samples and not self.drop_last:
            yield self.collate_samples(samples)

    def __len__(self) -> int:
        full, rest = divmod(len(self.source_datapipe), self.batch_size)
        return full + (rest > 0 and not self.drop_last)
