#!/usr/bin/env python3
"""Read the keys of a table from its metadata table and keep them in a row file.

    python3 cache_uuids.py --metadata-table=imagenette.metadata_train --rows-fn train.rows

A name that ends in .npz gives plain arrays; any other the customary pickle.
"""

from __future__ import annotations

import argparse

from datapipes.catalog.row_file import RowFile, save_row_file
from datapipes.catalog.row_source import RowSource, check_table, data_table_of
from datapipes.prepare.metadata import key_column_of, read_metadata
from recipes.cassandra_options import add_server_options, server_from
from recipes.say_why import say_why


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--metadata-table", required=True, help="keyspace.table")
    parser.add_argument("--rows-fn", required=True, help="the row file to write")
    parser.add_argument("--id-col", help="the column with the keys (default: the table's key)")
    parser.add_argument("--data-table", help="the table that the keys are of (default: data_X for metadata_X)")
    add_server_options(parser)
    args = parser.parse_args(argv)
    check_table("cache_uuids", args.metadata_table)
    data_table = args.data_table or data_table_of(args.metadata_table)
    server = server_from(args)
    id_col = args.id_col or key_column_of(server, args.metadata_table, "cache_uuids")
    source = RowSource(data_table, id_col=id_col, metadata_table=args.metadata_table)
    found = read_metadata(server, source, with_labels=False, function="cache_uuids")
    save_row_file(args.rows_fn, RowFile(found.keys, source))
    print(f"{args.rows_fn}: {len(found.keys):,} keys of {data_table}")


if __name__ == "__main__":
    say_why(main)
