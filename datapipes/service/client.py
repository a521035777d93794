"""What `fetch` and `push` share: requests to a service, files side by side, and a bar that shows how far it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar
from urllib.parse import quote

import urllib3
from tqdm import tqdm

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


@dataclass
class Brought:
    """What a run did."""

    files: int = 0
    bytes: int = 0
    unchanged: int = 0


def bring_each(
    bring: Callable[[Item], tuple[bool, int]], files: Iterable[Item], *, title: str, total: int | None
) -> Brought:
    """`bring` every file, side by side; it tells whether the file had to be brought, and its size.

    `total`, their bytes, is for the bar; None shows none.
    """
    brought = Brought()
    with tqdm(total=total, unit="B", unit_scale=True, desc=title, disable=total is None) as bar:
        for was_new, size in side_by_side(bring, files):
            brought.files += was_new
            brought.bytes += size * was_new
            brought.unchanged += not was_new
            bar.update(size)
    return brought


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
