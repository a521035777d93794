"""How many bytes a shard has, wherever it is."""

from __future__ import annotations

import os
from typing import Any

import pycurl

from datapipes.catalog.s3_server import S3Server, parse_s3_url, resolve
from datapipes.catalog.s3_transport import signing
from datapipes.catalog.shard_store import local_path


def size_of_shard(shard: str, *, server: S3Server, function: str) -> int:
    """How many bytes a shard has. A remote one costs a request."""
    path = local_path(shard)
    if path is not None:
        return os.stat(path).st_size
    if shard.startswith("s3://"):
        endpoint = resolve(server)
        return _content_length(endpoint.url(*parse_s3_url(shard)), signing(endpoint), shard, function)
    if shard.startswith(("http://", "https://")):
        return _content_length(shard, {}, shard, function)
    import fsspec

    system, path = fsspec.core.url_to_fs(shard)
    return int(system.size(path))


def _content_length(url: str, options: dict[int, Any], shard: str, function: str) -> int:
    """By HEAD, tried three times."""
    handle = pycurl.Curl()
    settings = {pycurl.URL: url, pycurl.NOBODY: 1, pycurl.NOSIGNAL: 1, pycurl.TIMEOUT: 30}
    try:
        for option, value in (settings | options).items():
            handle.setopt(option, value)
        for attempt in (1, 2, 3):
            try:
                handle.perform()
            except pycurl.error as error:
                if attempt == 3:
                    raise ConnectionError(f"{function}: {shard}: {error.args[1]}; check the address") from None
                continue
            status = handle.getinfo(pycurl.RESPONSE_CODE)
            length = int(handle.getinfo(pycurl.CONTENT_LENGTH_DOWNLOAD_T))
            if status == 200 and length >= 0:
                return length
            if status == 404:
                raise FileNotFoundError(f"{function}: no such shard: {shard}; list the shards again")
            if status in (401, 403):
                raise PermissionError(f"{function}: access denied to {shard} ({status}); check the credentials")
            if status < 500 or attempt == 3:
                raise OSError(f"{function}: {shard}: the server answered {status} without a length")
        raise AssertionError
    finally:
        handle.close()
