"""What the service tells its host: one JSON line a request, and counters for Prometheus."""

from __future__ import annotations

import asyncio
import json
import os
import select
import time
from contextlib import suppress
from functools import lru_cache

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Histogram,
    generate_latest,
    multiprocess,
)
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

REQUESTS = Counter("dataset_service_requests_total", "Requests answered", ["method", "route", "status"])
SECONDS = Histogram(
    "dataset_service_request_seconds",
    "Time from a request's head to its answer's last byte",
    ["method"],
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000),
)
RECEIVED = Counter("dataset_service_received_bytes_total", "Bytes of request bodies")
SENT = Counter("dataset_service_sent_bytes_total", "Bytes of response bodies")


class Observe:
    """Counts and logs every request; neither tokens nor query strings reach the log."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.log = AccessLog()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            self.log.write()
            return
        started = time.perf_counter()
        status, sent, received = 500, 0, 0

        async def counted_receive() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            return message

        async def counted_send(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                sent += len(message.get("body", b""))
            await send(message)

        try:
            await self.app(scope, counted_receive, counted_send)
        finally:
            seconds = time.perf_counter() - started
            _count(scope, status, received, sent, seconds)
            self.log.add(scope, status, received, sent, seconds)


class AccessLog:
    """One JSON line a request on stdout, written ten times a second: a write each would cost 20 us of every one."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, scope: Scope, status: int, received: int, sent: int, seconds: float) -> None:
        if not self._lines:
            asyncio.get_running_loop().call_later(0.1, self.write)
        client = scope.get("client")
        self._lines.append(
            f'{{"time": {time.time():.3f}, "client": "{client[0] if client else ""}", "method": "{scope["method"]}", '
            f'"path": {json.dumps(scope["path"])}, "status": {status}, "received": {received}, "sent": {sent}, '
            f'"ms": {seconds * 1e3:.2f}}}\n'
        )

    def write(self) -> None:
        batch = b""
        for line in self._lines:
            encoded = line.encode()
            # Workers share stdout: a pipe keeps writes of up to 4 KB in one piece.
            if batch and len(batch) + len(encoded) > select.PIPE_BUF:
                os.write(1, batch)
                batch = b""
            batch += encoded
        self._lines.clear()
        if batch:
            os.write(1, batch)


def _count(scope: Scope, status: int, received: int, sent: int, seconds: float) -> None:
    method = scope["method"] if scope["method"] in ("GET", "HEAD", "PUT", "POST", "DELETE") else "other"
    requests, histogram = _counters(method, getattr(scope.get("route"), "path", "none"), status)
    requests.inc()
    histogram.observe(seconds)
    if received:
        RECEIVED.inc(received)
    SENT.inc(sent)


@lru_cache(1000)
def _counters(method: str, route: str, status: int) -> tuple[Counter, Histogram]:
    return REQUESTS.labels(method, route, status), SECONDS.labels(method)


def metrics() -> Response:
    """Every worker's counters, in Prometheus' text format."""
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        registry = CollectorRegistry()
        with suppress(FileNotFoundError):
            multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)
