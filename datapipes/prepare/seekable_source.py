"""An archive that can be read at any place: the file itself, or a copy of what comes as a stream."""

from __future__ import annotations

import io
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from datapipes.load.decompress import decompressed

STANDARD_INPUT = "-"
_PIECE_BYTES = 1 << 20
_SUFFIXES = {b"\x1f\x8b": ".gz", b"\x28\xb5": ".zst"}


@contextmanager
def seekable_source(source: str, *, in_memory: bool = False) -> Iterator[str]:
    """A path or `-` in; a path out that can be read at any place, by any process of this machine.

    A compressed archive, a pipe and standard input are copied first, to a temporary file without a name, which is
    gone with this process however that ends. The environment's TMPDIR says on which disk.

    >>> import gzip, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "images.tar.gz")
    >>> _ = path.write_bytes(gzip.compress(b"archive"))
    >>> with seekable_source(str(path)) as plain:
    ...     pathlib.Path(plain).read_bytes()
    b'archive'

    Args:
        source: a folder, an archive, or `-` for standard input.
        in_memory: copy to memory and not to disk. Costs as much of it as the archive unpacked.

    Raises:
        FileNotFoundError: there is no such file.
        TarDamage: the compressed stream is cut or damaged.
    """
    if os.path.isdir(source):
        yield source
    elif source == STANDARD_INPUT:
        with _copy_of(sys.stdin.buffer, "standard input", in_memory) as path:
            yield path
    else:
        with open(source, "rb") as file:
            if os.path.isfile(source) and not _suffix_of(file):
                yield source
            else:
                with _copy_of(file, source, in_memory) as path:
                    yield path


@contextmanager
def _copy_of(stream: BinaryIO, name: str, in_memory: bool) -> Iterator[str]:
    suffix = _suffix_of(stream)
    pieces: Iterator[bytes] = iter(lambda: stream.read(_PIECE_BYTES), b"")
    if suffix:
        pieces = decompressed(pieces, name if name.endswith(suffix) else name + suffix)
    with _nameless_file(in_memory) as copy:
        for piece in pieces:
            copy.write(piece)
        copy.flush()
        yield f"/proc/{os.getpid()}/fd/{copy.fileno()}"


def _suffix_of(stream: BinaryIO) -> str:
    """How the stream is compressed, by its first bytes: names may lie, and a pipe has none."""
    assert isinstance(stream, io.BufferedReader)
    return _SUFFIXES.get(stream.peek(2)[:2], "")


def _nameless_file(in_memory: bool) -> BinaryIO:
    if in_memory:
        return open(os.memfd_create("imagenet"), "wb")
    return tempfile.TemporaryFile()
