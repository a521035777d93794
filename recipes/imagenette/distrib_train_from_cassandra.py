#!/usr/bin/env python3
"""Train an ImageNet model straight from Cassandra, with torchrun.

By a split file, from create_split.py, which knows its table:

    torchrun --nproc_per_node=1 distrib_train_from_cassandra.py --split-fn imagenette_splitfile.pckl \\
        -a resnet50 --dali_cpu --b 128 --loss-scale 128.0 --workers 4 --lr=0.4 --opt-level O2

or by two row files, from cache_uuids.py:

    torchrun --nproc_per_node=8 distrib_train_from_cassandra.py \\
        -a resnet50 --dali_cpu --b 128 --loss-scale 128.0 --workers 4 --lr=0.4 --opt-level O2 \\
        --train-data-table imagenette.data_train --train-rows-fn train.rows \\
        --val-data-table imagenette.data_val --val-rows-fn val.rows

It goes on in mid-epoch with --resume, on any number of processes. The number of classes is the split file's; for row
files it is read from the metadata tables (12 s for ImageNet), unless --classes says it. Several machines, elastic
runs, what the printed numbers mean: docs/training.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from recipes.data_pipe import build_pipe, count_classes
from recipes.data_source import add_data_options, locate, split_locations
from recipes.training import train
from recipes.training_options import parse_training_options, training_parser


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = training_parser(__doc__)
    add_data_options(parser)
    group = parser.add_argument_group("which rows")
    group.add_argument("--split-fn", metavar="FILE", help="split file, from create_split.py")
    for split in ("train", "val"):
        group.add_argument(f"--{split}-rows-fn", metavar="FILE", help="row file, from cache_uuids.py")
        group.add_argument(f"--{split}-data-table", metavar="KEYSPACE.TABLE", help="(default: the file's own)")
    args = parse_training_options(parser, argv)
    if args.split_fn:
        args.locations.append(args.split_fn)
    for rows in (args.train_rows_fn, args.val_rows_fn):
        if rows:
            args.locations.append(rows)
    if bool(args.train_rows_fn) != bool(args.val_rows_fn) or not (args.locations or args.data):
        parser.error("give --split-fn, or both --train-rows-fn and --val-rows-fn")
    locate(parser, args, split_locations(parser, args))
    args.tables = {"train": args.train_data_table, "val": args.val_data_table}
    return args


def main(argv: Sequence[str] | None = None) -> None:
    train(parse(argv), build_pipe, count_classes)


if __name__ == "__main__":
    main()
