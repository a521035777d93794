"""What a service must never do: read or write outside its root, keep half a file, tell a secret."""

from __future__ import annotations

import hashlib
import http.client
import os
import random
import socket
import threading
import time
from pathlib import Path
from urllib.parse import quote

import pytest
from service_fixtures import ask, new_dataset

from datapipes.service.names import check_path
from datapipes.service.problems import Problem
from recipes.local_service import dataset_service

SECRET = b"outside the root"


@pytest.fixture
def walled(tmp_path):
    """A service whose root has neighbors that nobody may see."""
    root = tmp_path / "root"
    (root / "inside").mkdir(parents=True)
    (root / "inside" / "a.txt").write_bytes(b"inside")
    (tmp_path / "secret.txt").write_bytes(SECRET)
    (tmp_path / "rootless").mkdir()
    (tmp_path / "rootless" / "secret.txt").write_bytes(SECRET)
    (root / "inside" / "link.txt").symlink_to(tmp_path / "secret.txt")
    (root / "inside" / "linked").symlink_to(tmp_path)
    (root / "linked-set").symlink_to(tmp_path)
    with dataset_service(root) as running:
        yield running, tmp_path


def hostile_paths(count: int) -> list[str]:
    """Paths as an attacker writes them, raw and escaped once or twice."""
    pieces = ["..", ".", "", "a", "link.txt", "linked", "secret.txt", "rootless", ".uploads", "root", "etc", "passwd"]
    pieces += ["...", "..;", "..\\", "\\..", "%2e%2e", "%2E.", "..%2f", "%2f", "%5c", "%00", "a%00.txt", "~", "C:"]
    pieces += ["\u2025", "\uff0e\uff0e", "%c0%ae%c0%ae", "x" * 300, "\u202e", "CON", "-rf", "$(id)", "`id`", "*", "?x"]
    chosen = random.Random(7)
    paths = []
    for _ in range(count):
        path = "/".join(chosen.choices(pieces, k=chosen.randint(1, 8)))
        if chosen.random() < 0.3:
            path = quote(path, safe="/")
        paths.append(path)
    return paths


def test_ten_thousand_hostile_paths_reach_nothing_outside(walled):
    service, around = walled
    before = snapshot(around)
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
    for number, path in enumerate(hostile_paths(10_000)):
        where = ("/datasets/inside/files/", "/datasets/", "/dataset/inside/", "/browse/inside/thumbnail/")[number % 4]
        method = ("GET", "PUT", "DELETE", "HEAD")[number // 4 % 4]
        raw = (where + path).encode().decode("latin-1")
        connection.putrequest(method, quote(raw, safe="/%?&=~$*`()\\;"), skip_host=False)
        connection.putheader("Content-Length", "4" if method == "PUT" else "0")
        connection.endheaders(b"evil" if method == "PUT" else None)
        answer = connection.getresponse()
        body = answer.read()
        assert SECRET not in body, path
        assert answer.status < 500, (path, answer.status)
    connection.close()
    assert snapshot(around) == before
    assert ask(service.url, path="/datasets").json()["datasets"] == [{"name": "inside", "location": "/dataset/inside"}]


def snapshot(around: Path) -> dict[str, bytes]:
    """Everything beside and above the root, and no link followed."""
    return {
        str(path): path.read_bytes()
        for path in around.rglob("*")
        if path.is_file() and not path.is_symlink() and (around / "root") not in path.parents
    }


@pytest.mark.parametrize(
    "path", ["", ".", "..", "a/../b", "/a", "a/", "a//b", "a\0b", "a\\b", "\udc80", "a\nb", "x" * 256, "é" * 600]
)
def test_what_is_no_path_is_refused(path):
    with pytest.raises(Problem):
        check_path(path)


def test_links_in_the_root_are_not_followed(walled):
    service, _ = walled
    for path in ("inside/files/link.txt", "inside/files/linked/secret.txt", "linked-set/files/secret.txt"):
        assert ask(service.url, path=f"/datasets/{path}").status in (404, 409)
        assert ask(service.url, "PUT", f"/datasets/{path}", b"evil").status in (200, 404, 409)
    assert ask(service.url, path="/datasets/linked-set").status in (404, 409)
    listed = ask(service.url, path="/datasets/inside/files").json()["files"]
    assert {file["path"] for file in listed} == {"a.txt", "link.txt"}  # the link itself was replaced by the upload
    assert (walled[1] / "secret.txt").read_bytes() == SECRET


def test_an_upload_killed_at_any_point_leaves_the_old_file_or_the_new(tmp_path):
    contents = [os.urandom(16 << 20) for _ in range(2)]
    whole = {hashlib.sha256(content).hexdigest() for content in contents}
    with dataset_service(tmp_path) as service:
        new_dataset(service.url, "kills")
        began = time.monotonic()
        assert ask(service.url, "PUT", "/datasets/kills/files/a.bin", contents[0]).status == 200
        upload_s = time.monotonic() - began
        cut = 0
        for number, share in enumerate((0.95, 0.1, 0.7, 0.4, 0.85), 1):
            upload = threading.Thread(target=send_quietly, args=(service.port, contents[number % 2]))
            upload.start()
            time.sleep(share * upload_s * random.uniform(0.9, 1.1))
            service.kill()
            upload.join()
            service.start()
            stored = (tmp_path / "kills" / "a.bin").read_bytes()
            assert hashlib.sha256(stored).hexdigest() in whole
            cut += stored != contents[number % 2]
            assert list((tmp_path / ".uploads").iterdir()) == []  # the restart swept up
        assert cut  # the kills did come in time


def send_quietly(port: int, content: bytes) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("PUT", "/datasets/kills/files/a.bin", content)
        connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        pass
    finally:
        connection.close()


def test_an_upload_that_its_sender_drops_leaves_nothing(service):
    new_dataset(service.url, "dropped")
    with socket.create_connection(("127.0.0.1", service.port)) as raw:
        raw.sendall(
            b"PUT /datasets/dropped/files/a HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000\r\n\r\n" + bytes(5_000_000)
        )
    deadline = time.monotonic() + 10
    while [p for p in Path(service.root, ".uploads").iterdir() if p.name.startswith("incoming-")]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert ask(service.url, path="/datasets/dropped/files/a").status == 404


def test_clients_that_leave_at_any_moment_leave_nothing_open(service):
    new_dataset(service.url, "leavers")
    ask(service.url, "PUT", "/datasets/leavers/files/sub/large.bin", bytes(4 << 20))
    descriptors = Path(f"/proc/{service.pid}/fd")
    before = len(list(descriptors.iterdir()))
    for number in range(60):
        path = ("sub/large.bin", "sub", "none")[number % 3]
        with socket.create_connection(("127.0.0.1", service.port)) as raw:
            raw.sendall(f"GET /datasets/leavers/files/{path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            if number % 2:
                raw.recv(1000)
    assert ask(service.url, path="/datasets/leavers/files/sub").status == 404
    deadline = time.monotonic() + 10
    while len(list(descriptors.iterdir())) > before + 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_too_large_and_too_full_are_told_before_a_byte_is_sent(tmp_path):
    with dataset_service(tmp_path, "--max-file-bytes", "1000") as service:
        new_dataset(service.url, "small")
        assert ask(service.url, "PUT", "/datasets/small/files/a", bytes(1000)).status == 200
        assert ask(service.url, "PUT", "/datasets/small/files/a", bytes(1001)).status == 413
        chunked = ask(service.url, "PUT", "/datasets/small/files/b", iter([bytes(600), bytes(600)]))
        assert chunked.status == 413
    with dataset_service(tmp_path) as service:
        full = ask_with_length(service.port, 1 << 60)
        assert full.startswith(b"HTTP/1.1 507 ")
        assert b"delete data sets that are no longer needed" in full


def ask_with_length(port: int, length: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port)) as raw:
        raw.sendall(f"PUT /datasets/small/files/c HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode())
        answer = b""
        while not answer.endswith(b"}"):
            answer += raw.recv(65536)
        return answer


def test_another_sites_page_may_not_write(service):
    answer = ask(service.url, "DELETE", "/datasets/imagenet", Sec_Fetch_Site="cross-site")
    assert answer.status == 403
    plain = ask(service.url, "POST", "/datasets", b'{"name": "forged"}', Content_Type="text/plain")
    assert plain.status == 400
