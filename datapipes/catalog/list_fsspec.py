"""`list_files_by_fsspec`: the files under a folder of any file system."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from datapipes.catalog.fsspec_paths import beside, file_system
from datapipes.catalog.keys import StrKeys
from datapipes.catalog.masks import Masks, check_masks, mask_filter, nothing_found
from datapipes.catalog.secret import hide_secrets
from datapipes.pipe import Pipe, functional_form

_FUNCTION = "list_files_by_fsspec"


@functional_form("list_files_by_fsspec")
class FSSpecFileLister(Pipe[str]):
    """Folder URLs in, the URLs of the files under them out (functional name: `list_files_by_fsspec`).

    Any URL that fsspec knows: `file://`, `memory://`, `http://`, `gs://`, ... or a plain path. A URL names a folder,
    listed with all that is below it, or a file. Roots are taken in the order given; the files of each are
    sorted, and spelt as the root was.

    >>> import fsspec
    >>> fsspec.filesystem("memory").pipe({"/dogs/rex/1.jpg": b"", "/dogs/rex/2.txt": b"", "/dogs2/3.jpg": b""})
    >>> list(FSSpecFileLister("memory://dogs", masks="*.jpg"))
    ['memory://dogs/rex/1.jpg']

    Args:
        root: a folder's URL, or a pipe or list of them.
        masks: shell patterns on the base name, any of which may match; with a "/" in it, on the whole URL.
        storage_options: for fsspec's file system, such as `anon=True`. They reach worker processes; texts
            named like a secret appear in no repr, error or other pickle.

    Raises:
        FileNotFoundError: nothing is there, or nothing that matches the masks.
        PermissionError: the file system refuses.
        ValueError, ModuleNotFoundError: no such protocol, or its package is not installed.
    """

    def __init__(self, root: str | Iterable[str], masks: Masks = "", **storage_options: Any) -> None:
        check_masks(_FUNCTION, masks)
        self.source_datapipe = [root] if isinstance(root, str) else root
        self.masks = masks
        self.storage_options = hide_secrets(storage_options)

    def __iter__(self) -> Iterator[str]:
        yield from self._urls()

    def key_table(self) -> StrKeys:
        """All the URLs in one compact object."""
        return StrKeys.of(self._urls())

    def _urls(self) -> Iterator[str]:
        wanted = mask_filter(_FUNCTION, self.masks)
        for root in self.source_datapipe:
            names, path = _names_under(root, self.storage_options)
            urls = [beside(root, path, name) for name in names]
            matched = urls if wanted is None else [url for url in urls if wanted(url)]
            if not matched:
                raise nothing_found(_FUNCTION, root, self.masks, len(urls))
            yield from matched


def _names_under(root: str, storage_options: dict[str, Any]) -> tuple[list[str], str]:
    opened, path = file_system(_FUNCTION, root, storage_options)
    try:
        return sorted(name for name in opened.find(path) if not name.endswith("/")), path
    except FileNotFoundError:
        return [], path
    except PermissionError as error:
        raise PermissionError(f"{_FUNCTION}: access denied to {root} ({error}); check the credentials") from None
