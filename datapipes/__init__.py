"""PyTorch DataPipes that feed distributed training straight from where the data lives.

The pipes are in `datapipes.iter`; here is what goes with them. Each name is imported when it is first used, so
that the dataset service, say, starts without torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datapipes.catalog.cassandra_server import CassandraServer
    from datapipes.catalog.class_map import ClassMap
    from datapipes.catalog.dataset_service import DatasetService
    from datapipes.catalog.s3_server import S3Server
    from datapipes.dataset.as_dataset import as_dataset
    from datapipes.dataset.remote_dataset import RemoteDataset, make_client
    from datapipes.dataset.s3_image_folder import S3ImageFolder
    from datapipes.prepare.make_split import make_split
    from datapipes.prepare.shard_writer import ShardWriter
    from datapipes.prepare.upload_cv_dataset import upload_cv_dataset
    from datapipes.prepare.verify_shards import index_shards, verify_shards

_HOMES = {
    "CassandraServer": "catalog.cassandra_server",
    "ClassMap": "catalog.class_map",
    "DatasetService": "catalog.dataset_service",
    "RemoteDataset": "dataset.remote_dataset",
    "S3ImageFolder": "dataset.s3_image_folder",
    "S3Server": "catalog.s3_server",
    "ShardWriter": "prepare.shard_writer",
    "as_dataset": "dataset.as_dataset",
    "index_shards": "prepare.verify_shards",
    "make_client": "dataset.remote_dataset",
    "make_split": "prepare.make_split",
    "upload_cv_dataset": "prepare.upload_cv_dataset",
    "verify_shards": "prepare.verify_shards",
}

__all__ = [
    "CassandraServer",
    "ClassMap",
    "DatasetService",
    "RemoteDataset",
    "S3ImageFolder",
    "S3Server",
    "ShardWriter",
    "as_dataset",
    "index_shards",
    "make_client",
    "make_split",
    "upload_cv_dataset",
    "verify_shards",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'datapipes' has no attribute {name!r}")
    return getattr(importlib.import_module(f"datapipes.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
