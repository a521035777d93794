"""Single files skip the framework: a training job asks for millions, and FastAPI's routing costs 200 us of each."""

from __future__ import annotations

import re
from types import SimpleNamespace

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from datapipes.service.names import check_dataset_name, check_path
from datapipes.service.problems import Problem, problem_of, response
from datapipes.service.send import send_file
from datapipes.service.storage import Store

ROUTE = "/datasets/{name}/files/{path}"
_file = re.compile(r"/datasets/([^/]*)/files/(.*)", re.DOTALL)


class FileShortcut:
    """Answers GET and HEAD of `ROUTE` as `files.download_file` would, and passes on everything else."""

    def __init__(self, app: ASGIApp, store: Store) -> None:
        self.app, self.store = app, store

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = _file.fullmatch(scope["path"]) if scope["type"] == "http" else None
        if found is None or scope["method"] not in ("GET", "HEAD"):
            await self.app(scope, receive, send)
            return
        scope["route"] = SimpleNamespace(path=ROUTE)
        try:
            name, path = check_dataset_name(found[1]), check_path(found[2])
            answer = await send_file(Request(scope, receive), self.store, name, path)
        except Problem as problem:
            answer = response(problem)
        except OSError as error:
            answer = response(problem_of(error))
        await answer(scope, receive, send)
