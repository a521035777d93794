"""What a JPEG costs to decode, beside Pillow; and what a second thread brings.

    python -m recipes.benchmarks decode

64 photographs of 500x375, 106 kB each, in memory; every row decodes all of them to RGB.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import simplejpeg
import torch
from PIL import Image
from torchvision.io import ImageReadMode, decode_jpeg

from datapipes.iter import IterableWrapper
from datapipes.stages.decode import ImageDecoder
from datapipes.stages.threads import map_in_threads
from recipes.benchmarks.harness import Bar, Table, alternate
from recipes.sample_images import write_sample_images

PACKAGES = ("simplejpeg",)
IMAGES = 64
ROUNDS = 9
PILLOW = "Pillow, to an array"
ONE_THREAD = '`decode("rgb")`'
TWO_THREADS = '`decode("rgb", num_threads=2)`'
# Pure C that holds no GIL, about 1 ms each: how far two threads get on this machine at this hour.
HASH_ONE_THREAD, HASH_TWO_THREADS = "hashes, one thread", "hashes, two threads"


def measure() -> Iterator[Table]:
    files = photographs(IMAGES)
    figures = alternate(contenders(files), ROUNDS)
    wall_s = {name: figure.median_wall_s for name, figure in figures.items()}
    hashes = wall_s[HASH_ONE_THREAD] / wall_s[HASH_TWO_THREADS]
    yield Table(
        f"Decoding {IMAGES} JPEGs of 500x375",
        ["", "images/s", "CPU, us an image", "times Pillow's speed"],
        [
            [
                name,
                f"{IMAGES / figure.median_wall_s:,.0f}",
                f"{figure.median_cpu_s / IMAGES * 1e6:,.0f}",
                f"{wall_s[PILLOW] / figure.median_wall_s:.2f}",
            ]
            for name, figure in figures.items()
            if name not in (HASH_ONE_THREAD, HASH_TWO_THREADS)
        ],
        [
            Bar(f"{ONE_THREAD} against Pillow", wall_s[PILLOW] / wall_s[ONE_THREAD], at_least=1.15),
            Bar("two threads against one", wall_s[ONE_THREAD] / wall_s[TWO_THREADS], at_least=1.8),
        ],
        "The pixels of every `decode` row are Pillow's to the last bit (tests/test_decode.py). What two threads "
        f"can bring depends on what else runs: sha256, pure C without the GIL, went {hashes:.2f} times as fast in "
        "two threads as in one in the same rounds.",
    )


def photographs(images: int) -> list[bytes]:
    """JPEG files as ImageNet has them."""
    with tempfile.TemporaryDirectory() as folder:
        write_sample_images(folder, images=images, val_images=0, size=(500, 375))
        return [path.read_bytes() for path in sorted(Path(folder, "train").rglob("*.JPEG"))]


def contenders(files: list[bytes]) -> dict[str, Callable[[], None]]:
    samples = IterableWrapper([{"jpg": file} for file in files], deepcopy=False)
    buffers = [torch.frombuffer(bytearray(file), dtype=torch.uint8) for file in files]

    def pillow(file: bytes) -> Image.Image:
        return Image.open(io.BytesIO(file)).convert("RGB")

    ways: dict[str, Callable[[], Iterable[Any]]] = {
        PILLOW: lambda: (np.asarray(pillow(file)) for file in files),
        ONE_THREAD: lambda: ImageDecoder(samples, "rgb"),
        TWO_THREADS: lambda: ImageDecoder(samples, "rgb", num_threads=2),
        '`decode("torch")`': lambda: ImageDecoder(samples, "torch"),
        "Pillow, to a PIL image": lambda: (pillow(file) for file in files),
        '`decode("pil")`': lambda: ImageDecoder(samples, "pil"),
        "torchvision decode_jpeg": lambda: (decode_jpeg(buffer, ImageReadMode.RGB) for buffer in buffers),
        "ceiling: simplejpeg alone": lambda: (simplejpeg.decode_jpeg(file) for file in files),
        HASH_ONE_THREAD: lambda: map_in_threads([bytes(1_500_000)] * len(files), sha256, 1),
        HASH_TWO_THREADS: lambda: map_in_threads([bytes(1_500_000)] * len(files), sha256, 2),
    }
    return {name: (lambda way=way: exhaust(way())) for name, way in ways.items()}


def exhaust(images: Iterable[Any]) -> None:
    for _ in images:
        pass
