"""S3ImageFolder in a DataLoader with two workers, beside torchvision's ImageFolder on the local disk.

All three apply the same transform, crop, flip and tensor, to the same photographs of 106 KB. ImageFolder's files
are in the page cache; the S3 server, S3Proxy, runs on the same cores as its clients, which a cluster spares. The
third is what a reader of s3fs's documentation writes: a list of `ls` results, and an `open` an image.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from statistics import median
from typing import Any

import s3fs
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms
from torchvision.datasets import ImageFolder

from datapipes.dataset.s3_image_folder import S3ImageFolder
from recipes.benchmarks.harness import Bar, Table, alternate
from recipes.benchmarks.load_s3 import bucket_of_photographs, server_at
from recipes.sample_images import write_sample_images

PACKAGES = ("pycurl", "simplejpeg", "s3fs")
WORKERS = 2
BATCH_SIZE = 32
ROUNDS = 5


class PlainS3Folder(Dataset[Any]):
    """An image folder as one writes it with s3fs: one request after another."""

    def __init__(self, bucket: str, prefix: str, transform: Any) -> None:
        self.files = s3fs.S3FileSystem()
        self.transform = transform
        self.samples = [
            (path, label)
            for label, folder in enumerate(self.files.ls(f"{bucket}/{prefix}"))
            for path in self.files.ls(folder)
        ]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        path, label = self.samples[index]
        with self.files.open(path, "rb") as file:
            return self.transform(Image.open(file).convert("RGB")), label


def measure() -> Iterable[Table]:
    transform = transforms.Compose(
        [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    )
    with bucket_of_photographs() as (local, keys):
        os.environ.update(local.environment)
        folder = write_sample_images(local.folder / "disk", images=len(keys), val_images=0, size=(500, 375))
        datasets: dict[str, Dataset[Any]] = {
            "S3ImageFolder": S3ImageFolder("imagenet", "train", transform, server=server_at(local, local.endpoint_url)),
            "ImageFolder, local disk": ImageFolder(str(folder / "train"), transform),
            "a folder with s3fs": PlainS3Folder("imagenet", "train", transform),
        }
        loaders = {
            name: DataLoader(
                dataset,
                BATCH_SIZE,
                shuffle=True,
                num_workers=WORKERS,
                persistent_workers=True,
                # s3fs refuses to work in a forked process that has used it before.
                multiprocessing_context="spawn" if isinstance(dataset, PlainS3Folder) else "fork",
            )
            for name, dataset in datasets.items()
        }
        figures = alternate({name: partial(images_in, loader) for name, loader in loaders.items()}, ROUNDS)
        del loaders
    ours = figures["S3ImageFolder"]
    ratios = {
        name: median(other / mine for other, mine in zip(figure.wall_s, ours.wall_s))
        for name, figure in figures.items()
    }
    yield Table(
        f"Tensors of 224 x 224, {WORKERS} workers",
        ["dataset", "images/s", "ours is faster by"],
        [[name, f"{len(keys) / figures[name].median_wall_s:.0f}", f"{ratios[name]:.2f}"] for name in figures],
        [
            Bar("its rate, of ImageFolder's on the local disk", ratios["ImageFolder, local disk"], at_least=0.9),
            Bar("its rate, of a folder with s3fs", ratios["a folder with s3fs"], at_least=3),
        ],
    )


def images_in(loader: DataLoader[Any]) -> int:
    return sum(len(images) for images, _ in loader)
