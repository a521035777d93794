"""The bytes of a shard that a request asked for, kept as they came until it is known what is made of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from datapipes.catalog.tar_stream import Bytes, ReadAt, Seekable, Stream


class Stretch(Protocol):
    """Some bytes of a shard that follow each other."""

    def stream(self, position: int) -> Stream:
        """Them as an archive's stream, which is at `position` in their shard."""

    def __bytes__(self) -> bytes: ...


class Pieces:
    """Bytes in pieces, as libcurl hands them on: about 16 KB each.

    To join 4 MiB of them costs 10 us for each 100 KB.

    >>> body = Pieces([b"ab", b"c"])
    >>> len(body), list(body), list(body[1:3])
    (3, [b'ab', b'c'], [b'bc'])
    """

    __slots__ = ("_n_bytes", "_pieces")

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = list(pieces)
        self._n_bytes = sum(map(len, self._pieces))

    def __len__(self) -> int:
        return self._n_bytes

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._pieces)

    def __bytes__(self) -> bytes:
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)

    def __getitem__(self, stretch: slice) -> Pieces:
        return Pieces([bytes(self)[stretch]])

    def stream(self, position: int) -> Stream:
        return Bytes(self._pieces, position)


class OnDisk:
    """Bytes that are read when something is made of them, each sample where it lies.

    To read all of them first would copy each sample twice: 68 us of 110 KB and its label instead of 55.

    Args:
        read_at: of the shard.
        start, end: which bytes of it.
    """

    __slots__ = ("_end", "_read_at", "_start")

    def __init__(self, read_at: ReadAt, start: int, end: int) -> None:
        self._read_at = read_at
        self._start = start
        self._end = end

    def __bytes__(self) -> bytes:
        return Seekable(self._read_at, self._start).take(self._end - self._start)

    def stream(self, position: int) -> Stream:
        return Seekable(self._read_at, position)
