"""A file of the store as a response: whole, in part, or the word that the asker has it already."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from email.utils import formatdate
from functools import lru_cache
from mimetypes import guess_type
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from datapipes.service.digests import as_header
from datapipes.service.ranges import is_unchanged, range_still_holds, requested_range
from datapipes.service.storage import CHUNK_BYTES, Reader, Store, StoredFile, chunks, sha256_of

PIECE_BYTES = 256 << 10  # copied in 30 us, and small enough for the cache: other requests hardly wait


async def send_file(request: Request, store: Store, folder: str, path: str, attachment: str | None = None) -> Response:
    """Answer with the file, its digest and its version; `attachment` is the name to save it under."""
    if store.has_page_cache:
        try:
            return _open_and_answer(request, store, folder, path, attachment, at_once=True)
        except BlockingIOError:
            pass  # not in memory: a thread waits for the disk
    return await asyncio.to_thread(_open_and_answer, request, store, folder, path, attachment, at_once=False)


def _open_and_answer(
    request: Request, store: Store, folder: str, path: str, attachment: str | None, *, at_once: bool
) -> Response:
    """Raises BlockingIOError if `at_once` and the answer has to wait for the disk."""
    reader = store.reader(folder, path)
    try:
        headers = _headers(reader.file, attachment)
        if "want-repr-digest" in request.headers and "repr-digest" not in headers:
            if at_once:
                raise BlockingIOError("the digest has to be computed")
            headers["repr-digest"] = as_header(sha256_of(reader))
        asked = request.headers
        if is_unchanged(asked.get("if-none-match"), reader.file.etag):
            reader.close()
            return Response(status_code=304, headers=headers)
        wanted = asked.get("range") if range_still_holds(asked.get("if-range"), reader.file.etag) else None
        part = requested_range(wanted, reader.file.size)
        start, stop = part or (0, reader.file.size)
        headers["content-length"] = str(stop - start)
        if part:
            headers["content-range"] = f"bytes {start}-{stop - 1}/{reader.file.size}"
        status = 206 if part else 200
        if request.method != "HEAD" and stop - start > CHUNK_BYTES:
            pieces = _pieces(reader, start, stop) if store.has_page_cache else read_ahead(chunks(reader, start, stop))
            return StreamingResponse(pieces, status, headers)
        # Images leave in one piece: what opens the file reads it and closes it.
        body = b"" if request.method == "HEAD" else _read(reader, start, stop - start, at_once)
        reader.close()
        return Response(body, status, headers)
    except BaseException:
        reader.close()
        raise


def _read(reader: Reader, start: int, length: int, at_once: bool) -> bytes | memoryview:
    body = reader.read_cached(start, length) if at_once else reader.read(start, length)
    if len(body) != length:
        raise OSError(f"{reader.file.path}: ends {length - len(body)} bytes early")
    return body


async def _pieces(reader: Reader, start: int, stop: int) -> AsyncIterator[bytes | memoryview]:
    """As `chunks`: at once what is in memory, through a thread what waits for a disk."""
    try:
        while start < stop:
            length = min(PIECE_BYTES, stop - start)
            try:
                piece = _read(reader, start, length, at_once=True)
            except BlockingIOError:
                piece = await asyncio.to_thread(_read, reader, start, length, at_once=False)
            start += length
            yield piece
    finally:
        reader.close()


async def read_ahead(source: Iterator[bytes]) -> AsyncIterator[bytes]:
    """The chunks of a blocking iterator, the next one read in a thread while the last one is sent."""
    reading = asyncio.ensure_future(asyncio.to_thread(next, source, None))
    try:
        while (chunk := await reading) is not None:
            reading = asyncio.ensure_future(asyncio.to_thread(next, source, None))
            yield chunk
    finally:
        await asyncio.wait([reading])
        source.close()  # type: ignore[attr-defined]


def content_disposition(filename: str) -> str:
    """
    >>> content_disposition("my_file.csv"), content_disposition("größe.csv")
    ('attachment; filename="my_file.csv"', "attachment; filename*=UTF-8''gr%C3%B6%C3%9Fe.csv")
    """
    if filename.isascii() and '"' not in filename:
        return f'attachment; filename="{filename}"'
    return f"attachment; filename*=UTF-8''{quote(filename, safe='')}"


def _headers(file: StoredFile, attachment: str | None) -> dict[str, str]:
    headers = {
        "content-type": _content_type(os.path.splitext(file.path)[1]),
        "etag": file.etag,
        "last-modified": _http_date(int(file.modified)),
        "accept-ranges": "bytes",
    }
    if attachment:
        headers["content-disposition"] = content_disposition(attachment)
        headers["content-type"] = "application/octet-stream"
    if file.sha256:
        headers["repr-digest"] = as_header(file.sha256)
    return headers


@lru_cache(1000)
def _content_type(suffix: str) -> str:
    """Pictures as what they are, all else as bytes, so that no uploaded page runs in the service's name."""
    kind = guess_type(f"_{suffix}")[0] or ""
    is_picture = kind.startswith("image/") and kind != "image/svg+xml"
    return kind if is_picture else "application/octet-stream"


@lru_cache(1000)
def _http_date(seconds: int) -> str:
    return formatdate(seconds, usegmt=True)
