#!/usr/bin/env python3
"""Verify a sharded data set: every byte of every shard, against its index and the manifest.

    python recipes/verify_shards.py shards/train
    python recipes/verify_shards.py s3://bucket/imagenet-val --endpoint-url http://127.0.0.1:9000
    python recipes/verify_shards.py https://example.org/shards/shard-000000.tar
    python recipes/verify_shards.py shards/train --index    # make the indexes and the manifest first

Prints each fault with shard and offset, then one line of totals. Exits with 0 where all is well, 1 where
something is damaged or missing, 2 where there is nothing to verify. Shards that webdataset, tarp or tar wrote
have no index: then the archive's structure alone is verified, which finds no change inside an image.
"""

from __future__ import annotations

import argparse
import sys

from tqdm import tqdm

from datapipes.catalog.s3_server import S3Server
from datapipes.catalog.shard_store import is_shard, manifest_of
from datapipes.prepare.verify_shards import index_shards, verify_shards


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="a folder of shards, or a shard: path, s3://, https:// or what fsspec opens")
    parser.add_argument("--index", action="store_true", help="write indexes and a manifest before, from what is there")
    parser.add_argument("--endpoint-url", help="of an S3 server that is not AWS")
    parser.add_argument("--profile", help="of ~/.aws/credentials")
    args = parser.parse_args(argv)
    server = S3Server(endpoint_url=args.endpoint_url, profile=args.profile)
    try:
        return verify(args.url, server, index=args.index)
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2


def verify(url: str, server: S3Server, *, index: bool) -> int:
    if index:
        index_shards(url, server=server)
    manifest = None if is_shard(url) else manifest_of(url, server=server, function="verify_shards")
    expected_bytes = None if manifest is None else manifest.nbytes
    shards = samples = nbytes = faults = 0
    with tqdm(total=expected_bytes, unit="B", unit_scale=True, disable=None) as bar:
        for verdict in verify_shards(url, server=server):
            shards += 1
            samples += verdict.samples
            nbytes += verdict.nbytes
            faults += len(verdict.faults)
            bar.update(verdict.nbytes)
            for fault in verdict.faults:
                bar.write(fault, file=sys.stdout)
    print(f"{shards:,} shards, {samples:,} samples, {nbytes:,} bytes: {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
