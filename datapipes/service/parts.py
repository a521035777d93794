"""Uploads in parts: a large file whose upload may stop and go on, on another day and from another machine."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from contextlib import closing
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from starlette.responses import JSONResponse, Response

from datapipes.service import schemas
from datapipes.service.digests import sent_with
from datapipes.service.names import check_dataset_name, check_path
from datapipes.service.problems import Problem, documented
from datapipes.service.receive import check_digest, check_size, receive_file
from datapipes.service.state import as_json, service_of
from datapipes.service.storage import STAGING, Store, StoredFile, chunks

router = APIRouter(prefix="/datasets/{name}/uploads", tags=["uploads in parts"])
_id = re.compile("[0-9a-f]{32}")


@router.post(
    "",
    status_code=201,
    response_model=schemas.Upload,
    responses={**documented(404, 413, 507), 201: {"headers": {"Location": {"schema": {"type": "string"}}}}},
    summary="Begin an upload in parts",
)
async def begin(request: Request, name: str, new: schemas.NewUpload) -> Response:
    service = service_of(request)
    check_dataset_name(name)
    check_path(new.path)
    check_size(new.size, service.store, service.max_file_bytes)
    if not await asyncio.to_thread(service.store.has, name):
        raise FileNotFoundError(2, "no such data set", name)
    upload = {"id": secrets.token_hex(16), "dataset": name, "path": new.path, "size": new.size}
    await asyncio.to_thread(_keep, service.store, upload)
    location = f"/dataset/{name}/uploads/{upload['id']}"
    return JSONResponse(_as_json(upload, []), 201, headers={"Location": location})


@router.get("", response_model=schemas.Uploads, responses=documented(404), summary="List the uploads under way")
async def list_uploads(request: Request, name: str) -> Response:
    store = service_of(request).store
    uploads = await asyncio.to_thread(_under_way, store, check_dataset_name(name))
    return JSONResponse({"uploads": uploads})


@router.get("/{id}", response_model=schemas.Upload, responses=documented(404), summary="See what has arrived")
async def look(request: Request, name: str, id: str) -> Response:
    store = service_of(request).store
    upload = await asyncio.to_thread(_find, store, name, id)
    return JSONResponse(_as_json(upload, await asyncio.to_thread(_arrived, store, id)))


@router.put(
    "/{id}/{number}",
    response_model=schemas.Part,
    responses=documented(404, 413, 507),
    openapi_extra=schemas.BODY,
    summary="Upload a part",
)
async def upload_part(
    request: Request, name: str, id: str, number: Annotated[int, Path(ge=1, le=schemas.PARTS)]
) -> Response:
    """Parts are numbered from 1, of any size, in any order; one sent again takes the place of the first."""
    service = service_of(request)
    upload = await asyncio.to_thread(_find, service.store, name, id)
    stored = await receive_file(request, service.store, STAGING, _part(id, number), upload["size"])
    return JSONResponse({"number": number, "size": stored.size, "sha256": stored.sha256})


@router.post(
    "/{id}/complete",
    response_model=schemas.File,
    responses=documented(404, 409, 507),
    summary="Put the file together",
)
async def complete(request: Request, name: str, id: str) -> Response:
    """The file appears whole, once its parts add up to its size and to the SHA-256 in Repr-Digest, if sent."""
    store = service_of(request).store
    upload = await asyncio.to_thread(_find, store, name, id)
    stored = await asyncio.to_thread(_put_together, store, upload, sent_with(request.headers))
    await asyncio.to_thread(store.discard_staged, f"upload-{id}")
    return JSONResponse(as_json(stored), headers={"etag": stored.etag})


@router.delete("/{id}", status_code=204, responses=documented(404), summary="Give an upload up")
async def give_up(request: Request, name: str, id: str) -> Response:
    store = service_of(request).store
    await asyncio.to_thread(_find, store, name, id)
    await asyncio.to_thread(store.discard_staged, f"upload-{id}")
    return Response(status_code=204)


def _under_way(store: Store, name: str) -> list[dict[str, Any]]:
    if not store.has(name):
        raise FileNotFoundError(2, "no such data set", name)
    found = []
    for file in store.walk(STAGING):
        if file.path.startswith("upload-") and file.path.endswith("/upload.json"):
            try:
                upload = _find(store, name, file.path[len("upload-") :].partition("/")[0])
            except Problem:
                continue  # another data set's
            found.append(_as_json(upload, _arrived(store, upload["id"])))
    return found


def _part(id: str, number: int) -> str:
    return f"upload-{id}/{number:05d}"


def _keep(store: Store, upload: dict[str, Any]) -> None:
    writer = store.writer(STAGING, f"upload-{upload['id']}/upload.json")
    writer.write(json.dumps(upload).encode())
    writer.commit()


def _find(store: Store, name: str, id: str) -> dict[str, Any]:
    check_dataset_name(name)
    if _id.fullmatch(id):
        try:
            with closing(store.reader(STAGING, f"upload-{id}/upload.json")) as reader:
                upload: dict[str, Any] = json.loads(reader.read(0, reader.file.size))
            if upload["dataset"] == name:
                return upload
        except FileNotFoundError:
            pass
    raise Problem(404, f"no upload {id[:64]!r} is under way", f"begin one with POST /datasets/{name[:128]}/uploads")


def _arrived(store: Store, id: str) -> list[StoredFile]:
    return [file for file in store.walk(STAGING, under=f"upload-{id}") if not file.path.endswith("upload.json")]


def _as_json(upload: dict[str, Any], parts: list[StoredFile]) -> dict[str, Any]:
    arrived = [{"number": _number(part), "size": part.size, "sha256": part.sha256} for part in parts]
    return {"id": upload["id"], "path": upload["path"], "size": upload["size"], "parts": arrived}


def _number(part: StoredFile) -> int:
    return int(part.path.rpartition("/")[2])


def _put_together(store: Store, upload: dict[str, Any], expected: str | None) -> StoredFile:
    parts = _arrived(store, upload["id"])
    missing = sorted(set(range(1, len(parts) + 1)) - {_number(part) for part in parts})
    size = sum(part.size for part in parts)
    if missing or size != upload["size"]:
        lacking = f"part {missing[0]} is missing" if missing else f"the parts have {size} bytes"
        raise Problem(409, f"{lacking} of a file of {upload['size']} bytes", "send what is missing, then complete")
    writer = store.writer(upload["dataset"], upload["path"])
    try:
        for part in parts:
            for chunk in chunks(store.reader(STAGING, part.path), 0, part.size):
                writer.write(chunk)
        check_digest(expected, writer)
    except BaseException:
        writer.discard()
        raise
    return writer.commit()
