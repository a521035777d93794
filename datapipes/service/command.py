"""What the commands `fetch` and `push` have in common: their options, and an end in one line."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

from datapipes.catalog.dataset_service import DatasetService
from datapipes.service.client import Brought


def command_parser(command: str, description: str | None) -> argparse.ArgumentParser:
    """A parser that knows the service, the token and how much to say."""
    parser = argparse.ArgumentParser(
        prog=f"python -m datapipes.service.{command}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    parser.add_argument(
        "--service",
        default=os.environ.get("DATASET_SERVICE_URL", "http://localhost:8080"),
        help="address of the service; by default $DATASET_SERVICE_URL, or http://localhost:8080",
    )
    parser.add_argument("--token-file", help="file that holds the token; by default $DATASET_SERVICE_TOKEN")
    return parser


def run_command(bring: Callable[[DatasetService], Brought], args: argparse.Namespace, where: str, done: str) -> None:
    """Run `bring` on the service that was named, and say what was `done`, or what went wrong and no traceback."""
    try:
        brought = bring(_service(args))
    except (OSError, ValueError) as error:
        raise SystemExit(str(error)) from None
    print(f"{where}: {brought.files:,} files {done} ({brought.bytes:,} bytes), {brought.unchanged:,} unchanged")


def _service(args: argparse.Namespace) -> DatasetService:
    if args.token_file:
        with open(args.token_file) as file:
            token = file.read().strip()
    else:
        token = os.environ.get("DATASET_SERVICE_TOKEN", "")
    return DatasetService(args.service, token=token or None)
