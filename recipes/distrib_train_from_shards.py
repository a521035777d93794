"""Train an ImageNet model from tar shards, on a disk or in a bucket, with torchrun.

    python recipes/sample_images.py /tmp/images                             # something to try it with:
    for split in train val; do
        python recipes/imagenet_sharding.py -d /tmp/images/$split -o /tmp/shards/$split
    done
    torchrun --standalone --nproc_per_node=2 recipes/distrib_train_from_shards.py /tmp/shards \\
        -a resnet10 --image-size 64 -b 16 --workers 1 --epochs 8            # on two CPU cores, a minute

    torchrun --nproc_per_node=8 recipes/distrib_train_from_shards.py s3://bucket/shards/train s3://bucket/shards/val \\
        -a resnet50 -b 128 --workers 8 --lr 0.1 --amp --channels-last --cache-dir /local/cache

Each folder has a manifest, or is all the shards in it by name; remote shards need their indexes beside them
(recipes/verify_shards.py --index makes them). The number of classes is the manifest's, unless --classes says it.
Blocks of 256 neighbours are shuffled over all shards and mixed with each other, so one request fetches several
images. With --cache-dir the processes of a machine keep what they have read on its disk, up to 100 GB. Several
machines, elastic runs, what the printed numbers mean: docs/training.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from recipes.data_pipe import build_pipe, count_classes
from recipes.data_source import parse_training
from recipes.training import train


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    return parse_training(__doc__, argv, shards=True)


def main(argv: Sequence[str] | None = None) -> None:
    train(parse(argv), build_pipe, count_classes)


if __name__ == "__main__":
    main()
