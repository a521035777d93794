"""Listing 20,000 keys of 100 class folders: list_files_by_s3 beside other clients.

The server is rclone on the same machine, over empty files. All list the same prefix, whole, in one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from datapipes.catalog.list_s3 import S3FileLister
from datapipes.catalog.s3_server import S3Server
from recipes.benchmarks.harness import Bar, Table, alternate
from recipes.servers import LocalS3, rclone_server

PACKAGES = ("pycurl", "obstore", "s3fs", "boto3")
CLASSES = 100
KEYS = 20_000
ROUNDS = 7


def measure() -> Iterable[Table]:
    with TemporaryDirectory() as folder:
        write_empty_files(Path(folder, "imagenet"))
        with rclone_server(folder=Path(folder)) as local:
            figures = alternate(dict(ways(local)), ROUNDS)
    rows, ours = [], figures["list_files_by_s3"]
    for name, figure in figures.items():
        ratio = median(mine / other for mine, other in zip(ours.wall_s, figure.wall_s))
        cpu_us = figure.median_cpu_s / KEYS * 1e6
        rows.append([name, f"{figure.median_wall_s * 1e3:.0f}", f"{ratio:.2f}", f"{cpu_us:.1f}"])
    bars = [
        Bar("its time, of obstore's", float(rows[1][2]), at_most=1.2),
    ]
    yield Table("20,000 keys", ["client", "ms", "our time in its own", "client CPU a key, us"], rows, bars)


def ways(local: LocalS3) -> Iterable[tuple[str, Callable[[], object]]]:
    import obstore
    import s3fs
    from obstore.store import S3Store

    server = S3Server(local.endpoint_url, local.region, None, local.access_key, local.secret_key)
    store = S3Store(
        "imagenet",
        endpoint=local.endpoint_url,
        access_key_id=local.access_key,
        secret_access_key=local.secret_key,
        region=local.region,
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
    )
    client = local.client()

    def ours() -> None:
        assert len(S3FileLister(["s3://imagenet/train/"], server=server).key_table()) == KEYS

    def with_obstore() -> None:
        pages = obstore.list(store, "train", chunk_size=1000)
        assert len([found["path"] for page in pages for found in page]) == KEYS

    def with_s3fs() -> None:
        files = s3fs.S3FileSystem(
            key=local.access_key,
            secret=local.secret_key,
            endpoint_url=local.endpoint_url,
            skip_instance_cache=True,
        )
        assert len(files.find("imagenet/train")) == KEYS

    def with_boto3() -> None:
        pages = client.get_paginator("list_objects_v2").paginate(Bucket="imagenet", Prefix="train/")
        assert len([found["Key"] for page in pages for found in page["Contents"]]) == KEYS

    yield "list_files_by_s3", ours
    yield "obstore", with_obstore
    yield "s3fs", with_s3fs
    yield "boto3", with_boto3


def write_empty_files(bucket: Path) -> None:
    for label in range(CLASSES):
        folder = bucket / f"train/n{label:08d}"
        folder.mkdir(parents=True)
        for number in range(KEYS // CLASSES):
            (folder / f"n{label:08d}_{number}.JPEG").touch()
