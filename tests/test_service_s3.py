"""The service over a bucket instead of a folder: the same answers."""

from __future__ import annotations

import os
import tarfile
from io import BytesIO

import pytest
from service_fixtures import ask, new_dataset

from recipes.local_service import dataset_service

LARGE = os.urandom(18 << 20)  # more than one part of S3's multipart upload


@pytest.fixture(scope="module")
def over_s3(s3):
    s3.client().create_bucket(Bucket="datasets")
    with dataset_service("s3://datasets/sets", environment=s3.local.environment) as running:
        yield running


def test_a_bucket_serves_as_a_folder_does(over_s3):
    url = over_s3.url
    assert ask(url, path="/datasets").json() == {"datasets": []}
    new_dataset(url, "pets")
    assert ask(url, "POST", "/datasets", {"name": "pets"}).status == 409
    assert ask(url, path="/datasets/pets").status == 404
    for path in ("train/cat/1.jpg", "train/dog/2.jpg", "val/cat/3.jpg"):
        sent = ask(url, "PUT", f"/datasets/pets/files/{path}", path.encode())
        assert sent.status == 200 and sent.json()["size"] == len(path)
    listed = ask(url, path="/datasets/pets/files?limit=2").json()
    assert [file["path"] for file in listed["files"]] == ["train/cat/1.jpg", "train/dog/2.jpg"]
    rest = ask(url, path=f"/datasets/pets/files?after={listed['next']}").json()
    assert [file["path"] for file in rest["files"]] == ["val/cat/3.jpg"]
    with tarfile.open(fileobj=BytesIO(ask(url, path="/datasets/pets").body)) as archive:
        assert archive.getnames() == ["train/cat/1.jpg", "train/dog/2.jpg", "val/cat/3.jpg"]
    assert ask(url, path="/datasets/pets/summary").json()["classes"] == 2
    assert ask(url, "PUT", "/datasets/pets/files/train", b"1").status == 409
    assert ask(url, "PUT", "/datasets/pets/files/train/cat/1.jpg/x", b"1").status == 409
    assert ask(url, "DELETE", "/datasets/pets/files/val/cat/3.jpg").status == 204
    assert ask(url, "DELETE", "/datasets/pets/files/val/cat/3.jpg").status == 404
    assert ask(url, "DELETE", "/datasets/pets").status == 204
    assert ask(url, path="/datasets").json() == {"datasets": []}


def test_large_files_come_and_go_in_ranges_and_parts(over_s3):
    url = over_s3.url
    new_dataset(url, "large")
    path = "/datasets/large/files/a.bin"
    assert ask(url, "PUT", path, LARGE).status == 200
    answer = ask(url, path=path)
    assert answer.body == LARGE
    part = ask(url, path=path, Range="bytes=5000000-9999999", If_Range=answer.headers["etag"])
    assert (part.status, part.body) == (206, LARGE[5_000_000:10_000_000])
    upload = ask(url, "POST", "/datasets/large/uploads", {"path": "b.bin", "size": len(LARGE)}).headers["location"]
    assert ask(url, "PUT", f"{upload}/2", LARGE[10 << 20 :]).status == 200
    assert ask(url, "PUT", f"{upload}/1", LARGE[: 10 << 20]).status == 200
    assert ask(url, "POST", f"{upload}/complete").json()["size"] == len(LARGE)
    assert ask(url, path="/datasets/large/files/b.bin").body == LARGE


def test_a_refused_upload_leaves_no_object(over_s3, s3):
    url = over_s3.url
    new_dataset(url, "refused")
    wrong = "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:"
    for content in (b"small", LARGE):
        assert ask(url, "PUT", "/datasets/refused/files/a", content, Repr_Digest=wrong).status == 400
    objects = s3.client().list_objects_v2(Bucket="datasets", Prefix="sets/refused/").get("Contents", [])
    assert [found["Key"] for found in objects] == ["sets/refused/.dataset"]


def test_a_folder_comes_as_an_archive(over_s3):
    new_dataset(over_s3.url, "archive")
    out = BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name in ("cat/1", "dog/2"):
            info = tarfile.TarInfo(name)
            info.size = 3
            archive.addfile(info, BytesIO(b"abc"))
    answer = ask(
        over_s3.url,
        "PUT",
        "/datasets/archive?unpack=true",
        out.getvalue(),
        Content_Disposition='attachment; filename="x.tar.gz"',
    )
    assert answer.json() == {"files": 2, "bytes": 6}
    assert ask(over_s3.url, path="/datasets/archive/files/dog/2").body == b"abc"
