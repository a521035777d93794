"""Every key under some prefixes, in order, large folders listed beside one another.

A page of ListObjectsV2 holds 1,000 keys and names the next one, so plain paging of ImageNet is 1,282 round
trips in a row. Where a full page shows that the folders here are large, their names are asked for (one
request with a delimiter) and each is paged on its own, at the same time. Where they are small, paging them
together takes fewer requests, and it is left at that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TypeAlias

from datapipes.catalog.s3_page import Page, page_query, parse_page
from datapipes.catalog.s3_requests import SignedGets
from datapipes.catalog.s3_server import S3Endpoint, parse_s3_url

MAX_IN_FLIGHT = 16
_LARGE_FOLDERS_A_PAGE = MAX_IN_FLIGHT // 2
"""With more folders than this on one page they are so small that a request for each would not pay."""

Steps: TypeAlias = Generator[str, Page, None]
"""A listing as a coroutine: it yields the query of a request and is sent the page that came."""


@dataclass
class Folder:
    """A stretch of keys: those that begin with `prefix` and come after `after`."""

    bucket: str
    prefix: str
    rank: tuple[int, str]
    """Whose turn it is: what the reader needs first is asked for first."""
    after: str = ""
    parts: deque[list[str] | Folder] = field(default_factory=deque)
    """What has come and is not yet read, ascending."""
    done: bool = False

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"


def list_keys(
    endpoint: S3Endpoint, urls: Sequence[str], *, function: str, timeout_s: float
) -> Iterator[tuple[str, Iterator[list[str]]]]:
    """Each URL with the keys under it, some at a time, ascending by their UTF-8 bytes.

    A URL names an object or a folder, with or without its last "/"; a bucket's names all of it. What is held
    in memory is a page, and what folders that ran ahead have brought.
    """
    requests = SignedGets(
        function, endpoint, parse_page, timeout_s=timeout_s, max_in_flight=MAX_IN_FLIGHT, needs_length=False
    )
    try:
        walk = _Walk(endpoint, requests)
        roots = [walk.started(*_root(index, url)) for index, url in enumerate(urls)]
        for url, root in zip(urls, roots):
            yield url, _ascending(function, url, walk.keys_of(root))
    finally:
        requests.close()


def _ascending(function: str, url: str, pages: Iterator[list[str]]) -> Iterator[list[str]]:
    last = ""
    for keys in pages:
        if keys[0] <= last:
            raise OSError(
                f"{function}: {url} was listed out of order ({keys[0]!r} after {last!r}); list its folders one by one"
            )
        last = keys[-1]
        yield keys


def _root(index: int, url: str) -> tuple[Folder, Steps]:
    bucket, prefix = parse_s3_url(url)
    folder = Folder(bucket, prefix, (index, prefix))
    is_folder = prefix == "" or prefix.endswith("/")
    return folder, (_page_through(folder) if is_folder else _look_for(folder))


def _look_for(folder: Folder) -> Steps:
    """`P` without its "/" means the object P and all in `P/`, and never `P2` nor what is in it."""
    page = yield page_query(folder.prefix)
    inside = folder.prefix + "/"
    if page.next_token is None:
        folder.parts.append(sorted(key for key in page.keys if key == folder.prefix or key.startswith(inside)))
    else:
        # `P-old/` comes before `P/` and may hold millions, so `P/` is asked for by itself.
        folder.parts.append([key for key in page.keys if key == folder.prefix])
        folder.parts.append(Folder(folder.bucket, inside, (folder.rank[0], inside)))


def _page_through(folder: Folder) -> Steps:
    token, may_split = "", True
    unordered: list[str] | None = None
    while True:
        page = yield page_query(folder.prefix, after=folder.after, token=token)
        keys = [key for key in page.keys if key > folder.after]
        if unordered is None and keys != sorted(keys):
            unordered = []  # AWS directory buckets list in no order
        if unordered is not None:
            unordered += keys
        else:
            folder.parts.append(keys)
            if page.next_token and may_split and _shows_large_folders(folder.prefix, keys):
                rest = yield from _rest_by_folder(folder, keys[-1])
                if rest is not None:
                    folder.parts += rest
                    return
                may_split = False
        if page.next_token is None:
            break
        token = page.next_token
    if unordered is not None:
        folder.parts.append(sorted(unordered))


def _shows_large_folders(prefix: str, keys: list[str]) -> bool:
    """Whether a full page of keys lies in a few folders only.

    >>> _shows_large_folders("t/", ["t/a/1", "t/a/2", "t/b/1"]), _shows_large_folders("t/", ["t/1", "t/2"])
    (True, False)
    """
    start = len(prefix)
    folders = {key[start:end] for key in keys if (end := key.find("/", start)) >= 0}
    return 0 < len(folders) <= _LARGE_FOLDERS_A_PAGE


def _rest_by_folder(folder: Folder, last: str) -> Generator[str, Page, list[list[str] | Folder] | None]:
    """What comes after the key `last`, as files and folders; None where the server lists in no order."""
    files: list[str] = []
    subfolders: list[str] = []
    token = ""
    while True:
        page = yield page_query(folder.prefix, token=token, by_folder=True)
        files += page.keys
        subfolders += page.folders
        if page.next_token is None:
            break
        token = page.next_token
    if files != sorted(files) or subfolders != sorted(subfolders):
        return None

    def child(prefix: str, after: str = "") -> Folder:
        return Folder(folder.bucket, prefix, (folder.rank[0], prefix), after)

    rest: list[list[str] | Folder] = []
    end = last.find("/", len(folder.prefix))
    if end >= 0:
        rest.append(child(last[: end + 1], after=last))
    coming = sorted(name for name in files + subfolders if name > last)
    for is_folder, group in groupby(coming, key=lambda name: name.endswith("/")):
        names = list(group)
        rest += [child(name) for name in names] if is_folder else [names]
    return rest


class _Walk:
    """Runs the listings of many folders at once, and reads them in order."""

    def __init__(self, endpoint: S3Endpoint, requests: SignedGets) -> None:
        self.endpoint = endpoint
        self.requests = requests

    def started(self, folder: Folder, steps: Steps) -> Folder:
        self._ask(folder, steps, next(steps))
        return folder

    def keys_of(self, folder: Folder) -> Iterator[list[str]]:
        while folder.parts or not folder.done:
            if not folder.parts:
                for (answered, steps), page in self.requests.answers():
                    self._advance(answered, steps, page)
                continue
            part = folder.parts.popleft()
            if isinstance(part, Folder):
                yield from self.keys_of(part)
            elif part:
                yield part

    def _advance(self, folder: Folder, steps: Steps, page: Page) -> None:
        try:
            self._ask(folder, steps, steps.send(page))
        except StopIteration:
            folder.done = True
            for part in folder.parts:
                if isinstance(part, Folder):
                    self.started(part, _page_through(part))

    def _ask(self, folder: Folder, steps: Steps, query: str) -> None:
        url = f"{self.endpoint.url(folder.bucket)}?{query}"
        self.requests.ask(url, told_as=folder.url, rank=folder.rank, tag=(folder, steps))
