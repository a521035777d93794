"""Many clients of every kind at once: at the end every byte is accounted for."""

from __future__ import annotations

import hashlib
import random
import re
import tarfile
import threading
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

from service_fixtures import ask, new_dataset

from datapipes.catalog.dataset_service import DatasetService
from datapipes.load.service import ServiceFileLoader
from datapipes.service.fetch import fetch
from datapipes.service.push import push
from recipes.local_service import dataset_service

CLIENTS = 8
ROUNDS = 25


def content(path: str, version: int) -> bytes:
    chosen = random.Random(f"{path} {version}")
    return chosen.randbytes(chosen.choice((0, 1, 1000, 70_000, 1_500_000)))


def test_mixed_clients_lose_nothing(tmp_path):
    newest: dict[str, int] = {}
    written = threading.Lock()
    counts = {"sent": 0, "received": 0}

    def count(sent: int = 0, received: int = 0) -> None:
        with written:
            counts["sent"] += sent
            counts["received"] += received

    def client(number: int) -> None:
        """Writes files of its own, and reads everybody's."""
        chosen = random.Random(number)
        for version in range(ROUNDS):
            path = f"c{number}/{chosen.randrange(5)}.bin"
            body = content(path, version)
            answer = ask(service.url, "PUT", f"/datasets/soak/files/{path}", body)
            assert answer.status == 200 and answer.json()["sha256"] == hashlib.sha256(body).hexdigest()
            with written:
                newest[path] = version
            count(sent=len(answer.body), received=len(body))
            other = f"c{chosen.randrange(CLIENTS)}/{chosen.randrange(5)}.bin"
            found = ask(service.url, path=f"/datasets/soak/files/{other}")
            assert found.status in (200, 404)
            count(sent=len(found.body))
            if found.status == 200:
                versions = range(ROUNDS)
                assert any(found.body == content(other, version) for version in versions)

    before_push = tmp_path / "pushed"
    for number in range(30):
        (before_push / f"{number % 3}").mkdir(parents=True, exist_ok=True)
        (before_push / f"{number % 3}" / f"{number}.bin").write_bytes(content("pushed", number))
    with dataset_service(tmp_path / "root", "--workers", "2") as service:
        new_dataset(service.url, "soak")
        server = DatasetService(service.url)
        with ThreadPoolExecutor(CLIENTS + 1) as threads:
            running = [threads.submit(client, number) for number in range(CLIENTS)]
            running.append(threads.submit(push, before_push, "pushed", server))
            for each in running:
                each.result()
        expected = {path: content(path, version) for path, version in newest.items()}
        fetch("soak", tmp_path / "fetched", server)
        assert {p: (tmp_path / "fetched" / p).read_bytes() for p in expected} == expected
        urls = [f"{service.url}/datasets/soak/files/{path}" for path in sorted(expected)]
        loaded = [stream.read() for _, stream in ServiceFileLoader(urls, server=server)]
        assert loaded == [expected[path] for path in sorted(expected)]
        with tarfile.open(fileobj=BytesIO(ask(service.url, path="/datasets/pushed").body)) as archive:
            assert {m.name: archive.extractfile(m).read() for m in archive} == {
                p.relative_to(before_push).as_posix(): p.read_bytes() for p in before_push.rglob("*.bin")
            }
        metrics = ask(service.url, path="/metrics").body.decode()
        assert total(metrics, "dataset_service_received_bytes_total") >= counts["received"]
        assert total(metrics, "dataset_service_sent_bytes_total") >= counts["sent"]
        assert not re.search(r'status="5\d\d"', metrics)
        assert list(Path(tmp_path, "root", ".uploads").iterdir()) == []
        on_disk = {
            p.relative_to(tmp_path / "root" / "soak").as_posix() for p in (tmp_path / "root" / "soak").rglob("*.bin")
        }
        assert on_disk == set(expected)


def total(metrics: str, name: str) -> float:
    return sum(float(value) for value in re.findall(rf"^{name} (\S+)$", metrics, re.MULTILINE))
