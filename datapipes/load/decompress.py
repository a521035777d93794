"""Compressed shards as a stream of plain bytes."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from typing import Any

from datapipes.catalog.tar_format import TarDamage

_PIECE_BYTES = 1 << 20


def decompressed(chunks: Iterator[bytes], shard: str) -> Iterator[bytes]:
    """`chunks` as they are, or unpacked where the shard's name ends in .gz, .tgz, .zst or .tzst.

    >>> list(decompressed(iter([gzip.compress(b"archive")]), "a.tar.gz"))
    [b'archive']

    Raises:
        TarDamage: the compressed stream is cut or damaged.
        ModuleNotFoundError: a .zst shard, and the package zstandard is not installed.
    """
    if shard.endswith((".gz", ".tgz")):
        return _gunzip(_ChunkFile(chunks), shard)
    if shard.endswith((".zst", ".tzst")):
        return _unzstd(_ChunkFile(chunks), shard)
    return chunks


def _gunzip(file: _ChunkFile, shard: str) -> Iterator[bytes]:
    try:
        with gzip.GzipFile(fileobj=io.BufferedReader(file)) as stream:
            while piece := stream.read(_PIECE_BYTES):
                yield piece
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise TarDamage(f"{shard}: damaged gzip stream ({error}); fetch or write the shard again") from None


def _unzstd(file: _ChunkFile, shard: str) -> Iterator[bytes]:
    import zstandard

    try:
        with zstandard.ZstdDecompressor().stream_reader(io.BufferedReader(file), read_across_frames=True) as stream:
            while piece := stream.read(_PIECE_BYTES):
                yield piece
    except zstandard.ZstdError as error:
        raise TarDamage(f"{shard}: damaged zstd stream ({error}); fetch or write the shard again") from None


class _ChunkFile(io.RawIOBase):
    """Chunks, as the file that decompressors want."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._left = memoryview(chunk)
        size = min(len(buffer), len(self._left))
        buffer[:size] = self._left[:size]
        self._left = self._left[size:]
        return size
