"""What went wrong over HTTP, as the built-in exception that says it best, and whether to try again."""

from __future__ import annotations

from typing import NamedTuple

from datapipes.transfer.retry import Transient


class HttpAnswer(NamedTuple):
    """A whole answer, whatever its status."""

    url: str
    status: int
    headers: dict[str, str]
    """By lower-case name."""
    body: bytes
    retry_after_s: float = 0.0


# libcurl's codes for what the network or the server did; the others are settings that no repetition mends.
_MAY_PASS = {5, 6, 7, 16, 18, 28, 35, 52, 55, 56, 92, 95, 96}
_ADVICE = {
    1: (ValueError, "use an address that begins with http:// or https://"),
    3: (ValueError, "correct the address"),
    60: (ConnectionError, "give its authority's certificate (ca_bundle), or see that it is the right server"),
    77: (ConnectionError, "the file of trusted certificates cannot be read; correct ca_bundle"),
}


def explain_curl(function: str, key: object, url: str, code: int, message: str) -> Exception:
    """The error of a request to `url` that got no whole answer; libcurl's `code` tells whether another try may.

    >>> explain_curl("load_files_by_s3", "s3://b/1", "http://h:9/b/1", 60, "unknown authority").args
    ("load_files_by_s3: s3://b/1: unknown authority (http://h:9); give its authority's certificate (ca_bundle), or \
see that it is the right server",)
    """
    kind, advice = _ADVICE.get(code, (ConnectionError, "see whether the server is up and the address right"))
    server = "/".join(url.split("/", 3)[:3])
    error = kind(f"{function}: {key}: {message[:200]} ({server}); {advice}")
    return Transient(error) if code in _MAY_PASS else error


def explain_status(function: str, key: object, answer: HttpAnswer) -> Exception:
    """The error of an answer whose status is none of 200 and 206."""
    status = answer.status
    what = f"{function}: {key}: the server answered {status}"
    if status in (404, 410):
        return FileNotFoundError(f"{what}, not found; see whether the name is right and still there")
    if status in (401, 403):
        return PermissionError(f"{what}, access denied; give credentials that may read it")
    if status in (408, 429) or status >= 500:
        error = ConnectionError(f"{what}; it is overloaded or broken, try again later")
        return Transient(error, slow_down=status in (429, 503), retry_after_s=answer.retry_after_s)
    return OSError(f"{what}; {answer.body[:200].decode(errors='replace')!r}")
