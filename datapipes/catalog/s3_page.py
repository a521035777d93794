"""One page of ListObjectsV2: its query and its answer."""

from __future__ import annotations

import html
import re
from typing import NamedTuple
from urllib.parse import quote, unquote_plus

# Expressions take 0.2 ms for a page of 1,000 keys where ElementTree takes 3.4 ms. They are safe here because
# a literal "<" cannot stand in XML text, and because the number of entries found is checked.
_KEY = re.compile(rb"<Key>([^<]*)</Key>")
_FOLDER = re.compile(rb"<CommonPrefixes>\s*<Prefix>([^<]*)</Prefix>")
_TOKEN = re.compile(rb"<NextContinuationToken>([^<]*)</NextContinuationToken>")


class Page(NamedTuple):
    """What a listing request answered, in the server's order."""

    keys: list[str]
    folders: list[str]
    """With a delimiter: what the keys below it begin with, each ending in "/"."""
    next_token: str | None


def page_query(prefix: str, *, after: str = "", token: str = "", by_folder: bool = False) -> str:
    """The query of one request, parameters in the order that signatures want.

    >>> page_query("a b/", by_folder=True)
    'delimiter=%2F&encoding-type=url&list-type=2&prefix=a%20b%2F'
    """
    parameters = {
        "continuation-token": token,
        "delimiter": "/" if by_folder else "",
        "encoding-type": "url",
        "list-type": "2",
        "prefix": prefix,
        "start-after": "" if token else after,
    }
    return "&".join(
        f"{name}={quote(value, safe='-_.~', errors='surrogateescape')}" for name, value in parameters.items() if value
    )


def parse_page(body: bytes) -> Page:
    """Read the answer. Folder markers, which are keys that end in "/", are left out.

    Raises:
        ValueError: this is no whole answer to ListObjectsV2.
    """
    keys, folders = _KEY.findall(body), _FOLDER.findall(body)
    # A body that ends where the connection does may have lost its tail, and with it keys.
    if not body.rstrip().endswith(b"</ListBucketResult>"):
        raise ValueError(f"not a whole ListBucketResult: {body[:100]!r} ... {body[100:][-100:]!r}")
    if len(keys) != body.count(b"<Contents>") or len(folders) != body.count(b"<CommonPrefixes>"):
        raise ValueError(f"some entries of this page have no readable name: {body[:200]!r}")
    token = _TOKEN.search(body) if b"<IsTruncated>true</" in body else None
    if token is None and b"<IsTruncated>true</" in body:
        raise ValueError("the page is truncated, but names no NextContinuationToken")
    encoded = b"<EncodingType>url</" in body
    return Page(
        [key for key in _texts(keys, encoded) if not key.endswith("/")],
        _texts(folders, encoded),
        html.unescape(token[1].decode()) if token else None,
    )


def _texts(raw: list[bytes], url_encoded: bool) -> list[str]:
    # Decoded all at once, as one text: per key it would cost five times as much.
    if not raw:
        return []
    text = b"\0".join(raw).decode("utf-8", "surrogateescape")
    if "&" in text:
        text = html.unescape(text)
    if url_encoded:
        text = unquote_plus(text, errors="surrogateescape")
    return text.split("\0")
