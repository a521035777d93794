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

from recipes.data_pipe import build_pipe, count_classes
from recipes.data_source import parse_training
from recipes.training import train


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    return parse_training(__doc__, argv)


def main(argv: Sequence[str] | None = None) -> None:
    train(parse(argv), build_pipe, count_classes)


if __name__ == "__main__":
    main()
