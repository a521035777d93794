"""recipes/verify_shards.py: exit status, faults named; and shards in stores that are neither local nor S3."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from datapipes.iter import IterableWrapper
from recipes.verify_shards import main
from tests.test_tar_shards import in_key_order, samples_of, without_url, write


def test_a_sound_data_set_exits_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, samples_of(7), maxcount=3)
    assert main([str(tmp_path)]) == 0
    assert "3 shards, 7 samples" in capsys.readouterr().out


def test_damage_is_named_and_exits_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, samples_of(7), maxcount=3)
    shard = tmp_path / "shard-000001.tar"
    content = bytearray(shard.read_bytes())
    content[1600] ^= 1
    shard.write_bytes(content)
    (tmp_path / "shard-000002.tar").unlink()
    assert main([str(tmp_path)]) == 1
    told = capsys.readouterr().out
    assert "shard-000001.tar: 'class0/00003' at offset 0: its bytes are not those of its index" in told
    assert "shard-000002.tar" in told and "2 faults" in told


def test_nothing_to_verify_exits_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    assert "no shard" in capsys.readouterr().err


def test_shards_without_index_are_indexed_first_if_asked(tmp_path: Path) -> None:
    write(tmp_path, samples_of(7), maxcount=3)
    for path in [*tmp_path.glob("*.npz"), tmp_path / "manifest.json"]:
        path.unlink()
    assert main([str(tmp_path), "--index"]) == 0
    assert (tmp_path / "manifest.json").exists()


def test_shards_are_written_to_and_read_from_any_fsspec_store() -> None:
    samples = samples_of(9)
    write("memory://verify-shards", samples, maxcount=4)  # type: ignore[arg-type]
    folder = IterableWrapper(["memory://verify-shards"])
    assert in_key_order(list(folder.open_tar_shards())) == samples
    assert without_url(list(folder.list_tar_samples().read_tar_samples())) == samples


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Python's file server, with ranges."""

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        path = Path(self.translate_path(self.path))
        wanted = self.headers.get("Range")
        if wanted is None or not path.is_file():
            super().do_GET()
            return
        first, last = map(int, wanted.removeprefix("bytes=").split("-"))
        content = path.read_bytes()
        self.send_response(206)
        self.send_header("Content-Length", str(len(content[first : last + 1])))
        self.send_header("Content-Range", f"bytes {first}-{min(last, len(content) - 1)}/{len(content)}")
        self.end_headers()
        self.wfile.write(content[first : last + 1])


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(tmp_path)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_shards_are_read_over_http(tmp_path: Path, web: str) -> None:
    samples = samples_of(30)
    write(tmp_path / "shards", samples, maxcount=8)
    folder = IterableWrapper([f"{web}/shards"])
    again = IterableWrapper([f"{web}/shards", f"{web}/shards"]).open_tar_shards()
    assert len(list(again)) == 60
    assert in_key_order(list(folder.open_tar_shards())) == samples
    assert without_url(list(folder.list_tar_samples().read_tar_samples())) == samples
    with pytest.raises(FileNotFoundError):
        list(IterableWrapper([f"{web}/nowhere.tar"]).open_tar_shards())
