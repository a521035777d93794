"""Functional forms of every pipe. Written by datapipes/iter/write_stub.py; do not edit."""

from collections.abc import Callable
from datapipes.catalog.cassandra_server import CassandraServer
from datapipes.catalog.dataset_service import DatasetService
from datapipes.catalog.masks import Masks
from datapipes.catalog.s3_server import S3Server
from datapipes.on_error import OnError
from datapipes.pipe import Pipe
from datapipes.stages.parse_label import Classes
from typing import Any, Literal

class Forms:
    def batch(self, batch_size: int, drop_last: bool = False, wrapper_class: Any = ...) -> Pipe[Any]: ...
    def collate(self, conversion: Any = ..., collate_fn: Callable[..., Any] | None = None) -> Pipe[Any]: ...
    def filter(self, filter_fn: Callable[..., Any], input_col: Any = None) -> Pipe[Any]: ...
    def map(self, fn: Callable[..., Any], input_col: Any = None, output_col: Any = None) -> Pipe[Any]: ...
    def sharding_filter(self, sharding_group_filter: Any = None) -> Pipe[Any]: ...
    def shuffle(self, *, buffer_size: int = 10000, unbatch_level: int = 0) -> Pipe[Any]: ...
    def batched(
        self,
        batch_size: int,
        *,
        collate: Callable[[list[Any]], Any] | None = ...,
        drop_last: bool = False,
    ) -> Pipe[Any]: ...
    def decode(self, kind: str = 'rgb', *, num_threads: int = 1, on_error: OnError = 'raise') -> Pipe[Any]: ...
    def distribute(
        self,
        *,
        shuffle: bool = True,
        seed: int = 0,
        uneven: Literal['drop', 'pad', 'keep'] = 'drop',
        block: int | None = None,
    ) -> Pipe[Any]: ...
    def list_files_by_fsspec(self, masks: Masks = '', **storage_options: Any) -> Pipe[Any]: ...
    def list_files_by_s3(
        self,
        length: int = -1,
        request_timeout_ms: int = -1,
        region: str = '',
        masks: Masks = '',
        *,
        server: S3Server = ...,
        request_timeout_s: float = 20.0,
    ) -> Pipe[Any]: ...
    def list_files_by_service(
        self,
        masks: Masks = '',
        *,
        server: DatasetService = ...,
        request_timeout_s: float = 30.0,
    ) -> Pipe[Any]: ...
    def list_rows_by_file(self) -> Pipe[Any]: ...
    def list_tar_samples(self, *, server: S3Server = ...) -> Pipe[Any]: ...
    def load_files_by_fsspec(
        self,
        *,
        max_in_flight: int | None = None,
        max_bytes: int = 67108864,
        request_timeout_s: float = 20.0,
        ordered: bool = True,
        on_error: OnError = 'raise',
        **storage_options: Any,
    ) -> Pipe[Any]: ...
    def load_files_by_s3(
        self,
        request_timeout_ms: int = -1,
        region: str = '',
        buffer_size: int | None = None,
        multi_part_download: bool | None = None,
        *,
        server: S3Server = ...,
        max_in_flight: int | None = None,
        max_bytes: int = 67108864,
        request_timeout_s: float = 20.0,
        ordered: bool = True,
        on_error: OnError = 'raise',
    ) -> Pipe[Any]: ...
    def load_files_by_service(
        self,
        *,
        server: DatasetService = ...,
        max_in_flight: int | None = None,
        max_bytes: int = 67108864,
        request_timeout_s: float = 20.0,
        ordered: bool = True,
        on_error: OnError = 'raise',
    ) -> Pipe[Any]: ...
    def load_from_cassandra(
        self,
        *,
        server: CassandraServer = ...,
        table: str | None = None,
        id_col: str | None = None,
        label_col: str | None = None,
        data_col: str | None = None,
        label_type: str | None = None,
        max_in_flight: int | None = None,
        max_bytes: int = 268435456,
        connections: int = 1,
        request_timeout_s: float = 20.0,
        ordered: bool = True,
        on_error: OnError = 'raise',
    ) -> Pipe[Any]: ...
    def map_tuple(self, *functions: Callable[[Any], Any] | None, on_error: OnError = 'raise') -> Pipe[Any]: ...
    def open_tar_shards(
        self,
        *,
        server: S3Server = ...,
        interleave: int = 4,
        checksums: bool = True,
        cache_dir: str | None = None,
        cache_bytes: float = 100000000000.0,
        max_bytes: int = 134217728,
        request_timeout_s: float = 20.0,
        on_error: OnError = 'raise',
    ) -> Pipe[Any]: ...
    def parse_label(self, *, classes: Classes | None = None, on_error: OnError = 'raise') -> Pipe[Any]: ...
    def prefetch(self, buffer_size: int = 10) -> Pipe[Any]: ...
    def read_cassandra(
        self,
        *,
        server: CassandraServer = ...,
        table: str | None = None,
        id_col: str | None = None,
        label_col: str | None = None,
        data_col: str | None = None,
        label_type: str | None = None,
        max_in_flight: int | None = None,
        max_bytes: int = 268435456,
        connections: int = 1,
        request_timeout_s: float = 20.0,
        ordered: bool = True,
        on_error: OnError = 'raise',
    ) -> Pipe[Any]: ...
    def read_tar_samples(
        self,
        *,
        server: S3Server = ...,
        max_in_flight: int | None = None,
        cache_dir: str | None = None,
        cache_bytes: float = 100000000000.0,
        max_bytes: int = 268435456,
        request_timeout_s: float = 20.0,
        ordered: bool = True,
        on_error: OnError = 'raise',
    ) -> Pipe[Any]: ...
    def split_by_file(self, *, index: int) -> Pipe[Any]: ...
    def to_tuple(self, *fields: str, on_error: OnError = 'raise') -> Pipe[Any]: ...
