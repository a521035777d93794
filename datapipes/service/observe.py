"""What the service tells its host: one JSON line a request, and counters for Prometheus."""

from __future__ import annotations

import json
import logging
import os
import time
from contextlib import suppress

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

access = logging.getLogger("datapipes.service.access")

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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
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
            _record(scope, status, received, sent, time.perf_counter() - started)


def _record(scope: Scope, status: int, received: int, sent: int, seconds: float) -> None:
    method = scope["method"] if scope["method"] in ("GET", "HEAD", "PUT", "POST", "DELETE") else "other"
    route = getattr(scope.get("route"), "path", "none")
    REQUESTS.labels(method, route, status).inc()
    SECONDS.labels(method).observe(seconds)
    RECEIVED.inc(received)
    SENT.inc(sent)
    if access.isEnabledFor(logging.INFO):
        client = scope.get("client")
        access.info(
            json.dumps(
                {
                    "time": round(time.time(), 3),
                    "client": client[0] if client else None,
                    "method": scope["method"],
                    "path": scope["path"],
                    "status": status,
                    "received": received,
                    "sent": sent,
                    "ms": round(seconds * 1e3, 2),
                }
            )
        )


def metrics() -> Response:
    """Every worker's counters, in Prometheus' text format."""
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        registry = CollectorRegistry()
        with suppress(FileNotFoundError):
            multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)
