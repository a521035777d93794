"""A torchvision data set's items as samples: the original bytes where it has files, an encoding otherwise."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from PIL import Image

_JPEG_MODES = {"L", "RGB"}
_EXTENSIONS = {"jpeg": "jpg"}
_WITH_ALPHA = {"LA", "RGBA", "PA"}


class SampleEncoder:
    """Index in, sample out. Reads files where the data set is an ImageFolder, or a Subset of one.

    >>> from PIL import Image
    >>> grey = Image.new("L", (8, 8))
    >>> encode = SampleEncoder([(grey, 7)])
    >>> sample = encode(0)
    >>> sample["__key__"], sample["cls"], sample["png"][:4]
    ('00000000', 7, b'\\x89PNG')

    Args:
        dataset: gives (PIL image or uint8 array, label); without a transform to tensors.
        quality: None keeps every pixel (PNG); 1 to 95 encodes grey and color images as JPEG of that quality,
            and those with transparency, which JPEG has not, still as PNG.

    Raises:
        ValueError: quality is out of range.
    """

    def __init__(self, dataset: Any, *, quality: int | None = None) -> None:
        if quality is not None and not 1 <= quality <= 95:
            raise ValueError(f"upload_cv_dataset: quality must be 1 to 95, or None for PNG, got {quality}")
        self.dataset = dataset
        self.quality = quality

    def __len__(self) -> int:
        return len(self.dataset)

    def __call__(self, index: int) -> dict[str, Any]:
        """The sample with this index.

        Raises:
            TypeError: the item is not an image and a whole number.
        """
        found = original_file(self.dataset, index)
        if found is not None:
            path, label, class_name = found
            field = path.suffix[1:].lower()
            key = f"{class_name}/{index:08d}"
            return {"__key__": key, _EXTENSIONS.get(field, field): path.read_bytes(), "cls": label}
        item = self.dataset[index]
        if not isinstance(item, (tuple, list)) or len(item) != 2:
            raise TypeError(f"upload_cv_dataset: item {index} is {type(item).__name__}, expected (image, label)")
        field, content = self._encoded(item[0], index)
        return {"__key__": f"{index:08d}", field: content, "cls": _label(item[1], index)}

    def _encoded(self, image: Any, index: int) -> tuple[str, bytes]:
        if type(image).__module__ == "numpy":
            image = Image.fromarray(image)
        if not isinstance(image, Image.Image):
            raise TypeError(
                f"upload_cv_dataset: image {index} is {type(image).__name__}; give the data set without its "
                "transform, so that it has PIL images, and transform when training"
            )
        file = io.BytesIO()
        if self.quality is None or image.mode in _WITH_ALPHA or "transparency" in image.info:
            image.save(file, "PNG")
            return "png", file.getvalue()
        if image.mode not in _JPEG_MODES:
            image = image.convert("RGB")
        image.save(file, "JPEG", quality=self.quality)
        return "jpg", file.getvalue()


def original_file(dataset: Any, index: int) -> tuple[Path, int, str] | None:
    """The file, label and class name behind an item; None where there is no such file."""
    from torch.utils.data import Subset
    from torchvision.datasets import ImageFolder

    while isinstance(dataset, Subset):
        index, dataset = int(dataset.indices[index]), dataset.dataset
    if not isinstance(dataset, ImageFolder):
        return None
    path, label = dataset.samples[index]
    target = dataset.target_transform
    return Path(path), label if target is None else int(target(label)), Path(path).parent.name


def class_names(dataset: Any) -> list[str] | None:
    """The names of a data set's classes in the order of their labels, where it knows them."""
    from torch.utils.data import Subset

    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    names = getattr(dataset, "classes", None)
    if not isinstance(names, (list, tuple)) or getattr(dataset, "target_transform", None) is not None:
        return None
    # torchvision's ImageNet gives each class as a tuple of synonyms.
    return [name if isinstance(name, str) else ", ".join(name) for name in names]


def _label(label: Any, index: int) -> int:
    if hasattr(label, "item"):
        label = label.item()
    if not isinstance(label, int) or isinstance(label, bool):
        raise TypeError(f"upload_cv_dataset: label {index} is {label!r:.80}, expected a whole number")
    return label
