"""A file's SHA-256 on the wire, as RFC 9530 writes it: `Repr-Digest: sha-256=:BASE64:`."""

from __future__ import annotations

import base64
import binascii
import re

from starlette.datastructures import Headers

from datapipes.service.problems import Problem

_sha256 = re.compile(r"(?:^|,)\s*sha-256\s*=\s*:([A-Za-z0-9+/=]*):")


def as_header(sha256: str) -> str:
    """
    >>> as_header("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
    'sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:'
    """
    return f"sha-256=:{base64.b64encode(bytes.fromhex(sha256)).decode()}:"


def from_header(value: str) -> str | None:
    """The SHA-256 in hex, or None where the field holds only other algorithms, which RFC 9530 says to ignore.

    >>> from_header("sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:")[:8]
    'e3b0c442'
    """
    found = _sha256.search(value)
    if found is None:
        return None
    try:
        digest = base64.b64decode(found[1], validate=True)
    except binascii.Error:
        digest = b""
    if len(digest) != 32:
        raise Problem(400, f"{value[:100]!r} is no SHA-256 digest", "send Repr-Digest: sha-256=:BASE64 OF 32 BYTES:")
    return digest.hex()


def sent_with(headers: Headers) -> str | None:
    """The digest that the sender gave for its body; the two fields mean the same where nothing is encoded."""
    for name in ("repr-digest", "content-digest"):
        if name in headers and (sha256 := from_header(headers[name])):
            return sha256
    return None
