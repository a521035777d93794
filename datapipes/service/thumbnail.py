"""A picture made small for a page, within bounds that no picture can break."""

from __future__ import annotations

import io
import warnings
from contextlib import closing

from PIL import Image, UnidentifiedImageError

from datapipes.service.problems import Problem
from datapipes.service.storage import Store

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".ppm", ".pgm")
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "PPM")
MAX_FILE_BYTES = 32 << 20
MAX_PIXELS = 16 << 20  # 64 MB while it is decoded; JPEGs are decoded at an eighth and may have more
EDGE = 192


def can_be_drawn(path: str) -> bool:
    return path.lower().endswith(SUFFIXES)


def thumbnail(store: Store, dataset: str, path: str) -> tuple[bytes, str]:
    """A JPEG of at most 192 x 192, and its ETag."""
    with closing(store.reader(dataset, path)) as reader:
        if reader.file.size > MAX_FILE_BYTES:
            raise _not_drawn(path, "is larger than 32 MB")
        content = reader.read(0, reader.file.size)
        etag = reader.file.etag
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(content), formats=FORMATS) as picture:
                picture.draft("RGB", (EDGE, EDGE))
                if picture.width * picture.height > MAX_PIXELS:
                    raise _not_drawn(path, "has too many pixels")
                picture.thumbnail((EDGE, EDGE))
                small = io.BytesIO()
                picture.convert("RGB").save(small, "JPEG", quality=80)
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, ValueError, SyntaxError) as error:
        raise _not_drawn(path, f"cannot be decoded: {error}") from None
    return small.getvalue(), etag


def _not_drawn(path: str, why: str) -> Problem:
    return Problem(415, f"{path!r} {why}", "download it to see what it is")
