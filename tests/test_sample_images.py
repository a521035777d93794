"""The sample images are real, in ImageNet's layout, and the same bytes on every run."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from recipes.sample_images import PICTURES, main, write_sample_images


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_same_arguments_write_the_same_bytes_and_another_seed_others(tmp_path):
    for name, seed in [("one", 0), ("two", 0), ("three", 1)]:
        write_sample_images(tmp_path / name, classes=3, images=9, size=(64, 48), seed=seed)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert contents(tmp_path / "one").keys() == contents(tmp_path / "three").keys()
    assert not set(contents(tmp_path / "one").values()) & set(contents(tmp_path / "three").values())


def test_images_are_shared_evenly_by_the_classes(tmp_path):
    write_sample_images(tmp_path, classes=4, images=10, val_images=4, size=(100, 80))
    counts = [len(list(folder.iterdir())) for folder in sorted((tmp_path / "train").iterdir())]
    assert sorted(counts) == [2, 2, 3, 3]
    assert {folder.name for folder in (tmp_path / "val").iterdir()} == set(list(PICTURES)[:4])
    for path in tmp_path.rglob("*.JPEG"):
        with Image.open(path) as image:
            assert (image.format, image.mode, image.size) == ("JPEG", "RGB", (100, 80))


def test_every_picture_is_shipped(tmp_path):
    write_sample_images(tmp_path, classes=len(PICTURES), images=len(PICTURES), size=(64, 48))
    assert len(list((tmp_path / "train").iterdir())) == len(PICTURES)


def test_class_folders_can_be_numbers(tmp_path, capsys):
    main([str(tmp_path), "--classes", "2", "--images", "4", "--labels", "numbers", "--size", "64x48"])
    assert sorted(path.name for path in (tmp_path / "train").iterdir()) == ["0", "1"]
    assert capsys.readouterr().out.startswith("5 images of ")


def test_benchmark_images_have_the_size_of_imagenet_files(tmp_path):
    write_sample_images(tmp_path, images=40, val_images=0, size=(500, 375))
    sizes = [path.stat().st_size for path in tmp_path.rglob("*.JPEG")]
    assert 95_000 < sum(sizes) / len(sizes) < 120_000


def test_more_classes_than_pictures_are_refused(tmp_path):
    with pytest.raises(ValueError, match="classes must be 1 to 16, got 17"):
        write_sample_images(tmp_path, classes=17)
