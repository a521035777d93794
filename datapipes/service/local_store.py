"""Data sets as plain folders under one root: they can be mounted, and a folder put there is a data set.

Every path is opened part by part from the root's descriptor and no link is followed, so nothing outside the
root can be reached, whatever is renamed meanwhile. A file is written beside the data sets, under STAGING, and
renamed into its place: a kill at any point leaves the old file or the new one. Its SHA-256 travels with it in
an extended attribute, together with the time and size it belongs to, so that an edit by hand is noticed.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from datapipes.service.names import is_dataset_name
from datapipes.service.storage import STAGING, StoredFile

ABANDONED_S = 7 * 24 * 3600
"""An upload in parts that has not grown for a week is removed when the service starts."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DIGEST = "user.datapipes.sha256"
_NO_ATTRIBUTES = (errno.ENODATA, errno.ENOTSUP, errno.EPERM, errno.ENOSPC)


class LocalStore:
    has_page_cache = hasattr(os, "RWF_NOWAIT")

    def __init__(self, root: str) -> None:
        self.root = Path(root).absolute()
        (self.root / STAGING).mkdir(parents=True, exist_ok=True)
        self._root = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._staging = os.open(STAGING, _FOLDER, dir_fd=self._root)
        self._remove_left_behind()

    def datasets(self) -> list[str]:
        with os.scandir(self._root) as entries:
            return sorted(e.name for e in entries if e.is_dir(follow_symlinks=False) and is_dataset_name(e.name))

    def create(self, folder: str) -> None:
        with _named(folder):
            os.mkdir(folder, dir_fd=self._root)

    def has(self, folder: str) -> bool:
        try:
            return stat.S_ISDIR(os.stat(folder, dir_fd=self._root, follow_symlinks=False).st_mode)
        except FileNotFoundError:
            return False

    def remove(self, folder: str) -> None:
        if not self.has(folder):
            raise FileNotFoundError(errno.ENOENT, "no such data set", folder)
        aside = f"removed-{secrets.token_hex(8)}"
        with _named(folder):
            os.rename(folder, aside, src_dir_fd=self._root, dst_dir_fd=self._staging)
        self.discard_staged(aside)

    def walk(self, folder: str, after: str = "", under: str = "") -> Iterator[StoredFile]:
        with _named(f"{folder}/{under}".rstrip("/")), self._folder(folder, under) as descriptor:
            yield from _walk(descriptor, f"{under}/" if under else "", after.split("/") if after else [])

    def reader(self, folder: str, path: str) -> LocalReader:
        parent, name = os.path.split(path)
        with _named(f"{folder}/{path}"), self._folder(folder, parent) as descriptor:
            opened = os.open(name, _READ, dir_fd=descriptor)
        status = os.fstat(opened)
        if not stat.S_ISREG(status.st_mode):
            os.close(opened)
            raise FileNotFoundError(errno.ENOENT, "not a file", f"{folder}/{path}")
        # A file object closes itself where nobody else does: a client may leave before its answer begins.
        return LocalReader(FileIO(opened), _described(path, status, _kept_digest(opened, status)))

    def writer(self, folder: str, path: str) -> LocalWriter:
        if folder != STAGING and not self.has(folder):
            raise FileNotFoundError(errno.ENOENT, "no such data set", folder)
        return LocalWriter(self, folder, path)

    def move(self, path: str, folder: str, new_path: str) -> None:
        parent, name = os.path.split(path)
        with self._folder(STAGING, parent) as source:
            self.put_in_place(source, name, folder, new_path)

    def put_in_place(self, source: int, name: str, folder: str, path: str) -> None:
        """Rename a staged file to its place. A parent that a delete prunes meanwhile is made again."""
        parent, new_name = os.path.split(path)
        with _named(f"{folder}/{path}"):
            for attempt in range(5):
                try:
                    with self._folder(folder, parent, make=True) as target:
                        os.replace(name, new_name, src_dir_fd=source, dst_dir_fd=target)
                    return
                except FileNotFoundError:
                    if attempt == 4 or not self.has(folder):
                        raise

    def delete(self, folder: str, path: str) -> None:
        parts = path.split("/")
        with _named(f"{folder}/{path}"):
            with self._folder(folder, "/".join(parts[:-1])) as descriptor:
                os.unlink(parts[-1], dir_fd=descriptor)
            for depth in range(len(parts) - 1, 0, -1):
                try:
                    with self._folder(folder, "/".join(parts[: depth - 1])) as descriptor:
                        os.rmdir(parts[depth - 1], dir_fd=descriptor)
                except OSError:
                    return

    def discard_staged(self, prefix: str) -> None:
        shutil.rmtree(self.root / STAGING / prefix, ignore_errors=True)

    def free_bytes(self) -> int | None:
        space = os.fstatvfs(self._root)
        return space.f_bavail * space.f_frsize

    def new_staged_file(self) -> tuple[int, str]:
        """An empty file under STAGING, locked while it is open, so that a restart knows what is dead."""
        while True:
            name = f"incoming-{secrets.token_hex(8)}"
            descriptor = os.open(name, _CREATE, 0o644, dir_fd=self._staging)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:
                return descriptor, name
            os.close(descriptor)  # a process that started just then took it for a dead one's

    @property
    def staging(self) -> int:
        return self._staging

    @contextmanager
    def _folder(self, folder: str, path: str, make: bool = False) -> Iterator[int]:
        descriptor = os.open(folder, _FOLDER, dir_fd=self._root)
        try:
            for part in path.split("/") if path else ():
                if make:
                    try:
                        os.mkdir(part, dir_fd=descriptor)
                    except FileExistsError:
                        pass
                inner = os.open(part, _FOLDER, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = inner
            yield descriptor
        finally:
            os.close(descriptor)

    def _remove_left_behind(self) -> None:
        for entry in os.scandir(self._staging):
            if entry.is_dir(follow_symlinks=False):
                abandoned = time.time() - entry.stat(follow_symlinks=False).st_mtime > ABANDONED_S
                if abandoned or entry.name.startswith("removed-"):
                    self.discard_staged(entry.name)
            elif entry.name.startswith("incoming-"):
                descriptor = os.open(entry.name, os.O_RDWR | os.O_CLOEXEC, dir_fd=self._staging)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(entry.name, dir_fd=self._staging)
                except BlockingIOError:
                    pass  # another process of the service is writing it
                finally:
                    os.close(descriptor)


class LocalReader:
    def __init__(self, content: FileIO, file: StoredFile) -> None:
        self._content = content
        self.file = file

    def read(self, start: int, length: int) -> bytes:
        return os.pread(self._content.fileno(), length, start)

    def read_cached(self, start: int, length: int) -> memoryview:
        content = bytearray(length)
        try:
            got = os.preadv(self._content.fileno(), [content], start, os.RWF_NOWAIT)
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:  # a network file system, say
                LocalStore.has_page_cache = False
                raise BlockingIOError(errno.EAGAIN, "cannot tell what is cached") from None
            raise
        if got != length:
            raise BlockingIOError(errno.EAGAIN, "not all of it is cached")
        return memoryview(content)

    def close(self) -> None:
        self._content.close()


class LocalWriter:
    def __init__(self, store: LocalStore, folder: str, path: str) -> None:
        self._store, self._folder, self._path = store, folder, path
        self._digest = hashlib.sha256()
        self._descriptor, self._name = store.new_staged_file()

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def write(self, chunk: bytes) -> None:
        self._digest.update(chunk)
        rest = memoryview(chunk)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]

    def commit(self) -> StoredFile:
        try:
            status = os.fstat(self._descriptor)
            _keep_digest(self._descriptor, status, self.sha256)
            self._store.put_in_place(self._store.staging, self._name, self._folder, self._path)
        except BaseException:
            self.discard()
            raise
        os.close(self._descriptor)
        return _described(self._path, status, self.sha256)

    def discard(self) -> None:
        try:
            os.unlink(self._name, dir_fd=self._store.staging)
        finally:
            os.close(self._descriptor)


def _walk(descriptor: int, prefix: str, after: list[str]) -> Iterator[StoredFile]:
    with os.scandir(descriptor) as scanned:
        entries = sorted(scanned, key=lambda entry: entry.name)
    for entry in entries:
        if after and entry.name < after[0]:
            continue
        rest = after[1:] if after and entry.name == after[0] else []
        if entry.is_dir(follow_symlinks=False):
            try:
                inner = os.open(entry.name, _FOLDER, dir_fd=descriptor)
            except OSError:
                continue  # removed since it was listed
            try:
                yield from _walk(inner, f"{prefix}{entry.name}/", rest)
            finally:
                os.close(inner)
        elif entry.is_file(follow_symlinks=False) and not (after and entry.name == after[0]):
            try:
                status = os.stat(entry.name, dir_fd=descriptor, follow_symlinks=False)
            except FileNotFoundError:
                continue
            # The only way to an attribute of a file that is not open, relative to a descriptor.
            at_hand = f"/proc/self/fd/{descriptor}/{entry.name}"
            yield _described(prefix + entry.name, status, _kept_digest(at_hand, status))


def _described(path: str, status: os.stat_result, sha256: str | None) -> StoredFile:
    # The inode tells apart two versions of one size that were written within a tick of the clock.
    etag = f'"{status.st_mtime_ns:x}-{status.st_size:x}-{status.st_ino:x}"'
    return StoredFile(path, status.st_size, status.st_mtime_ns / 1e9, etag, sha256)


def _keep_digest(descriptor: int, status: os.stat_result, sha256: str) -> None:
    if hasattr(os, "setxattr"):
        try:
            os.setxattr(descriptor, _DIGEST, f"{sha256} {status.st_mtime_ns} {status.st_size}".encode())
        except OSError as error:
            if error.errno not in _NO_ATTRIBUTES:
                raise


def _kept_digest(file: int | str, status: os.stat_result) -> str | None:
    if not hasattr(os, "getxattr"):
        return None
    try:
        kept = (
            os.getxattr(file, _DIGEST) if isinstance(file, int) else os.getxattr(file, _DIGEST, follow_symlinks=False)
        )
        sha256, modified_ns, size = kept.decode().split()
    except (OSError, ValueError):
        return None
    return sha256 if (int(modified_ns), int(size)) == (status.st_mtime_ns, status.st_size) else None


@contextmanager
def _named(path: str) -> Iterator[None]:
    """Errors speak of the path that was asked for, not of the part that the system call had."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = path, None
        raise
