"""One member of a tar archive as bytes: headers, content and padding, the same for the same input."""

from __future__ import annotations

import tarfile
from functools import lru_cache

from datapipes.catalog.tar_format import BLOCK

_MODE_TO_GROUP = b"0000444\0" + b"0000000\0" + b"0000000\0"
_TIME = b"00000000000\0"
_TAIL = (b"0" + bytes(100) + b"ustar\x0000").ljust(BLOCK - 156, b"\0")
# The checksum's own field counts as eight spaces.
_FIXED_SUM = sum(_MODE_TO_GROUP) + sum(_TIME) + sum(_TAIL) + 8 * ord(" ")
_LARGEST_OCTAL = 8**11 - 1


def member_headers(name: str, size: int) -> bytes:
    """The header blocks of a regular file: ustar where the name is short and plain, pax where it is not.

    >>> len(member_headers("cat/1.jpg", 5)), len(member_headers("cat/" + 300 * "x" + ".jpg", 5))
    (512, 1536)
    """
    if len(name) <= 100 and size <= _LARGEST_OCTAL and name.isascii():
        start = name.encode().ljust(100, b"\0") + _MODE_TO_GROUP + b"%011o\0" % size
        total = _FIXED_SUM + sum(start) - sum(_MODE_TO_GROUP)
        return start + _TIME + b"%06o\0 " % total + _TAIL
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o444
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


@lru_cache(maxsize=BLOCK)
def padding(size: int) -> bytes:
    """The zeros that fill a content's last block."""
    return bytes(-size % BLOCK)
