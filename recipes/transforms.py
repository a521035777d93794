"""What happens to an image between decode and model: cropped in the workers, normalized on the device."""

from __future__ import annotations

import torch
from torch import Tensor
from torchvision.transforms import v2

# Mean and deviation of ImageNet's channels, which torchvision's weights were trained with.
MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)


def image_transform(split: str, size: int) -> v2.Transform:
    """uint8 (3, H, W) in, uint8 (3, size, size) out: a random crop and flip to train, the middle to validate."""
    if split == "train":
        return v2.Compose([v2.RandomResizedCrop(size), v2.RandomHorizontalFlip()])
    # 256 to 224 is what published accuracies are measured with.
    return v2.Compose([v2.Resize(size * 256 // 224), v2.CenterCrop(size)])


class ToDevice:
    """A batch of uint8 images and labels in, both on the device out, the images normalized float32.

    Batches travel as bytes, a quarter of what floats would take in shared memory and on the bus.
    """

    def __init__(self, device: torch.device, channels_last: bool) -> None:
        self.device = device
        self.memory_format = torch.channels_last if channels_last else torch.contiguous_format
        self.mean = 255 * torch.tensor(MEAN, device=device).view(3, 1, 1)
        self.deviation = 255 * torch.tensor(DEVIATION, device=device).view(3, 1, 1)

    def __call__(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        images = images.to(self.device, non_blocking=True).to(torch.float32, memory_format=self.memory_format)
        return images.sub_(self.mean).div_(self.deviation), labels.to(self.device, non_blocking=True)
