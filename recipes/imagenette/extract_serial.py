#!/usr/bin/env python3
"""Copy a folder of images into Cassandra, a row each.

    python3 extract_serial.py /tmp/imagenette2-320 --split-subdir=train \\
        --data-table imagenette.data_train --metadata-table imagenette.metadata_train

A row's key follows from its table and path, so a run that was stopped is run again and writes what is missing.
"""

from __future__ import annotations

from extract_common import images_of, ingest_from, parse_options, report
from tqdm import tqdm

from datapipes.prepare.cassandra_ingest import missing_images, write_images
from recipes.say_why import say_why


def main(argv: list[str] | None = None) -> None:
    args = parse_options(__doc__, argv)
    ingest = ingest_from(args)
    images = images_of(args, ingest)
    missing = missing_images(images, ingest, args.server)
    with tqdm(total=len(images), initial=len(images) - len(missing), unit=" images") as bar:
        written = write_images(missing, ingest, args.server, on_written=bar.update)
    report(images, written, ingest, args)


if __name__ == "__main__":
    say_why(main)
