"""Serve the data sets under a folder or an fsspec URL.

python -m datapipes.service --root /data/datasets --port 8080
python -m datapipes.service --root s3://bucket/datasets --host 0.0.0.0 --tokens tokens.txt --workers 4
"""

from __future__ import annotations

import argparse
import os
import tempfile
from typing import Any

import uvicorn

LOGS: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"words": {"format": "%(asctime)s %(levelname)s %(message)s"}},
    "handlers": {"words": {"class": "logging.StreamHandler", "formatter": "words", "stream": "ext://sys.stderr"}},
    "loggers": {
        name: {"handlers": ["words"], "level": "INFO", "propagate": False} for name in ("uvicorn", "datapipes.service")
    },
}
"""Words on stderr; stdout is for the access log, a JSON line a request."""


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m datapipes.service", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--root", required=True, help="folder or fsspec URL that holds the data sets")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at; 0.0.0.0 for a cluster (%(default)s)")
    parser.add_argument("--port", type=int, default=8080, help="port to listen at, 0 for any free one (%(default)s)")
    parser.add_argument(
        "--workers", type=int, default=1, help="processes; one sends about 5,000 images/s (%(default)s)"
    )
    parser.add_argument("--tokens", metavar="FILE", help="lines 'read TOKEN' or 'write TOKEN'; open without it")
    parser.add_argument("--max-file-bytes", type=int, help="refuse larger files")
    args = parser.parse_args(argv)

    os.environ["DATASET_SERVICE_ROOT"] = args.root
    if args.tokens:
        os.environ["DATASET_SERVICE_TOKENS"] = args.tokens
    if args.max_file_bytes is not None:
        os.environ["DATASET_SERVICE_MAX_FILE_BYTES"] = str(args.max_file_bytes)
    with tempfile.TemporaryDirectory(prefix="dataset-service-") as counters:
        if args.workers > 1:
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = counters
        uvicorn.run(
            "datapipes.service.app:from_environment",
            factory=True,
            host=args.host,
            port=args.port,
            workers=args.workers,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            log_config=LOGS,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=30,
        )


if __name__ == "__main__":
    main()
