"""Where the images are: what a user may write for DATA, the options of each store, and which files count.

DATA is one of these, and every training recipe takes each of them:

    /data/imagenet                                a folder, or any URL that fsspec opens, with train/ and val/ in it
    s3://bucket/imagenet                          the same in a bucket
    http://host:8080/datasets/imagenet            the same in a dataset service
    /data/shards, s3://bucket/shards              tar shards with a manifest, in train/ and val/
    splits.pckl, s3://bucket/splits.npz           a split file, of a Cassandra table or of any of the above

or two of them, TRAIN and VAL, each for itself; row files will do then, too.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from datapipes.catalog.dataset_service import DatasetService
from datapipes.catalog.s3_server import S3Server
from datapipes.catalog.shard_store import is_shard, local_path, manifest_of
from datapipes.load.window import REQUEST_TIMEOUT_S
from recipes.cassandra_options import add_server_options, server_from
from recipes.training_options import parse_training_options, training_parser

Store = Literal["files", "s3", "service", "shards", "rows"]

IMAGE_FILES = ["*.[jJ][pP][gG]", "*.[jJ][pP][eE][gG]", "*.[pP][nN][gG]", "*.[wW][eE][bB][pP]"]
IMAGE_FIELDS = "jpg;jpeg;png;webp;tif;tiff;bmp;gif"
_ROW_FILES = (".pckl", ".pkl", ".pickle", ".npz", ".rows")
_SERVICE = re.compile(r"(https?://.+?)/datasets?/")


def parse_training(manual: str | None, argv: Sequence[str] | None, *, shards: bool = False) -> argparse.Namespace:
    """The command line of a recipe whose DATA may be anywhere; `shards` takes it for shards without asking."""
    parser = training_parser(manual)
    add_data_options(parser)
    args = parse_training_options(parser, argv)
    locate(parser, args, split_locations(parser, args), shards=shards)
    return args


def add_data_options(parser: argparse.ArgumentParser) -> None:
    """DATA, and what has to be said of some stores."""
    group = parser.add_argument_group("where the images are")
    group.add_argument("locations", nargs="*", metavar="DATA", help="TRAIN VAL, or one that holds train/ and val/")
    group.add_argument("--data", metavar="DATA", help="the same, as an option")
    group.add_argument("--train-index", type=int, default=0, help="of the split to train on, in a split file")
    group.add_argument("--val-index", type=int, default=1, help="of the split to validate on (default: 1)")
    group.add_argument("--cache-dir", metavar="FOLDER", help="keep what is read of remote shards on the local disk")
    group.add_argument(
        "--request-timeout",
        type=float,
        default=REQUEST_TIMEOUT_S,
        metavar="S",
        help="how long a store may take for an answer; Cassandra's nodes, to come back (default: %(default)g s)",
    )
    s3 = parser.add_argument_group("S3", "default: as for the AWS command line")
    s3.add_argument("--endpoint-url", metavar="URL", help="of a server that is not AWS")
    s3.add_argument("--region", help="of the bucket")
    s3.add_argument("--profile", help="a section of ~/.aws/config and ~/.aws/credentials")
    s3.add_argument("--anonymous", action="store_true", help="do not sign: for public buckets")
    add_server_options(parser)


def locate(
    parser: argparse.ArgumentParser, args: argparse.Namespace, splits: dict[str, str], *, shards: bool = False
) -> None:
    """Add to `args` where either split is, and the servers to ask."""
    for name in ("train_index", "val_index"):
        if getattr(args, name) < 0:
            parser.error(f"--{name.replace('_', '-')} must be at least 0, got {getattr(args, name)}")
    if args.request_timeout <= 0:
        parser.error(f"--request-timeout must be above 0, got {args.request_timeout:g}")
    if is_row_file(splits["train"]) and splits["train"] == splits["val"] and args.train_index == args.val_index:
        parser.error(f"--train-index and --val-index are both {args.train_index}; validate on another split")
    args.splits = splits
    args.shards = shards
    args.tables = {"train": None, "val": None}
    args.s3_server = S3Server(
        endpoint_url=args.endpoint_url, region=args.region, profile=args.profile, anonymous=args.anonymous
    )
    args.cassandra_server = server_from(args)


def split_locations(parser: argparse.ArgumentParser, args: argparse.Namespace) -> dict[str, str]:
    """{"train": ..., "val": ...}"""
    given = ([args.data] if args.data else []) + args.locations
    if len(given) == 2:
        return {"train": given[0], "val": given[1]}
    if len(given) != 1:
        parser.error(f"give TRAIN and VAL, or one DATA that holds train/ and val/; got {' '.join(given) or 'neither'}")
    base = given[0].rstrip("/")
    if is_row_file(base):
        return {"train": base, "val": base}
    return {"train": f"{base}/train", "val": f"{base}/val"}


def store_of(location: str, args: argparse.Namespace) -> Store:
    """What is at `location`. Shards are known by the manifest beside them, or on this machine by their names."""
    if is_row_file(location):
        return "rows"
    if _SERVICE.match(location):
        return "service"
    if args.shards or is_shard(location) or _holds_shards(location, args.s3_server):
        return "shards"
    return store_of_file(location)


def store_of_file(url: str) -> Store:
    """What loads a single file."""
    if _SERVICE.match(url):
        return "service"
    return "s3" if url.startswith("s3://") else "files"


def is_row_file(location: str) -> bool:
    """Whether this is a row or split file, rather than a folder or a shard."""
    return location.endswith(_ROW_FILES) or (Path(location).suffix == "" and Path(location).is_file())


def service_at(location: str) -> DatasetService:
    """The service of a data set's URL; its token, if it wants one, is in DATASET_SERVICE_TOKEN."""
    address = _SERVICE.match(location)
    return DatasetService(address[1] if address else "", token=os.environ.get("DATASET_SERVICE_TOKEN"))


def path_or_url(text: str) -> str:
    """A local folder made absolute, since workers may run elsewhere; a URL as it is."""
    return text if "://" in text else str(Path(text).absolute())


def _holds_shards(location: str, server: S3Server) -> bool:
    path = local_path(location)
    if path is None and not location.startswith("s3://"):
        return False
    if manifest_of(location, server=server, function="--data") is not None:
        return True
    return path is not None and Path(path).is_dir() and any(is_shard(name) for name in os.listdir(path))
