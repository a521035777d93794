"""Train an ImageNet model from a folder, or from any file system that fsspec knows, with torchrun.

    python recipes/sample_images.py /tmp/images                       # 400 + 100 photographs to try it with

    torchrun --standalone --nproc_per_node=2 recipes/distrib_train_from_file.py /tmp/images \\
        -a resnet10 --image-size 64 -b 16 --workers 1 --epochs 8      # on two CPU cores, a minute

    torchrun --nproc_per_node=8 recipes/distrib_train_from_file.py /data/imagenet/train /data/imagenet/val \\
        -a resnet50 -b 128 --workers 8 --lr 0.1 --amp --channels-last --output-dir runs/resnet50

    torchrun ... recipes/distrib_train_from_file.py /data/imagenet --resume runs/resnet50   # goes on in mid-epoch
    python recipes/distrib_train_from_file.py /data/imagenet -e --resume runs/resnet50/model_best.pth.tar

DATA holds train/ and val/, each with a folder a class. Several machines, elastic runs, what the printed numbers
mean: docs/training.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from datapipes.catalog.class_map import ClassMap
from datapipes.iter import IterableWrapper
from recipes.data_source import IMAGE_FIELDS, IMAGE_FILES, add_locations, path_or_url, split_locations
from recipes.training import train
from recipes.training_options import parse_training_options, training_parser
from recipes.transforms import image_transform


def build_pipe(args: argparse.Namespace, split: str, classes: ClassMap | None) -> Any:
    """From files to batches of uint8 images (3, size, size) and labels."""
    is_train = split == "train"
    return (
        IterableWrapper([path_or_url(args.splits[split])])
        .list_files_by_fsspec(masks=IMAGE_FILES)
        .distribute(shuffle=is_train, seed=args.seed, uneven="drop" if is_train else "keep")
        .load_files_by_fsspec(on_error=args.on_error)
        .parse_label(classes=classes)
        .decode("torch", on_error=args.on_error)
        .to_tuple(IMAGE_FIELDS, "cls")
        .map_tuple(image_transform(split, args.image_size), int)
        .batched(args.batch_size)
    )


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = training_parser(__doc__)
    add_locations(parser.add_argument_group("where the images are"), "folder")
    args = parse_training_options(parser, argv)
    args.splits = split_locations(parser, args)
    return args


def main(argv: Sequence[str] | None = None) -> None:
    train(parse(argv), build_pipe)


if __name__ == "__main__":
    main()
