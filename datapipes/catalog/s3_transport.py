"""S3 as a transport: signed requests to an endpoint, for its listings and for its objects."""

from __future__ import annotations

from typing import Any

import pycurl

from datapipes.catalog.s3_errors import explain_s3
from datapipes.catalog.s3_server import S3Endpoint, S3Server, parse_s3_url, resolve
from datapipes.transfer.curl import CurlTransport
from datapipes.transfer.curl_transfer import Get
from datapipes.transfer.request import Request


def s3_transport(server: S3Server, function: str, **options: Any) -> CurlTransport:
    """A transport for requests whose first key is an `s3://` URL; `options` are those of `CurlTransport`."""
    endpoint = resolve(server)

    def address(request: Request) -> Get:
        return Get(object_address(endpoint, request.keys[0], function))

    return signed_transport(endpoint, function, **{"address": address, **options})


def signed_transport(endpoint: S3Endpoint, function: str, **options: Any) -> CurlTransport:
    """A transport for requests to `endpoint`; `options` are those of `CurlTransport`, `address` among them."""
    return CurlTransport(function=function, options=lambda: signing(endpoint), explain=explain_s3, **options)


def object_address(endpoint: S3Endpoint, url: str, function: str) -> str:
    """The HTTP address of an `s3://` URL."""
    bucket, key = parse_s3_url(url)
    if "/." in url and not {".", ".."}.isdisjoint(key.split("/")):
        # HTTP clients, libcurl among them, would ask for "c" where the key is "a/../c".
        raise ValueError(f"{function}: {url} has a part '.' or '..', which HTTP takes for folders; rename it")
    return endpoint.url(bucket, key)


def signing(endpoint: S3Endpoint) -> dict[int, Any]:
    """The pycurl options by which a request to `endpoint` is verified and signed, with credentials of now.

    libcurl signs by itself, in C; botocore's signing costs 57 us a request.
    """
    options: dict[int, Any] = {
        pycurl.SSL_VERIFYPEER: int(endpoint.verify),
        pycurl.SSL_VERIFYHOST: 2 if endpoint.verify else 0,
    }
    if endpoint.ca_bundle:
        options[pycurl.CAINFO] = endpoint.ca_bundle
    credentials = endpoint.credentials()
    if credentials is None:
        return options
    headers = ["x-amz-content-sha256: UNSIGNED-PAYLOAD"]
    if credentials.session_token:
        headers.append(f"x-amz-security-token: {credentials.session_token}")
    return options | {
        pycurl.AWS_SIGV4: f"aws:amz:{endpoint.region}:s3",
        pycurl.USERNAME: credentials.access_key,
        pycurl.PASSWORD: credentials.secret_key,
        pycurl.HTTPHEADER: headers,
    }
