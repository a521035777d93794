"""Scripts written for the older tools run as they stand, but for an import and the name of a bucket."""

from __future__ import annotations

import pytest
import torch

# From a tutorial on torchdata 0.9; its images came in one size, so that a DataLoader could stack them.
TORCHDATA = """
from PIL import Image
from datapipes.iter import IterableWrapper, S3FileLoader
import torchvision.transforms as transforms

# Create a wrapper that reads all the filenames on S3
dp_s3_urls = IterableWrapper(['s3://imagenet/train/']).list_files_by_s3()
# For distributed training, the dataset has to be sharded
sharded_s3_urls = dp_s3_urls.shuffle().sharding_filter()
dp_s3_files = S3FileLoader(sharded_s3_urls)

train_transforms = transforms.Compose([
    transforms.ToTensor()
])

def process(sample):
    url, fd = sample
    label = int(url.split('_')[-1][0])

    image = Image.open(fd).convert('RGB')

    image = train_transforms(image)

    return image, label

dp_s3_files_mapped = dp_s3_files.map(process)

for img, label in dp_s3_files_mapped:
    seen.append((img.size(), label))

from torch.utils.data import DataLoader

dl = DataLoader(dp_s3_files_mapped, batch_size=8)

for inputs, labels in dl:
    batches.append(inputs)
"""

IMAGE_FOLDER = """
from torch.utils.data import DataLoader
from datapipes import S3ImageFolder

dataset = S3ImageFolder('imagenet', 'train', transforms)

dataloader = DataLoader(dataset, batch_size=8, num_workers=4)

for x, y in dataloader:
    batches.append(x)
"""


@pytest.fixture
def s3_in_the_environment(s3, monkeypatch):
    for variable, value in s3.local.environment.items():
        monkeypatch.setenv(variable, value)


def test_the_torchdata_script_runs_by_its_import_alone(s3_in_the_environment):
    seen, batches = [], []
    exec(compile(TORCHDATA, "torchdata.py", "exec"), {"seen": seen, "batches": batches})
    assert len(seen) == 48 and {size for size, _ in seen} == {torch.Size([3, 72, 96])}
    assert [len(batch) for batch in batches] == [8] * 6


def test_the_image_folder_script_runs_by_its_import_alone(s3_in_the_environment):
    from torchvision.transforms import ToTensor

    batches = []
    exec(compile(IMAGE_FOLDER, "image_folder.py", "exec"), {"transforms": ToTensor(), "batches": batches})
    assert [tuple(batch.shape) for batch in batches] == [(8, 3, 72, 96)] * 6
