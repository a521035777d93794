"""What a DataLoader takes."""

from datapipes.dataset.account import Report
from datapipes.dataset.as_dataset import PipeDataset, as_dataset

__all__ = ["PipeDataset", "Report", "as_dataset"]
