"""Image files in folders of classes, as a data set is unpacked: what they are, and their bytes."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from PIL import Image

from datapipes.catalog.class_map import ClassMap
from datapipes.stages.image_formats import IMAGE_EXTENSIONS

ImageFormat: TypeAlias = Literal["UNCHANGED", "JPEG", "PNG", "TIFF"]


@dataclass(frozen=True)
class ImageFile:
    """A file below the root of a data set; its class is the folder that it lies in below the split's."""

    path: str
    class_name: str


def list_images(root: str | Path, split: str = "") -> Iterator[ImageFile]:
    """Every image of `root`/`split`/CLASS/, sorted by path.

    Raises:
        FileNotFoundError: there is no such folder, or no image in it.
    """
    top = Path(root, split)
    if not top.is_dir():
        raise FileNotFoundError(f"list_images: no folder {top}; name the folder that holds a folder a class")
    found = False
    for class_name in _folders_of(top):
        for folder, folders, names in os.walk(top / class_name):
            folders.sort()
            for name in sorted(names):
                if name.rpartition(".")[2].lower() in IMAGE_EXTENSIONS:
                    found = True
                    yield ImageFile(Path(folder, name).relative_to(root).as_posix(), class_name)
    if not found:
        raise FileNotFoundError(f"list_images: no image in {top}/CLASS/; is this the folder of the split?")


def classes_in(root: str | Path, split: str = "") -> ClassMap:
    """The classes of all splits beside `split`, sorted, so that training and validation agree on labels."""
    siblings = [Path(root, name) for name in _folders_of(Path(root))] if split else [Path(root)]
    return ClassMap(sorted({name for folder in siblings for name in _folders_of(folder)}), source=str(root))


def image_bytes(path: str | Path, img_format: ImageFormat = "UNCHANGED", img_size: int | None = None) -> bytes:
    """The file as it is, or as an RGB image of another format whose shorter side is `img_size` pixels."""
    if img_format == "UNCHANGED":
        return Path(path).read_bytes()
    with Image.open(path) as image:
        converted = image.convert("RGB")
    if img_size:
        scale = img_size / min(converted.size)
        converted = converted.resize(
            (round(converted.width * scale), round(converted.height * scale)), Image.Resampling.BICUBIC
        )
    written = io.BytesIO()
    # Without chroma subsampling and at this quality a second JPEG compression cannot be seen.
    options = {"quality": 95, "subsampling": 0} if img_format == "JPEG" else {}
    converted.save(written, img_format, **options)
    return written.getvalue()


def _folders_of(folder: Path) -> list[str]:
    return sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and entry.name[0] != ".")
