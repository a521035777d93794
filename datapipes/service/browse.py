"""Pages for a person: the data sets, and one of them with its classes, pictures and a place to drop files."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import FileResponse, HTMLResponse, Response

from datapipes.service.names import check_dataset_name, check_path
from datapipes.service.problems import Problem, documented
from datapipes.service.state import service_of
from datapipes.service.storage import Store, StoredFile
from datapipes.service.summary import Summary
from datapipes.service.thumbnail import can_be_drawn, thumbnail

PATIENCE_S = 2.0
"""How long a page waits for counts; what is not counted by then shows as being counted."""
CLASSES_A_PAGE = 50
THUMBNAILS_A_CLASS = 8
FILES_SHOWN = 20
PAGE_POLICY = "default-src 'none'; img-src 'self' data:; style-src 'self'; script-src 'self'; connect-src 'self'; " + (
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)

router = APIRouter(tags=["pages"], default_response_class=HTMLResponse)
_folder = Path(__file__).parent / "pages"
_templates = Environment(loader=FileSystemLoader(_folder), autoescape=True, undefined=StrictUndefined, trim_blocks=True)
_thumbnails_at_once = asyncio.Semaphore(2)


@dataclass(frozen=True)
class FolderView:
    """One row of the histogram: a folder of files, usually a class."""

    path: str
    files: int
    share: float
    pictures: list[StoredFile]


@router.get("/", summary="The data sets, for a person", responses=documented())
async def index(request: Request) -> Response:
    service = service_of(request)
    names = await asyncio.to_thread(service.store.datasets)
    return _page("index.html", datasets=await _counted(request, names))


@router.get("/browse/{name}", summary="One data set, for a person", responses=documented(404))
async def dataset(request: Request, name: str, page: Annotated[int, Query(ge=1, le=1_000_000)] = 1) -> Response:
    store = service_of(request).store
    check_dataset_name(name)
    if not await asyncio.to_thread(store.has, name):
        raise FileNotFoundError(2, "no such data set", name)
    summary = (await _counted(request, [name]))[name]
    folders = await asyncio.to_thread(_folders, store, name, summary, page) if summary else []
    files = await asyncio.to_thread(lambda: list(islice(store.walk(name), FILES_SHOWN)))
    pages = -(-len(summary.folders) // CLASSES_A_PAGE) if summary else 1
    return _page("dataset.html", name=name, summary=summary, folders=folders, files=files, page=page, pages=pages)


@router.get(
    "/browse/{name}/thumbnail/{path:path}",
    summary="A picture, made small",
    response_class=Response,
    responses={
        **documented(404, 415),
        200: {"content": {"image/jpeg": {}}},
        304: {"description": "Not changed"},
    },
)
async def small_picture(request: Request, name: str, path: str) -> Response:
    store = service_of(request).store
    check_dataset_name(name)
    check_path(path)
    async with _thumbnails_at_once:
        picture, etag = await asyncio.to_thread(thumbnail, store, name, path)
    headers = {"etag": etag, "cache-control": "private, max-age=60"}
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    return Response(picture, media_type="image/jpeg", headers=headers)


@router.get("/docs", summary="This interface, for a person", responses=documented())
async def docs(request: Request) -> Response:
    return _page("docs.html", api=request.app.openapi())


@router.get("/pages/{file}", include_in_schema=False)
async def part_of_a_page(file: str) -> Response:
    if file not in ("style.css", "page.js"):
        raise Problem(404, f"there is no {file[:64]!r} here", "see / for the pages")
    return FileResponse(_folder / file, headers={"cache-control": "no-cache"})


async def _counted(request: Request, names: list[str]) -> dict[str, Summary | None]:
    tasks = {name: service_of(request).summaries.of(name) for name in names}
    if tasks:
        await asyncio.wait(tasks.values(), timeout=PATIENCE_S)
    done = {name: task for name, task in tasks.items() if task.done() and not task.exception()}
    return {name: done[name].result()[0] if name in done else None for name in names}


def _folders(store: Store, name: str, summary: Summary, page: int) -> list[FolderView]:
    most = max(summary.folders.values(), default=1)
    first = (page - 1) * CLASSES_A_PAGE
    shown = sorted(summary.folders.items())[first : first + CLASSES_A_PAGE]
    return [FolderView(path, files, files / most, _pictures(store, name, path)) for path, files in shown]


def _pictures(store: Store, name: str, folder: str) -> list[StoredFile]:
    try:
        files = list(islice(store.walk(name, under=folder), THUMBNAILS_A_CLASS))
    except FileNotFoundError:
        return []  # removed since it was counted
    return [file for file in files if can_be_drawn(file.path) and file.path.rpartition("/")[0] == folder]


def _size(size: float) -> str:
    """
    >>> _size(110_000), _size(2_500_000_000), _size(12)
    ('110 KB', '2.5 GB', '12 B')
    """
    for unit in ("B", "KB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.0f} {unit}" if size >= 99.95 or unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


_templates.filters["size"] = _size


def _page(template: str, **values: Any) -> Response:
    page = _templates.get_template(template).render(**values)
    return HTMLResponse(page, headers={"content-security-policy": PAGE_POLICY})
