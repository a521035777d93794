"""URLs of any file system that fsspec knows, and the file system that each belongs to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import fsspec

from datapipes.catalog.secret import reveal_secrets

_HOST = re.compile(r"[a-z0-9+.-]+://[^/]*", re.IGNORECASE)


def file_system(function: str, url: str, storage_options: Mapping[str, Any]) -> tuple[Any, str]:
    """The file system of `url`, new, and the path in it.

    New, because fsspec's cached ones remember listings, and may belong to the process before a fork.

    Raises:
        ValueError: no such protocol.
        ModuleNotFoundError: the package for this protocol is not installed.
    """
    options = {"skip_instance_cache": True, **reveal_secrets(storage_options)}
    try:
        opened, path = fsspec.core.url_to_fs(url, **options)
    except ImportError as error:
        raise ModuleNotFoundError(f"{function}: {url} needs a package: {error}") from None
    except ValueError as error:
        raise ValueError(f"{function}: {url}: {error}; see fsspec.available_protocols()") from None
    return opened, path


def host_of(url: str) -> str:
    """What URLs of one file system have in common; a chained URL has it all to itself.

    >>> host_of("http://127.0.0.1:80/a/b.jpg"), host_of("/data/b.jpg"), host_of("zip://b.jpg::/data/a.zip")
    ('http://127.0.0.1:80', '', 'zip://b.jpg::/data/a.zip')
    """
    if "::" in url:
        return url
    found = _HOST.match(url)
    return found[0] if found else ""


def beside(root: str, path: str, name: str) -> str:
    """The URL of the file `name` that was found under `path`, which is where `root` points.

    >>> beside("memory://train/", "/train", "/train/cat/1.jpg"), beside("data", "/home/me/data", "/home/me/data/1")
    ('memory://train/cat/1.jpg', 'data/1')
    >>> beside("zip://train::/data/a.zip", "train", "train/1.jpg")
    'zip://train/1.jpg::/data/a.zip'
    """
    below = name[len(path.rstrip("/")) :].lstrip("/")
    head, chain, tail = root.partition("::")
    if "://" not in head:
        head, chain, tail = root, "", ""
    if not below:
        return root
    folder = head if head.endswith("://") else head.rstrip("/") + "/"
    return f"{folder}{below}{chain}{tail}"
