"""Splits of a labelled set: which rows go to training, which to validation, in what balance of classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datapipes.catalog.class_map import ClassMap, directory_of
from datapipes.catalog.key_archive import all_keys
from datapipes.catalog.keys import Indices, KeyTable, key_table_of
from datapipes.catalog.row_file import RowFile
from datapipes.catalog.row_source import RowSource
from datapipes.catalog.shard_index import NO_LABEL
from datapipes.catalog.tar_keys import TarSampleKey, TarSampleKeys
from datapipes.prepare.balance import Balance, Number, class_totals, split_counts


def make_split(
    keys: KeyTable,
    labels: NDArray[Any] | None = None,
    *,
    ratio: Sequence[Number] = (8, 2),
    balance: Balance = "original",
    seed: int = 0,
    source: RowSource | None = None,
) -> RowFile:
    """Cut a set of keys into splits that share no key, each with the same balance of classes.

    >>> from datapipes.catalog.keys import StrKeys
    >>> keys = StrKeys.of(f"{name}/{n}.jpg" for name in ("cat", "dog") for n in range(10))
    >>> made = make_split(keys, np.repeat([0, 1], 10), ratio=(8, 2))
    >>> [len(split) for split in made.splits], sorted(made.splits[0].tolist() + made.splits[1].tolist())[-1]
    ([16, 4], 19)

    The same keys, labels and seed give the same splits, on any machine and with any version of numpy. A split is
    in random order, except of samples in shards: theirs is the shards', so that neighbours are read together.

    Args:
        keys: every key.
        labels: for each key its class, an integer; None = no classes.
        ratio: a part for each split, of any scale.
        balance: "original" keeps every sample, "random" draws a weight for each class, a list gives them, in
            order of the labels. The class that is scarcest for its weight is used whole.
        seed: which random choice and order.
        source: the table that the keys are in, for the file.

    Raises:
        ValueError: ratio or balance ask for what cannot be.
    """
    if not len(keys):
        raise ValueError("make_split: there are no keys to split")
    has_classes = labels is not None
    labels = np.asarray(labels) if has_classes else np.zeros(len(keys), np.int64)
    if labels.shape != (len(keys),):
        raise ValueError(f"make_split: {len(keys):,} keys need as many labels, got an array of {labels.shape}")
    # Raw output of a generator is the same in every version of numpy, which its shuffles are not.
    generator = np.random.PCG64(seed)
    classes, counts = np.unique(labels, return_counts=True)
    totals = class_totals(counts.tolist(), _weights(balance, counts, generator))
    cells = split_counts(totals, ratio)
    by_class: Indices = np.lexsort((generator.random_raw(len(keys)), labels))
    starts = np.cumsum(counts) - counts
    taken = np.concatenate([by_class[at : at + total] for at, total in zip(starts, totals)])
    owners = np.repeat(np.tile(np.arange(len(ratio), dtype=np.int16), len(classes)), np.ravel(cells).astype(int))
    order = np.argsort(generator.random_raw(len(taken)), kind="stable")
    taken, owners = taken[order], owners[order]
    splits = tuple(taken[owners == index] for index in range(len(ratio)))
    if isinstance(keys, TarSampleKeys):
        splits = tuple(np.sort(split) for split in splits)
    return RowFile(keys, source, splits, int(classes[-1]) + 1 if has_classes else 0)


def split_listing(listing: Any, *, classes: ClassMap | None = None, **options: Any) -> RowFile:
    """`make_split` over a listing of any store. The directory that a key lies in is its class.

    Samples of shards have the labels that the shards' indexes give them, if each has one and no `classes` are given.

    >>> made = split_listing(["train/cat/1.jpg", "train/cat/2.jpg", "train/dog/1.jpg"], ratio=(2, 1))
    >>> made.num_classes, [len(split) for split in made.splits]
    (2, [2, 1])

    Args:
        listing: keys, or a pipe that lists them: `list_files_by_s3`, `list_tar_samples`, a folder's files.
            A local path is kept as it is listed: make it absolute if the file is read in another folder.
        classes: names and labels; None = the sorted names of the directories.
        options: as `make_split` has them.
    """
    keys = key_table_of(listing)
    if isinstance(keys, TarSampleKeys) and classes is None and (keys.columns.labels != NO_LABEL).all():
        return make_split(keys, keys.columns.labels.astype(np.int64), **options)
    directories = np.array([_directory_of(key) for key in all_keys(keys)], dtype=object)
    names, places = np.unique(directories, return_inverse=True)
    known = classes or ClassMap(names.tolist())
    labels = np.array([known[name] for name in names.tolist()], np.int64)
    return make_split(keys, labels[places], **options)


def _directory_of(key: Any) -> str:
    name = key.name if isinstance(key, TarSampleKey) else str(key)
    directory = directory_of(name)
    if not directory:
        raise ValueError(
            f"split_listing: {key} lies in no directory that could be its class; pass make_split the labels, or "
            "None for a split without classes"
        )
    return directory


def _weights(balance: Balance, counts: NDArray[np.int64], generator: np.random.PCG64) -> Sequence[Number]:
    if balance == "original":
        return counts.tolist()  # type: ignore[no-any-return]
    if balance == "random":
        return (1 + generator.random_raw(len(counts)) % 1000).tolist()  # type: ignore[no-any-return]
    if isinstance(balance, str):
        raise ValueError(
            f"make_split: balance must be 'original', 'random' or a weight for each class, got {balance!r}"
        )
    return balance
