#!/usr/bin/env python3
"""Copy a folder of images into Cassandra with Apache Spark, many files at once on many machines.

    spark-submit --master spark://$HOSTNAME:7077 --conf spark.default.parallelism=10 \\
        --py-files extract_common.py extract_spark.py /data/imagenet/ \\
        --split-subdir=train --data-table imagenet.data_train --metadata-table imagenet.metadata_train

The folder is on a file system that every worker shares, and remote-datapipes is installed for the workers'
Python (PYSPARK_PYTHON; by default the one that runs this). Rows, keys and labels are extract_serial.py's, so
either goes on where the other was stopped.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterator

from extract_common import images_of, ingest_from, parse_options, report

from datapipes.prepare.cassandra_ingest import Ingest, missing_images, write_images
from datapipes.prepare.class_folders import ImageFile
from recipes.cassandra_options import settings_with_secrets

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def main(argv: list[str] | None = None) -> None:
    from pyspark import SparkContext

    args = parse_options(__doc__, argv)
    ingest = ingest_from(args)
    images = images_of(args, ingest)
    missing = missing_images(images, ingest, args.server)
    # Files of a class are of a size, and a class lies in one stretch: shuffled, the jobs are equally long.
    random.Random(0).shuffle(missing)
    with SparkContext(appName=f"extract {args.data_table}") as spark:
        jobs = spark.parallelize(missing, max(1, spark.defaultParallelism))
        written = sum(jobs.mapPartitions(writer_of(ingest, settings_with_secrets(args.server))).collect())
    report(images, written, ingest, args)


def writer_of(ingest: Ingest, settings: dict[str, object]) -> Callable[[Iterator[ImageFile]], list[int]]:
    """What a job does with its images. The settings hold the password as text: Spark carries it to the workers."""

    def write(images: Iterator[ImageFile]) -> list[int]:
        from datapipes.catalog.cassandra_server import CassandraServer

        return [write_images(images, ingest, CassandraServer(**settings))]  # type: ignore[arg-type]

    return write


if __name__ == "__main__":
    main()
