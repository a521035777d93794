"""What `fetch` and `push` share: requests to a service, files side by side, and a bar that shows how far it is."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import Any, TypeVar
from urllib.parse import quote

import urllib3

from datapipes.catalog.dataset_service import DatasetFolder, DatasetService
from datapipes.catalog.service_requests import connections, list_files, service_error

Item = TypeVar("Item")
Result = TypeVar("Result")
AT_ONCE = 16
# A file that the service holds no digest of is read to its end before its answer begins.
TIMEOUT_S = 600.0


class Client:
    """A data set of a service, over kept connections."""

    def __init__(self, server: DatasetService, dataset: str, function: str) -> None:
        self.server, self.function = server, function
        self.folder = DatasetFolder(server.url, dataset)
        self._pool = connections(server, TIMEOUT_S, AT_ONCE)

    def files(self) -> Iterator[dict[str, Any]]:
        return list_files(self._pool, self.folder, self.server, self.function)

    def ask(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        headers: dict[str, str] | None = None,
        accept: tuple[int, ...] = (200, 201, 204),
        stream: bool = False,
    ) -> urllib3.BaseHTTPResponse:
        """One request to an address below the data set's; "" is the data set itself.

        Raises:
            OSError: of the kind that fits, in the service's words, for a status not in `accept`.
        """
        base = f"{self.server.url}/datasets"
        url = f"{base}/{self.folder.dataset}{quote(path, safe='/?&=%')}" if path != ".." else base
        sent = self.server.headers_for(self.function, url) | (headers or {})
        try:
            answer = self._pool.request(method, url, body=body, headers=sent, preload_content=not stream)
        except urllib3.exceptions.HTTPError as error:
            raise ConnectionError(f"{self.function}: {url}: {error}; see whether the service is up") from None
        if answer.status not in accept:
            refusal = service_error(self.function, url, answer.status, answer.data)
            answer.release_conn()
            raise refusal
        return answer


def file_address(path: str) -> str:
    return "/files/" + quote(path, safe="/")


def side_by_side(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """`function` of every item, in threads, as they are done; `items` is read no further ahead than they need.

    >>> sorted(side_by_side(abs, iter([3, -1, 2])))
    [1, 2, 3]
    """
    waiting = iter(items)
    with ThreadPoolExecutor(AT_ONCE) as threads:
        running: set[Future[Result]] = set()
        try:
            while True:
                running |= {threads.submit(function, item) for item in islice(waiting, 2 * AT_ONCE - len(running))}
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            for future in running:
                future.cancel()


def add_service_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--service",
        default=os.environ.get("DATASET_SERVICE_URL", "http://localhost:8080"),
        help="address of the service; by default $DATASET_SERVICE_URL, or http://localhost:8080",
    )
    parser.add_argument("--token-file", help="file that holds the token; by default $DATASET_SERVICE_TOKEN")


def server_of(args: argparse.Namespace) -> DatasetService:
    if args.token_file:
        with open(args.token_file) as file:
            token = file.read().strip()
    else:
        token = os.environ.get("DATASET_SERVICE_TOKEN", "")
    return DatasetService(args.service, token=token or None)
