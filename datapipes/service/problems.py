"""What goes wrong and what to do about it: every error of the service is one JSON body (RFC 9457)."""

from __future__ import annotations

import errno
import logging
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

log = logging.getLogger("datapipes.service")


class Problem(Exception):
    """A request that is refused: `what` was wrong, and what to `do` about it."""

    def __init__(self, status: int, what: str, do: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(status, what, do, headers)
        self.status, self.what, self.do, self.headers = status, what, do, headers

    def __str__(self) -> str:
        return f"{self.what}; {self.do}"


class ProblemBody(BaseModel):
    """The JSON body of every refusal."""

    status: int
    title: str
    detail: str


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The refusals of one route, for its OpenAPI entry; those of every route are added here.

    400 covers names and paths, 431 headers; 401 and 403 come with tokens, 503 from a store that is out of
    reach.
    """
    return {
        status: {
            "model": ProblemBody,
            "description": HTTPStatus(status).phrase,
            "content": {"application/problem+json": {}},
        }
        for status in sorted({400, 401, 403, 431, 503, *statuses})
    }


def response(problem: Problem) -> Response:
    body = ProblemBody(status=problem.status, title=problem.what, detail=problem.do)
    return JSONResponse(
        body.model_dump(), problem.status, headers=problem.headers, media_type="application/problem+json"
    )


def problem_of(error: OSError) -> Problem:
    """What an error of the store means to the one who asked. The store names paths relative to its root."""
    if isinstance(error, FileNotFoundError):
        return Problem(404, f"there is no {_named(error)}", "see GET /datasets for what there is")
    if isinstance(error, FileExistsError):
        return Problem(409, f"{_named(error)} is already there", "choose another name, or delete it first")
    if isinstance(error, (NotADirectoryError, IsADirectoryError)) or error.errno == errno.ENOTEMPTY:
        return Problem(
            409,
            f"{_named(error)} would be a file and a folder at once",
            "choose another path, or delete the files that stand in its way",
        )
    if error.errno == errno.ELOOP:
        return Problem(404, f"there is no {_named(error)}", "links are not followed: upload the file itself")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Problem(507, "the store is full", "delete data sets that are no longer needed, then try again")
    if error.errno == errno.ENAMETOOLONG:
        return Problem(400, f"{_named(error)} is too long a name for the store", "shorten it")
    log.error("the store failed: %s: %s", type(error).__name__, error)
    return Problem(503, "the store did not answer as it should", "try again; see the service's log if it persists")


def _named(error: OSError) -> str:
    return repr(error.filename) if error.filename else "such file"


def install(app: FastAPI) -> None:
    """Give every error that a handler can raise its JSON body."""

    @app.exception_handler(Problem)
    async def refused(request: Request, error: Problem) -> Response:
        return response(error)

    @app.exception_handler(OSError)
    async def store_failed(request: Request, error: OSError) -> Response:
        return response(problem_of(error))

    @app.exception_handler(ClientDisconnect)
    async def client_left(request: Request, error: ClientDisconnect) -> Response:
        return Response(status_code=499)

    @app.exception_handler(Exception)
    async def our_fault(request: Request, error: Exception) -> Response:
        return response(Problem(500, "the service has a fault", "see its log for what happened; report it"))

    @app.exception_handler(RequestValidationError)
    async def not_valid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        return response(Problem(400, f"{place}: {first['msg']}", "see /docs for what this address accepts"))

    @app.exception_handler(HTTPException)
    async def no_such_address(request: Request, error: HTTPException) -> Response:
        headers = dict(error.headers) if error.headers else None
        return response(
            Problem(error.status_code, str(error.detail), "see /docs for the addresses and methods", headers)
        )
