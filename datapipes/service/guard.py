"""The door of the service: what every request passes before any route sees it."""

from __future__ import annotations

import re
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from datapipes.service.problems import Problem, response
from datapipes.service.tokens import Right, Tokens

MAX_HEADER_BYTES = 16 << 10
READING = ("GET", "HEAD", "OPTIONS")
# The guide that this API comes from spells its addresses in three ways; all of its lines work.
_other_spellings = re.compile(r"^/(?:dataset|datsets)(?=/|$)")


class Guard:
    """Refuses huge headers, other sites' pages, and who has no token; pure ASGI, 10 us a request."""

    def __init__(self, app: ASGIApp, tokens: Tokens) -> None:
        self.app, self.tokens = app, tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        scope["path"] = _other_spellings.sub("/datasets", scope["path"])
        try:
            self._admit(scope)
        except Problem as problem:
            await response(problem)(scope, receive, send)
            return

        async def send_as_what_it_is(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"].append((b"x-content-type-options", b"nosniff"))
            await send(message)

        await self.app(scope, receive, send_as_what_it_is)

    def _admit(self, scope: dict[str, Any] | Scope) -> None:
        size = sum(len(name) + len(value) for name, value in scope["headers"])
        if size + len(scope["query_string"]) + len(scope["raw_path"]) > MAX_HEADER_BYTES:
            raise Problem(431, f"the headers are larger than {MAX_HEADER_BYTES} bytes", "send fewer or shorter ones")
        right: Right = "read" if scope["method"] in READING else "write"
        headers = Headers(scope=scope)
        if right == "write" and headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise Problem(403, "a page of another site may not change anything here", "open this service's own page")
        if not self.tokens or scope["path"] == "/healthz":
            return
        rights = self.tokens.rights_of(headers.get("authorization", ""))
        if not rights:
            raise Problem(
                401,
                "this service wants a token",
                "send 'Authorization: Bearer TOKEN'; in a browser, give it as the password",
                {"WWW-Authenticate": 'Bearer realm="datasets", Basic realm="datasets"'},
            )
        if right not in rights:
            raise Problem(403, "this token may read, not write", "use a token that may write")
