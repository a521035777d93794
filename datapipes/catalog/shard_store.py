"""Shards and what lies beside them, wherever they are: names, sizes, small files. Nothing is cached."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from datapipes.catalog.list_s3 import S3FileLister
from datapipes.catalog.manifest import FILE_NAME, UNFINISHED_NAME, Manifest
from datapipes.catalog.s3_requests import SignedGets
from datapipes.catalog.s3_server import S3Server, parse_s3_url, resolve

PLAIN_SUFFIX = ".tar"
COMPRESSED_SUFFIXES = (".tar.gz", ".tgz", ".tar.zst", ".tzst")
_TIMEOUT_S = 30.0
_MAX_IN_FLIGHT = 16


def is_shard(url: str) -> bool:
    """Whether this is the name of a shard rather than of a folder of shards."""
    return url.endswith((PLAIN_SUFFIX, *COMPRESSED_SUFFIXES))


def local_path(url: str) -> str | None:
    """The path that a URL means on this machine, None where it is elsewhere."""
    if "://" not in url:
        return url
    return url.removeprefix("file://") if url.startswith("file://") else None


def read_files(urls: Sequence[str], *, server: S3Server, function: str) -> list[bytes]:
    """The contents of small files, all of one store, fetched side by side.

    Raises:
        FileNotFoundError: one of them is not there.
    """
    if not urls:
        return []
    if urls[0].startswith("s3://"):
        return _read_objects(urls, server, function)
    with ThreadPoolExecutor(min(_MAX_IN_FLIGHT, len(urls))) as threads:
        return list(threads.map(_read_file, urls))


def read_file(url: str, *, server: S3Server, function: str) -> bytes | None:
    """The content of a small file, None where there is no such file."""
    try:
        return read_files([url], server=server, function=function)[0]
    except FileNotFoundError as error:
        if "NoSuchBucket" in str(error):
            raise
        return None


def _read_file(url: str) -> bytes:
    path = local_path(url)
    if path is not None:
        with open(path, "rb") as file:
            return file.read()
    import fsspec

    with fsspec.open(url, "rb") as file:
        content: bytes = file.read()
    return content


def _read_objects(urls: Sequence[str], server: S3Server, function: str) -> list[bytes]:
    endpoint = resolve(server)
    gets = SignedGets(function, endpoint, bytes, timeout_s=_TIMEOUT_S, max_in_flight=_MAX_IN_FLIGHT)
    found: dict[int, bytes] = {}
    try:
        for number, url in enumerate(urls):
            gets.ask(endpoint.url(*parse_s3_url(url)), told_as=url, rank=number, tag=number)
        while len(found) < len(urls):
            found.update(gets.answers())
    finally:
        gets.close()
    return [found[number] for number in range(len(urls))]


def manifest_of(folder: str, *, server: S3Server, function: str) -> Manifest | None:
    """The manifest of a folder of shards, None where nobody wrote one.

    Raises:
        ValueError: the folder is being written, or a writer was cut before it was done.
    """
    folder = folder.rstrip("/")
    content = read_file(f"{folder}/{FILE_NAME}", server=server, function=function)
    if content is not None:
        return Manifest.load(content, name=f"{folder}/{FILE_NAME}")
    if read_file(f"{folder}/{UNFINISHED_NAME}", server=server, function=function) is not None:
        raise ValueError(
            f"{function}: {folder} is not finished: a writer is at work there, or was cut; run it again with "
            "resume=True, or write the data set anew"
        )
    return None


def list_shards(folder: str, *, server: S3Server, function: str) -> list[str]:
    """The URLs of the shards in a folder that has no manifest, sorted by name.

    Raises:
        FileNotFoundError: there are none, or no such folder.
    """
    folder = folder.rstrip("/")
    if folder.startswith("s3://"):
        masks = [f"*{suffix}" for suffix in (PLAIN_SUFFIX, *COMPRESSED_SUFFIXES)]
        return sorted(S3FileLister([folder + "/"], masks=masks, server=server))
    path = local_path(folder)
    if path is not None:
        names = os.listdir(path) if os.path.isdir(path) else []
    else:
        import fsspec

        system, root = fsspec.core.url_to_fs(folder, use_listings_cache=False)
        entries: list[Any] = system.ls(root, detail=False) if system.exists(root) else []
        names = [entry.rpartition("/")[2] for entry in entries]
    shards = sorted(f"{folder}/{name}" for name in names if is_shard(name))
    if not shards:
        raise FileNotFoundError(f"{function}: no shard (.tar) in {folder}; check the folder's name")
    return shards
