"""The dataset service as an ASGI application."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from starlette.responses import Response
from starlette.types import ASGIApp

from datapipes.service import browse, datasets, files, observe, parts, problems
from datapipes.service.guard import Guard
from datapipes.service.shortcut import FileShortcut
from datapipes.service.state import Service
from datapipes.service.storage import open_store
from datapipes.service.summary import Summaries
from datapipes.service.tokens import Tokens

DESCRIPTION = """Upload a data set once, see it, mount or stream it in a training job.

Addresses may begin with `/dataset` or `/datasets`. Every refusal is `application/problem+json`: `title` says
what was wrong, `detail` what to do. With tokens, send `Authorization: Bearer TOKEN`.
"""
THREADS = 32  # each waits for a disk or an object store, not for the processor


def create_app(root: str, *, tokens: Tokens | None = None, max_file_bytes: int | None = None) -> ASGIApp:
    """The service over the data sets under `root`, a folder or an fsspec URL."""
    store = open_store(root)
    inside = FileShortcut(_framework(Service(store, Summaries(store), max_file_bytes)), store)
    return observe.Observe(Guard(inside, tokens or Tokens([])))


def _framework(service: Service) -> FastAPI:

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with ThreadPoolExecutor(THREADS) as threads:
            asyncio.get_running_loop().set_default_executor(threads)
            yield

    app = FastAPI(
        title="Dataset service",
        description=DESCRIPTION,
        version="1",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.state.service = service
    problems.install(app)
    for module in (datasets, files, parts, browse):
        app.include_router(module.router)

    @app.get("/healthz", tags=["host"], summary="Whether the store can be reached", responses=problems.documented())
    async def healthz(request: Request) -> dict[str, str]:
        await asyncio.to_thread(service.store.datasets)
        return {"status": "ok"}

    @app.get("/metrics", tags=["host"], summary="Counters for Prometheus", response_class=Response)
    async def metrics(request: Request) -> Response:
        return observe.metrics()

    _describe_refusals_once(app)
    return app


def _describe_refusals_once(app: FastAPI) -> None:
    """FastAPI lists 422 for every parameter; here what is not valid is a 400 like any other refusal."""
    for methods in app.openapi()["paths"].values():
        for call in methods.values():
            call["responses"].pop("422", None)


def from_environment() -> ASGIApp:
    """The application as `python -m datapipes.service` hands it to its workers."""
    tokens = os.environ.get("DATASET_SERVICE_TOKENS")
    limit = os.environ.get("DATASET_SERVICE_MAX_FILE_BYTES")
    return create_app(
        os.environ["DATASET_SERVICE_ROOT"],
        tokens=Tokens.from_file(tokens) if tokens else None,
        max_file_bytes=int(limit) if limit else None,
    )
