"""The service's interface, as the guide that it comes from wrote it and as it goes on from there."""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
import subprocess
from pathlib import Path

import pytest
from service_fixtures import ask, new_dataset

# The four curl lines of the guide, as they stand there, their three spellings of the address included.
GUIDE = """
curl -X GET http://localhost:8080/datasets
curl -X POST -H "Content-Type: application/json" -d '{"name": "my_dataset"}' http://localhost:8080/datasets
curl -X PUT -H "Content-Type: application/octet-stream" --data-binary @my_file.csv http://localhost:8080/datsets/{dataset_name}
curl http://localhost:8080/datasets
""".strip().splitlines()


def digest(content: bytes) -> str:
    return f"sha-256=:{base64.b64encode(hashlib.sha256(content).digest()).decode()}:"


def test_the_curl_lines_of_the_guide_run_as_written(service, tmp_path):
    (tmp_path / "my_file.csv").write_bytes(b"a,b\n1,2\n")
    new_dataset(service.url, "dataset_name")  # what curl makes of {dataset_name}
    answers = []
    for line in GUIDE:
        command = [*shlex.split(line.replace("localhost:8080", f"127.0.0.1:{service.port}")), "-sS", "-i"]
        answers.append(subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout)
    listed, created, uploaded, listed_again = answers
    assert listed.startswith("HTTP/1.1 200 OK\n")
    assert "\ncontent-type: application/json\n" in listed
    assert created.startswith("HTTP/1.1 201 Created\n")
    assert "\nlocation: /dataset/my_dataset\n" in created
    assert uploaded.startswith("HTTP/1.1 200 OK\n")
    body = json.loads(listed_again.split("\n\n", 1)[1])
    assert {"name": "my_dataset", "location": "/dataset/my_dataset"} in body["datasets"]
    assert ask(service.url, path="/dataset/dataset_name").body == b"a,b\n1,2\n"


@pytest.mark.parametrize("spelling", ["/dataset", "/datasets"])
def test_the_requests_of_the_guide_get_its_answers(service, spelling):
    name = f"guide-{spelling[1:]}"
    created = ask(service.url, "POST", spelling, {"name": name})
    assert (created.status, created.headers["location"]) == (201, f"/dataset/{name}")
    uploaded = ask(
        service.url,
        "PUT",
        f"{spelling}/{name}",
        b"[contents of my_file.csv]",
        Content_Type="application/octet-stream",
        Content_Disposition='attachment; filename="my_file.csv"',
    )
    assert uploaded.status == 200
    downloaded = ask(service.url, path=f"{spelling}/{name}")
    assert (downloaded.status, downloaded.body) == (200, b"[contents of my_file.csv]")
    assert downloaded.headers["content-type"] == "application/octet-stream"
    assert downloaded.headers["content-disposition"] == 'attachment; filename="my_file.csv"'


def test_every_refusal_says_what_was_wrong_and_what_to_do(service):
    new_dataset(service.url, "refusals")
    ask(service.url, "PUT", "/datasets/refusals/files/a", b"0123456789")
    refusals = {
        404: ask(service.url, path="/datasets/nothing"),
        409: ask(service.url, "POST", "/datasets", {"name": "refusals"}),
        400: ask(service.url, "POST", "/datasets", {"name": "../up"}),
        416: ask(service.url, path="/datasets/refusals/files/a", Range="bytes=10-"),
        405: ask(service.url, "PATCH", "/datasets/refusals"),
        431: ask(service.url, path="/datasets", X_Long="x" * 20_000),
    }
    for status, answer in refusals.items():
        assert answer.status == status
        assert answer.headers["content-type"] == "application/problem+json"
        problem = answer.json()
        assert problem["status"] == status and problem["title"] and problem["detail"]
    assert refusals[404].json()["title"] == "there is no 'nothing'"
    assert refusals[416].headers["content-range"] == "bytes */10"


def test_a_file_cannot_be_a_folder_too(service):
    new_dataset(service.url, "both")
    assert ask(service.url, "PUT", "/datasets/both/files/a/b", b"1").status == 200
    assert ask(service.url, "PUT", "/datasets/both/files/a", b"2").status == 409
    assert ask(service.url, "PUT", "/datasets/both/files/a/b/c", b"3").status == 409
    assert ask(service.url, "DELETE", "/datasets/both/files/a/b").status == 204
    assert ask(service.url, "PUT", "/datasets/both/files/a", b"4").status == 200


def test_ranges_and_versions(service):
    new_dataset(service.url, "ranges")
    content = bytes(range(256)) * 8192  # 2 MiB, so that it comes in more than one chunk
    path = "/datasets/ranges/files/train/1.bin"
    ask(service.url, "PUT", path, content)
    whole = ask(service.url, path=path)
    assert (whole.body, whole.headers["repr-digest"]) == (content, digest(content))
    etag = whole.headers["etag"]
    for wanted, start, stop in (("0-0", 0, 1), ("5-1500000", 5, 1_500_001), ("-7", len(content) - 7, len(content))):
        part = ask(service.url, path=path, Range=f"bytes={wanted}", If_Range=etag)
        assert (part.status, part.body) == (206, content[start:stop])
        assert part.headers["content-range"] == f"bytes {start}-{stop - 1}/{len(content)}"
    assert ask(service.url, path=path, If_None_Match=etag).status == 304
    head = ask(service.url, "HEAD", path)
    assert (head.status, head.body, head.headers["content-length"]) == (200, b"", str(len(content)))
    ask(service.url, "PUT", path, content[:-1] + b"!")
    changed = ask(service.url, path=path, Range="bytes=0-9", If_Range=etag)
    assert (changed.status, len(changed.body)) == (200, len(content))


def test_a_damaged_upload_is_refused_and_the_old_file_stays(service):
    new_dataset(service.url, "digests")
    path = "/datasets/digests/files/a.bin"
    sent = ask(service.url, "PUT", path, b"old", Repr_Digest=digest(b"old"))
    assert sent.json()["sha256"] == hashlib.sha256(b"old").hexdigest()
    damaged = ask(service.url, "PUT", path, b"nem", Content_Digest=digest(b"new"))
    assert damaged.status == 400 and "damaged on the way" in damaged.json()["title"]
    assert ask(service.url, path=path).body == b"old"


def test_a_file_put_there_by_hand_gets_its_digest_when_asked(service):
    new_dataset(service.url, "by-hand")
    file = Path(service.root, "by-hand", "x.bin")
    file.write_bytes(b"first")
    assert "repr-digest" not in ask(service.url, path="/datasets/by-hand/files/x.bin").headers
    answer = ask(service.url, path="/datasets/by-hand/files/x.bin", Want_Repr_Digest="sha-256=1")
    assert answer.headers["repr-digest"] == digest(b"first")
    ask(service.url, "PUT", "/datasets/by-hand/files/x.bin", b"second")
    file.write_bytes(b"edited")
    assert "repr-digest" not in ask(service.url, path="/datasets/by-hand/files/x.bin").headers


def test_the_listing_comes_by_pages_or_in_one_stream(service):
    new_dataset(service.url, "pages")
    paths = sorted(f"{split}/{c}/{i:02d}.bin" for split in ("train", "val") for c in "ab" for i in range(8))
    for path in reversed(paths):
        ask(service.url, "PUT", f"/datasets/pages/files/{path}", path.encode())
    found: list[str] = []
    after: str | None = ""
    while after is not None:
        page = ask(service.url, path=f"/datasets/pages/files?limit=5&after={after}").json()
        found += [file["path"] for file in page["files"]]
        after = page["next"]
    assert found == paths
    streamed = ask(service.url, path="/datasets/pages/files?after=train/b/07.bin", Accept="application/x-ndjson")
    assert [json.loads(line)["path"] for line in streamed.body.splitlines()] == paths[16:]
    summary = ask(service.url, path="/datasets/pages/summary").json()
    assert summary["files"] == 32 and summary["classes"] == 2 and summary["folders"]["train/a"] == 8


def test_deleted_is_gone(service):
    new_dataset(service.url, "short-lived")
    ask(service.url, "PUT", "/datasets/short-lived/files/a/b/c", b"1")
    assert ask(service.url, "DELETE", "/datasets/short-lived/files/a/b/c").status == 204
    assert ask(service.url, path="/datasets/short-lived").status == 404
    assert ask(service.url, "DELETE", "/datasets/short-lived").status == 204
    assert ask(service.url, "DELETE", "/datasets/short-lived").status == 404
    assert not Path(service.root, "short-lived").exists()


def test_metrics_and_the_log_tell_of_every_request(service):
    ask(service.url, path="/datasets/no-such-thing/files/seen.txt")
    metrics = ask(service.url, path="/metrics").body.decode()
    line = 'dataset_service_requests_total{method="GET",route="/datasets/{name}/files/{path}",status="404"}'
    assert line in metrics
    logged = [json.loads(line) for line in service.log().splitlines() if line.startswith("{")]
    assert any(r["path"].endswith("seen.txt") and r["status"] == 404 for r in logged)
