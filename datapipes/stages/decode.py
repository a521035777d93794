"""From the bytes of a sample's fields to images, labels and text."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from datapipes.on_error import OnError, Skipped, check_on_error, settle
from datapipes.pipe import MapPipe, functional_form, key_of
from datapipes.stages.image_formats import IMAGE_EXTENSIONS, Mode, decode_to_array, decode_to_pil
from datapipes.stages.threads import map_in_threads


def _to_tensor(data: bytes, mode: Mode) -> torch.Tensor:
    pixels = torch.from_numpy(decode_to_array(data, mode))
    # A view: the pixels stay where they are, which is the channels-last layout that resizing likes best.
    return pixels[None] if mode == "L" else pixels.permute(2, 0, 1)


IMAGE_KINDS: dict[str, tuple[Callable[[bytes, Mode], Any], Mode]] = {
    "rgb": (decode_to_array, "RGB"),
    "rgb8": (decode_to_array, "RGB"),
    "rgba": (decode_to_array, "RGBA"),
    "rgba8": (decode_to_array, "RGBA"),
    "l": (decode_to_array, "L"),
    "l8": (decode_to_array, "L"),
    "torch": (_to_tensor, "RGB"),
    "torch8": (_to_tensor, "RGB"),
    "torchrgb": (_to_tensor, "RGB"),
    "torchrgb8": (_to_tensor, "RGB"),
    "torchrgba": (_to_tensor, "RGBA"),
    "torchrgba8": (_to_tensor, "RGBA"),
    "torchl": (_to_tensor, "L"),
    "torchl8": (_to_tensor, "L"),
    "pil": (decode_to_pil, "RGB"),
    "pilrgb": (decode_to_pil, "RGB"),
    "pilrgba": (decode_to_pil, "RGBA"),
    "pill": (decode_to_pil, "L"),
}

_FIELDS: dict[str, Callable[[bytes], Any]] = {
    **dict.fromkeys(("cls", "cls2", "count", "id", "index", "inx"), int),
    **dict.fromkeys(("txt", "text", "transcript"), lambda data: str(data, "utf-8")),
    **dict.fromkeys(("json", "jsn"), json.loads),
    "npy": lambda data: np.load(io.BytesIO(data), allow_pickle=False),
}


@functional_form("decode")
class ImageDecoder(MapPipe[dict[str, Any]]):
    """Takes samples with bytes and yields samples with images (functional name: `decode`).

    >>> from PIL import Image
    >>> from datapipes.iter import IterableWrapper
    >>> file = io.BytesIO()
    >>> Image.new("RGB", (5, 4), "white").save(file, "JPEG")
    >>> samples = IterableWrapper([{"__key__": "cat/1", "jpg": file.getvalue(), "cls": b"7"}])
    >>> sample = next(iter(samples.decode("torch")))
    >>> sample["jpg"].shape, sample["jpg"].dtype, sample["cls"]
    (torch.Size([3, 4, 5]), torch.uint8, 7)

    Fields are told by their extension, the part behind the last dot. Images come out as `kind` says, all in
    RGB order and uint8, 0 to 255:

    - "rgb": numpy, (H, W, 3); "rgba": (H, W, 4); "l", grey: (H, W)
    - "torch" or "torchrgb": tensor, (3, H, W), channels last in memory; "torchrgba"; "torchl": (1, H, W)
    - "pil" or "pilrgb": PIL image in mode RGB; "pilrgba"; "pill"

    An 8 may follow ("rgb8", "torchl8"), as webdataset wrote it. webdataset's kinds without the 8 were floats
    from 0 to 1: divide by 255 for those.

    The pixels are exactly Pillow's, and torchvision's ImageFolder's, whichever library decodes them. Of other
    fields `cls`, `id` and the like become int, `txt` str, `json` what it holds and `npy` an array; the rest,
    and whatever is no longer bytes, passes unchanged.

    Args:
        source_datapipe: Samples.
        kind: What images become.
        num_threads: Threads that decode side by side, in order. Decoding releases the GIL: two threads on two
            cores are 1.8 times as fast as one. In a DataLoader with a worker for each core, leave it at 1.
        on_error: "raise", "skip", or a function (key, error) -> sample or None.

    Raises:
        OSError: When a field that should be an image is none, or is cut short.
        ValueError: When `kind` is unknown, or a field of text or numbers holds none.
    """

    def __init__(
        self, source_datapipe: Any, kind: str = "rgb", *, num_threads: int = 1, on_error: OnError = "raise"
    ) -> None:
        check_on_error("decode", on_error)
        if kind not in IMAGE_KINDS:
            raise ValueError(f"decode: kind must be one of {', '.join(IMAGE_KINDS)}, got {kind!r}")
        if isinstance(num_threads, bool) or not isinstance(num_threads, int) or num_threads < 1:
            raise ValueError(f"decode: num_threads must be a whole number of at least 1, got {num_threads!r}")
        self.source_datapipe = source_datapipe
        self.kind = kind
        self.num_threads = num_threads
        self.on_error = on_error

    def sample_function(self) -> Callable[[Any], dict[str, Any]]:
        decode_image, mode = IMAGE_KINDS[self.kind]

        def decode(sample: Any) -> dict[str, Any]:
            if not isinstance(sample, dict):
                raise TypeError(
                    f"decode: expected a sample, a dict of fields, got a {type(sample).__name__}; put "
                    f"parse_label() between a loader of (url, stream) pairs and decode()"
                )
            decoded = dict(sample)
            for field, value in sample.items():
                if isinstance(value, (bytes, bytearray, memoryview)):
                    extension = field.rpartition(".")[2].lower()
                    if extension in IMAGE_EXTENSIONS:
                        try:
                            decoded[field] = decode_image(value, mode)  # type: ignore[arg-type]
                        except Exception as error:
                            raise OSError(_why(sample, field, error)) from error
                    elif extension in _FIELDS:
                        try:
                            decoded[field] = _FIELDS[extension](value)  # type: ignore[arg-type]
                        except Exception as error:
                            raise ValueError(_why(sample, field, error)) from error
            return decoded

        return decode

    def __iter__(self) -> Iterator[dict[str, Any]]:
        decode = self.sample_function()

        def decode_or_settle(sample: Any) -> Any:
            try:
                return decode(sample)
            except Exception as error:
                return settle(self.on_error, key_of(sample), error)

        results: Iterator[Any]
        if self.num_threads == 1:
            results = map(decode_or_settle, self.source_datapipe)
        else:
            results = map_in_threads(self.source_datapipe, decode_or_settle, self.num_threads)
        for result in results:
            if type(result) is not Skipped:
                yield result


def _why(sample: dict[str, Any], field: str, error: Exception) -> str:
    data = bytes(sample[field])
    # Pillow's own words for this hold nothing but the address of a buffer.
    reason = "no image format known to Pillow" if "cannot identify image" in str(error) else error
    return (
        f"decode: {key_of(sample)!r}, field {field!r} of {len(data):,} bytes that begin {data[:8]!r}: "
        f"{reason}; replace the file, or pass on_error='skip' to go on without it"
    )
