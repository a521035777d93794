"""The dataset service on this machine, for a first try, for tests and for benchmarks.

    python recipes/local_service.py --root /tmp/datasets            # on a free port, until Ctrl-C

In Python:

    with dataset_service("/tmp/datasets") as service:
        ... service.url ...
"""

from __future__ import annotations

import argparse
import http.client
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from recipes.local_process import LocalProcess, free_port, wait_for_stop


@dataclass
class LocalService:
    """A running dataset service; its data sets lie under `root`."""

    process: LocalProcess
    port: int
    root: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self.process.pid

    def log(self) -> str:
        """What it has logged; a request's line comes within a tenth of a second."""
        time.sleep(0.2)
        return self.process.log_path.read_text()

    def start(self) -> None:
        """Start again, on the same port and over the same data sets, after `kill`."""
        self.process.start()

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.kill()


@contextmanager
def dataset_service(
    root: object, *options: str, port: int | None = None, environment: Mapping[str, str] | None = None
) -> Iterator[LocalService]:
    """A service over `root`; `options` are those of `python -m datapipes.service`."""
    port = port or free_port()

    def is_ready() -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == 200
        finally:
            connection.close()

    command = [sys.executable, "-m", "datapipes.service", "--root", str(root), "--port", str(port), *options]
    process = LocalProcess("dataset-service", command, is_ready=is_ready, environment=environment)
    with process:
        yield LocalService(process, port, str(root))


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="folder or fsspec URL that holds the data sets")
    parser.add_argument("--port", type=int, help="any free one by default")
    args = parser.parse_args(argv)
    with dataset_service(args.root, port=args.port) as service:
        wait_for_stop(f"dataset service at {service.url}, over {args.root}")


if __name__ == "__main__":
    main()
