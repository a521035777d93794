"""`list_files_by_s3`: the objects under S3 prefixes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise

from datapipes.catalog.keys import StrKeys
from datapipes.catalog.masks import Masks, check_masks, mask_filter, nothing_found
from datapipes.catalog.s3_server import S3Server, parse_s3_url, resolve
from datapipes.catalog.s3_tree import list_keys
from datapipes.pipe import Pipe, functional_form

_FUNCTION = "list_files_by_s3"


@functional_form("list_files_by_s3")
class S3FileLister(Pipe[str]):
    """S3 prefixes in, the URLs of the objects under them out (functional name: `list_files_by_s3`).

    A prefix names a folder or an object: `s3://bucket/val` is the object `val` and all that is in `val/`, and
    not what is in `val2/`; `s3://bucket` is the whole bucket. Prefixes are taken in the order given; the URLs
    of each come in the byte order of their keys, from any server. Keys that end in "/" mark folders and are
    left out. Nothing is connected to before the first URL is asked for, and then in that process.

    >>> from datapipes.iter import IterableWrapper
    >>> urls = IterableWrapper(["s3://bucket/imagenet/val/"]).list_files_by_s3(masks=["*.JPEG", "*.png"])

    Args:
        source_datapipe: prefixes such as `s3://bucket/folder/`. None may lie in another.
        length: what `len` says, for code that must know beforehand; -1 = unknown.
        request_timeout_ms: torchdata 0.9's spelling of `request_timeout_s`; -1 = not given.
        region: overrides `server.region`, as in torchdata 0.9.
        masks: shell patterns on the base name, any of which may match; with a "/" in it, on the whole URL.
        server: where to ask; empty = what the AWS command line would use.
        request_timeout_s: seconds until an unanswered request is sent again; after seven it is an error.

    Raises:
        FileNotFoundError: no such bucket, or nothing under a prefix that matches the masks.
        PermissionError: no credentials, wrong or expired ones, or no right to list.
        ValueError: a prefix that is no S3 URL or lies in another one.
        OSError: the bucket is in another region, or the answer is not of S3.
        ConnectionError, TimeoutError: the server could not be reached in seven attempts.
    """

    def __init__(
        self,
        source_datapipe: Iterable[str],
        length: int = -1,
        request_timeout_ms: int = -1,
        region: str = "",
        masks: Masks = "",
        *,
        server: S3Server = S3Server(),
        request_timeout_s: float = 20.0,
    ) -> None:
        check_masks(_FUNCTION, masks)
        timeout_s = request_timeout_ms / 1000 if request_timeout_ms != -1 else request_timeout_s
        if timeout_s <= 0:
            raise ValueError(f"{_FUNCTION}: request_timeout_s must be more than 0, got {timeout_s:g}")
        self.source_datapipe = source_datapipe
        self.length = length
        self.masks = masks
        self.server = replace(server, region=region) if region else server
        self.request_timeout_s = timeout_s

    def __iter__(self) -> Iterator[str]:
        yield from self._urls()

    def key_table(self) -> StrKeys:
        """All the URLs in one compact object."""
        return StrKeys.of(self._urls())

    def __len__(self) -> int:
        return self.length if self.length != -1 else super().__len__()

    def _urls(self) -> Iterator[str]:
        prefixes = list(self.source_datapipe)
        _check_apart(prefixes)
        wanted = mask_filter(_FUNCTION, self.masks)
        listing = list_keys(resolve(self.server), prefixes, function=_FUNCTION, timeout_s=self.request_timeout_s)
        try:
            for prefix, pages in listing:
                bucket, _ = parse_s3_url(prefix)
                found = matched = 0
                for keys in pages:
                    urls = [f"s3://{bucket}/{key}" for key in keys]
                    found += len(urls)
                    if wanted is not None:
                        urls = [url for url in urls if wanted(url)]
                    matched += len(urls)
                    yield from urls
                if not matched:
                    raise nothing_found(_FUNCTION, prefix, self.masks, found)
        finally:
            listing.close()  # type: ignore[attr-defined]


def _check_apart(prefixes: list[str]) -> None:
    folders = sorted(prefix.rstrip("/") + "/" for prefix in prefixes)
    for outer, inner in pairwise(folders):
        if inner.startswith(outer):
            raise ValueError(
                f"{_FUNCTION}: {inner!r} lies in {outer!r}, so its objects would come twice; leave one out"
            )
