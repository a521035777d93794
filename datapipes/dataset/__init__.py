"""What a DataLoader takes."""

from datapipes.dataset.account import Report
from datapipes.dataset.as_dataset import PipeDataset, as_dataset
from datapipes.dataset.s3_image_folder import S3ImageFolder

__all__ = ["PipeDataset", "Report", "S3ImageFolder", "as_dataset"]
