"""`RemoteDataset`: a data set that `upload_cv_dataset` put into a bucket, ready to chain stages to."""

from __future__ import annotations

from datapipes.catalog.list_tar import TarSampleLister
from datapipes.catalog.s3_server import S3Server
from datapipes.catalog.wrap import IterableWrapper
from datapipes.load.read_shards import MAX_BYTES, TarSampleReader
from datapipes.on_error import OnError
from datapipes.order.distribute import Distributor

BLOCK = 256


def make_client(end_point: str, access_key: str, secure_key: str) -> S3Server:
    """Where the bucket is and who we are: what `upload_cv_dataset` and `RemoteDataset` take as client.

    It holds no connection, so it goes to worker processes; its key is in no repr and no error.

    >>> print(make_client("http://127.0.0.1:9000", "me", "hunter2").endpoint_url)
    http://127.0.0.1:9000
    """
    return S3Server(endpoint_url=end_point, access_key=access_key, secret_key=secure_key)


class RemoteDataset(TarSampleReader):
    """The samples of `bucket/folder`: dicts with `__key__`, the image's bytes as `jpg` or `png`, and `cls`.

    >>> client = make_client("http://127.0.0.1:9000", "me", "hunter2")
    >>> dataset = (RemoteDataset(client, "testbucket", "imagenet-val")
    ...     .decode("pil").to_tuple("jpg;png", "cls").batched(64))

    Straight into `DataLoader(dataset, num_workers=3, batch_size=None)`, or through `as_dataset` for exact
    resume and the epoch's account. Ranks and workers get different samples; each epoch has a new order over all
    shards, made from `seed`: blocks of 256 neighbours permuted, and mixed within windows of eight.

    Args:
        client: from `make_client`.
        bucket, folder: where `upload_cv_dataset` put it.
        shuffle: False gives every sample once in the shards' order, for validation.
        seed: of the orders.
        cache_dir: a local folder that keeps what was fetched, shared by the processes of a node; see
            `read_tar_samples`.
        cache_bytes: how much it may keep.
        max_bytes: bound on payload on its way or waiting for its turn, in each process.
        on_error: "raise", "skip", or a callable (key, error) -> sample or None.

    Raises:
        TypeError: a client of another kind.
        ValueError: while iterating: no whole data set there, or a damaged sample.
        FileNotFoundError, PermissionError, ConnectionError, TimeoutError: while iterating: it cannot be had.
    """

    def __init__(
        self,
        client: S3Server,
        bucket: str,
        folder: str,
        shuffle: bool = True,
        *,
        seed: int = 0,
        cache_dir: str | None = None,
        cache_bytes: float = 100e9,
        max_bytes: int = MAX_BYTES,
        on_error: OnError = "raise",
    ) -> None:
        if not isinstance(client, S3Server):
            raise TypeError(
                f"RemoteDataset: client must come from make_client(end_point, access_key, secure_key), or be an "
                f"S3Server, got {type(client).__name__}"
            )
        keys = TarSampleLister(IterableWrapper([f"s3://{bucket}/{folder.strip('/')}"]), server=client)
        super().__init__(
            Distributor(
                keys,
                shuffle=shuffle,
                seed=seed,
                uneven="drop" if shuffle else "keep",
                block=BLOCK if shuffle else None,
            ),
            server=client,
            cache_dir=cache_dir,
            cache_bytes=cache_bytes,
            max_bytes=max_bytes,
            on_error=on_error,
        )
