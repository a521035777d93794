"""Data sets as wholes: list, create, upload, download, delete."""

from __future__ import annotations

import asyncio
import secrets
import tarfile
from collections.abc import Iterator
from email.message import Message
from itertools import islice
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from datapipes.service import schemas
from datapipes.service.names import check_dataset_name, check_path
from datapipes.service.problems import Problem, documented
from datapipes.service.receive import receive_file
from datapipes.service.send import content_disposition, read_ahead, send_file
from datapipes.service.state import as_json, service_of
from datapipes.service.storage import CHUNK_BYTES, STAGING, Store, chunks
from datapipes.service.unpack import unpack

router = APIRouter(tags=["data sets"])


@router.get("/datasets", response_model=schemas.Datasets, responses=documented(), summary="List the data sets")
async def list_datasets(request: Request) -> Response:
    names = await asyncio.to_thread(service_of(request).store.datasets)
    return JSONResponse({"datasets": [{"name": name, "location": f"/dataset/{name}"} for name in names]})


@router.post(
    "/datasets",
    status_code=201,
    response_model=schemas.Dataset,
    responses={**documented(409), 201: {"headers": {"Location": {"schema": {"type": "string"}}}}},
    summary="Create a data set",
)
async def create_dataset(request: Request, new: schemas.NewDataset) -> Response:
    await asyncio.to_thread(service_of(request).store.create, check_dataset_name(new.name))
    location = f"/dataset/{new.name}"
    return JSONResponse({"name": new.name, "location": location}, 201, headers={"Location": location})


@router.put(
    "/datasets/{name}",
    response_model=schemas.File | schemas.Unpacked,
    responses=documented(404, 409, 413, 507),
    openapi_extra=schemas.BODY,
    summary="Upload a file, or a folder as an archive",
)
async def upload(
    request: Request,
    name: str,
    unpack: Annotated[bool, Query(description="unpack the .tar, .tar.gz, .tar.zst or .zip that is sent")] = False,
    into: Annotated[str, Query(description="folder in the data set that the archive is unpacked into")] = "",
) -> Response:
    """Stored under the name in Content-Disposition, or under the data set's own name without one."""
    check_dataset_name(name)
    filename = sent_filename(request) or name
    if unpack:
        return JSONResponse(await _upload_folder(request, name, filename, check_path(into) if into else ""))
    if "/" in filename:
        raise Problem(400, f"{filename[:200]!r} is a path", "use PUT /datasets/NAME/files/PATH for it")
    service = service_of(request)
    stored = await receive_file(request, service.store, name, check_path(filename), service.max_file_bytes)
    return JSONResponse(as_json(stored), headers={"etag": stored.etag})


@router.head("/datasets/{name}", include_in_schema=False)
@router.get(
    "/datasets/{name}",
    response_class=Response,
    responses={
        **documented(404, 416),
        **schemas.BYTES,
        206: {"description": "The bytes asked for"},
        304: {"description": "Not changed"},
    },
    summary="Download a data set",
)
async def download(request: Request, name: str) -> Response:
    """A data set of one file is that file; one of many comes as a tar archive."""
    check_dataset_name(name)
    store = service_of(request).store
    first_two = await asyncio.to_thread(lambda: list(islice(store.walk(name), 2)))
    if not first_two:
        raise Problem(404, f"the data set {name!r} holds no file yet", f"upload one with PUT /datasets/{name}")
    if len(first_two) == 1:
        path = first_two[0].path
        return await send_file(request, store, name, path, attachment=path.rpartition("/")[2])
    headers = {"content-disposition": content_disposition(f"{name}.tar"), "content-type": "application/x-tar"}
    if request.method == "HEAD":
        return Response(headers=headers)
    return StreamingResponse(read_ahead(tar_of(store, name)), headers=headers)


@router.delete("/datasets/{name}", status_code=204, responses=documented(404), summary="Delete a data set")
async def delete_dataset(request: Request, name: str) -> Response:
    await asyncio.to_thread(service_of(request).store.remove, check_dataset_name(name))
    return Response(status_code=204)


@router.get(
    "/datasets/{name}/summary",
    response_model=schemas.Summary,
    responses=documented(404),
    summary="Count files, bytes and classes",
)
async def summarize(request: Request, name: str) -> Response:
    summary, _ = await asyncio.shield(service_of(request).summaries.of(check_dataset_name(name)))
    return JSONResponse(
        {
            "files": summary.files,
            "bytes": summary.bytes,
            "classes": summary.classes,
            "folders": dict(sorted(summary.folders.items())),
        }
    )


async def _upload_folder(request: Request, name: str, filename: str, into: str) -> dict[str, int]:
    service = service_of(request)
    if not await asyncio.to_thread(service.store.has, name):
        raise FileNotFoundError(2, "no such data set", name)
    archive = f"archive-{secrets.token_hex(8)}"
    try:
        await receive_file(request, service.store, STAGING, f"{archive}/packed", service.max_file_bytes)
        unpacked = await asyncio.to_thread(unpack, service.store, f"{archive}/packed", filename, name, into)
    finally:
        await asyncio.to_thread(service.store.discard_staged, archive)
    return {"files": unpacked.files, "bytes": unpacked.bytes}


def sent_filename(request: Request) -> str | None:
    message = Message()
    message["Content-Disposition"] = request.headers.get("content-disposition", "")
    return message.get_filename()


def tar_of(store: Store, dataset: str) -> Iterator[bytes]:
    """The data set as a tar archive, in chunks of a megabyte or so."""
    waiting = bytearray()
    for file in store.walk(dataset):
        reader = store.reader(dataset, file.path)
        member = tarfile.TarInfo(file.path)
        member.size, member.mtime, member.mode = reader.file.size, int(reader.file.modified), 0o644
        waiting += member.tobuf(tarfile.PAX_FORMAT)
        for chunk in chunks(reader, 0, reader.file.size):
            waiting += chunk
            if len(waiting) >= CHUNK_BYTES:
                yield bytes(waiting)
                waiting.clear()
        waiting += bytes(-reader.file.size % tarfile.BLOCKSIZE)
    waiting += bytes(2 * tarfile.BLOCKSIZE)
    yield bytes(waiting)
