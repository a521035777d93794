#!/usr/bin/env python3
"""Shard ImageNet: archives or folders in, shuffled tar shards with index and manifest out.

    python recipes/imagenet_sharding.py -d ILSVRC2012_img_train.tar -m ILSVRC2012_devkit_t12.tar.gz -o shards/train
    python recipes/imagenet_sharding.py -d ILSVRC2012_img_val.tar -m ILSVRC2012_devkit_t12.tar.gz -o shards/val -n val
    python recipes/imagenet_sharding.py -d imagenet/train -o shards/train -p --workers 32   # short side 256 pixels
    python recipes/imagenet_sharding.py -c train.json -o elsewhere                          # options from a file
    curl -s https://example.org/train.tar | python recipes/imagenet_sharding.py -d - -o shards/train

Sources: the tar of class tars, a tar or folder with a folder a class, and validation images in one flat tar or
folder with their ground truth. One order shuffles the whole data set; the same seed gives the same bytes with
any number of workers. A run that was cut goes on when it is started again; until it is done, readers refuse the
folder. A configuration is a JSON object of long option names, {"dataSource": "train.tar", "maxcount": 5000}; of
several the later wins, and the command line over all.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tqdm import tqdm

from datapipes.catalog.manifest import Manifest, Shard
from datapipes.prepare.imagenet_classes import read_class_metadata
from datapipes.prepare.imagenet_source import index_images
from datapipes.prepare.resize_image import Resize
from datapipes.prepare.seekable_source import seekable_source
from datapipes.prepare.shard_images import shard_images
from recipes.say_why import say_why


def main(argv: list[str] | None = None) -> None:
    args = parse_options(argv)
    manifest = shard(args)
    print(
        f"{args.targetFolder}: {manifest.samples:,} samples in {len(manifest.shards):,} shards, "
        f"{manifest.nbytes:,} bytes"
    )


def shard(args: argparse.Namespace) -> Manifest:
    metadata = read_class_metadata(args.metaDataFile, base_name=args.groundTruthBaseName)
    with seekable_source(args.dataSource, in_memory=args.inmemory) as source:
        index = index_images(source, class_of=metadata.class_of, file_pattern=args.filePattern, data_type=args.dataType)
        print(f"{args.dataSource}: {len(index):,} images of {len(index.class_names):,} classes", flush=True)
        if index.passed_over:
            print(f"passed over: {index.passed_over:,} files that are no images or that filePattern does not take")
        with tqdm(total=len(index), unit=" images", unit_scale=True, disable=None) as progress:

            def on_shard(written: Shard) -> None:
                progress.update(written.samples)

            return shard_images(
                index,
                args.targetFolder,
                classes=metadata.class_map(index.class_names, order=args.classOrder),
                name=args.datasetName,
                seed=args.seed,
                maxcount=args.maxcount,
                maxsize=args.maxsize,
                resize=Resize(args.shortSide, args.quality) if args.preprocess else None,
                data_type=args.dataType,
                workers=args.workers,
                replace=args.replace,
                on_shard=on_shard,
            )


def parse_options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-c", "--conf", action="append", default=[], help="JSON file of options; may come again")
    parser.add_argument("-d", "--dataSource", help="tar, .tar.gz, .tar.zst, folder, or - for standard input")
    parser.add_argument("-o", "--targetFolder", help="folder, s3:// or other URL of the shards")
    parser.add_argument(
        "-m",
        "--metaDataFile",
        nargs="+",
        default=[],
        help="what is known of classes: the development kit (its archive or folder), its meta.mat, its ground truth, "
        "a JSON object of class names and labels, or several of these",
    )
    parser.add_argument(
        "-r", "--filePattern", help="regular expression of the images to take; its group 1 is the class"
    )
    parser.add_argument("-n", "--datasetName", default="Dataset", help="shards are NAME-000000.tar (default: Dataset)")
    parser.add_argument("-x", "--maxcount", type=int, default=100_000, help="samples a shard (default: 100000)")
    parser.add_argument("-s", "--maxsize", type=float, default=1e9, help="bytes a shard (default: 1e9)")
    parser.add_argument(
        "-y",
        "--inmemory",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="copy a compressed or piped source to memory, not to disk at TMPDIR",
    )
    parser.add_argument(
        "-g",
        "--groundTruthBaseName",
        default="ILSVRC2012_val_",
        help="line i of the ground truth labels the image of this name and number i (default: ILSVRC2012_val_)",
    )
    parser.add_argument(
        "-p", "--preprocess", action=argparse.BooleanOptionalAction, default=False, help="resize images, as JPEG"
    )
    parser.add_argument("-e", "--seed", type=int, default=1, help="of the order (default: 1)")
    parser.add_argument("--dataType", help="field of the image in a sample (default: its extension, such as jpg)")
    parser.add_argument("--shortSide", type=int, default=256, help="pixels, with --preprocess (default: 256)")
    parser.add_argument("--quality", type=int, default=90, help="of the JPEG, with --preprocess (default: 90)")
    parser.add_argument(
        "--classOrder",
        choices=["wnid", "devkit"],
        default="wnid",
        help="labels count from 0 in the order of the sorted class names, as torchvision's, or of the devkit's IDs",
    )
    parser.add_argument("--workers", type=int, default=1, help="processes (default: 1)")
    parser.add_argument(
        "--replace",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="take the place of another finished data set",
    )
    argv = sys.argv[1:] if argv is None else argv
    # What a configuration says stands in front of the command line, which so has the last word.
    first, _ = parser.parse_known_args(argv)
    args = parser.parse_args([*_configured(parser, first), *argv])
    for needed in ("dataSource", "targetFolder"):
        if getattr(args, needed) is None:
            parser.error(f"give --{needed}, or {needed} in a configuration")
    return args


def _configured(parser: argparse.ArgumentParser, args: argparse.Namespace) -> list[str]:
    """What the configurations say, as a command line."""
    options = []
    for path in args.conf:
        try:
            content = json.loads(Path(path).read_text("utf-8"))
        except (OSError, ValueError) as error:
            parser.error(f"--conf {path}: {error}")
        if not isinstance(content, dict):
            parser.error(f"--conf {path}: must hold a JSON object of long option names and values")
        for name, value in content.items():
            if name == "conf" or name not in args:
                parser.error(f"--conf {path}: no option {name!r}; see --help")
            if isinstance(value, bool):
                options.append(f"--{name}" if value else f"--no-{name}")
            elif isinstance(value, list):
                options += [f"--{name}", *map(str, value)]
            elif value is not None:
                options.append(f"--{name}={value}")
    return options


if __name__ == "__main__":
    say_why(main)
