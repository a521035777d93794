"""list_files_by_fsspec and load_files_by_fsspec: any file system, with the rules of the S3 pipes."""

from __future__ import annotations

import functools
import os
import pickle
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fsspec
import pytest
from torch.utils.data import DataLoader

from datapipes.catalog.list_fsspec import FSSpecFileLister
from datapipes.iter import IterableWrapper
from datapipes.load.fsspec import FSSpecFileLoader

FILES = {
    "val/cat/1.jpg": b"one",
    "val/cat/a b+%20#ü.jpg": b"odd",
    "val/dog/10.jpg": b"ten",
    "val/dog/9.txt": b"",
    "val2/dog/3.jpg": b"other",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tmp_path


@pytest.fixture
def web(folder: Path) -> Iterator[str]:
    """A web server over the folder, with its listings."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(params=["path", "file", "memory"])
def root(request: pytest.FixtureRequest, folder: Path) -> Iterator[str]:
    if request.param == "memory":
        memory = fsspec.filesystem("memory")
        memory.pipe({f"/fsspec-test/{name}": content for name, content in FILES.items()})
        yield "memory://fsspec-test"
        memory.rm("/fsspec-test", recursive=True)
    else:
        yield f"file://{folder}" if request.param == "file" else str(folder)


def expected(root: str, prefix: str) -> list[str]:
    return sorted(f"{root}/{name}" for name in FILES if name.startswith(prefix))


def test_a_folder_is_listed_whole_and_no_more(root: str) -> None:
    urls = expected(root, "val/")
    assert list(IterableWrapper([f"{root}/val"]).list_files_by_fsspec()) == urls
    assert list(FSSpecFileLister(f"{root}/val/")) == urls
    assert list(FSSpecFileLister([f"{root}/val2", f"{root}/val/cat/1.jpg"])) == [
        f"{root}/val2/dog/3.jpg",
        f"{root}/val/cat/1.jpg",
    ]
    table = FSSpecFileLister(f"{root}/val", masks=["*.jpg"]).key_table()
    assert len(table) == 3


def test_what_is_listed_can_be_loaded(root: str) -> None:
    pipe = IterableWrapper([f"{root}/val"]).list_files_by_fsspec().load_files_by_fsspec()
    found = [(url, stream.read()) for url, stream in pipe]
    assert found == [(url, FILES[url[len(root) + 1 :]]) for url in expected(root, "val/")]


def test_a_web_folder_is_listed_and_loaded(web: str) -> None:
    urls = list(FSSpecFileLister(f"{web}/val2/"))
    assert urls == [f"{web}/val2/dog/3.jpg"]
    assert [stream.read() for _, stream in FSSpecFileLoader(urls)] == [b"other"]
    with pytest.raises(FileNotFoundError, match=rf"load_files_by_fsspec: no such file: {web}/nothing"):
        list(FSSpecFileLoader([f"{web}/nothing"]))


def test_s3_through_fsspec_gives_the_same(s3: Any) -> None:
    options = {
        "key": s3.access_key,
        "secret": s3.secret_key,
        "client_kwargs": {"endpoint_url": s3.endpoint_url, "region_name": s3.region},
    }
    lister = FSSpecFileLister("s3://imagenet/val", **options)
    urls = list(lister)
    assert urls == [f"s3://imagenet/{key}" for key in s3.keys("val/")]
    bodies = [stream.read() for _, stream in FSSpecFileLoader(urls, **options)]
    assert bodies == [(s3.folder / url.removeprefix("s3://imagenet/")).read_bytes() for url in urls]
    for pipe in (lister, FSSpecFileLoader(urls, **options)):
        assert s3.secret_key not in repr(vars(pipe)) and s3.secret_key.encode() not in pickle.dumps(pipe)
    # fsspec's own loop has run in this process: workers that are forked from it must not hang.
    loader = DataLoader(
        IterableWrapper(urls).sharding_filter().load_files_by_fsspec(**options),
        batch_size=None,
        num_workers=2,
        multiprocessing_context="fork",
    )
    assert sorted(url for url, _ in loader) == urls


def test_a_web_server_that_breaks_off_is_asked_again(web: str, fault_proxy: Any) -> None:
    proxy = fault_proxy(web)
    proxy.answer(503)
    proxy.reset(after_bytes=20)
    proxy.hang(times=1)
    url = f"{proxy.endpoint_url}/val/cat/1.jpg"
    assert [stream.read() for _, stream in FSSpecFileLoader([url], request_timeout_s=1.0)] == [b"one"]


def test_one_missing_file_can_be_skipped(root: str) -> None:
    urls = [f"{root}/val/cat/1.jpg", f"{root}/val/cat/2.jpg", f"{root}/val/dog/10.jpg"]
    with pytest.raises(FileNotFoundError, match=r"load_files_by_fsspec: no such file: .*/val/cat/2.jpg"):
        list(FSSpecFileLoader(urls))
    assert [stream.read() for _, stream in FSSpecFileLoader(urls, on_error="skip")] == [b"one", b"ten"]


def test_what_is_not_there_is_named(root: str) -> None:
    with pytest.raises(FileNotFoundError, match=r"list_files_by_fsspec: nothing under .*/va; check the name"):
        list(FSSpecFileLister(f"{root}/va"))
    with pytest.raises(FileNotFoundError, match=r"none of the 4 files under .* matches masks='\*\.png'"):
        list(FSSpecFileLister(f"{root}/val", masks="*.png"))
    with pytest.raises(ValueError, match="nosuch"):
        list(FSSpecFileLister("nosuch://a"))
    with pytest.raises(ValueError, match="nosuch"):
        list(FSSpecFileLoader(["nosuch://a/b"]))


def test_a_file_without_permission_is_told(folder: Path) -> None:
    if os.geteuid() == 0:
        # root may read everything: a folder instead of a file is refused even then.
        with pytest.raises(OSError, match="IsADirectoryError"):
            list(FSSpecFileLoader([str(folder / "val")]))
    else:
        (folder / "val/cat/1.jpg").chmod(0)
        with pytest.raises(PermissionError, match="permissions"):
            list(FSSpecFileLoader([str(folder / "val/cat/1.jpg")]))


def test_a_file_in_an_archive_is_reached_by_a_chained_url(folder: Path) -> None:
    import zipfile

    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        archive.writestr("val/1.jpg", b"zipped")
    urls = list(FSSpecFileLister(f"zip://val::{folder}/a.zip"))
    assert urls == [f"zip://val/1.jpg::{folder}/a.zip"]
    assert [stream.read() for _, stream in FSSpecFileLoader(urls)] == [b"zipped"]


def test_both_pickle_before_during_and_after(root: str) -> None:
    pipe = IterableWrapper([f"{root}/val"]).list_files_by_fsspec().load_files_by_fsspec()
    pickle.loads(pickle.dumps(pipe))
    items = iter(pipe)
    next(items)
    pickle.loads(pickle.dumps(pipe))
    assert len(list(items)) == 3
    pickle.loads(pickle.dumps(pipe))
    assert len(pipe.source_datapipe.source_datapipe) == 1
