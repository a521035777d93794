"""An image file made smaller for training: its short side to so many pixels, as JPEG."""

from __future__ import annotations

import io
from dataclasses import dataclass

from PIL import Image

from datapipes.stages.image_formats import decode_to_pil


@dataclass(frozen=True)
class Resize:
    """Bytes of an image file in, bytes of a JPEG file out, its short side at most `short_side` pixels.

    >>> file = io.BytesIO()
    >>> Image.new("RGB", (40, 20)).save(file, "PNG")
    >>> Image.open(io.BytesIO(Resize(short_side=10)(file.getvalue()))).size
    (20, 10)

    Gray and CMYK images, palettes and transparency come out as RGB. A JPEG that is small enough stays as it is.

    Args:
        short_side: pixels.
        quality: of the JPEG, 1 to 95.

    Raises:
        OSError: the bytes are no image, or a cut one.
    """

    short_side: int = 256
    quality: int = 90

    def __post_init__(self) -> None:
        if self.short_side < 1 or not 1 <= self.quality <= 95:
            raise ValueError(
                f"Resize: short_side must be at least 1 and quality 1 to 95, got {self.short_side} and {self.quality}"
            )

    def __call__(self, content: bytes) -> bytes:
        image = decode_to_pil(content, "RGB")
        scale = self.short_side / min(image.size)
        if scale >= 1 and _is_rgb_jpeg(content):
            return content
        if scale < 1:
            width, height = (max(round(side * scale), self.short_side) for side in image.size)
            # Pillow averages over whole pixels first, down to twice the size: half the time, no visible difference.
            image = image.resize((width, height), Image.Resampling.BICUBIC, reducing_gap=2.0)
        file = io.BytesIO()
        image.save(file, "JPEG", quality=self.quality)
        return file.getvalue()


def _is_rgb_jpeg(content: bytes) -> bool:
    with Image.open(io.BytesIO(content)) as image:
        return image.format == "JPEG" and image.mode == "RGB"
