"""`list_tar_samples`: the samples of sharded data sets, by index."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from fastcrc.crc32 import iscsi as crc32c

from datapipes.catalog.s3_server import S3Server
from datapipes.catalog.scan_shard import scan_file
from datapipes.catalog.shard_index import SUFFIX, ShardIndex
from datapipes.catalog.shard_store import (
    PLAIN_SUFFIX,
    is_shard,
    list_shards,
    local_path,
    manifest_of,
    read_file,
    read_files,
)
from datapipes.catalog.tar_keys import TarSampleKey, TarSampleKeys
from datapipes.on_error import said_by
from datapipes.pipe import Pipe, functional_form

_FUNCTION = "list_tar_samples"


@functional_form("list_tar_samples")
class TarSampleLister(Pipe[TarSampleKey]):
    """Folders of tar shards in, or shards, the key of every sample out (functional name: `list_tar_samples`).

    The keys are for `read_tar_samples`, with `distribute` in between: exact order, length, resume.

    >>> import tempfile
    >>> from datapipes.iter import IterableWrapper
    >>> from datapipes.prepare.shard_writer import ShardWriter
    >>> folder = tempfile.mkdtemp()
    >>> with ShardWriter(f"{folder}/shard-%06d.tar") as writer:
    ...     writer.write({"__key__": "cat/1", "jpg": b"image", "cls": 7})
    >>> keys = IterableWrapper([folder]).list_tar_samples()
    >>> [key.name for key in keys], len(keys)
    (['cat/1'], 1)

    It reads the indexes beside the shards, 60 B a sample, side by side. A local shard without an index is
    scanned header by header; for a remote one make the index first, with `index_shards`.

    Args:
        source_datapipe: folders (with a manifest, or all shards in them by name) and single shards.
        server: of `s3://` URLs; by default what the AWS command line would use.

    Raises:
        FileNotFoundError: no shards there, or a remote shard without its index.
        ValueError: a damaged index or shard, an index that is not the manifest's, an unfinished folder, or a
            compressed shard, of which no single sample can be read.
    """

    def __init__(self, source_datapipe: Any, *, server: S3Server = S3Server()) -> None:
        self.source_datapipe = source_datapipe
        self.server = server

    def key_table(self) -> TarSampleKeys:
        """Every key, in the order of the shards."""
        shards: list[str] = []
        indexes: list[ShardIndex] = []
        versions: list[str] = []
        for url in self.source_datapipe:
            try:
                for shard, index, version in self._indexes(url):
                    shards.append(shard)
                    indexes.append(index)
                    versions.append(version)
            except ValueError as error:
                raise said_by(_FUNCTION, error) from None
        return TarSampleKeys.of(shards, indexes, versions)

    def __iter__(self) -> Iterator[TarSampleKey]:
        table = self.key_table()
        for first in range(0, len(table), 1024):
            yield from table.take(np.arange(first, min(first + 1024, len(table))))

    def __len__(self) -> int:
        """By the manifests where there are some, which costs a request a folder."""
        urls = list(self.source_datapipe)
        if any(map(is_shard, urls)):
            return len(self.key_table())
        manifests = [manifest_of(url, server=self.server, function=_FUNCTION) for url in urls]
        known = [manifest.samples for manifest in manifests if manifest is not None]
        return sum(known) if len(known) == len(urls) else len(self.key_table())

    def _indexes(self, url: str) -> Iterator[tuple[str, ShardIndex, str]]:
        if is_shard(url):
            yield self._index_of(url)
            return
        manifest = manifest_of(url, server=self.server, function=_FUNCTION)
        if manifest is None:
            for shard in list_shards(url, server=self.server, function=_FUNCTION):
                yield self._index_of(shard)
            return
        folder = url.rstrip("/")
        names = [f"{folder}/{shard.name}{SUFFIX}" for shard in manifest.shards]
        contents = read_files(names, server=self.server, function=_FUNCTION)
        for entry, name, content in zip(manifest.shards, names, contents):
            if crc32c(content) != entry.index_crc32c:
                raise ValueError(
                    f"{_FUNCTION}: {name} is not the index that the manifest names (crc32c); fetch it again, or "
                    "make it anew with index_shards"
                )
            yield f"{folder}/{entry.name}", ShardIndex.load(content, name=name), version_of(content)

    def _index_of(self, shard: str) -> tuple[str, ShardIndex, str]:
        if not shard.endswith(PLAIN_SUFFIX):
            raise ValueError(
                f"{_FUNCTION}: {shard} is compressed, so no single sample can be read from it; stream it with "
                "open_tar_shards, or unpack it"
            )
        content = read_file(shard + SUFFIX, server=self.server, function=_FUNCTION)
        if content is not None:
            return shard, ShardIndex.load(content, name=shard + SUFFIX), version_of(content)
        path = local_path(shard)
        if path is None:
            raise FileNotFoundError(
                f"{_FUNCTION}: {shard} has no index {SUFFIX} beside it; make one with index_shards, or stream "
                "the shard with open_tar_shards"
            )
        return shard, scan_file(path), ""


def version_of(index: bytes) -> str:
    """What a shard with this index file is known by; the index has its checksums, so it changes with the shard."""
    return f"{crc32c(index):08x}"
