"""A folder that comes as one archive, unpacked without trust in it.

Only plain files and folders are taken. Links, devices, sparse files, paths that leave the data set, and
archives that grow beyond measure refuse the whole archive; nothing of it is stored then.
"""

from __future__ import annotations

import io
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import zstandard

from datapipes.service.names import check_path
from datapipes.service.problems import Problem
from datapipes.service.storage import CHUNK_BYTES

SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.zst", ".zip")
MAX_GROWTH = 100  # text packs to a tenth, a file of zeros to a thousandth
FREE_GROWTH_BYTES = 16 << 20
MAX_HEADER_BYTES = 1 << 20  # tarfile holds a pax header in memory, whatever size it claims
_DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zstandard.ZstdError,
    zlib.error,
    EOFError,
    NotImplementedError,  # a compression that zipfile does not know
    RuntimeError,  # an encrypted zip
    UnicodeError,
)


def is_archive(filename: str) -> bool:
    return filename.lower().endswith(SUFFIXES)


def members(stream: IO[bytes], filename: str) -> Iterator[tuple[str, Iterator[bytes]]]:
    """(path, chunks) of every file in a seekable archive; read the chunks before asking for the next.

    Raises:
        Problem: where the archive is damaged, unsafe or not an archive.
    """
    lower = filename.lower()
    if not is_archive(lower):
        raise _refused(f"{filename!r} is no archive that is known here", f"send one of {', '.join(SUFFIXES)}")
    allowed = FREE_GROWTH_BYTES + MAX_GROWTH * stream.seek(0, io.SEEK_END)
    stream.seek(0)

    def bounded(chunks: Iterator[bytes]) -> Iterator[bytes]:
        nonlocal allowed
        with _damage_told(filename):
            for chunk in chunks:
                allowed -= len(chunk)
                if allowed < 0:
                    raise _refused(
                        f"{filename!r} unpacks to more than {MAX_GROWTH} times its size",
                        "send the files one by one if that is right",
                    )
                yield chunk

    with _damage_told(filename):
        for path, chunks in _zip_members(stream) if lower.endswith(".zip") else _tar_members(stream, lower):
            yield check_path(path), bounded(chunks)


@contextmanager
def _damage_told(filename: str) -> Iterator[None]:
    try:
        yield
    except _DAMAGE as error:
        raise _refused(f"{filename!r} cannot be unpacked: {error}", "pack it again, without encryption") from None


def _tar_members(stream: IO[bytes], filename: str) -> Iterator[tuple[str, Iterator[bytes]]]:
    mode = "r|"
    if filename.endswith(".zst"):
        stream = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(stream, read_across_frames=True)
    elif filename.endswith("gz"):
        mode = "r|gz"
    with tarfile.open(fileobj=stream, mode=mode, tarinfo=_BoundedHeader, bufsize=CHUNK_BYTES) as archive:  # type: ignore[call-overload]
        for member in archive:
            archive.members = []  # or it keeps every header: 1.28 million of them are 2 GB
            path = member.name.removeprefix("./")
            if member.isdir():
                continue
            if not member.isreg() or member.issparse():
                raise _refused(f"{path!r} is not a plain file but a {_kind(member)}", "pack the files themselves")
            yield path, _read(archive.extractfile(member))


def _zip_members(stream: IO[bytes]) -> Iterator[tuple[str, Iterator[bytes]]]:
    with zipfile.ZipFile(stream) as archive:
        for member in archive.infolist():
            mode = member.external_attr >> 16
            if member.is_dir():
                continue
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
                raise _refused(f"{member.filename!r} is not a plain file", "pack the files themselves")
            with archive.open(member) as content:
                yield member.filename, _read(content)


def _read(content: IO[bytes] | None) -> Iterator[bytes]:
    while content and (chunk := content.read(CHUNK_BYTES)):
        yield chunk


class _BoundedHeader(tarfile.TarInfo):
    def _proc_member(self, archive: tarfile.TarFile) -> Any:
        long_header = self.type in (
            tarfile.XHDTYPE,
            tarfile.XGLTYPE,
            tarfile.SOLARIS_XHDTYPE,
            tarfile.GNUTYPE_LONGNAME,
            tarfile.GNUTYPE_LONGLINK,
        )
        if self.size < 0 or (long_header and self.size > MAX_HEADER_BYTES):
            raise tarfile.ReadError(f"a header of {self.size} bytes")
        return super()._proc_member(archive)  # type: ignore[misc]


def _kind(member: tarfile.TarInfo) -> str:
    return "link" if member.issym() or member.islnk() else "sparse file" if member.issparse() else "device"


def _refused(what: str, do: str) -> Problem:
    return Problem(400, what, do)
