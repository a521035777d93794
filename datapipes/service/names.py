"""Which names a data set and a file may have: what passes here cannot leave the root, on any store."""

from __future__ import annotations

import re

from datapipes.service.problems import Problem

DATASET_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
MAX_PATH_BYTES = 1024  # S3's longest key
MAX_NAME_BYTES = 255  # the longest name on ext4, xfs and most other file systems
MARKER = ".dataset"

_dataset_name = re.compile(DATASET_NAME)
_unwelcome = re.compile("[\x00-\x1f\x7f-\x9f\\\\\ufffd\ud800-\udfff\u202a-\u202e\u2066-\u2069]")


def is_dataset_name(name: str) -> bool:
    return _dataset_name.fullmatch(name) is not None


def check_dataset_name(name: str) -> str:
    """The name itself, if it is one.

    >>> check_dataset_name("imagenet-1k")
    'imagenet-1k'
    >>> check_dataset_name("../etc")
    Traceback (most recent call last):
    datapipes.service.problems.Problem: '../etc' cannot name a data set; use 1 to 128 letters, digits, '.', \
'_' or '-', the first a letter or digit
    """
    if is_dataset_name(name):
        return name
    raise Problem(
        400,
        f"{name[:200]!r} cannot name a data set",
        "use 1 to 128 letters, digits, '.', '_' or '-', the first a letter or digit",
    )


def check_path(path: str) -> str:
    """The path of a file in its data set, if it is one: relative, of plain parts, at most 1024 bytes.

    >>> check_path("train/n01440764/n01440764_10026.JPEG")
    'train/n01440764/n01440764_10026.JPEG'
    >>> check_path("train/../../secret")
    Traceback (most recent call last):
    datapipes.service.problems.Problem: 'train/../../secret' cannot be a file's path; give a relative path \
without '.', '..' and empty parts
    """
    quoted = f"{path[:200]!r} cannot be a file's path"
    if _unwelcome.search(path):
        raise Problem(400, quoted, "leave out control characters, backslashes and what is not UTF-8")
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise Problem(400, quoted, "give a relative path without '.', '..' and empty parts")
    if len(path.encode()) > MAX_PATH_BYTES or any(len(part.encode()) > MAX_NAME_BYTES for part in parts):
        raise Problem(400, quoted, f"keep it within {MAX_PATH_BYTES} bytes, and each part within {MAX_NAME_BYTES}")
    if parts[0] == MARKER:
        raise Problem(400, quoted, f"{MARKER!r} is the service's own; choose another name")
    return path
