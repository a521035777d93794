"""Where shards are written to: a local folder, an S3 bucket, or any other file system.

A file appears under its name when it is committed, whole, and never before.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, Protocol

import fsspec

from datapipes.catalog.s3_server import S3Server, parse_s3_url

TEMPORARY_SUFFIX = ".part"


class TargetFile(Protocol):
    """A file on its way."""

    def write(self, content: bytes) -> object: ...

    def commit(self) -> None:
        """Let it appear. Raises where it could not be stored whole."""

    def discard(self) -> None:
        """Leave nothing of it."""


class Target(Protocol):
    """A folder of shards."""

    url: str

    def create(self, name: str) -> TargetFile: ...

    def read(self, name: str) -> bytes | None:
        """The content of a small file, None where there is no such file."""

    def put(self, name: str, content: bytes) -> None:
        """Store a small file, whole or not at all."""

    def sizes(self) -> dict[str, int]:
        """Every file of the folder itself, with its bytes."""

    def remove(self, name: str) -> None: ...


def target_of(url: str, *, server: S3Server | None = None) -> Target:
    """The target that a path or URL means."""
    if url.startswith("s3://"):
        from datapipes.prepare.s3_target import S3Target

        return S3Target(server or S3Server(), *parse_s3_url(url))
    if "://" in url and not url.startswith("file://"):
        return FsspecTarget(url)
    return LocalTarget(url.removeprefix("file://"))


class LocalTarget:
    """A folder of this machine, made when first written to."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._folder = Path(url)

    def create(self, name: str) -> LocalFile:
        self._folder.mkdir(parents=True, exist_ok=True)
        return LocalFile(self._folder / name)

    def read(self, name: str) -> bytes | None:
        try:
            return (self._folder / name).read_bytes()
        except FileNotFoundError:
            return None

    def put(self, name: str, content: bytes) -> None:
        file = self.create(name)
        file.write(content)
        file.commit()

    def sizes(self) -> dict[str, int]:
        if not self._folder.is_dir():
            return {}
        return {path.name: path.stat().st_size for path in self._folder.iterdir() if path.is_file()}

    def remove(self, name: str) -> None:
        (self._folder / name).unlink(missing_ok=True)


class LocalFile:
    """Written under a temporary name, on the disk before it is renamed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
        self._file = open(self._temporary, "wb", buffering=1 << 16)  # noqa: SIM115 - closed by commit or discard
        self.write = self._file.write

    def commit(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self._temporary, self._path)

    def discard(self) -> None:
        self._file.close()
        self._temporary.unlink(missing_ok=True)


class FsspecTarget:
    """A folder of any file system that fsspec knows. A shard waits on the local disk until it is whole."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._system, root = fsspec.core.url_to_fs(url, use_listings_cache=False)
        self._root = root.rstrip("/")

    def create(self, name: str) -> FsspecFile:
        self._system.makedirs(self._root, exist_ok=True)
        return FsspecFile(self._system, f"{self._root}/{name}")

    def read(self, name: str) -> bytes | None:
        try:
            content: bytes = self._system.cat_file(f"{self._root}/{name}")
        except FileNotFoundError:
            return None
        return content

    def put(self, name: str, content: bytes) -> None:
        self._system.makedirs(self._root, exist_ok=True)
        self._system.pipe_file(f"{self._root}/{name}", content)

    def sizes(self) -> dict[str, int]:
        if not self._system.exists(self._root):
            return {}
        entries = self._system.ls(self._root, detail=True)
        return {entry["name"].rpartition("/")[2]: entry["size"] for entry in entries if entry["type"] == "file"}

    def remove(self, name: str) -> None:
        if self._system.exists(f"{self._root}/{name}"):
            self._system.rm_file(f"{self._root}/{name}")


class FsspecFile:
    def __init__(self, system: Any, path: str) -> None:
        self._system, self._path = system, path
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by commit or discard
        self.write = self._file.write

    def commit(self) -> None:
        self._file.seek(0)
        partial = self._path + TEMPORARY_SUFFIX
        with self._file, self._system.open(partial, "wb") as remote:
            shutil.copyfileobj(self._file, remote, 8 << 20)
        self._system.mv(partial, self._path)

    def discard(self) -> None:
        self._file.close()
