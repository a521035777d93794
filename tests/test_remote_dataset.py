"""A torchvision data set to a bucket and back: seed script, sharing, caching, failures. On a real S3 server."""

from __future__ import annotations

import io
import pickle
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Subset
from torchvision import datasets, transforms

from datapipes.dataset.as_dataset import as_dataset
from datapipes.dataset.remote_dataset import RemoteDataset, make_client
from datapipes.iter import IterableWrapper
from datapipes.prepare.shard_writer import ShardWriter
from datapipes.prepare.upload_cv_dataset import upload_cv_dataset
from datapipes.prepare.verify_shards import index_shards, verify_shards


@pytest.fixture
def bucket(s3: Any) -> str:
    name = f"shards-{uuid.uuid4().hex[:12]}"
    s3.client().create_bucket(Bucket=name)
    return name


@pytest.fixture
def client(s3: Any) -> Any:
    return make_client(s3.endpoint_url, s3.access_key, s3.secret_key)


def stored(s3: Any, bucket: str, folder: str) -> list[str]:
    found = s3.client().list_objects_v2(Bucket=bucket, Prefix=folder).get("Contents", [])
    return [entry["Key"] for entry in found]


def test_original_bytes_come_back_with_their_labels(s3: Any, bucket: str, client: Any, samples: Path) -> None:
    ds = datasets.ImageFolder(str(samples / "train"))
    manifest = upload_cv_dataset(
        ds, client=client, bucket=bucket, base_folder="imagenet-val", maxsize=40_000, maxcount=10, workers=2
    )
    assert manifest.samples == len(ds) and manifest.classes == ds.classes
    assert all(shard.nbytes <= 40_000 and shard.samples <= 10 for shard in manifest.shards)
    dataset = RemoteDataset(client, bucket, "imagenet-val")
    assert len(dataset) == len(ds)
    found = Counter((sample["jpg"], sample["cls"]) for sample in dataset)
    assert found == Counter((Path(path).read_bytes(), label) for path, label in ds.samples)
    assert all(not verdict.faults for verdict in verify_shards(f"s3://{bucket}/imagenet-val", server=client))


def test_a_folder_of_a_longer_name_is_another_data_set(bucket: str, client: Any, samples: Path) -> None:
    ds = datasets.ImageFolder(str(samples / "val"))
    upload_cv_dataset(ds, client=client, bucket=bucket, base_folder="imagenet-val2")
    upload_cv_dataset(Subset(ds, [0, 1, 2]), client=client, bucket=bucket, base_folder="imagenet-val")
    assert len(list(RemoteDataset(client, bucket, "imagenet-val"))) == 3
    assert len(list(RemoteDataset(client, bucket, "imagenet-val2/"))) == len(ds)
    with pytest.raises(FileNotFoundError, match="imagenet"):
        list(RemoteDataset(client, bucket, "imagenet"))


def test_seed_003_trains_with_three_workers(bucket: str, client: Any, samples: Path) -> None:
    ds = datasets.ImageFolder(str(samples / "train"))
    upload_cv_dataset(ds, client=client, bucket=bucket, base_folder="f", maxsize=1e8, maxcount=12, workers=0)
    preproc = transforms.Compose([transforms.RandomResizedCrop(32), transforms.ToTensor()])
    dataset = (
        RemoteDataset(client, bucket, "f")
        .decode("pil")
        .to_tuple("jpg;png", "cls")
        .map_tuple(preproc, lambda x: x)
        .batched(5)
    )
    loader = DataLoader(dataset, num_workers=3, batch_size=None, multiprocessing_context="fork")
    orders = []
    for _ in range(2):
        labels = []
        for images, label in loader:
            assert images.shape[1:] == (3, 32, 32) and images.dtype == torch.float32
            labels += label.tolist()
        assert Counter(labels) == Counter(label for _, label in ds.samples)
        orders.append(labels)
    assert orders[0] != orders[1]


def test_ranks_and_workers_share_an_epoch_and_every_sample_is_proved(bucket: str, client: Any, samples: Path) -> None:
    ds = datasets.ImageFolder(str(samples / "train"))
    upload_cv_dataset(ds, client=client, bucket=bucket, base_folder="f", maxcount=9)
    chain = RemoteDataset(client, bucket, "f", seed=5).batched(4, collate=None)
    keys = []
    for rank in range(2):
        shares = as_dataset(chain, rank=rank, world_size=2)
        keys.append({sample["__key__"] for batch in DataLoader(shares, batch_size=None) for sample in batch})
    assert len(keys[0]) == len(keys[1]) == 24 and not keys[0] & keys[1]
    alone = as_dataset(chain)
    epochs = [[sample["__key__"] for batch in alone for sample in batch] for _ in range(2)]
    assert epochs[0] != epochs[1] and sorted(epochs[0]) == sorted(epochs[1])
    assert alone.report().proven


class Pictures(torch.utils.data.Dataset[Any]):
    """Images of every mode, as a data set of torchvision that has no files."""

    classes = ("a", "b")
    modes = ("RGB", "L", "RGBA", "P", "LA", "CMYK", "1")

    def __len__(self) -> int:
        return len(self.modes)

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        pixels = np.random.default_rng(index).integers(0, 255, (20, 30, 3), np.uint8)
        image = Image.fromarray(pixels)
        return image.convert(self.modes[index]) if self.modes[index] != "RGB" else image, index % 2


@pytest.mark.parametrize("quality", [None, 90])
def test_images_of_any_mode_are_encoded(quality: int | None, bucket: str, client: Any) -> None:
    ds = Pictures()
    if quality is None:
        # PNG has no CMYK.
        ds.modes = tuple(mode for mode in ds.modes if mode != "CMYK")  # type: ignore[assignment]
    upload_cv_dataset(ds, client=client, bucket=bucket, base_folder="f", quality=quality)
    for sample in RemoteDataset(client, bucket, "f"):
        expected, label = ds[int(sample["__key__"])]
        image = Image.open(io.BytesIO(sample.get("png") or sample["jpg"]))
        assert sample["cls"] == label and image.size == expected.size
        if quality is None:
            assert image.convert("RGBA").tobytes() == expected.convert("RGBA").tobytes()


def test_a_cut_upload_is_refused_and_goes_on(s3: Any, bucket: str, client: Any, samples: Path) -> None:
    ds = datasets.ImageFolder(str(samples / "train"))
    upload_cv_dataset(ds, client=client, bucket=bucket, base_folder="whole", maxcount=7)

    class Cut(datasets.ImageFolder):
        def __len__(self) -> int:
            return len(self.samples)

    broken = Cut(str(samples / "train"))
    broken.samples[20] = ("/nonexistent.JPEG", 0)
    with pytest.raises(FileNotFoundError):
        upload_cv_dataset(broken, client=client, bucket=bucket, base_folder="cut", maxcount=7)
    with pytest.raises(ValueError, match="not finished"):
        list(RemoteDataset(client, bucket, "cut"))
    before = stored(s3, bucket, "cut/shard-")
    upload_cv_dataset(ds, client=client, bucket=bucket, base_folder="cut", maxcount=7)
    assert set(before) <= set(stored(s3, bucket, "cut/shard-"))
    for key in stored(s3, bucket, "whole/shard-"):
        same = [s3.client().get_object(Bucket=bucket, Key=k)["Body"].read() for k in (key, key.replace("whole", "cut"))]
        assert same[0] == same[1]
    with pytest.raises(FileExistsError, match="replace=True"):
        upload_cv_dataset(ds, client=client, bucket=bucket, base_folder="cut")
    upload_cv_dataset(Subset(ds, [1]), client=client, bucket=bucket, base_folder="cut", replace=True)
    assert stored(s3, bucket, "cut/shard-") == ["cut/shard-000000.tar", "cut/shard-000000.tar.npz"]


def test_more_than_a_thousand_shards(rclone_s3: Any, tmp_path: Path) -> None:
    with ShardWriter(f"{tmp_path}/s-%06d.tar") as writer:
        writer.write({"__key__": "1", "txt": b"x", "cls": 1})
    folder = rclone_s3.local.folder / "thousands" / "raw-shards"
    folder.mkdir(parents=True)
    for number in range(1030):
        (folder / f"{number:08d}.tar").write_bytes((tmp_path / "s-000000.tar").read_bytes())
    time.sleep(1.5)  # as long as rclone goes by what it knew of its folders
    urls = IterableWrapper(["s3://thousands/raw-shards/"]).list_files_by_s3(masks="*.tar", server=rclone_s3.server)
    assert sum(1 for _ in urls.open_tar_shards(server=rclone_s3.server, checksums=False)) == 1030


def test_large_shards_go_up_in_parts_and_stream_back(s3: Any, bucket: str, client: Any) -> None:
    noise = np.random.default_rng(0)
    samples = [{"__key__": f"{n:04d}", "bin": noise.bytes(3_000_000), "cls": n} for n in range(12)]
    with ShardWriter(f"s3://{bucket}/big/s-%06d.tar", server=client, maxsize=20e6) as writer:
        for sample in samples:
            writer.write(sample)
    streamed = list(IterableWrapper([f"s3://{bucket}/big"]).open_tar_shards(server=client))
    assert sorted(sample["__key__"] for sample in streamed) == [sample["__key__"] for sample in samples]
    assert {sample["__key__"]: sample["bin"] for sample in streamed} == {s["__key__"]: s["bin"] for s in samples}
    shard = s3.client().get_object(Bucket=bucket, Key="big/s-000000.tar")["Body"].read()
    s3.client().put_object(Bucket=bucket, Key="big/s-000000.tar", Body=shard[:-5_000_000])
    with pytest.raises(ValueError, match=r"s-000000\.tar"):
        list(IterableWrapper([f"s3://{bucket}/big"]).open_tar_shards(server=client))
    kept = list(IterableWrapper([f"s3://{bucket}/big"]).open_tar_shards(server=client, on_error="skip"))
    assert 0 < len(kept) < 12


def test_shards_without_index_are_indexed_in_the_bucket(s3: Any, bucket: str, client: Any) -> None:
    with ShardWriter(f"s3://{bucket}/a/s-%06d.tar", server=client) as writer:
        writer.write({"__key__": "1", "txt": b"x", "cls": 3})
    for name in ("manifest.json", "s-000000.tar.npz"):
        s3.client().delete_object(Bucket=bucket, Key=f"a/{name}")
    with pytest.raises(FileNotFoundError, match="index_shards"):
        list(IterableWrapper([f"s3://{bucket}/a"]).list_tar_samples(server=client))
    assert index_shards(f"s3://{bucket}/a", server=client).samples == 1
    assert len(IterableWrapper([f"s3://{bucket}/a"]).list_tar_samples(server=client)) == 1


def test_the_second_epoch_comes_from_the_cache(
    s3: Any, bucket: str, client: Any, samples: Path, tmp_path: Path
) -> None:
    ds = datasets.ImageFolder(str(samples / "train"))
    upload_cv_dataset(ds, client=client, bucket=bucket, base_folder="f", maxcount=9)
    dataset = as_dataset(RemoteDataset(client, bucket, "f", cache_dir=str(tmp_path)).batched(8, collate=None))
    first = sorted(sample["__key__"] for batch in dataset for sample in batch)
    for key in stored(s3, bucket, "f/shard-"):
        s3.client().delete_object(Bucket=bucket, Key=key)
    assert sorted(sample["__key__"] for batch in dataset for sample in batch) == first
    parts = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "locks"]
    damaged = bytearray(parts[0].read_bytes())
    damaged[len(damaged) // 2] ^= 1
    parts[0].write_bytes(damaged)
    with pytest.raises(FileNotFoundError):
        list(dataset)


def test_workers_share_a_cache_that_keeps_to_its_size(bucket: str, client: Any, tmp_path: Path) -> None:
    noise = np.random.default_rng(0)
    with ShardWriter(f"s3://{bucket}/c/s-%06d.tar", server=client, maxsize=20e6) as writer:
        for number in range(40):
            writer.write({"__key__": f"{number:04d}", "bin": noise.bytes(2_000_000), "cls": number})
    dataset = RemoteDataset(client, bucket, "c", cache_dir=str(tmp_path), cache_bytes=70e6)
    loader = DataLoader(
        as_dataset(dataset.batched(5, collate=len)), batch_size=None, num_workers=2, multiprocessing_context="fork"
    )
    for _ in range(2):
        assert sum(loader) == 40
    held = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert 0 < held <= 80e6
    assert not list(tmp_path.glob("part-*"))
    streamed = IterableWrapper([f"s3://{bucket}/c"]).open_tar_shards(server=client, cache_dir=str(tmp_path))
    assert len(list(streamed)) == 40


def test_client_and_dataset_pickle_without_the_secret(client: Any, s3: Any) -> None:
    dataset = RemoteDataset(client, "bucket", "folder")
    for thing in (client, dataset, repr(client), repr(dataset)):
        assert s3.secret_key.encode() not in pickle.dumps(thing)
    with pytest.raises(TypeError, match="make_client"):
        RemoteDataset(s3.client(), "bucket", "folder")


def test_a_bucket_that_is_not_there_is_named(client: Any, samples: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no-such-bucket"):
        upload_cv_dataset(
            datasets.ImageFolder(str(samples / "val")), client=client, bucket="no-such-bucket", base_folder="f"
        )
    with pytest.raises(FileNotFoundError, match="no-such-bucket"):
        list(RemoteDataset(client, "no-such-bucket", "f"))
