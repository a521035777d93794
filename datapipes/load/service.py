"""Files of a dataset service: URLs in, their bytes out."""

from __future__ import annotations

from typing import Any

import pycurl

from datapipes.catalog.dataset_service import DatasetService, quoted
from datapipes.catalog.service_requests import service_error
from datapipes.load.window import MAX_BYTES, REQUEST_TIMEOUT_S
from datapipes.load.window_pipe import FileLoader
from datapipes.on_error import OnError
from datapipes.pipe import functional_form
from datapipes.transfer.curl import CurlTransport
from datapipes.transfer.curl_transfer import Get
from datapipes.transfer.http_error import HttpAnswer, explain_status
from datapipes.transfer.request import Request


def service_transport(server: DatasetService, function: str) -> CurlTransport:
    """A transport for requests whose key is a file's URL."""

    def address(request: Request) -> Get:
        url = request.keys[0]
        server.headers_for(function, url)
        return Get(quoted(url))

    def options() -> dict[int, Any]:
        headers = server.headers_for(function, f"{server.url}/")
        chosen: dict[int, Any] = {pycurl.HTTPHEADER: [f"{name}: {value}" for name, value in headers.items()]}
        return chosen | ({pycurl.CAINFO: server.ca_bundle} if server.ca_bundle else {})

    return CurlTransport(function=function, address=address, options=options, explain=_explain)


def _explain(function: str, key: object, answer: HttpAnswer) -> Exception:
    if answer.status in (401, 403, 404):
        return service_error(function, str(key), answer.status, answer.body)
    return explain_status(function, key, answer)


@functional_form("load_files_by_service")
class ServiceFileLoader(FileLoader):
    """URLs of a dataset service in, `(url, io.BytesIO)` out, in order (functional name: `load_files_by_service`).

    >>> from datapipes.iter import IterableWrapper
    >>> urls = IterableWrapper(["http://datasets:8080/datasets/imagenet/files/train/tench/1.JPEG"])
    >>> streams = urls.load_files_by_service(server=DatasetService("http://datasets:8080"))
    >>> len(streams)
    1

    Many requests are in flight at once, as many as the latency asks for; what may pass is tried 7 times.

    Args:
        source_datapipe: yields the URLs that `list_files_by_service` gives.
        server: the service's address and token; not needed where the service wants no token.
        max_in_flight: this many requests, always. By default 8 to 512, as latency and rate ask for.
        max_bytes: bound on payload on its way or waiting for its turn, in this process.
        request_timeout_s: deadline of an attempt, in seconds.
        ordered: False lets a file overtake others of its batch (of any, without `as_dataset`).
        on_error: "raise", "skip", or a callable `(url, error)` that gives a substitute or None.

    Raises:
        FileNotFoundError: no such file (while iterating, as all that follow).
        PermissionError: the service wants a token, or another one.
        ValueError: a URL that lies elsewhere than the service that the token is for.
        TimeoutError: no answer within `request_timeout_s`, 7 times.
        ConnectionError: the service cannot be reached, or stayed overloaded.
    """

    function = "load_files_by_service"

    def __init__(
        self,
        source_datapipe: Any,
        *,
        server: DatasetService = DatasetService(),
        max_in_flight: int | None = None,
        max_bytes: int = MAX_BYTES,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        ordered: bool = True,
        on_error: OnError = "raise",
    ) -> None:
        super().__init__(
            source_datapipe,
            max_in_flight=max_in_flight,
            max_bytes=max_bytes,
            request_timeout_s=request_timeout_s,
            ordered=ordered,
            on_error=on_error,
        )
        self.server = server

    def transport(self) -> CurlTransport:
        return service_transport(self.server, self.function)
