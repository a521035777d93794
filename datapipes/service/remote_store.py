"""Data sets under any fsspec URL: S3 and its kin, where an object appears whole when its upload is completed.

A data set is a folder with an empty marker object, for object stores know no empty folders. The S3 file
system finds its endpoint and credentials in the standard AWS environment.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

import fsspec

from datapipes.service.names import MARKER, is_dataset_name
from datapipes.service.storage import STAGING, StoredFile

PART_BYTES = 16 << 20  # an upload in parts of 16 MiB holds at most that much and may reach 160 GB on S3


class RemoteStore:
    has_page_cache = False

    def __init__(self, url: str) -> None:
        self._system, root = fsspec.core.url_to_fs(url, use_listings_cache=False)
        self._root = root.rstrip("/")

    def datasets(self) -> list[str]:
        names = (_name(entry) for entry in self._list(self._root) if entry["type"] == "directory")
        return sorted(name for name in names if is_dataset_name(name))

    def create(self, folder: str) -> None:
        if self.has(folder):
            raise FileExistsError(errno.EEXIST, "already there", folder)
        self._system.makedirs(self._at(folder), exist_ok=True)
        self._system.pipe_file(self._at(folder, MARKER), b"")

    def has(self, folder: str) -> bool:
        return bool(self._list(self._at(folder)))

    def remove(self, folder: str) -> None:
        if not self.has(folder):
            raise FileNotFoundError(errno.ENOENT, "no such data set", folder)
        self._remove_all(self._at(folder))

    def walk(self, folder: str, after: str = "", under: str = "") -> Iterator[StoredFile]:
        if folder != STAGING and not self.has(folder):
            raise FileNotFoundError(errno.ENOENT, "no such data set", folder)
        at, prefix = (self._at(folder, under), f"{under}/") if under else (self._at(folder), "")
        yield from self._walk(at, prefix, after.split("/") if after else [])

    def reader(self, folder: str, path: str) -> RemoteReader:
        try:
            return RemoteReader(self._system.open(self._at(folder, path), "rb", cache_type="none"), path)
        except (FileNotFoundError, IsADirectoryError):
            raise FileNotFoundError(errno.ENOENT, "no such file", f"{folder}/{path}") from None

    def writer(self, folder: str, path: str) -> RemoteWriter:
        if folder != STAGING and not self.has(folder):
            raise FileNotFoundError(errno.ENOENT, "no such data set", folder)
        return RemoteWriter(self, folder, path)

    def move(self, path: str, folder: str, new_path: str) -> None:
        self._system.makedirs(self._at(folder, new_path).rpartition("/")[0], exist_ok=True)
        self._system.mv(self._at(STAGING, path), self._at(folder, new_path))

    def delete(self, folder: str, path: str) -> None:
        if not self._system.isfile(self._at(folder, path)):
            raise FileNotFoundError(errno.ENOENT, "no such file", f"{folder}/{path}")
        self._system.rm_file(self._at(folder, path))

    def discard_staged(self, prefix: str) -> None:
        self._remove_all(self._at(STAGING, prefix))

    def free_bytes(self) -> int | None:
        return None

    def open_for_writing(self, folder: str, path: str) -> Any:
        if folder != STAGING:
            self._check_way(folder, path)
        self._system.makedirs(self._at(folder, path).rpartition("/")[0], exist_ok=True)
        return self._system.open(self._at(folder, path), "wb", block_size=PART_BYTES)

    def described(self, folder: str, path: str) -> StoredFile:
        return _described(path, self._system.info(self._at(folder, path)))

    def _check_way(self, folder: str, path: str) -> None:
        """Object stores would let `a` and `a/b` be files at once; no folder could hold such a data set."""
        parts = path.split("/")
        above = ("/".join(parts[:depth]) for depth in range(1, len(parts)))
        if any(self._system.isfile(self._at(folder, parent)) for parent in above):
            raise NotADirectoryError(errno.ENOTDIR, "its folder is a file", f"{folder}/{path}")
        if self._system.isdir(self._at(folder, path)):
            raise IsADirectoryError(errno.EISDIR, "is a folder", f"{folder}/{path}")

    def _at(self, *parts: str) -> str:
        return "/".join((self._root, *parts))

    def _remove_all(self, path: str) -> None:
        # Objects alone: some servers refuse to delete the folders that a recursive removal names as well.
        if files := self._system.find(path, refresh=True):
            self._system.rm(files)
        if self._system.isdir(path):
            self._system.rm(path, recursive=True)

    def _list(self, path: str) -> list[dict[str, Any]]:
        try:
            entries: list[dict[str, Any]] = self._system.ls(path, detail=True, refresh=True)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return entries

    def _walk(self, at: str, prefix: str, after: list[str]) -> Iterator[StoredFile]:
        for entry in sorted(self._list(at), key=_name):
            name = _name(entry)
            if not name or (after and name < after[0]) or (not prefix and name == MARKER):
                continue
            if entry["type"] == "directory":
                rest = after[1:] if after and name == after[0] else []
                yield from self._walk(f"{at}/{name}", f"{prefix}{name}/", rest)
            elif not (after and name == after[0]):
                yield _described(prefix + name, entry)


class RemoteReader:
    def __init__(self, stream: Any, path: str) -> None:
        self._stream = stream
        self.file = _described(path, stream.details if hasattr(stream, "details") else stream.fs.info(stream.path))

    def read(self, start: int, length: int) -> bytes:
        self._stream.seek(start)
        chunk: bytes = self._stream.read(length)
        return chunk

    def read_cached(self, start: int, length: int) -> memoryview:
        raise BlockingIOError(errno.EAGAIN, "every read goes over the network")

    def close(self) -> None:
        self._stream.close()


class RemoteWriter:
    def __init__(self, store: RemoteStore, folder: str, path: str) -> None:
        self._store, self._folder, self._path = store, folder, path
        self._digest = hashlib.sha256()
        self._stream = store.open_for_writing(folder, path)

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def write(self, chunk: bytes) -> None:
        self._digest.update(chunk)
        self._stream.write(chunk)

    def commit(self) -> StoredFile:
        try:
            self._stream.close()
        except BaseException:
            self.discard()
            raise
        return replace(self._store.described(self._folder, self._path), sha256=self.sha256)

    def discard(self) -> None:
        self._stream.discard()
        self._stream.closed = True  # or its own clean-up would store what it has


def _name(entry: dict[str, Any]) -> str:
    return str(entry["name"]).rstrip("/").rpartition("/")[2]


def _described(path: str, entry: dict[str, Any]) -> StoredFile:
    modified = entry.get("LastModified") or entry.get("created") or entry.get("mtime") or 0.0
    modified_s = modified.timestamp() if isinstance(modified, datetime) else float(modified)
    size = int(entry["size"])
    etag = str(entry.get("ETag", "")).strip('"') or f"{int(modified_s * 1e6):x}-{size:x}"
    return StoredFile(path, size, modified_s, f'"{etag}"')
