"""What an S3 server's refusal means, as an error of a built-in type that says what to do."""

from __future__ import annotations

import re

_CODE = re.compile(rb"<Code>([^<]*)</Code>")
_MESSAGE = re.compile(rb"<Message>([^<]*)</Message>")
_REGION = re.compile(rb"<Region>([^<]*)</Region>")

_REMEDIES = {
    "ExpiredToken": "its credentials have expired; get new ones",
    "TokenRefreshRequired": "its credentials have expired; get new ones",
    "InvalidToken": "it does not know this session_token; check it",
    "InvalidAccessKeyId": "it does not know this access_key; check it",
    "SignatureDoesNotMatch": "the secret_key does not belong to the access_key; check both",
    "RequestTimeTooSkewed": "this machine's clock is wrong; set it",
}
_OVERLOADED = {"SlowDown", "ServiceUnavailable", "Throttling", "RequestLimitExceeded", "TooManyRequests"}
_PASSING = {"InternalError", "RequestTimeout", "OperationAborted"}


def answer_error(function: str, url: str, status: int, body: bytes, region: str = "") -> Exception:
    """The error to raise for an answer that is not 2xx.

    >>> answer_error("load_files_by_s3", "s3://b/k", 404, b"<Error><Code>NoSuchBucket</Code></Error>")
    FileNotFoundError('load_files_by_s3: no such bucket: s3://b/k; check its name and the endpoint_url')

    Args:
        function: the functional name that the message begins with.
        url: the `s3://` address that was asked for.
        region: the bucket's right region, where a header named it.
    """
    code, message = error_code(body), _text(_MESSAGE, body)
    told = f"{status} {code} {message}".strip()
    region = region or _text(_REGION, body)
    if status in (301, 307, 308) or (region and code == "AuthorizationHeaderMalformed"):
        where = (
            f"region {region!r}; give S3Server(region={region!r})" if region else f"another region ({told})"
        )
        return OSError(f"{function}: the bucket of {url} is in {where}")
    if code in _REMEDIES:
        return PermissionError(f"{function}: the server refused {url} ({told}): {_REMEDIES[code]}")
    if code == "NoSuchBucket":
        return FileNotFoundError(f"{function}: no such bucket: {url}; check its name and the endpoint_url")
    if status == 404:
        return FileNotFoundError(f"{function}: no such object: {url} ({told}); list the bucket again")
    if status in (401, 403):
        return PermissionError(
            f"{function}: access denied to {url} ({told}); check the credentials and the bucket's policy "
            "(s3:ListBucket to list, s3:GetObject to load)"
        )
    if is_transient(status, code):
        return ConnectionError(f"{function}: the server could not serve {url} ({told}); try again later")
    return OSError(
        f"{function}: the server refused {url} ({told}); check the address and the S3Server settings"
    )


def error_code(body: bytes) -> str:
    """The S3 error code in an answer's body, or "" where there is none (to a HEAD, say)."""
    return _text(_CODE, body)


def is_transient(status: int, code: str) -> bool:
    """Whether the same request may well succeed if it is sent again."""
    return status in (429, 500, 502, 503, 504) or code in _OVERLOADED or code in _PASSING


def is_overload(status: int, code: str) -> bool:
    """Whether every request should pause, and not this one alone."""
    return status in (429, 503) or code in _OVERLOADED


def _text(pattern: re.Pattern[bytes], body: bytes) -> str:
    found = pattern.search(body)
    return found[1].decode("utf-8", "replace") if found else ""
