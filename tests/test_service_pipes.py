"""Training from a dataset service: its files listed, loaded and decoded by pipes."""

from __future__ import annotations

import base64
import pickle
import secrets
from pathlib import Path

import numpy as np
import pytest
from service_fixtures import ask, new_dataset

from datapipes.catalog import service_requests
from datapipes.catalog.dataset_service import DatasetService
from datapipes.catalog.list_service import ServiceFileLister
from datapipes.dataset.as_dataset import as_dataset
from datapipes.iter import IterableWrapper
from datapipes.load.service import ServiceFileLoader
from recipes.local_service import dataset_service

ODD_PATHS = ["a b/1.jpg", "a+b/k=v&x=y.jpg", "50%/é#ü?.jpg", "日本/100%25 ~!'()*,;:@$.jpg", 'q"uote/1.jpg']


def paths_of(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def test_a_chain_trains_from_the_service(service, samples):
    pipe = IterableWrapper([f"{service.url}/datasets/imagenet/files/train/"]).list_files_by_service()
    pipe = pipe.distribute(seed=3).load_files_by_service().parse_label().decode("pil").to_tuple("jpeg", "cls")
    dataset = as_dataset(pipe)
    labels = [label for _, label in dataset]
    assert len(labels) == 48 and set(labels) == {0, 1, 2, 3}
    assert all(image.size == (96, 72) for image, _ in dataset)


def test_every_file_comes_as_it_is_on_disk_and_in_order(service, samples):
    listed = list(IterableWrapper([f"{service.url}/dataset/imagenet/"]).list_files_by_service())
    prefix = f"{service.url}/datasets/imagenet/files/"
    assert listed == [prefix + path for path in paths_of(samples) if path.endswith(".JPEG")]
    loaded = list(IterableWrapper(listed).load_files_by_service())
    assert [url for url, _ in loaded] == listed
    assert all(stream.read() == (samples / url.removeprefix(prefix)).read_bytes() for url, stream in loaded)


def test_a_long_listing_comes_by_pages(service, monkeypatch):
    source = IterableWrapper([f"{service.url}/datasets/imagenet/train/"]).list_files_by_service()
    whole = list(source)
    monkeypatch.setattr(service_requests, "PAGE", 5)
    assert list(source) == whole
    table = source.key_table()
    assert table.take(np.arange(len(table))) == whole


def test_odd_names_are_listed_and_loaded(service):
    new_dataset(service.url, "odd")
    root = Path(service.root, "odd")
    for path in ODD_PATHS:
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text(path)
    server = DatasetService(service.url)
    loaded = IterableWrapper(["odd"]).list_files_by_service(server=server).load_files_by_service(server=server)
    assert sorted(stream.read().decode() for _, stream in loaded) == sorted(ODD_PATHS)


def test_masks_and_folders_choose(service):
    server = DatasetService(service.url)
    val = list(IterableWrapper(["imagenet/val/"]).list_files_by_service("*.JPEG", server=server))
    assert len(val) == 12 and all("/files/val/" in url for url in val)
    with pytest.raises(FileNotFoundError, match=r"none of the 12 files .* matches masks='\*.png'"):
        list(IterableWrapper(["imagenet/val/"]).list_files_by_service("*.png", server=server))


@pytest.mark.parametrize(
    ("source", "error", "words"),
    [
        ("nothing", FileNotFoundError, "there is no 'nothing'; see GET /datasets"),
        ("imagenet/test", FileNotFoundError, "there is no 'imagenet/test'"),
        ("s3://bucket/train", ValueError, "names no data set"),
    ],
)
def test_what_is_not_there_is_said(service, source, error, words):
    pipe = IterableWrapper([source]).list_files_by_service(server=DatasetService(service.url))
    with pytest.raises(error, match=words):
        list(pipe)


def test_a_missing_file_follows_on_error(service):
    prefix = f"{service.url}/datasets/imagenet/files/"
    there = next(iter(IterableWrapper([f"{service.url}/datasets/imagenet/"]).list_files_by_service()))
    urls = [there, prefix + "train/none.JPEG", there]
    with pytest.raises(FileNotFoundError, match=r"load_files_by_service: .*none\.JPEG.*there is no"):
        list(IterableWrapper(urls).load_files_by_service())
    assert len(list(IterableWrapper(urls).load_files_by_service(on_error="skip"))) == 2


def test_tokens_open_the_service_and_go_nowhere_else(tmp_path):
    reader, writer = secrets.token_hex(16), secrets.token_hex(16)
    tokens = tmp_path / "tokens.txt"
    tokens.write_text(f"# who may what\nread {reader}\nwrite {writer}\n")
    (tmp_path / "root" / "pets").mkdir(parents=True)
    (tmp_path / "root" / "pets" / "1.jpg").write_bytes(b"1")
    with dataset_service(tmp_path / "root", "--tokens", str(tokens)) as guarded:
        server = DatasetService(guarded.url, token=reader)
        listing = IterableWrapper(["pets"]).list_files_by_service(server=server)
        assert [body.read() for _, body in listing.load_files_by_service(server=server)] == [b"1"]
        assert reader not in repr(server) and reader.encode() not in pickle.dumps(listing)
        with pytest.raises(PermissionError, match="this service wants a token"):
            list(IterableWrapper(["pets"]).list_files_by_service(server=DatasetService(guarded.url)))
        with pytest.raises(PermissionError, match="this service wants a token"):
            list(IterableWrapper(list(listing)).load_files_by_service())
        elsewhere = IterableWrapper(["http://127.0.0.1:9/datasets/pets/files/1.jpg"])
        with pytest.raises(ValueError, match="lies elsewhere"):
            list(elsewhere.load_files_by_service(server=server))
        bearer = {"Authorization": f"Bearer {reader}"}
        assert ask(guarded.url, path="/datasets").status == 401
        assert ask(guarded.url, path="/datasets", Authorization=f"Bearer {reader[:-1]}0x").status == 401
        assert ask(guarded.url, "DELETE", "/datasets/pets", **bearer).status == 403
        assert ask(guarded.url, "DELETE", "/datasets/pets", Authorization=f"Bearer {writer}").status == 204
        in_a_browser = "Basic " + base64.b64encode(f"anybody:{writer}".encode()).decode()
        assert ask(guarded.url, path="/", Authorization=in_a_browser).status == 200
        assert "Basic" in ask(guarded.url, path="/").headers["www-authenticate"]
        assert ask(guarded.url, path="/healthz").status == 200
        assert reader not in guarded.log() and writer not in guarded.log()


def test_the_pipes_pickle_unstarted_half_read_and_finished(service):
    listing = IterableWrapper([f"{service.url}/datasets/imagenet/files/val/"]).list_files_by_service()
    loader = listing.load_files_by_service()
    assert type(pickle.loads(pickle.dumps(loader))) is ServiceFileLoader
    half_read = iter(loader)
    next(half_read)
    again = pickle.loads(pickle.dumps(loader))
    assert type(again.source_datapipe) is ServiceFileLister
    assert len(list(again)) == 12
    assert len(list(loader)) == 12
    pickle.dumps(loader)


def test_bad_settings_are_refused_at_once():
    with pytest.raises(ValueError, match="url must look like"):
        DatasetService("datasets:8080")
    with pytest.raises(ValueError, match="give token instead"):
        DatasetService("http://me:hunter2@datasets:8080")
    with pytest.raises(ValueError, match="max_in_flight must be at least 1, got 0"):
        IterableWrapper([]).load_files_by_service(max_in_flight=0)
