"""What the routes share, reachable from every request."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request

from datapipes.service.storage import Store, StoredFile
from datapipes.service.summary import Summaries


@dataclass(frozen=True)
class Service:
    store: Store
    summaries: Summaries
    max_file_bytes: int | None


def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def as_json(file: StoredFile) -> dict[str, object]:
    return {
        "path": file.path,
        "size": file.size,
        "modified": file.modified_at,
        "etag": file.etag,
        "sha256": file.sha256,
    }
