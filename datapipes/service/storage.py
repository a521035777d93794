"""What the service asks of a store: data sets of files, each file replaced as a whole or not at all.

Two stores answer: `LocalStore` for a folder, `RemoteStore` for every other fsspec URL. Both block, so the
service calls them from threads. Both raise OSError with `filename` relative to the root.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Protocol

CHUNK_BYTES = 1 << 20
STAGING = ".uploads"
"""The folder, hidden from listings, where files wait until they are whole."""


@dataclass(frozen=True)
class StoredFile:
    """One version of a file. `sha256` is known where the store keeps it with the file."""

    path: str
    size: int
    modified: float
    etag: str
    sha256: str | None = None

    @property
    def modified_at(self) -> str:
        return datetime.fromtimestamp(self.modified, timezone.utc).isoformat(timespec="microseconds")


class Reader(Protocol):
    """One version of a file, held open: what is put in its place later does not show."""

    @property
    def file(self) -> StoredFile: ...
    def read(self, start: int, length: int) -> bytes: ...
    def read_cached(self, start: int, length: int) -> memoryview:
        """As `read`, or BlockingIOError where that would have to wait for a disk."""

    def close(self) -> None: ...


class Writer(Protocol):
    """A file on its way in; nobody sees it before `commit`. A commit that fails has discarded it."""

    @property
    def sha256(self) -> str: ...
    def write(self, chunk: bytes) -> None: ...
    def commit(self) -> StoredFile: ...
    def discard(self) -> None: ...


class Store(Protocol):
    """`folder` is a data set's name or STAGING; `path` is a file's path in it."""

    has_page_cache: bool
    """Whether `read_cached` may be tried: files that are in memory then need no thread, a third of their cost."""

    def datasets(self) -> list[str]: ...
    def create(self, folder: str) -> None: ...
    def has(self, folder: str) -> bool: ...
    def remove(self, folder: str) -> None: ...
    def walk(self, folder: str, after: str = "", under: str = "") -> Iterator[StoredFile]:
        """The files of a folder, or of its folder `under`, in the order of their paths' parts.

        Only those behind `after`, a path relative to `under`.
        """

    def reader(self, folder: str, path: str) -> Reader: ...
    def writer(self, folder: str, path: str) -> Writer: ...
    def move(self, path: str, folder: str, new_path: str) -> None:
        """Bring the staged file at `path` into a data set."""

    def delete(self, folder: str, path: str) -> None: ...
    def discard_staged(self, prefix: str) -> None:
        """Remove everything that is staged under `prefix`."""

    def free_bytes(self) -> int | None: ...


def chunks(reader: Reader, start: int, stop: int) -> Iterator[bytes]:
    """The bytes [start, stop) of an open file; closes it at the end, whatever the end is."""
    try:
        while start < stop:
            chunk = reader.read(start, min(CHUNK_BYTES, stop - start))
            if not chunk:
                raise OSError(f"{reader.file.path}: ends {stop - start} bytes early")
            start += len(chunk)
            yield chunk
    finally:
        reader.close()


def sha256_of(reader: Reader) -> str:
    """The file's digest: the one kept with it, or computed by reading it."""
    if reader.file.sha256:
        return reader.file.sha256
    digest = hashlib.sha256()
    for start in range(0, reader.file.size, CHUNK_BYTES):
        digest.update(reader.read(start, min(CHUNK_BYTES, reader.file.size - start)))
    return digest.hexdigest()


def open_store(url: str) -> Store:
    """The store behind a folder's path or an fsspec URL, e.g. `s3://bucket/datasets`."""
    if "://" not in url or url.startswith(("file://", "local://")):
        from datapipes.service.local_store import LocalStore

        return LocalStore(url.split("://", 1)[-1])
    from datapipes.service.remote_store import RemoteStore

    return RemoteStore(url)


class ReaderStream(io.RawIOBase):
    """An open file of a store as the seekable stream that archive readers want."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._reader.file.size}[whence]
        self._at = max(start + offset, 0)
        return self._at

    def readinto(self, buffer: Any) -> int:
        chunk = self._reader.read(self._at, min(len(buffer), max(self._reader.file.size - self._at, 0)))
        buffer[: len(chunk)] = chunk
        self._at += len(chunk)
        return len(chunk)
