"""Folders to data sets and back: what differs, verified, and going on where it was cut."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from service_fixtures import ask

from datapipes.catalog.dataset_service import DatasetService
from datapipes.service.fetch import fetch
from datapipes.service.push import push


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.parts[-2] != ".fetch"
    }


def test_pushed_and_fetched_is_the_same_and_a_second_run_brings_nothing(service, samples, tmp_path):
    server = DatasetService(service.url)
    assert push(samples, "round-trip", server).files == len(contents(samples))
    assert push(samples, "round-trip", server).unchanged == len(contents(samples))
    fetch("round-trip", tmp_path, server)
    assert contents(tmp_path) == contents(samples)
    again = fetch("round-trip", tmp_path, server)
    assert (again.files, again.unchanged) == (0, len(contents(samples)))


def test_only_what_differs_is_brought(service, tmp_path):
    server = DatasetService(service.url)
    here, there = tmp_path / "here", tmp_path / "there"
    (here / "a").mkdir(parents=True)
    for number in range(5):
        (here / "a" / f"{number}.bin").write_bytes(bytes([number]) * 100)
    push(here, "differs", server)
    fetch("differs", there, server)
    (here / "a" / "3.bin").write_bytes(b"x" * 100)
    (here / "b.bin").write_bytes(b"new")
    assert push(here, "differs", server).files == 2
    assert fetch("differs", there, server).files == 2
    assert contents(there) == contents(here)
    status = (there / "b.bin").stat()
    (there / "b.bin").write_bytes(b"bad")
    os.utime(there / "b.bin", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert fetch("differs", there, server).files == 0
    assert fetch("differs", there, server, checksum=True).files == 1
    assert contents(there) == contents(here)


def test_a_large_file_goes_in_parts_and_goes_on_where_it_was_cut(service, tmp_path):
    server = DatasetService(service.url)
    content = os.urandom(1_000_003)
    (tmp_path / "large.bin").write_bytes(content)
    ask(service.url, "POST", "/datasets", {"name": "parts"})
    upload = ask(service.url, "POST", "/datasets/parts/uploads", {"path": "large.bin", "size": len(content)})
    assert upload.status == 201
    address = upload.headers["location"]
    for number in (3, 1):
        part = content[(number - 1) * 300_000 : number * 300_000]
        assert ask(service.url, "PUT", f"{address}/{number}", part).status == 200
    early = ask(service.url, "POST", f"{address}/complete")
    assert early.status == 409 and early.json()["title"].startswith("part 2 is missing")
    before = service.log().count(f'"PUT", "path": "/datasets/parts/uploads/{upload.json()["id"]}/')
    assert push(tmp_path, "parts", server, part_bytes=300_000).files == 1
    after = service.log().count(f'"PUT", "path": "/datasets/parts/uploads/{upload.json()["id"]}/')
    assert (before, after) == (2, 4)
    assert ask(service.url, path="/datasets/parts/files/large.bin").body == content
    assert ask(service.url, path="/datasets/parts/uploads").json() == {"uploads": []}
    assert not [p for p in Path(service.root, ".uploads").iterdir() if p.name.startswith("upload-")]


def test_a_fetch_that_was_killed_goes_on_with_its_part_files(service, tmp_path):
    folder = Path(service.root, "killed-fetch")
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.bin").write_bytes(os.urandom(24 << 20))
    command = [sys.executable, "-m", "datapipes.service.fetch", "killed-fetch", str(tmp_path), "--quiet"]
    command += ["--service", service.url]
    process = subprocess.Popen(command)
    while not any(part.stat().st_size for part in (tmp_path / ".fetch").glob("*.part")):
        time.sleep(0.002)
        assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("unchanged\n")
    assert contents(tmp_path) == contents(folder)
    assert not list((tmp_path / ".fetch").glob("*.part"))
    partial = [line for line in service.log().splitlines() if "killed-fetch" in line and '"status": 206' in line]
    assert partial


def test_two_fetches_into_one_folder_share_the_work(service, tmp_path):
    server = DatasetService(service.url)
    with ThreadPoolExecutor(2) as threads:
        runs = list(threads.map(lambda _: fetch("imagenet", tmp_path, server), range(2)))
    assert sorted(run.files for run in runs) == [0, len(contents(tmp_path))]


def test_the_commands_say_what_went_wrong_in_one_line(service, tmp_path):
    command = [sys.executable, "-m", "datapipes.service.fetch", "nothing", str(tmp_path), "--service", service.url]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("there is no 'nothing'; see GET /datasets for what there is")
    assert "Traceback" not in done.stderr


def test_neither_command_nor_service_imports_torch():
    program = "import sys, datapipes.service.app, datapipes.service.fetch, datapipes.service.push; "
    subprocess.run([sys.executable, "-c", program + "assert 'torch' not in sys.modules"], check=True)


@pytest.mark.parametrize("path", ["../up", "/etc/x", "a//b", ".fetch/lock"])
def test_a_service_cannot_write_outside_the_folder(tmp_path, path):
    from datapipes.service.fetch import place_of

    with pytest.raises(ValueError, match="which no folder can hold"):
        place_of(tmp_path, path)
