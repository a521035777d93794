"""What an S3 server's refusal means, as an error of a built-in type that says what to do."""

from __future__ import annotations

import re

from datapipes.transfer.http_error import HttpAnswer, explain_status
from datapipes.transfer.retry import Transient

_FIELD = re.compile(rb"<(Code|Message|Region|Endpoint)>([^<]*)</")

_SIGN_IN = "S3Server(access_key, secret_key) or the AWS credential chain"
_ADVICE: dict[str, tuple[type[OSError], str]] = {
    "NoSuchKey": (FileNotFoundError, "it may have been deleted since it was listed; list again"),
    "NoSuchVersion": (FileNotFoundError, "it may have been deleted since it was listed; list again"),
    "NoSuchBucket": (FileNotFoundError, "correct the bucket's name, or the endpoint_url"),
    "AccessDenied": (
        PermissionError,
        "use credentials that may read it (s3:GetObject; to list, s3:ListBucket)",
    ),
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
_BY_STATUS: dict[int, tuple[type[OSError], str]] = {
    401: _ADVICE["AccessDenied"],
    403: _ADVICE["AccessDenied"],
    404: (FileNotFoundError, "correct its name, or the endpoint_url"),
}
_OVERLOADED = {"SlowDown", "ServiceUnavailable", "RequestLimitExceeded", "Throttling", "ThrottlingException"}
_PASSING = {"InternalError", "RequestTimeout", "OperationAborted"}
_ELSEWHERE = {"AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}


def explain_s3(function: str, key: object, answer: HttpAnswer) -> Exception:
    """The error of an S3 answer whose status is neither 200 nor 206; what may pass by itself is `Transient`.

    >>> body = b"<Error><Code>NoSuchBucket</Code></Error>"
    >>> explain_s3("load_files_by_s3", "s3://b/1", HttpAnswer("http://h/b/1", 404, {}, body)).args
    ("load_files_by_s3: s3://b/1: NoSuchBucket (404); correct the bucket's name, or the endpoint_url",)

    Args:
        function: the functional name that the message begins with.
        key: the `s3://` URL that was asked for.
    """
    status = answer.status
    fields = {name.decode(): text.decode(errors="replace") for name, text in _FIELD.findall(answer.body)}
    code = fields.get("Code", "")
    what = f"{function}: {key}: {code or 'the server answered'} ({status})"
    if status in (301, 307, 308) or code in _ELSEWHERE:
        region = answer.headers.get("x-amz-bucket-region") or fields.get("Region", "")
        where = f"region={region!r}" if region else f"the region of {fields.get('Endpoint', 'its endpoint')!r}"
        return OSError(f"{what}; the bucket is in another region: use S3Server({where})")
    if not code:
        return explain_status(function, key, answer)
    if status in (429, 500, 502, 503, 504) or code in _OVERLOADED or code in _PASSING:
        error = ConnectionError(f"{what}; the server is overloaded or broken, try again later")
        return Transient(error, slow_down=code in _OVERLOADED, retry_after_s=answer.retry_after_s)
    advice = _ADVICE.get(code) or _BY_STATUS.get(status)
    if advice is not None:
        kind, what_to_do = advice
        return kind(f"{what}; {what_to_do}")
    return OSError(f"{what}: {fields.get('Message', '')[:200]}; check the address and the S3Server settings")
