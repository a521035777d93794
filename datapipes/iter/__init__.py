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

from datapipes.catalog.wrap import IterableWrapper
from datapipes.order.distribute import Distributor
from datapipes.pipe import Pipe
from datapipes.stages.parse_label import LabelParser

__all__ = [
    "Batcher",
    "Collator",
    "Concater",
    "Demultiplexer",
    "Distributor",
    "FileLister",
    "FileOpener",
    "Filter",
    "Forker",
    "Grouper",
    "IterDataPipe",
    "IterableWrapper",
    "LabelParser",
    "Mapper",
    "Multiplexer",
    "Pipe",
    "Sampler",
    "ShardingFilter",
    "Shuffler",
    "StreamReader",
    "UnBatcher",
    "Zipper",
]
