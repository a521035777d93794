"""How many bytes a shard has, wherever it is."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import pycurl

from datapipes.catalog.s3_errors import explain_s3
from datapipes.catalog.s3_server import S3Server, resolve
from datapipes.catalog.s3_transport import object_address, signing
from datapipes.catalog.shard_store import local_path
from datapipes.transfer.http_error import HttpAnswer, explain_curl, explain_status
from datapipes.transfer.retry import Backoff, Transient, given_up

_TIMEOUT_S = 20
Explain = Callable[[str, object, HttpAnswer], Exception]


def size_of_shard(shard: str, *, server: S3Server, function: str) -> int:
    """How many bytes a shard has. A remote one costs a request.

    Raises:
        FileNotFoundError, PermissionError, ConnectionError: it cannot be had; what may pass is tried seven times.
    """
    path = local_path(shard)
    if path is not None:
        return os.stat(path).st_size
    if shard.startswith("s3://"):
        endpoint = resolve(server)
        return _content_length(
            object_address(endpoint, shard, function), signing(endpoint), shard, function, explain_s3
        )
    if shard.startswith(("http://", "https://")):
        return _content_length(shard, {}, shard, function, explain_status)
    import fsspec

    system, path = fsspec.core.url_to_fs(shard)
    return int(system.size(path))


def _content_length(url: str, options: dict[int, Any], shard: str, function: str, explain: Explain) -> int:
    backoff = Backoff()
    attempt = 0
    while True:
        attempt += 1
        try:
            return _head(url, options, shard, function, explain)
        except Transient as failure:
            again_at = backoff.again_at(attempt, failure, time.monotonic())
            if again_at is None:
                raise given_up(failure.error, attempt) from None
            time.sleep(max(0.0, again_at - time.monotonic()))


def _head(url: str, options: dict[int, Any], shard: str, function: str, explain: Explain) -> int:
    handle = pycurl.Curl()
    try:
        settings = {pycurl.URL: url, pycurl.NOBODY: 1, pycurl.NOSIGNAL: 1, pycurl.TIMEOUT: _TIMEOUT_S}
        for option, value in (settings | options).items():
            handle.setopt(option, value)
        try:
            handle.perform()
        except pycurl.error as error:
            raise explain_curl(function, shard, url, *error.args) from None
        status = handle.getinfo(pycurl.RESPONSE_CODE)
        length = int(handle.getinfo(pycurl.CONTENT_LENGTH_DOWNLOAD_T))
        if status != 200:
            retry_after_s = float(handle.getinfo(pycurl.RETRY_AFTER))
            raise explain(function, shard, HttpAnswer(url, status, {}, b"", retry_after_s))
        if length < 0:
            # Also what libcurl makes of an answer that was cut inside its head.
            what = f"{function}: {shard}: the server gives no Content-Length; serve it from one that does"
            raise Transient(ConnectionError(what))
        return length
    finally:
        handle.close()
