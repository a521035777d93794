"""A file of the store as a response: whole, in part, or the word that the asker has it already."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from email.utils import formatdate
from mimetypes import guess_type
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from datapipes.service.digests import as_header
from datapipes.service.ranges import is_unchanged, range_still_holds, requested_range
from datapipes.service.storage import CHUNK_BYTES, Reader, Store, StoredFile, chunks, sha256_of


async def send_file(request: Request, store: Store, folder: str, path: str, attachment: str | None = None) -> Response:
    """Answer with the file, its digest and its version; `attachment` is the name to save it under."""
    return await asyncio.to_thread(_open_and_answer, request, store, folder, path, attachment)


def _open_and_answer(request: Request, store: Store, folder: str, path: str, attachment: str | None) -> Response:
    reader = store.reader(folder, path)
    try:
        headers = _headers(reader.file, attachment)
        if "want-repr-digest" in request.headers and "repr-digest" not in headers:
            headers["repr-digest"] = as_header(sha256_of(reader))
        asked = request.headers
        if is_unchanged(asked.get("if-none-match"), reader.file.etag):
            reader.close()
            return Response(status_code=304, headers=headers)
        wanted = asked.get("range") if range_still_holds(asked.get("if-range"), reader.file.etag) else None
        part = requested_range(wanted, reader.file.size)
        start, stop = part or (0, reader.file.size)
        if part:
            headers["content-range"] = f"bytes {start}-{stop - 1}/{reader.file.size}"
        return _body(request, reader, start, stop, 206 if part else 200, headers)
    except BaseException:
        reader.close()
        raise


def _body(request: Request, reader: Reader, start: int, stop: int, status: int, headers: dict[str, str]) -> Response:
    headers["content-length"] = str(stop - start)
    if request.method == "HEAD":
        reader.close()
        return Response(status_code=status, headers=headers)
    if stop - start <= CHUNK_BYTES:
        # One turn of a thread opens, reads and closes: images leave in one piece.
        return Response(b"".join(chunks(reader, start, stop)), status, headers)
    return StreamingResponse(read_ahead(chunks(reader, start, stop)), status, headers)


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
        "content-type": _content_type(file.path),
        "etag": file.etag,
        "last-modified": formatdate(file.modified, usegmt=True),
        "accept-ranges": "bytes",
    }
    if attachment:
        headers["content-disposition"] = content_disposition(attachment)
        headers["content-type"] = "application/octet-stream"
    if file.sha256:
        headers["repr-digest"] = as_header(file.sha256)
    return headers


def _content_type(path: str) -> str:
    """Pictures as what they are, all else as bytes, so that no uploaded page runs in the service's name."""
    kind = guess_type(path)[0] or ""
    is_picture = kind.startswith("image/") and kind != "image/svg+xml"
    return kind if is_picture else "application/octet-stream"
