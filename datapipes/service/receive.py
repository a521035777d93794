"""A request's body into the store: checked first, hashed and written in a thread while more arrives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.requests import Request

from datapipes.service.digests import sent_with
from datapipes.service.problems import Problem
from datapipes.service.storage import CHUNK_BYTES, Store, StoredFile, Writer

SPARE_BYTES = 64 << 20
"""Left free on the store's disk, so that a full store can still log, rename and delete."""


async def receive_file(request: Request, store: Store, folder: str, path: str, max_bytes: int | None) -> StoredFile:
    """Store the body as `folder`/`path`, whole or not at all."""
    check_size(content_length(request), store, max_bytes)
    expected = sent_with(request.headers)
    writer = await asyncio.to_thread(store.writer, folder, path)
    try:
        size = 0
        writing: asyncio.Future[None] | None = None
        async for chunk in gathered(request):
            size += len(chunk)
            if max_bytes is not None and size > max_bytes:
                raise _too_large(size, max_bytes)
            if writing:
                await writing
            writing = asyncio.ensure_future(asyncio.to_thread(writer.write, chunk))
        if writing:
            await writing
        check_digest(expected, writer)
    except BaseException:
        if writing:
            await asyncio.wait([writing])
        await asyncio.to_thread(writer.discard)
        raise
    return await asyncio.to_thread(writer.commit)


async def gathered(request: Request) -> AsyncIterator[bytes]:
    """The body in chunks of a megabyte or so: a thread's turn costs 50 us, as much as hashing 64 KB."""
    waiting: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        waiting.append(chunk)
        size += len(chunk)
        if size >= CHUNK_BYTES:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)


def content_length(request: Request) -> int | None:
    value = request.headers.get("content-length")
    return int(value) if value and value.isdecimal() else None


def check_size(size: int | None, store: Store, max_bytes: int | None) -> None:
    """Refuse what cannot fit before its first byte is sent."""
    if size is None:
        return
    if max_bytes is not None and size > max_bytes:
        raise _too_large(size, max_bytes)
    free = store.free_bytes()
    if free is not None and size > free - SPARE_BYTES:
        raise Problem(
            507,
            f"the store has {max(free - SPARE_BYTES, 0)} bytes left and the upload has {size}",
            "delete data sets that are no longer needed, then try again",
        )


def check_digest(expected: str | None, writer: Writer) -> None:
    if expected is not None and expected != writer.sha256:
        raise Problem(
            400,
            f"the body has SHA-256 {writer.sha256}, its header says {expected}: it was damaged on the way",
            "send it again; nothing was stored",
        )


def _too_large(size: int, max_bytes: int) -> Problem:
    return Problem(
        413,
        f"{size} bytes are more than the {max_bytes} that this service takes",
        "split the file, or ask its host",
    )
