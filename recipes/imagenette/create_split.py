#!/usr/bin/env python3
"""Create Split: a splitfile generator starting from data stored on a Cassandra db.

    python3 create_split.py -k imagenette -s train_256_jpg -r 8,2 -o imagenette_splitfile.pckl

A split file whose name ends in .npz holds plain arrays; any other the customary pickle.
"""

from __future__ import annotations

import argparse

from datapipes.catalog.row_file import save_row_file
from datapipes.catalog.row_source import RowSource
from datapipes.prepare.balance import Balance
from datapipes.prepare.make_split import make_split
from datapipes.prepare.metadata import Metadata, key_column_of, load_metadata, read_metadata, save_metadata
from recipes.cassandra_options import add_server_options, server_from
from recipes.say_why import say_why


def main(argv: list[str] | None = None) -> None:
    args = parse_options(argv)
    metadata = metadata_of(args)
    if args.metadata_ofn:
        save_metadata(args.metadata_ofn, metadata)
    made = make_split(
        metadata.keys,
        metadata.labels,
        ratio=args.split_ratio,
        balance=args.balance,
        seed=args.seed,
        source=metadata.source,
    )
    save_row_file(args.split_ofn, made)
    sizes = " + ".join(f"{len(split):,}" for split in made.splits)
    print(f"{args.split_ofn}: {sizes} of {len(metadata.keys):,} rows of {metadata.source.table}")


def parse_options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-k", "--keyspace", help="the Cassandra keyspace")
    parser.add_argument("-s", "--table-suffix", help="test is the suffix of the tables data_test and metadata_test")
    parser.add_argument("-i", "--id-col", help="column with the keys (default: the table's key, such as patch_id)")
    parser.add_argument("-d", "--data-col", default="data", help="column with the data (default: data)")
    parser.add_argument("-l", "--label-col", default="label", help="column with the label (default: label)")
    parser.add_argument(
        "-t",
        "--label-type",
        default="int",
        choices=["int", "image", "blob", "none"],
        help="what a label is: a class, an image such as a mask, or nothing (default: int)",
    )
    parser.add_argument("--metadata-ifn", help="metadata kept earlier; the database is not asked")
    parser.add_argument("--metadata-ofn", help="where to keep the metadata that the database gave")
    parser.add_argument("-o", "--split-ofn", required=True, help="the split file to write")
    parser.add_argument(
        "-r", "--split-ratio", type=_listed, default=["8", "2"], help="a part for each split (default: 8,2)"
    )
    parser.add_argument(
        "-b",
        "--balance",
        type=_balance,
        default="original",
        help="original, random, or a weight for each class with commas between (default: original)",
    )
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same splits (default: 0)")
    add_server_options(parser)
    args = parser.parse_args(argv)
    if args.metadata_ifn is None and (args.keyspace is None or args.table_suffix is None):
        parser.error("give --keyspace and --table-suffix, or --metadata-ifn")
    return args


def metadata_of(args: argparse.Namespace) -> Metadata:
    """Keys and classes, from the cache or from the database."""
    if args.metadata_ifn is not None:
        return load_metadata(args.metadata_ifn)
    server, metadata_table = server_from(args), f"{args.keyspace}.metadata_{args.table_suffix}"
    source = RowSource(
        f"{args.keyspace}.data_{args.table_suffix}",
        id_col=args.id_col or key_column_of(server, metadata_table, "create_split"),
        label_col=args.label_col,
        data_col=args.data_col,
        label_type=args.label_type,
        metadata_table=metadata_table,
    )
    return read_metadata(server, source, with_labels=args.label_type == "int", function="create_split")


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.strip("[]() ").split(",")]


def _balance(text: str) -> Balance:
    return text if text in ("original", "random") else _listed(text)  # type: ignore[return-value]


if __name__ == "__main__":
    say_why(main)
