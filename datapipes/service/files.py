"""The files of a data set: list them, and upload, download and delete one by its path."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from itertools import islice
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from datapipes.service import schemas
from datapipes.service.names import check_dataset_name, check_path
from datapipes.service.problems import Problem, documented
from datapipes.service.receive import receive_file
from datapipes.service.send import read_ahead, send_file
from datapipes.service.state import as_json, service_of
from datapipes.service.storage import StoredFile

router = APIRouter(tags=["files"])
NDJSON = "application/x-ndjson"


@router.get(
    "/datasets/{name}/files",
    response_model=schemas.Files,
    responses={**documented(404, 409), 200: {"content": {NDJSON: {}}}},
    summary="List the files of a data set",
)
async def list_files(
    request: Request,
    name: str,
    under: Annotated[str, Query(description="folder in the data set; all of it without one")] = "",
    after: Annotated[str, Query(description="path of the last file that is known already")] = "",
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
) -> Response:
    """By pages of JSON; or, with `Accept: application/x-ndjson`, all in one stream, a file a line."""
    store = service_of(request).store
    check_dataset_name(name)
    under = check_path(under.strip("/")) if under else ""
    if after and not check_path(after).startswith(f"{under}/" if under else ""):
        raise Problem(400, f"{after[:200]!r} does not lie in {under[:200]!r}", "give the `next` of the last page")
    after = after.removeprefix(f"{under}/") if under else after
    if NDJSON in request.headers.get("accept", ""):
        files = store.walk(name, after, under)
        first = await asyncio.to_thread(lambda: list(islice(files, 1)))
        return StreamingResponse(read_ahead(_lines(first, files)), media_type=NDJSON)
    page = await asyncio.to_thread(lambda: list(islice(store.walk(name, after, under), limit + 1)))
    return JSONResponse(
        {
            "files": [as_json(file) for file in page[:limit]],
            "next": page[limit - 1].path if len(page) > limit else None,
        }
    )


@router.head("/datasets/{name}/files/{path:path}", include_in_schema=False)
@router.get(
    "/datasets/{name}/files/{path:path}",
    response_class=Response,
    responses={
        **documented(404, 416),
        **schemas.BYTES,
        206: {"description": "The bytes asked for"},
        304: {"description": "Not changed"},
    },
    summary="Download a file",
)
async def download_file(request: Request, name: str, path: str) -> Response:
    """Knows Range, If-Range, If-None-Match and Want-Repr-Digest."""
    return await send_file(request, service_of(request).store, check_dataset_name(name), check_path(path))


@router.put(
    "/datasets/{name}/files/{path:path}",
    response_model=schemas.File,
    responses=documented(404, 409, 413, 507),
    openapi_extra=schemas.BODY,
    summary="Upload a file",
)
async def upload_file(request: Request, name: str, path: str) -> Response:
    """The file appears, or is replaced, as a whole. A SHA-256 in Repr-Digest is verified first."""
    service = service_of(request)
    stored = await receive_file(
        request, service.store, check_dataset_name(name), check_path(path), service.max_file_bytes
    )
    return JSONResponse(as_json(stored), headers={"etag": stored.etag})


@router.delete(
    "/datasets/{name}/files/{path:path}",
    status_code=204,
    responses=documented(404, 409),
    summary="Delete a file",
)
async def delete_file(request: Request, name: str, path: str) -> Response:
    await asyncio.to_thread(service_of(request).store.delete, check_dataset_name(name), check_path(path))
    return Response(status_code=204)


def _lines(first: list[StoredFile], rest: Iterator[StoredFile]) -> Iterator[bytes]:
    files = first
    while files:
        yield b"".join(json.dumps(as_json(file)).encode() + b"\n" for file in files)
        files = list(islice(rest, 1000))
