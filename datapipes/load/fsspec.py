"""Files of any file system that fsspec knows: URLs in, their bytes out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from datapipes.catalog.fsspec_paths import file_system, host_of
from datapipes.catalog.secret import hide_secrets
from datapipes.load.window import MAX_BYTES, REQUEST_TIMEOUT_S
from datapipes.load.window_pipe import FileLoader
from datapipes.on_error import OnError
from datapipes.pipe import functional_form
from datapipes.transfer.request import Request
from datapipes.transfer.retry import Transient
from datapipes.transfer.thread import ThreadTransport

_FUNCTION = "load_files_by_fsspec"


@functional_form("load_files_by_fsspec")
class FSSpecFileLoader(FileLoader):
    """File URLs in, `(url, io.BytesIO)` out, in the same order (functional name: `load_files_by_fsspec`).

    Any URL that fsspec knows: `file://`, `memory://`, `http://`, `gs://`, ... or a plain path. Each file is read whole,
    several at once, in threads.

    >>> import fsspec
    >>> fsspec.filesystem("memory").pipe({"/cats/1.jpg": b"purr"})
    >>> [(url, stream.read()) for url, stream in FSSpecFileLoader(["memory://cats/1.jpg"])]
    [('memory://cats/1.jpg', b'purr')]

    Args:
        source_datapipe: yields URLs or paths.
        max_in_flight: this many reads, always. By default up to 32, as latency and rate ask for.
        max_bytes: bound on payload on its way or waiting for its turn, in this process.
        request_timeout_s: deadline of an attempt, in seconds.
        ordered: False lets a file overtake others of its batch (of any, without `as_dataset`).
        on_error: "raise", "skip", or a callable `(url, error)` that gives a substitute or None.
        storage_options: for fsspec's file systems, such as `anon=True`. They reach worker processes; texts
            named like a secret appear in no repr, error or other pickle.

    Raises:
        FileNotFoundError: no such file (while iterating, as all that follow).
        PermissionError: the file system refuses.
        TimeoutError, ConnectionError: no answer, 7 times.
    """

    function = _FUNCTION
    deepest = 32

    def __init__(
        self,
        source_datapipe: Any,
        *,
        max_in_flight: int | None = None,
        max_bytes: int = MAX_BYTES,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        ordered: bool = True,
        on_error: OnError = "raise",
        **storage_options: Any,
    ) -> None:
        super().__init__(
            source_datapipe,
            max_in_flight=max_in_flight,
            max_bytes=max_bytes,
            request_timeout_s=request_timeout_s,
            ordered=ordered,
            on_error=on_error,
        )
        self.storage_options = hide_secrets(storage_options)

    def transport(self) -> ThreadTransport:
        return ThreadTransport(file_reader(self.storage_options), max_threads=self.max_in_flight or self.deepest)


def file_reader(storage_options: Mapping[str, Any]) -> Callable[[Request], list[bytes]]:
    """A function for threads that reads the files of a request.

    An asynchronous file system is shared by them all; of the others, which may keep a connection that only one
    thread can use, each thread makes its own.
    """
    shared: dict[str, Any] = {}
    own = threading.local()
    opening = threading.Lock()

    def opened(url: str) -> tuple[Any, str]:
        host = host_of(url)
        found = shared.get(host) or vars(own).get(host)
        if found is not None:
            return found, found._strip_protocol(url)
        with opening:
            made, path = file_system(_FUNCTION, url, storage_options)
            if "::" not in url:
                (shared if made.async_impl else vars(own)).setdefault(host, made)
        return made, path

    def read(request: Request) -> list[bytes]:
        bodies = []
        for url in request.keys:
            try:
                files, path = opened(url)
                bodies.append(files.cat_file(path))
            except Exception as error:
                raise explained(url, error) from None
        return bodies

    return read


def explained(url: str, error: Exception) -> Exception:
    """What a file system's error means for the file at `url`, as a built-in type or a `Transient` of one."""
    told = f"{_FUNCTION}: {url}: {type(error).__name__}: {error}"
    status = getattr(error, "status", None)
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(f"{_FUNCTION}: no such file: {url}; list the folder again")
    if isinstance(error, PermissionError) or status in (401, 403):
        return PermissionError(f"{told}; check the credentials and the file's permissions")
    if isinstance(error, TimeoutError):
        return Transient(TimeoutError(f"{told}; check the server and the network"))
    from_server = status in (429, 500, 502, 503, 504)
    broken = status is None and type(error).__module__.startswith("aiohttp")
    if isinstance(error, ConnectionError) or from_server or broken:
        return Transient(ConnectionError(f"{told}; check the server and the network"), slow_down=from_server)
    if isinstance(error, (OSError, ValueError, ModuleNotFoundError)):
        return type(error)(told) if type(error) in (OSError, ValueError, ModuleNotFoundError) else OSError(told)
    return OSError(f"{told}; check the address")
