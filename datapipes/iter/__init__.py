"""Every pipe by its public name: ours, and those of torch core that they are chained with."""

from torch.utils.data import IterDataPipe
from torch.utils.data.datapipes.iter import (
    Batcher,
    Collator,
    Concater,
    Demultiplexer,
    FileLister,
    FileOpener,
    Filter,
    Forker,
    Grouper,
    Mapper,
    Multiplexer,
    Sampler,
    ShardingFilter,
    Shuffler,
    StreamReader,
    UnBatcher,
    Zipper,
)

from datapipes.catalog.list_fsspec import FSSpecFileLister
from datapipes.catalog.list_s3 import S3FileLister
from datapipes.catalog.list_service import ServiceFileLister
from datapipes.catalog.list_tar import TarSampleLister
from datapipes.catalog.row_list import RowFileLister, SplitFileReader
from datapipes.catalog.wrap import IterableWrapper
from datapipes.load.cassandra import CassandraLoader, CassandraReader
from datapipes.load.fsspec import FSSpecFileLoader
from datapipes.load.open_shards import TarShardReader
from datapipes.load.read_shards import TarSampleReader
from datapipes.load.s3 import S3FileLoader
from datapipes.load.service import ServiceFileLoader
from datapipes.order.distribute import Distributor
from datapipes.pipe import Pipe
from datapipes.stages.batched import SampleBatcher
from datapipes.stages.decode import ImageDecoder
from datapipes.stages.map_tuple import TupleMapper
from datapipes.stages.parse_label import LabelParser
from datapipes.stages.prefetch import Prefetcher
from datapipes.stages.to_tuple import FieldPicker

__all__ = [
    "Batcher",
    "CassandraLoader",
    "CassandraReader",
    "Collator",
    "Concater",
    "Demultiplexer",
    "Distributor",
    "FSSpecFileLister",
    "FSSpecFileLoader",
    "FieldPicker",
    "FileLister",
    "FileOpener",
    "Filter",
    "Forker",
    "Grouper",
    "ImageDecoder",
    "IterDataPipe",
    "IterableWrapper",
    "LabelParser",
    "Mapper",
    "Multiplexer",
    "Pipe",
    "Prefetcher",
    "RowFileLister",
    "S3FileLister",
    "S3FileLoader",
    "SampleBatcher",
    "Sampler",
    "ServiceFileLister",
    "ServiceFileLoader",
    "ShardingFilter",
    "Shuffler",
    "SplitFileReader",
    "StreamReader",
    "TarSampleLister",
    "TarSampleReader",
    "TarShardReader",
    "TupleMapper",
    "UnBatcher",
    "Zipper",
]
