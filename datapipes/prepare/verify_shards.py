"""Sharded data sets held against their manifest and indexes, and indexes made for shards that have none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fastcrc.crc32 import iscsi as crc32c

from datapipes.catalog.manifest import FILE_NAME, Manifest, Shard
from datapipes.catalog.s3_server import S3Server
from datapipes.catalog.scan_shard import index_of
from datapipes.catalog.shard_index import SUFFIX, ShardIndex
from datapipes.catalog.shard_store import PLAIN_SUFFIX, is_shard, list_shards, manifest_of, read_file
from datapipes.catalog.tar_format import TarDamage, read_members
from datapipes.load.shard_bytes import shard_bytes
from datapipes.load.tar_samples import Expected, read_samples
from datapipes.on_error import Skipped, said_by
from datapipes.prepare.shard_target import target_of


class Verdict(NamedTuple):
    """What was found of one shard: its samples, and what is wrong with it."""

    shard: str
    samples: int
    nbytes: int
    faults: list[str]


def verify_shards(url: str, *, server: S3Server = S3Server()) -> Iterator[Verdict]:
    """A folder of shards, or a shard, in; a verdict a shard out, every byte of it read.

    >>> import tempfile
    >>> from datapipes.prepare.shard_writer import ShardWriter
    >>> folder = tempfile.mkdtemp()
    >>> with ShardWriter(f"{folder}/shard-%06d.tar") as writer:
    ...     writer.write({"__key__": "cat/1", "jpg": b"image", "cls": 7})
    >>> [(verdict.samples, verdict.faults) for verdict in verify_shards(folder)]
    [(1, [])]

    Without a manifest or an index only what the archive itself tells can be verified.

    Args:
        url: of a folder or a shard: a path, S3, HTTP, or what fsspec opens.
        server: of an `s3://` URL.

    Raises:
        FileNotFoundError: there is no shard at all.
        ValueError: the folder is unfinished, or its manifest is none.
    """
    manifest = None if is_shard(url) else manifest_of(url, server=server, function="verify_shards")
    if manifest is None:
        shards = [url] if is_shard(url) else list_shards(url, server=server, function="verify_shards")
        for shard in shards:
            yield _verify(shard, None, server)
        return
    for entry in manifest.shards:
        yield _verify(f"{url.rstrip('/')}/{entry.name}", entry, server)


def _verify(shard: str, entry: Shard | None, server: S3Server) -> Verdict:
    faults: list[str] = []
    samples = nbytes = checksum = 0

    def counted() -> Iterator[bytes]:
        nonlocal nbytes, checksum
        for chunk in shard_bytes(shard, server=server, function="verify_shards"):
            nbytes += len(chunk)
            checksum = crc32c(chunk, checksum)
            yield chunk

    try:
        expected = _expected(shard, entry, server)
        for sample in read_samples(read_members(counted(), shard=shard), shard=shard, expected=expected):
            samples += 1
            if type(sample) is Skipped:
                faults.append(sample.reason)
    except (ValueError, OSError) as error:
        faults.append(str(error))
    if entry is not None and not faults and (samples, nbytes, checksum) != (entry.samples, entry.nbytes, entry.crc32c):
        faults.append(
            f"{shard}: {samples} samples, {nbytes} bytes, crc32c {checksum:08x}; the manifest says {entry.samples}, "
            f"{entry.nbytes}, {entry.crc32c:08x}"
        )
    return Verdict(shard, samples, nbytes, faults)


def _expected(shard: str, entry: Shard | None, server: S3Server) -> Expected | None:
    if not shard.endswith(PLAIN_SUFFIX):
        return None
    content = read_file(shard + SUFFIX, server=server, function="verify_shards")
    if content is None:
        if entry is not None:
            raise FileNotFoundError(f"{shard}{SUFFIX}: the index is missing; make it again with index_shards")
        return None
    if entry is not None and crc32c(content) != entry.index_crc32c:
        raise ValueError(f"{shard}{SUFFIX}: not the index that the manifest names (crc32c); make it anew")
    return Expected.of(ShardIndex.load(content, name=shard + SUFFIX))


def index_shards(url: str, *, server: S3Server = S3Server()) -> Manifest:
    """Read every shard of a folder once; write an index beside each, and then the manifest.

    For shards that webdataset, tarp or tar wrote: what is there now is what later readers verify against.

    >>> import pathlib, tarfile, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "1.jpg").write_bytes(b"image")
    >>> with tarfile.open(folder / "a.tar", "w") as archive:
    ...     archive.add(folder / "1.jpg", "cat/1.jpg")
    >>> index_shards(str(folder)).samples
    1

    Raises:
        ValueError: a shard is damaged or compressed, or the folder unfinished. Nothing is written of that shard,
            and no manifest.
        FileNotFoundError: there is no shard.
    """
    manifest_of(url, server=server, function="index_shards")
    target = target_of(url.rstrip("/"), server=server)
    entries = []
    for shard in list_shards(url, server=server, function="index_shards"):
        if not shard.endswith(PLAIN_SUFFIX):
            raise ValueError(f"index_shards: {shard} is compressed; unpack it to index its samples")
        name = shard.rpartition("/")[2]
        nbytes = checksum = 0

        def counted(shard: str = shard) -> Iterator[bytes]:
            nonlocal nbytes, checksum
            for chunk in shard_bytes(shard, server=server, function="index_shards"):
                nbytes += len(chunk)
                checksum = crc32c(chunk, checksum)
                yield chunk

        try:
            index = index_of(read_members(counted(), shard=shard), shard, 0, crc32c)
        except TarDamage as error:
            raise said_by("index_shards", error) from None
        index = ShardIndex(**{**vars(index), "shard_bytes": nbytes})
        content = index.save()
        target.put(name + SUFFIX, content)
        entries.append(Shard(name, len(index), nbytes, checksum, crc32c(content)))
    manifest = Manifest(entries, None, {"made_by": "index_shards"})
    target.put(FILE_NAME, manifest.save())
    return manifest
