"""Train an ImageNet model straight from an S3 bucket, with torchrun.

    python recipes/sample_images.py /tmp/images                                 # something to try it with:
    python recipes/servers.py s3 --port 9000 --put /tmp/images                  # S3 on this machine, bucket "imagenet"

    export AWS_ACCESS_KEY_ID=local-access-key AWS_SECRET_ACCESS_KEY=local-secret-key
    torchrun --standalone --nproc_per_node=2 recipes/distrib_train_from_s3.py s3://imagenet \\
        --endpoint-url http://127.0.0.1:9000 -a resnet10 --image-size 64 -b 16 --workers 1 --epochs 8

    torchrun --nproc_per_node=8 recipes/distrib_train_from_s3.py s3://bucket/imagenet \\
        -a resnet50 -b 128 --workers 8 --lr 0.1 --amp --channels-last --output-dir runs/resnet50

    torchrun ... recipes/distrib_train_from_s3.py s3://bucket/imagenet --resume runs/resnet50   # goes on in mid-epoch
    python recipes/distrib_train_from_s3.py s3://bucket/imagenet -e --resume runs/resnet50/model_best.pth.tar

The prefix holds train/ and val/, each with a folder a class. Address, region and credentials are those of the AWS
command line (AWS_ENDPOINT_URL, AWS_PROFILE, ~/.aws, the machine's role), but for what the options below say; keys
are read from there alone, since a command line shows in every process list. Several machines, elastic runs, what
the printed numbers mean: docs/training.md.
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
