"""S3's refusals as the window wants them: what may pass by itself is `Transient`."""

from __future__ import annotations

from datapipes.catalog.s3_errors import answer_error, error_code, is_overload, is_transient
from datapipes.transfer.http_error import HttpAnswer, explain_status
from datapipes.transfer.retry import Transient


def explain_s3(function: str, key: object, answer: HttpAnswer) -> Exception:
    """The error of an S3 answer whose status is neither 200 nor 206.

    >>> body = b"<Error><Code>NoSuchBucket</Code><Message>No such bucket.</Message></Error>"
    >>> explain_s3("load_files_by_s3", "s3://b/1", HttpAnswer("http://h/b/1", 404, {}, body)).args
    ("load_files_by_s3: s3://b/1: NoSuchBucket (404); correct the bucket's name, or the endpoint_url",)
    """
    code = error_code(answer.body)
    if not code and answer.status not in (301, 307, 308):
        return explain_status(function, key, answer)
    region = answer.headers.get("x-amz-bucket-region", "")
    error = answer_error(function, key, answer.status, answer.body, region)
    if is_transient(answer.status, code):
        return Transient(error, slow_down=is_overload(code), retry_after_s=answer.retry_after_s)
    return error
