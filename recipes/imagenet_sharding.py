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
import os
from pathlib import Path


def main(argv: list[str] | None = None) -> None:
    parse_options(argv)


def parse_options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-c", "--conf", action="append", default=[], help="JSON file of options; may come again")
    parser.add_argument("-d", "--dataSource", help="tar, .tar.gz, .tar.zst, folder, or - for standard input")
    parser.add_argument("-o", "--targetFolder", help="folder, s3:// or other URL of the shards")
    parser.add_argument(
        "-m",
        "--metaDataFile",
        action="append",
        help="what is known of classes: the devkit (its archive or folder), its meta.mat, its ground truth, or a "
        "JSON object of class names and labels; may come again",
    )
    parser.add_argument(
        "-r", "--filePattern", help="regular expression of the images to take; its group 1 is the class"
    )
    parser.add_argument("-n", "--datasetName", default="Dataset", help="shards are NAME-000000.tar (default: Dataset)")
    parser.add_argument("-x", "--maxcount", type=int, default=100_000, help="samples a shard (default: 100000)")
    parser.add_argument("-s", "--maxsize", type=float, default=1e9, help="bytes a shard (default: 1e9)")
    parser.add_argument(
        "-y", "--inmemory", action="store_true", help="keep a compressed or piped source in memory, not on disk"
    )
    parser.add_argument(
        "-g",
        "--groundTruthBaseName",
        default="ILSVRC2012_val_",
        help="line i of the ground truth labels the image of this name and number i (default: ILSVRC2012_val_)",
    )
    parser.add_argument("-p", "--preprocess", action="store_true", help="resize images as JPEG")
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
    parser.add_argument("--replace", action="store_true", help="take the place of a finished data set")
    configured = _configured(parser, parser.parse_known_args(argv)[0].conf)
    parser.set_defaults(**configured)
    args = parser.parse_args(argv)
    for needed in ("dataSource", "targetFolder"):
        if getattr(args, needed) is None:
            parser.error(f"give --{needed}, or {needed} in a configuration")
    return args


def _configured(parser: argparse.ArgumentParser, paths: list[str]) -> dict[str, object]:
    """The options of all configurations; a name that is no option is an error, not a typing slip that passes."""
    known = {action.dest: action for action in parser._actions}
    options: dict[str, object] = {}
    for path in paths:
        try:
            content = json.loads(Path(path).read_text("utf-8"))
        except (OSError, ValueError) as error:
            parser.error(f"--conf {path}: {error}")
        if not isinstance(content, dict):
            parser.error(f"--conf {path}: must hold a JSON object of option names and values")
        for name, value in content.items():
            if name not in known or name in ("conf", "help"):
                parser.error(f"--conf {path}: no option {name!r}; known are {', '.join(sorted(known))}")
            if name == "metaDataFile" and isinstance(value, str):
                value = [value]
            options[name] = value
    return options


if __name__ == "__main__":
    main()
