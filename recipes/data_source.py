"""Where the images are: what a user may write for DATA, and which files under it count."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

IMAGE_FILES = ["*.[jJ][pP][gG]", "*.[jJ][pP][eE][gG]", "*.[pP][nN][gG]", "*.[wW][eE][bB][pP]"]
IMAGE_FIELDS = "jpg;jpeg;png;webp"


def add_locations(group: Any, kind: str) -> None:
    """TRAIN VAL, or one DATA with train/ and val/ in it, with or without --data before it."""
    group.add_argument(
        "locations", nargs="*", metavar="DATA", help=f"TRAIN VAL, or one {kind} that holds train/ and val/"
    )
    group.add_argument("--data", metavar="DATA", help="the same, as an option")


def split_locations(parser: argparse.ArgumentParser, args: argparse.Namespace) -> dict[str, str]:
    """{"train": ..., "val": ...}"""
    given = ([args.data] if args.data else []) + args.locations
    if len(given) == 2:
        return {"train": given[0], "val": given[1]}
    if len(given) != 1:
        parser.error(f"give TRAIN and VAL, or one DATA that holds train/ and val/; got {' '.join(given) or 'neither'}")
    base = given[0].rstrip("/")
    return {"train": f"{base}/train", "val": f"{base}/val"}


def path_or_url(text: str) -> str:
    """A local folder made absolute, since workers may run elsewhere; a URL as it is."""
    return text if "://" in text else str(Path(text).absolute())
