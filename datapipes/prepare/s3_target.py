"""A folder of an S3 bucket to write shards to: multipart uploads, completed last."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from datapipes.catalog.s3_server import S3Server, resolve

PART_BYTES = 16 << 20
"""S3 takes 10,000 parts, so 160 GB a shard; four parts on their way hold 64 MiB."""
PARTS_ON_THEIR_WAY = 4


def s3_client(server: S3Server) -> Any:
    """A boto3 client of `server`, for this process: it retries, signs and renews its credentials by itself."""
    import boto3
    from botocore.config import Config

    endpoint = resolve(server)
    credentials = endpoint.credentials()
    signed = {}
    if credentials is not None and server.access_key is not None:
        signed = {
            "aws_access_key_id": credentials.access_key,
            "aws_secret_access_key": credentials.secret_key,
            "aws_session_token": credentials.session_token,
        }
    style = "virtual" if endpoint.virtual_host else "path"
    session = boto3.session.Session(profile_name=server.profile, region_name=endpoint.region)
    return session.client(
        "s3",
        endpoint_url=endpoint.base_url,
        verify=endpoint.ca_bundle or endpoint.verify,
        config=Config(
            s3={"addressing_style": style},
            retries={"mode": "standard", "max_attempts": 7},
            max_pool_connections=2 * PARTS_ON_THEIR_WAY,
        ),
        **signed,
    )


@contextmanager
def _told(url: str) -> Iterator[None]:
    """botocore's errors as built-in ones that say what to do."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        if code in ("AccessDenied", "403", "InvalidAccessKeyId", "SignatureDoesNotMatch"):
            raise PermissionError(f"{url}: {code}; check access_key and secret_key, and the bucket's policy") from None
        if code in ("NoSuchBucket", "404", "NoSuchKey"):
            raise FileNotFoundError(f"{url}: {code}; create the bucket, or correct its name") from None
        raise OSError(f"{url}: {code}: {error}") from None
    except BotoCoreError as error:
        raise ConnectionError(f"{url}: {error}; check endpoint_url and the network") from None


class S3Target:
    """The objects `s3://bucket/prefix/NAME`."""

    def __init__(self, server: S3Server, bucket: str, prefix: str) -> None:
        self._client = s3_client(server)
        self._bucket = bucket
        self._prefix = prefix.rstrip("/") + "/" if prefix.strip("/") else ""
        self.url = f"s3://{bucket}/{self._prefix}".rstrip("/")

    def create(self, name: str) -> S3File:
        return S3File(self._client, self._bucket, self._prefix + name)

    def read(self, name: str) -> bytes | None:
        try:
            with _told(f"{self.url}/{name}"):
                answer = self._client.get_object(Bucket=self._bucket, Key=self._prefix + name)
                content: bytes = answer["Body"].read()
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error):
                raise
            return None
        return content

    def put(self, name: str, content: bytes) -> None:
        with _told(f"{self.url}/{name}"):
            self._client.put_object(Bucket=self._bucket, Key=self._prefix + name, Body=content)

    def sizes(self) -> dict[str, int]:
        found = {}
        with _told(self.url):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._prefix, Delimiter="/"
            )
            for page in pages:
                for entry in page.get("Contents", []):
                    found[entry["Key"][len(self._prefix) :]] = int(entry["Size"])
        return found

    def remove(self, name: str) -> None:
        with _told(f"{self.url}/{name}"):
            self._client.delete_object(Bucket=self._bucket, Key=self._prefix + name)


class S3File:
    """An upload in parts, the last but one of which may still be on their way while the next is filled."""

    def __init__(self, client: Any, bucket: str, key: str) -> None:
        self._client = client
        self._where = {"Bucket": bucket, "Key": key}
        self._url = f"s3://{bucket}/{key}"
        self._pending = bytearray()
        self._upload_id: str | None = None
        self._parts: list[Future[dict[str, Any]]] = []
        self._room = threading.Semaphore(PARTS_ON_THEIR_WAY)
        self._threads = ThreadPoolExecutor(PARTS_ON_THEIR_WAY, thread_name_prefix="datapipes-upload")

    def write(self, content: bytes) -> None:
        self._pending += content
        if len(self._pending) >= PART_BYTES:
            self._send_part()

    def commit(self) -> None:
        try:
            with _told(self._url):
                if self._upload_id is None:
                    self._client.put_object(**self._where, Body=self._pending)
                    return
                if self._pending:
                    self._send_part()
                parts = [part.result() for part in self._parts]
                self._client.complete_multipart_upload(
                    **self._where, UploadId=self._upload_id, MultipartUpload={"Parts": parts}
                )
        except BaseException:
            self.discard()
            raise
        finally:
            self._threads.shutdown(cancel_futures=True)

    def discard(self) -> None:
        self._threads.shutdown(cancel_futures=True)
        self._pending = bytearray()
        if self._upload_id is not None:
            with _told(self._url):
                self._client.abort_multipart_upload(**self._where, UploadId=self._upload_id)
            self._upload_id = None

    def _send_part(self) -> None:
        with _told(self._url):
            if self._upload_id is None:
                self._upload_id = self._client.create_multipart_upload(**self._where)["UploadId"]
            self._room.acquire()
            for part in self._parts:
                if part.done():
                    part.result()
        content, self._pending = self._pending, bytearray()
        self._parts.append(self._threads.submit(self._upload, len(self._parts) + 1, content))

    def _upload(self, number: int, content: bytearray) -> dict[str, Any]:
        try:
            answer = self._client.upload_part(**self._where, UploadId=self._upload_id, PartNumber=number, Body=content)
            return {"ETag": answer["ETag"], "PartNumber": number}
        finally:
            self._room.release()
