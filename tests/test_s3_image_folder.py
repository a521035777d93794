"""S3ImageFolder: what torchvision's ImageFolder gives for the same files, from a bucket."""

from __future__ import annotations

import io
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder, folder

from datapipes.catalog.s3_server import S3Server
from datapipes.dataset import s3_image_folder
from datapipes.dataset.s3_image_folder import S3ImageFolder
from recipes.servers import put_folder

PIXELS = transforms.PILToTensor()


@pytest.fixture(params=["s3", "rclone_s3"])
def server(request: pytest.FixtureRequest) -> S3Server:
    """A server whose bucket `imagenet` holds the sample images."""
    found: S3Server = request.getfixturevalue(request.param).server
    return found


@pytest.fixture
def fill(s3: Any, tmp_path: Path) -> Callable[[str, dict[str, bytes]], str]:
    """Makes a bucket of S3Proxy with these files, which lie in the test's folder as well; its name."""

    def fill(bucket: str, files: dict[str, bytes]) -> str:
        for name, content in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(content)
        put_folder(s3.local, tmp_path, bucket=bucket)
        return bucket

    return fill


def image_file(color: tuple[int, int, int], kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (9, 7), color).save(file, kind)
    return file.getvalue()


def test_it_is_torchvisions_folder_in_a_bucket(server: S3Server, samples: Path) -> None:
    ours, theirs = S3ImageFolder("imagenet", "train", server=server), ImageFolder(str(samples / "train"))
    assert ours.classes == theirs.classes and ours.class_to_idx == theirs.class_to_idx
    assert ours.targets == theirs.targets and len(ours) == len(theirs)
    at = len(str(samples)) + 1
    assert ours.samples == [(f"s3://imagenet/{path[at:]}", label) for path, label in theirs.samples]
    assert ours.imgs is ours.samples and ours.samples[-3:] == list(ours.samples)[-3:]
    for index in (0, 7, -1):
        image, label = ours[index]
        expected, expected_label = theirs[index % len(theirs)]
        assert image.mode == "RGB" and label == expected_label
        assert np.array_equal(np.array(image), np.array(expected)), "not a pixel may differ"


def test_classes_and_files_come_in_torchvisions_order(s3: Any, fill: Any, tmp_path: Path) -> None:
    red = image_file((250, 0, 0))
    # In byte order "a-b/" precedes "a/"; by name "a" precedes "a-b".
    names = ["a/2.png", "a/1.PNG", "a-b/1.png", "a b/1.webp", "B/deep/er/1.jpg", "B/0.jpg", "a/notes.txt", "top.png"]
    bucket = fill("class-order", {f"train set/{name}": red for name in names} | {"train set2/c/1.png": red})
    ours = S3ImageFolder(bucket, "train set/", server=s3.server)
    theirs = ImageFolder(str(tmp_path / "train set"))
    assert ours.classes == theirs.classes == ["B", "a", "a b", "a-b"]
    at = len(str(tmp_path)) + 1
    assert list(ours.samples) == [(f"s3://{bucket}/{path[at:]}", label) for path, label in theirs.samples]
    assert [np.array(ours[index][0])[0, 0].tolist() for index in range(len(ours))] == [[250, 0, 0]] * 6
    assert S3ImageFolder(bucket, server=s3.server).classes == ["train set", "train set2"]


def test_images_are_what_torchvision_takes_for_images() -> None:
    assert s3_image_folder.IMG_EXTENSIONS == folder.IMG_EXTENSIONS


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_dataloader_gives_the_same_batches(s3: Any, samples: Path, method: str) -> None:
    ours = S3ImageFolder("imagenet", "val", PIXELS, str, s3.server)
    assert ours[0][1] == "0", "the main process fetches before it forks"
    theirs = ImageFolder(str(samples / "val"), PIXELS, target_transform=str)
    # A spawned worker imports everything anew, which takes seconds: one will do.
    workers = {"fork": 2, "spawn": 1}[method]
    loader = DataLoader(ours, batch_size=5, num_workers=workers, multiprocessing_context=method)
    for _ in range(workers):
        for (images, labels), (expected, expected_labels) in zip(loader, DataLoader(theirs, batch_size=5), strict=True):
            assert torch.equal(images, expected) and labels == expected_labels


def test_the_lines_of_the_seed_work_with_the_environment_alone(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.local.environment.items():
        monkeypatch.setenv(name, value)
    dataset = S3ImageFolder("imagenet", "train", transforms.Compose([transforms.CenterCrop(32), transforms.ToTensor()]))
    dataloader = DataLoader(dataset, batch_size=8, num_workers=4)
    seen = torch.cat([y for x, y in dataloader if x.shape[1:] == (3, 32, 32)])
    assert seen.tolist() == list(dataset.targets)


def test_a_batch_is_fetched_together_and_connections_are_kept(s3: Any, fault_proxy: Any) -> None:
    proxy = fault_proxy(s3.endpoint_url)
    dataset = S3ImageFolder("imagenet", "train", server=s3.server_at(proxy.endpoint_url))
    listing = proxy.requests
    batch = dataset.__getitems__([5, 3, 3, 0])
    assert [label for _, label in batch] == [dataset.targets[index] for index in (5, 3, 3, 0)]
    assert proxy.requests == listing + 4
    assert dataset.__getitems__([]) == []


def test_threads_may_read_at_the_same_time(s3: Any) -> None:
    dataset = S3ImageFolder("imagenet", "val", PIXELS, server=s3.server)
    found: list[int] = []
    readers = [
        threading.Thread(target=lambda: found.extend(dataset[index][1] for index in range(len(dataset))))
        for _ in range(3)
    ]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert sorted(found) == sorted(list(dataset.targets) * 3)


def test_it_pickles_used_and_unused(s3: Any) -> None:
    server = s3.server
    dataset = S3ImageFolder("imagenet", "val", server=server)
    dataset[0]
    copy = pickle.loads(pickle.dumps(dataset))
    assert copy.samples == dataset.samples and len(copy) == len(dataset)
    assert s3.secret_key.encode() not in pickle.dumps(dataset) and s3.secret_key not in repr(dataset)
    with pytest.raises(ValueError, match="left out of a pickle"):
        copy[0]
    copy.server = server
    assert copy[1][1] == dataset[1][1]


def test_an_unreadable_image_is_named_and_leaves_the_rest_readable(s3: Any, fill: Any, tmp_path: Path) -> None:
    images = {f"cat/{index}.png": image_file((index, 0, 0)) for index in range(30)}
    broken = {"cat/02.png": b"no image", "cat/03.png": image_file((0, 0, 0))[:60]}
    bucket = fill("with-broken", images | broken)
    dataset = S3ImageFolder(bucket, server=s3.server)
    bad = [index for index, (url, _) in enumerate(dataset.samples) if url.endswith(("/02.png", "/03.png"))]
    for index in bad:
        with pytest.raises(OSError, match=rf"S3ImageFolder: s3://{bucket}/cat/0[23].png is no readable image"):
            dataset.__getitems__([index, *range(25)])
    good = [index for index in range(len(dataset)) if index not in bad]
    assert len(dataset.__getitems__(good)) == 30
    loader = DataLoader(dataset, batch_size=8, num_workers=1, collate_fn=list)
    batches: Any = iter(loader)
    with pytest.raises(OSError, match=r"0[23].png is no readable image"):
        list(batches)
    # An error holds on to the loader; the garbage collector would let it go later, and wait 5 s for each worker.
    batches._shutdown_workers()


def test_an_object_deleted_after_the_listing_is_named(s3: Any, fill: Any, tmp_path: Path) -> None:
    bucket = fill("with-deleted", {f"cat/{index}.png": image_file((index, 0, 0)) for index in (1, 2)})
    dataset = S3ImageFolder(bucket, server=s3.server)
    s3.client().delete_object(Bucket=bucket, Key="cat/1.png")
    with pytest.raises(FileNotFoundError, match=f"S3ImageFolder: .*s3://{bucket}/cat/1.png"):
        dataset[0]
    assert dataset[1][1] == 0


def test_another_splits_classes_can_be_given(s3: Any, fill: Any, tmp_path: Path) -> None:
    red = image_file((250, 0, 0))
    names = ["train/ant/1.png", "train/bee/1.png", "train/cat/1.png", "val/cat/1.png", "val2/dog/1.png"]
    bucket = fill("splits", dict.fromkeys(names, red))
    train = S3ImageFolder(bucket, "train", server=s3.server)
    val = S3ImageFolder(bucket, "val", server=s3.server, classes=train.classes)
    assert val.classes == ["ant", "bee", "cat"] and list(val.targets) == [2]
    with pytest.raises(ValueError, match="class 'dog' is not in the class map"):
        S3ImageFolder(bucket, "val2", server=s3.server, classes=train.classes)


def test_what_is_not_there_is_an_error_at_once(server: S3Server) -> None:
    with pytest.raises(FileNotFoundError, match="S3ImageFolder: s3://not-there/train/: NoSuchBucket"):
        S3ImageFolder("not-there", "train", server=server)
    with pytest.raises(FileNotFoundError, match="no class folders under s3://imagenet/trai/"):
        S3ImageFolder("imagenet", "trai", server=server)


def test_folders_without_classes_or_images_are_an_error(s3: Any, fill: Any) -> None:
    bucket = fill("halves", {"flat/1.png": b"", "half/cat/1.png": b"", "half/dog/notes.txt": b""})
    with pytest.raises(FileNotFoundError, match=f"no class folders under s3://{bucket}/flat/"):
        S3ImageFolder(bucket, "flat", server=s3.server)
    with pytest.raises(FileNotFoundError, match=r"no image in 1 of 2 class folders under .*: dog; images end in"):
        S3ImageFolder(bucket, "half", server=s3.server)


def test_an_index_out_of_range_ends_an_iteration(s3: Any) -> None:
    dataset = S3ImageFolder("imagenet", "val", server=s3.server)
    with pytest.raises(IndexError, match="out of range"):
        dataset[len(dataset)]
    assert dataset[torch.tensor(1)][1] == dataset[np.int64(1)][1] == dataset[1][1]
    assert dataset[-1][1] == list(dataset.targets)[-1]
