"""`upload_cv_dataset`: any torchvision data set to a bucket, as shuffled shards with index and manifest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

from datapipes.catalog.manifest import Manifest
from datapipes.catalog.s3_server import S3Server
from datapipes.order.permutation import permute
from datapipes.prepare.sample_encoding import SampleEncoder, class_names
from datapipes.prepare.shard_writer import ShardWriter

_SAMPLES_A_TASK = 32
"""A worker hands over so many at a time: passing one alone costs 70 us."""


def upload_cv_dataset(
    ds: Any,
    *,
    client: S3Server,
    bucket: str,
    base_folder: str,
    maxsize: float = 1e8,
    maxcount: int = 100_000,
    workers: int = 0,
    quality: int | None = None,
    shuffle: bool = True,
    seed: int = 0,
    replace: bool = False,
    progress: bool | None = None,
) -> Manifest:
    """Pack `ds` into the objects `base_folder/shard-000000.tar`, ... of `bucket`; its manifest out.

    Images of an `ImageFolder` keep their bytes; others are encoded without loss, or as JPEG of `quality`. An
    upload that was cut goes on when it is started again. Until it is done, `RemoteDataset` refuses the folder.

    Args:
        ds: gives (PIL image, label), without transforms: `ImageFolder`, `CIFAR10`, any of torchvision's.
        client: from `make_client`.
        bucket: an existing bucket.
        base_folder: where in the bucket.
        maxsize: bytes a shard, at most.
        maxcount: samples a shard, at most.
        workers: processes that read and encode; 0 does it in this one.
        quality: of JPEG, 1 to 95; None = PNG, lossless.
        shuffle: in one order over the whole data set, made from `seed`; each epoch is shuffled anew all the same.
        replace: take the place of another data set in the folder.
        progress: show a bar; by default where stderr is a terminal.

    Raises:
        FileExistsError: the folder holds a finished data set, and `replace` was not asked for.
        FileNotFoundError: no such bucket.
        PermissionError: the server refused the keys.
        TypeError: items that are not (image, label), or a client of another kind.
    """
    if not isinstance(client, S3Server):
        raise TypeError(
            f"upload_cv_dataset: client must come from make_client(end_point, access_key, secure_key), or be an "
            f"S3Server, got {type(client).__name__}"
        )
    if workers < 0:
        raise ValueError(f"upload_cv_dataset: workers must be 0 or more, got {workers}")
    encode = SampleEncoder(ds, quality=quality)
    options = {"samples": len(ds), "quality": quality, "shuffle": shuffle, "seed": seed}
    folder = base_folder.strip("/")
    writer = ShardWriter(
        f"s3://{bucket}/{folder}/shard-%06d.tar",
        maxcount=maxcount,
        maxsize=maxsize,
        server=client,
        classes=class_names(ds),
        options=options,
        replace=replace,
        resume=True,
    )
    order = np.arange(len(ds))
    if shuffle and len(ds):
        order = permute(order, len(ds), seed=seed)
    kept = writer.samples_kept
    with writer, tqdm(total=len(ds), initial=kept, unit="img", disable=_hidden(progress)) as bar:
        for sample in encoded(encode, order[kept:].tolist(), workers):
            writer.write(sample)
            bar.update()
    return writer.close()


def _hidden(progress: bool | None) -> bool | None:
    # tqdm's None hides the bar where stderr is not a terminal.
    return None if progress is None else not progress


def encoded(encode: SampleEncoder, order: Sequence[int], workers: int) -> Iterator[dict[str, Any]]:
    """The samples with these indices, in this order, made by so many processes."""
    loader: Any = DataLoader(
        _Tasks(encode, order), batch_size=None, num_workers=workers, collate_fn=_as_it_is, shuffle=False
    )
    for samples in loader:
        yield from samples


class _Tasks(Dataset[Any]):
    def __init__(self, encode: SampleEncoder, order: Sequence[int]) -> None:
        self._encode = encode
        self._order = np.array(order, np.int64)

    def __len__(self) -> int:
        return -(-len(self._order) // _SAMPLES_A_TASK)

    def __getitem__(self, task: int) -> list[dict[str, Any]]:
        first = task * _SAMPLES_A_TASK
        return [self._encode(index) for index in self._order[first : first + _SAMPLES_A_TASK].tolist()]


def _as_it_is(samples: Any) -> Any:
    return samples
