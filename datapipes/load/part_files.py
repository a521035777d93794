"""Parts of shards as files of a folder that the processes of a node share."""

from __future__ import annotations

import fcntl
import os
import struct
import tempfile
from pathlib import Path

import numpy as np
import xxhash

_BLOCK_BYTES = 64 << 10
"""A checksum for each, so that reading one sample of a part verifies that stretch alone."""
_FOOTER = struct.Struct("<8sQ")
_MAGIC = b"rdpart02"
_ROOM_AFTER_EVICTION = 0.9
_LOOK_EVERY = 0.02


class PartFiles:
    """Reads, writes and evicts parts. A part is there whole, with its checksums, or not at all.

    The folder holds at most `max_bytes` and what is written between two looks at it: 2 % a process.
    """

    def __init__(self, folder: str, max_bytes: int) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._max_bytes = max_bytes
        self._unseen_bytes = max_bytes
        # The kernel lets go of a dead process's locks, so that nobody waits for a fetch that was killed.
        self._locks = os.open(self._folder / "locks", os.O_RDWR | os.O_CREAT, 0o666)

    def close(self) -> None:
        os.close(self._locks)

    def path_of(self, name: str) -> Path:
        digest = xxhash.xxh3_128_hexdigest(name.encode("utf-8", "surrogateescape"))
        return self._folder / digest[:2] / digest

    def has(self, name: str) -> bool:
        return self.path_of(name).exists()

    def open(self, name: str, n_bytes: int) -> OpenPart | None:
        """A part of so many bytes, for a caller who has checksums of what is in it.

        None where it is not there, or is of another length and therefore removed.
        """
        path = self.path_of(name)
        try:
            file = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        if os.fstat(file).st_size != _file_bytes(n_bytes):
            os.close(file)
            path.unlink(missing_ok=True)
            return None
        os.utime(file)  # what was used last is evicted last
        return OpenPart(file, n_bytes)

    def read(self, name: str, start: int, end: int) -> bytes | None:
        """Bytes `start` to `end` of a part; None where it is not there, or is damaged and therefore removed."""
        path = self.path_of(name)
        try:
            file = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            content = _verified(file, start, end)
            os.utime(file)
        finally:
            os.close(file)
        if content is None:
            path.unlink(missing_ok=True)
        return content

    def write(self, name: str, content: bytes) -> None:
        """Let a part appear, and make room for it.

        Raises:
            OSError: there is no room on the disk.
        """
        path = self.path_of(name)
        path.parent.mkdir(exist_ok=True)
        self._unseen_bytes += len(content)
        if self._unseen_bytes > _LOOK_EVERY * self._max_bytes:
            self._evict(len(content))
        handle, temporary = tempfile.mkstemp(dir=self._folder, prefix="part-")
        try:
            with open(handle, "wb", buffering=0) as file:
                os.writev(file.fileno(), [content, _checksums(content), _FOOTER.pack(_MAGIC, len(content))])
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise

    def _evict(self, coming: int) -> None:
        found = []
        for folder, _, names in os.walk(self._folder):
            for name in names:
                path = os.path.join(folder, name)
                try:
                    status = os.stat(path)
                except FileNotFoundError:
                    continue
                found.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in found) + coming
        self._unseen_bytes = 0
        if total <= self._max_bytes:
            return
        for _, size, path in sorted(found):
            if total <= _ROOM_AFTER_EVICTION * self._max_bytes:
                return
            if not path.endswith("locks"):
                Path(path).unlink(missing_ok=True)
                total -= size

    def claim(self, name: str) -> bool:
        """Take it upon this process to fetch a part; False where another process of this node is at it."""
        try:
            fcntl.lockf(self._locks, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, self._place_of(name))
        except OSError:
            return False
        return True

    def release(self, name: str) -> None:
        fcntl.lockf(self._locks, fcntl.LOCK_UN, 1, self._place_of(name))

    def _place_of(self, name: str) -> int:
        return xxhash.xxh3_64_intdigest(name.encode("utf-8", "surrogateescape")) >> 2


class OpenPart:
    """The bytes of a part's file; sliced, they are read, and not verified."""

    def __init__(self, file: int, n_bytes: int) -> None:
        self._file = file
        self._n_bytes = n_bytes

    def __getitem__(self, stretch: slice) -> bytes:
        return os.pread(self._file, max(0, min(stretch.stop, self._n_bytes) - stretch.start), stretch.start)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        os.close(self._file)


def _file_bytes(n_bytes: int) -> int:
    """How long a part's file is, with its checksums."""
    return n_bytes + 8 * -(-n_bytes // _BLOCK_BYTES) + _FOOTER.size


def _verified(file: int, start: int, end: int) -> bytes | None:
    size = os.fstat(file).st_size
    footer = os.pread(file, _FOOTER.size, max(0, size - _FOOTER.size))
    if len(footer) < _FOOTER.size or not footer.startswith(_MAGIC):
        return None
    nbytes = _FOOTER.unpack(footer)[1]
    if size != _file_bytes(nbytes) or end > nbytes:
        return None
    first, last = start // _BLOCK_BYTES, -(-end // _BLOCK_BYTES)
    base = first * _BLOCK_BYTES
    stretch = os.pread(file, min(last * _BLOCK_BYTES, nbytes) - base, base)
    if _checksums(stretch) != os.pread(file, 8 * (last - first), nbytes + 8 * first):
        return None
    return stretch if len(stretch) == end - start else stretch[start - base : end - base]


def _checksums(content: bytes) -> bytes:
    """Of each block, one after another."""
    view = memoryview(content)
    starts = range(0, len(content), _BLOCK_BYTES)
    return np.array([xxhash.xxh3_64_intdigest(view[at : at + _BLOCK_BYTES]) for at in starts], "<u8").tobytes()
