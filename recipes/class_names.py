"""The classes that a listing shows: what the model has outputs for, and what validation must not go beyond."""

from __future__ import annotations

from datapipes.catalog.class_map import ClassMap, directory_of
from datapipes.dataset import PipeDataset


def classes_of(dataset: PipeDataset) -> ClassMap | None:
    """The classes of a listing, for the model and for validation; None where keys are in no directories.

    Directories that are numbers are their own labels, as for `parse_label`: gaps get a class without images.
    """
    directories = _directories(dataset)
    numbers = {int(name): name for name in directories if name.isascii() and name.isdigit()}
    if not directories or len(numbers) < len(directories):
        return ClassMap(sorted(directories), source="the training set") if directories else None
    return ClassMap([numbers.get(label, str(label)) for label in range(max(numbers) + 1)], source="the training set")


def check_classes(dataset: PipeDataset, classes: ClassMap, split: str) -> None:
    """Refuse a split with a class that the model has no output for, before an epoch is spent."""
    unknown = sorted(_directories(dataset) - set(classes))
    if unknown:
        raise ValueError(
            f"training: {split} has the class {unknown[0]!r}, and {len(unknown) - 1} more, that {classes!r} has not; "
            "correct the directory's name, or take its images out"
        )


def _directories(dataset: PipeDataset) -> set[str]:
    return {directory_of(directory) for directory in getattr(dataset.table, "directories", [])} - {""}
