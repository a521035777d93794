"""`list_files_by_service`: the files of a dataset service's data sets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from datapipes.catalog.dataset_service import DatasetService, dataset_folder
from datapipes.catalog.keys import StrKeys
from datapipes.catalog.masks import Masks, check_masks, mask_filter, nothing_found
from datapipes.catalog.service_requests import connections, list_files
from datapipes.pipe import Pipe, functional_form

_FUNCTION = "list_files_by_service"


@functional_form("list_files_by_service")
class ServiceFileLister(Pipe[str]):
    """Data sets in, the URLs of their files out (functional name: `list_files_by_service`).

    Files come in the order of their paths, data sets in the order given. Nothing is connected to before the
    first URL is asked for.

    >>> from datapipes.iter import IterableWrapper
    >>> urls = IterableWrapper(["http://datasets:8080/datasets/imagenet/"]).list_files_by_service()

    A data set may be named by its name alone where the service is given once:

    >>> service = DatasetService("http://datasets:8080")
    >>> urls = IterableWrapper(["imagenet/train"]).list_files_by_service(masks="*.JPEG", server=service)

    Args:
        source_datapipe: `http://host:port/datasets/NAME/`, `.../datasets/NAME/files/FOLDER/`, NAME or NAME/FOLDER.
        masks: shell patterns on the base name, any of which may match; with a "/" in it, on the whole URL.
        server: the service's address and token.
        request_timeout_s: seconds until an unanswered request is sent again; after seven it is an error.

    Raises:
        FileNotFoundError: no such data set or folder, or no file in it that matches the masks.
        PermissionError: the service wants a token, or another one.
        ValueError: a source that names no data set.
        ConnectionError: the service could not be reached in seven attempts.
    """

    def __init__(
        self,
        source_datapipe: Iterable[str],
        masks: Masks = "",
        *,
        server: DatasetService = DatasetService(),
        request_timeout_s: float = 30.0,
    ) -> None:
        check_masks(_FUNCTION, masks)
        if not request_timeout_s > 0:
            raise ValueError(f"{_FUNCTION}: request_timeout_s must be more than 0, got {request_timeout_s:g}")
        self.source_datapipe = source_datapipe
        self.masks = masks
        self.server = server
        self.request_timeout_s = request_timeout_s

    def __iter__(self) -> Iterator[str]:
        yield from self._urls()

    def key_table(self) -> StrKeys:
        """All the URLs in one compact object."""
        return StrKeys.of(self._urls())

    def _urls(self) -> Iterator[str]:
        wanted = mask_filter(_FUNCTION, self.masks)
        with connections(self.server, self.request_timeout_s) as pool:
            for source in self.source_datapipe:
                folder = dataset_folder(_FUNCTION, source, self.server)
                found = matched = 0
                for file in list_files(pool, folder, self.server, _FUNCTION):
                    found += 1
                    url = folder.file_url(file["path"])
                    if wanted is None or wanted(url):
                        matched += 1
                        yield url
                if not matched:
                    raise nothing_found(_FUNCTION, source, self.masks, found)
