"""ImageNet's files in small, of the sample images: archives of training and validation images, a development kit."""

from __future__ import annotations

import gzip
import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.io import savemat

# Out of order, as in the development kit: the place is the ILSVRC2012_ID.
WNIDS = ["n02119789", "n01440764", "n02100735", "n01443537"]
SORTED_WNIDS = sorted(WNIDS)


@dataclass(frozen=True)
class ImageNet:
    """Where the files lie, and what they hold by key."""

    train_folder: Path
    train_tar: Path
    train_tar_gz: Path
    val_folder: Path
    val_tar: Path
    devkit: Path
    meta: Path
    truth: Path
    train: dict[str, bytes]
    val: dict[str, bytes]


def make_imagenet(samples: Path, folder: Path) -> ImageNet:
    """Lay the four classes of `samples` out as ImageNet does."""
    train, val, truth = {}, {}, []
    (folder / "val").mkdir(parents=True)
    for wnid, source in zip(WNIDS, sorted((samples / "train").iterdir())):
        (folder / "train" / wnid).mkdir(parents=True)
        for number, path in enumerate(sorted(source.iterdir())):
            content = path.read_bytes()
            (folder / "train" / wnid / f"{wnid}_{number * 7}.JPEG").write_bytes(content)
            train[f"{wnid}/{wnid}_{number * 7}"] = content
    for number, path in enumerate(sorted((samples / "val").rglob("*.JPEG")), 1):
        wnid_id = number % len(WNIDS) + 1
        truth.append(str(wnid_id))
        (folder / "val" / f"ILSVRC2012_val_{number:08}.JPEG").write_bytes(path.read_bytes())
        val[f"{WNIDS[wnid_id - 1]}/ILSVRC2012_val_{number:08}"] = path.read_bytes()
    kit = folder / "ILSVRC2012_devkit_t12" / "data"
    kit.mkdir(parents=True)
    write_meta(kit / "meta.mat")
    (kit / "ILSVRC2012_validation_ground_truth.txt").write_text("\n".join(truth) + "\n")
    with tarfile.open(folder / "devkit.tar.gz", "w:gz") as archive:
        archive.add(kit.parent, kit.parent.name)
    with tarfile.open(folder / "train.tar", "w") as archive:
        for wnid in SORTED_WNIDS:
            pack(folder / "train" / wnid, folder / f"{wnid}.tar")
            archive.add(folder / f"{wnid}.tar", f"{wnid}.tar")
    pack(folder / "val", folder / "val.tar")
    (folder / "train.tar.gz").write_bytes(gzip.compress((folder / "train.tar").read_bytes(), 1))
    return ImageNet(
        folder / "train",
        folder / "train.tar",
        folder / "train.tar.gz",
        folder / "val",
        folder / "val.tar",
        folder / "devkit.tar.gz",
        kit / "meta.mat",
        kit / "ILSVRC2012_validation_ground_truth.txt",
        train,
        val,
    )


def pack(folder: Path, archive: Path) -> None:
    with tarfile.open(archive, "w") as tar:
        for path in sorted(folder.iterdir()):
            tar.add(path, path.name)


def write_meta(path: Path) -> None:
    """meta.mat in the structure of the devkit: classes first, then the groups that they are in."""
    kinds = [
        ("ILSVRC2012_ID", "O"),
        ("WNID", "O"),
        ("words", "O"),
        ("gloss", "O"),
        ("num_children", "O"),
        ("children", "O"),
        ("wordnet_height", "O"),
        ("num_train_images", "O"),
    ]
    rows = [
        (number, wnid, f"words {wnid}", "gloss", 0, np.zeros((1, 0)), 0, 12) for number, wnid in enumerate(WNIDS, 1)
    ]
    rows.append((len(rows) + 1, "n00001740", "entity", "all", 2, np.array([1, 2]), 19, 0))
    synsets = np.empty((len(rows), 1), dtype=kinds)
    for number, row in enumerate(rows):
        synsets[number, 0] = row
    savemat(path, {"synsets": synsets})
