"""Objects of S3: URLs in, their bytes out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from datapipes.catalog.s3_server import S3Server
from datapipes.catalog.s3_transport import s3_transport
from datapipes.load.window import MAX_BYTES, REQUEST_TIMEOUT_S
from datapipes.load.window_pipe import FileLoader
from datapipes.on_error import OnError
from datapipes.pipe import functional_form
from datapipes.transfer.curl import CurlTransport


@functional_form("load_files_by_s3")
class S3FileLoader(FileLoader):
    """S3 URLs in, `(url, io.BytesIO)` out, in the same order (functional name: `load_files_by_s3`).

    >>> from datapipes.iter import IterableWrapper
    >>> urls = IterableWrapper(["s3://imagenet/train/n01440764/1.JPEG"])
    >>> streams = urls.load_files_by_s3(server=S3Server(endpoint_url="http://127.0.0.1:9000"))
    >>> len(streams)
    1

    Requests for many objects are in flight at once, and how many follows the latency: 8 beside the server,
    several hundred within a second of starting where an answer takes 100 ms. What may pass (an overloaded
    server, a reset connection, a body cut short, no answer in time) is tried 7 times.

    Args:
        source_datapipe: yields `s3://bucket/key` URLs.
        request_timeout_ms: torchdata's name for `request_timeout_s`; decides where it is more than 0.
        region: torchdata's; decides over `server.region` where given.
        buffer_size, multi_part_download: torchdata's; taken and not used, as an object comes in one request.
        server: where and as whom; by default what the AWS command line would use.
        max_in_flight: this many requests, always. By default 8 to 512, as latency and rate ask for.
        max_bytes: bound on payload on its way or waiting for its turn, in this process. Memory: this much.
        request_timeout_s: deadline of an attempt, in seconds; an error comes after 7 of them and 6.3 s more
            at the latest.
        ordered: False lets an object overtake others of its batch (of any, without `as_dataset`).
        on_error: "raise", "skip", or a callable `(url, error)` that gives a substitute or None.

    Raises:
        FileNotFoundError: no such object or bucket (while iterating, as all that follow).
        PermissionError: denied, or credentials that are missing, wrong or expired.
        TimeoutError: the server did not answer within `request_timeout_s`, 7 times.
        ConnectionError: the server cannot be reached, or stayed overloaded.
    """

    function = "load_files_by_s3"

    def __init__(
        self,
        source_datapipe: Any,
        request_timeout_ms: int = -1,
        region: str = "",
        buffer_size: int | None = None,
        multi_part_download: bool | None = None,
        *,
        server: S3Server = S3Server(),
        max_in_flight: int | None = None,
        max_bytes: int = MAX_BYTES,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        ordered: bool = True,
        on_error: OnError = "raise",
    ) -> None:
        if request_timeout_ms > 0:
            request_timeout_s = request_timeout_ms / 1000
        super().__init__(
            source_datapipe,
            max_in_flight=max_in_flight,
            max_bytes=max_bytes,
            request_timeout_s=request_timeout_s,
            ordered=ordered,
            on_error=on_error,
        )
        self.server = replace(server, region=region) if region else server

    def transport(self) -> CurlTransport:
        return s3_transport(self.server, self.function)
