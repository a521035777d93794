"""Which bytes of a file a request asks for, and whether it needs them at all (RFC 9110). Pure functions."""

from __future__ import annotations

import re

from datapipes.service.problems import Problem

_range = re.compile(r"bytes\s*=\s*(\d{0,18})\s*-\s*(\d{0,18})", re.IGNORECASE | re.ASCII)


def requested_range(value: str | None, size: int) -> tuple[int, int] | None:
    """First and past-the-last byte, or None for the whole file.

    What is not one well-formed byte range is ignored, as the standard has it; several ranges get the whole
    file.

    >>> requested_range("bytes=0-99", 1000), requested_range("bytes=-100", 1000), requested_range(None, 1000)
    ((0, 100), (900, 1000), None)
    """
    if value is None:
        return None
    found = _range.fullmatch(value.strip())
    if found is None or not (found[1] or found[2]):
        return None
    if found[1]:
        start = int(found[1])
        stop = min(int(found[2]) + 1, size) if found[2] else size
        if found[2] and int(found[2]) < start:
            return None
    else:
        start, stop = max(size - int(found[2]), 0), size
    if start >= size or stop <= start:
        raise Problem(
            416,
            f"the range {value[:100]!r} lies outside the file's {size} bytes",
            "ask for bytes within it, or leave Range out",
            {"Content-Range": f"bytes */{size}"},
        )
    return start, stop


def is_unchanged(if_none_match: str | None, etag: str) -> bool:
    """Whether the asker already has this version.

    >>> is_unchanged('"a", W/"b"', '"b"'), is_unchanged("*", '"b"'), is_unchanged('"a"', '"b"')
    (True, True, False)
    """
    if if_none_match is None:
        return False
    wanted = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return "*" in wanted or etag in wanted


def range_still_holds(if_range: str | None, etag: str) -> bool:
    """Whether to answer with a part: only of the very version that the asker holds the rest of."""
    return if_range is None or if_range.strip() == etag
