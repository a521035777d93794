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
from typing import Any

from datapipes.catalog.class_map import ClassMap
from datapipes.catalog.s3_server import S3Server
from datapipes.iter import IterableWrapper
from recipes.data_source import IMAGE_FIELDS, IMAGE_FILES, add_locations, split_locations
from recipes.training import train
from recipes.training_options import parse_training_options, training_parser
from recipes.transforms import image_transform


def build_pipe(args: argparse.Namespace, split: str, classes: ClassMap | None) -> Any:
    """From objects to batches of uint8 images (3, size, size) and labels."""
    is_train = split == "train"
    return (
        IterableWrapper([args.splits[split]])
        .list_files_by_s3(masks=IMAGE_FILES, server=args.server)
        .distribute(shuffle=is_train, seed=args.seed, uneven="drop" if is_train else "keep")
        .load_files_by_s3(server=args.server, on_error=args.on_error)
        .parse_label(classes=classes)
        .decode("torch", on_error=args.on_error)
        .to_tuple(IMAGE_FIELDS, "cls")
        .map_tuple(image_transform(split, args.image_size), int)
        .batched(args.batch_size)
    )


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = training_parser(__doc__)
    group = parser.add_argument_group("where the images are")
    add_locations(group, "s3:// prefix")
    group.add_argument("--endpoint-url", metavar="URL", help="of a server that is not AWS")
    group.add_argument("--region", help="of the bucket")
    group.add_argument("--profile", help="a section of ~/.aws/config and ~/.aws/credentials")
    group.add_argument("--anonymous", action="store_true", help="do not sign: for public buckets")
    args = parse_training_options(parser, argv)
    args.splits = split_locations(parser, args)
    args.server = S3Server(
        endpoint_url=args.endpoint_url, region=args.region, profile=args.profile, anonymous=args.anonymous
    )
    return args


def main(argv: Sequence[str] | None = None) -> None:
    train(parse(argv), build_pipe)


if __name__ == "__main__":
    main()
