"""S3's error codes, as built-in exceptions that say what to do."""

from __future__ import annotations

import re

from datapipes.load.http_error import HttpAnswer, explain_status
from datapipes.load.retry import Transient

_FIELD = re.compile(rb"<(Code|Message|Region|Endpoint)>([^<]*)</")

_SIGN_IN = "S3Server(access_key, secret_key) or the AWS credential chain"
_ADVICE: dict[str, tuple[type[OSError], str]] = {
    "NoSuchKey": (FileNotFoundError, "it may have been deleted since it was listed; list again"),
    "NoSuchVersion": (FileNotFoundError, "it may have been deleted since it was listed; list again"),
    "NoSuchBucket": (FileNotFoundError, "correct the bucket's name, or the endpoint_url"),
    "AccessDenied": (PermissionError, "use credentials that may read it (s3:GetObject)"),
    "AllAccessDisabled": (PermissionError, "its owner has closed it"),
    "InvalidAccessKeyId": (PermissionError, f"the access key is not known there; correct {_SIGN_IN}"),
    "SignatureDoesNotMatch": (PermissionError, f"the secret key is not right; correct {_SIGN_IN}"),
    "ExpiredToken": (PermissionError, "the session token has expired; sign in again and start anew"),
    "TokenRefreshRequired": (PermissionError, "the session token has expired; sign in again and start anew"),
    "InvalidToken": (PermissionError, "the session token is not right; sign in again"),
    "RequestTimeTooSkewed": (PermissionError, "this machine's clock is wrong; set it"),
    "InvalidObjectState": (PermissionError, "it lies in an archive class; restore it first"),
    "MethodNotAllowed": (FileNotFoundError, "its newest version is a delete marker; list again"),
}
_SLOW_DOWN = {"SlowDown", "ServiceUnavailable", "RequestLimitExceeded", "Throttling", "ThrottlingException"}
_MAY_PASS = {"InternalError", "RequestTimeout", "OperationAborted"}


def explain_s3(function: str, key: object, answer: HttpAnswer) -> Exception:
    """The error of an S3 answer whose status is neither 200 nor 206.

    >>> body = b"<Error><Code>NoSuchBucket</Code><Message>No such bucket.</Message></Error>"
    >>> explain_s3("load_files_by_s3", "s3://b/1", HttpAnswer("http://h/b/1", 404, {}, body)).args
    ("load_files_by_s3: s3://b/1: NoSuchBucket (404); correct the bucket's name, or the endpoint_url",)
    """
    fields = {name.decode(): text.decode(errors="replace") for name, text in _FIELD.findall(answer.body)}
    code = fields.get("Code", "")
    region = answer.headers.get("x-amz-bucket-region") or fields.get("Region", "")
    what = f"{function}: {key}: {code or 'the server answered'} ({answer.status})"
    if answer.status in (301, 307) or code in ("AuthorizationHeaderMalformed", "IllegalLocationConstraintException"):
        where = f"region={region!r}" if region else f"the region of {fields.get('Endpoint', 'its endpoint')!r}"
        return OSError(f"{what}; the bucket is in another region: use S3Server({where})")
    if code in _ADVICE:
        kind, advice = _ADVICE[code]
        return kind(f"{what}; {advice}")
    if code in _SLOW_DOWN or code in _MAY_PASS:
        error = ConnectionError(f"{what}; the server is overloaded or broken, try again later")
        return Transient(error, slow_down=code in _SLOW_DOWN, retry_after_s=answer.retry_after_s)
    if not code or answer.status >= 429:
        return explain_status(function, key, answer)
    return OSError(f"{what}: {fields.get('Message', '')[:200]}")
