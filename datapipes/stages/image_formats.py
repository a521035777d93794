"""Bytes of an image file to pixels: always Pillow's, by libjpeg-turbo where that is faster and the same."""

from __future__ import annotations

import io
from typing import Any, Literal, TypeAlias

import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image

Mode: TypeAlias = Literal["RGB", "L", "RGBA"]

# fmt: off
IMAGE_EXTENSIONS = frozenset([
    "jpg", "jpeg", "jpe", "jfif", "png", "apng", "webp", "gif", "bmp", "dib", "tif", "tiff",
    "ppm", "pgm", "pbm", "pnm", "jp2", "j2k", "avif", "ico", "tga",
])
# fmt: on

# The color spaces in which simplejpeg and Pillow agree to the last bit: both are libjpeg-turbo with the exact
# integer DCT and smooth upsampling. CMYK and YCCK differ, because Pillow converts them itself.
_SAME_AS_PILLOW = {"RGB": ("YCbCr", "Gray", "RGB"), "L": ("Gray",), "RGBA": ()}


def decode_to_array(data: bytes, mode: Mode) -> NDArray[np.uint8]:
    """The pixels of an image file: uint8, (H, W, 3) or (H, W, 4), or (H, W) for "L". The array is writable.

    >>> file = io.BytesIO()
    >>> Image.new("RGB", (2, 1), (250, 0, 7)).save(file, "PNG")
    >>> decode_to_array(file.getvalue(), "RGB").tolist()
    [[[250, 0, 7], [250, 0, 7]]]
    """
    pixels = _decode_jpeg(data, mode)
    return np.array(_decode_with_pillow(data, mode)) if pixels is None else pixels


def decode_to_pil(data: bytes, mode: Mode) -> Image.Image:
    """The image of a file as torchvision's ImageFolder loads it, but read to its end at once.

    EXIF orientation is left alone.
    """
    pixels = _decode_jpeg(data, mode)
    return _decode_with_pillow(data, mode) if pixels is None else Image.fromarray(pixels)


def _decode_jpeg(data: bytes, mode: Mode) -> NDArray[np.uint8] | None:
    """The pixels of a plain JPEG in 0.8 of Pillow's time; None for every file that is Pillow's to judge."""
    if data[:2] != b"\xff\xd8":
        return None
    try:
        height, width, color_space, _ = simplejpeg.decode_jpeg_header(data)
        is_bomb = Image.MAX_IMAGE_PIXELS is not None and height * width > Image.MAX_IMAGE_PIXELS
        if color_space not in _SAME_AS_PILLOW[mode] or is_bomb:
            return None
        # strict: a file cut short is an error here, and not a picture with a grey end.
        pixels: Any = simplejpeg.decode_jpeg(data, "GRAY" if mode == "L" else "RGB", strict=True)
    except ValueError:
        return None
    return pixels[:, :, 0] if mode == "L" else pixels  # type: ignore[no-any-return]


def _decode_with_pillow(data: bytes, mode: Mode) -> Image.Image:
    with Image.open(io.BytesIO(data)) as image:
        if image.mode == "P" and "transparency" in image.info and mode != "RGBA":
            # The same pixels as in one step, without Pillow's warning about it.
            return image.convert("RGBA").convert(mode)
        image.load()
        return image.convert(mode)
