"""The whole input pipeline: JPEGs on S3 to normalized float batches of 224, beside ImageFolder on the local disk.

Both crop at random, flip and normalize, and run in DataLoader with two workers. The S3 server runs on the same
two cores as its client, which a cluster spares; ImageFolder reads files that are in the page cache.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from datapipes.catalog.s3_server import S3Server
from datapipes.dataset import as_dataset
from datapipes.iter import IterableWrapper
from recipes.benchmarks.harness import Bar, Table, alternate
from recipes.benchmarks.load_s3 import bucket_of_photographs, server_at
from recipes.sample_images import write_sample_images

PACKAGES = ("pycurl", "simplejpeg")
BATCH_SIZE = 64
WORKERS = 2
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def normalized(batch: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Once a batch instead of once an image: the same floats for a third of the time."""
    images, labels = batch
    mean, std = torch.tensor(MEAN)[:, None, None] * 255, torch.tensor(STD)[:, None, None] * 255
    return images.to(torch.float32).sub_(mean).div_(std), labels


def from_s3(server: S3Server, augment: Any) -> DataLoader[Any]:
    chain = (
        IterableWrapper(["s3://imagenet/train/"])
        .list_files_by_s3(server=server)
        .distribute()
        .load_files_by_s3(server=server)
        .parse_label()
        .decode("torch")
        .to_tuple("jpg;png;jpeg", "cls")
        .map_tuple(augment, int)
        .batched(BATCH_SIZE)
        .map(normalized)
    )
    return DataLoader(as_dataset(chain), batch_size=None, num_workers=WORKERS, persistent_workers=True)


def from_disk(folder: Path) -> DataLoader[Any]:
    augment = transforms.Compose(
        [
            transforms.RandomResizedCrop(224),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )
    dataset = ImageFolder(str(folder), augment)
    return DataLoader(dataset, BATCH_SIZE, shuffle=True, drop_last=True, num_workers=WORKERS, persistent_workers=True)


def images_in(loader: DataLoader[Any]) -> int:
    return sum(len(images) for images, _ in loader)


def measure() -> Iterable[Table]:
    augment = v2.Compose([v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip()])
    with bucket_of_photographs() as (local, keys):
        folder = write_sample_images(Path(local.folder) / "on-disk", images=len(keys), val_images=0, size=(500, 375))
        loaders = {
            "S3, through the pipes": from_s3(server_at(local, local.endpoint_url), augment),
            "local disk, torchvision's ImageFolder": from_disk(folder / "train"),
        }
        counts = {name: images_in(loader) for name, loader in loaders.items()}
        figures = alternate({name: partial(images_in, loader) for name, loader in loaders.items()}, 5, warm_up=False)
    per_s = {name: counts[name] / figure.median_wall_s for name, figure in figures.items()}
    ours, theirs = per_s.values()
    yield Table(
        "Normalized float batches of 64 images of 224 x 224",
        ["from", "images/s"],
        [[name, f"{value:,.0f}"] for name, value in per_s.items()],
        [Bar("whole input pipeline from S3 against ImageFolder from the local disk", ours / theirs, at_least=1.3)],
    )
