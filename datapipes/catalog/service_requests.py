"""What is asked of a dataset service, without torch: the fetcher in a job's init container needs no more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import urllib3
from urllib3.util import Retry, Timeout

from datapipes.catalog.dataset_service import DatasetFolder, DatasetService

PAGE = 10_000


def connections(server: DatasetService, timeout_s: float, at_once: int = 1) -> urllib3.PoolManager:
    """Connections to a service; a request is tried seven times within about 6 s where another try may help."""
    return urllib3.PoolManager(
        maxsize=at_once,
        block=True,
        timeout=Timeout(connect=timeout_s, read=timeout_s),
        retries=Retry(6, backoff_factor=0.1, backoff_jitter=0.1, status_forcelist=(429, 503), redirect=0),
        ca_certs=server.ca_bundle,
    )


def list_files(
    pool: urllib3.PoolManager, folder: DatasetFolder, server: DatasetService, function: str
) -> Iterator[dict[str, Any]]:
    """What the service knows of every file of a folder: path, size, modified, etag."""
    headers = server.headers_for(function, folder.listing_url)
    after: str | None = ""
    while after is not None:
        asked = urlencode({"under": folder.folder, "after": after, "limit": PAGE})
        try:
            answer = pool.request("GET", f"{folder.listing_url}?{asked}", headers=headers)
        except urllib3.exceptions.HTTPError as error:
            raise ConnectionError(
                f"{function}: {folder.listing_url}: {error}; see whether the service is up and the address right"
            ) from None
        if answer.status != 200:
            raise service_error(function, folder.listing_url, answer.status, answer.data)
        page = json.loads(answer.data)
        yield from page["files"]
        after = page["next"]


def service_error(function: str, url: str, status: int, body: bytes) -> OSError:
    """The service's own words on what was wrong and what to do, as the built-in exception that fits."""
    try:
        problem = json.loads(body)
        words = f"{problem['title']}; {problem['detail']}"
    except (ValueError, KeyError, TypeError):
        words = f"the server answered {status}; see whether this is a dataset service"
    kinds: dict[int, type[OSError]] = {
        401: PermissionError,
        403: PermissionError,
        404: FileNotFoundError,
        409: FileExistsError,
        503: ConnectionError,
    }
    return kinds.get(status, OSError)(f"{function}: {url}: {words}")
