"""Which of the listed files are wanted: shell patterns on their names."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

Masks: TypeAlias = str | Sequence[str]


def mask_filter(function: str, masks: Masks) -> Callable[[str], bool] | None:
    """A predicate on a file's URL, or None where every file is wanted.

    A mask is matched against the base name, with case; one that holds a "/" against the whole URL.

    >>> wanted = mask_filter("list_files_by_s3", ["*.jpg", "*/val/*.png"])
    >>> [bool(wanted(f"s3://b/{key}")) for key in ("val/1.jpg", "val/1.png", "train/1.png", "val/1.JPG")]
    [True, True, False, False]
    """
    patterns = check_masks(function, masks)
    if not patterns:
        return None
    on_name = [fnmatch.translate(mask) for mask in patterns if "/" not in mask]
    on_url = [fnmatch.translate(mask) for mask in patterns if "/" in mask]
    # The name is what follows the last slash; one expression for both keeps it at 0.4 us a file.
    anchored = [rf"(?:.*/)?(?=[^/]*\Z)(?:{pattern})" for pattern in on_name]
    match = re.compile("|".join([*anchored, *on_url]), re.DOTALL).match
    return lambda url: match(url) is not None


def check_masks(function: str, masks: Masks) -> list[str]:
    """`masks` as a list, refused where it holds anything but patterns."""
    patterns = [masks] if isinstance(masks, str) else list(masks)
    if not all(isinstance(mask, str) for mask in patterns):
        raise TypeError(f"{function}: masks must be a pattern such as '*.jpg' or a list of them, got {masks!r}")
    return [mask for mask in patterns if mask]


def nothing_found(function: str, prefix: str, masks: Masks, found: int) -> FileNotFoundError:
    """The error for a prefix that gives no file: `found` were there, none of which the masks let pass."""
    if found:
        return FileNotFoundError(
            f"{function}: none of the {found:,} files under {prefix} matches masks={masks!r}; "
            "masks are matched with case against the base name"
        )
    return FileNotFoundError(
        f"{function}: nothing under {prefix}; check the name: a prefix is a whole folder's or a whole file's"
    )
