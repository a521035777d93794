"""Where a dataset service is and who we are to it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import quote, urlsplit

from datapipes.catalog.secret import Secret, as_secret

_dataset_url = re.compile(r"(https?://.+?)/datasets?/([^/]+)(?:/files)?(?:/(.*))?")


@dataclass(frozen=True)
class DatasetService:
    """A dataset service: its address, and the token that it wants, if it wants one.

    >>> DatasetService("http://datasets:8080", token="r4nd0m-token-of-a-reader")
    DatasetService(url='http://datasets:8080', ca_bundle=None)

    Args:
        url: `http://host:port`; may be left out where every data set is named by its whole URL.
        token: sent to this address alone. It reaches worker processes, but no repr, error, log or checkpoint.
        ca_bundle: a file of certificates to trust instead of the system's.

    Raises:
        ValueError: the address is none, holds a password, or is missing where there is a token.
    """

    url: str = ""
    token: str | Secret | None = field(default=None, repr=False)
    ca_bundle: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "token", as_secret(self.token))
        object.__setattr__(self, "url", self.url.rstrip("/"))
        parts = urlsplit(self.url)
        if parts.username or parts.password:
            raise ValueError("DatasetService: url holds a user or password; give token instead")
        if self.url and (parts.scheme not in ("http", "https") or not parts.hostname):
            raise ValueError(f"DatasetService: url must look like http://host:port, got {self.url!r}")
        if self.token is not None and not self.url:
            raise ValueError("DatasetService: a token goes to one address only; give url as well")

    def headers_for(self, function: str, url: str) -> dict[str, str]:
        """The headers of a request to `url`: the token, which goes nowhere but to this service."""
        if not isinstance(self.token, Secret):
            return {}
        if not url.startswith(f"{self.url}/"):
            raise ValueError(
                f"{function}: the token is for {self.url}, and {url} lies elsewhere; give the server of that address"
            )
        return {"Authorization": f"Bearer {self.token.reveal()}"}


@dataclass(frozen=True)
class DatasetFolder:
    """A data set of a service, or a folder in one."""

    service_url: str
    dataset: str
    folder: str = ""

    @property
    def listing_url(self) -> str:
        return f"{self.service_url}/datasets/{quote(self.dataset)}/files"

    def file_url(self, path: str) -> str:
        """The key of a file: its address with nothing escaped, so that directories read as they are named."""
        return f"{self.service_url}/datasets/{self.dataset}/files/{path}"


def dataset_folder(function: str, source: str, server: DatasetService) -> DatasetFolder:
    """What a source names: a whole URL, or NAME or NAME/FOLDER of `server`.

    >>> dataset_folder("f", "http://datasets:8080/datasets/imagenet/files/train/", DatasetService())
    DatasetFolder(service_url='http://datasets:8080', dataset='imagenet', folder='train')
    >>> dataset_folder("f", "imagenet/train", DatasetService("http://datasets:8080"))
    DatasetFolder(service_url='http://datasets:8080', dataset='imagenet', folder='train')
    """
    found = _dataset_url.fullmatch(source)
    if found:
        return DatasetFolder(found[1], found[2], (found[3] or "").strip("/"))
    name, _, folder = source.strip("/").partition("/")
    if "://" in source or not name or not server.url:
        raise ValueError(
            f"{function}: {source!r} names no data set; give http://host:port/datasets/NAME/ or "
            "http://host:port/datasets/NAME/files/FOLDER/, or NAME and server=DatasetService(url)"
        )
    return DatasetFolder(server.url, name, folder)


def quoted(url: str) -> str:
    """A key as a request has it.

    >>> quoted("http://datasets:8080/datasets/pets/files/train/café/a#1.jpg")
    'http://datasets:8080/datasets/pets/files/train/caf%C3%A9/a%231.jpg'
    """
    scheme, _, rest = url.partition("://")
    host, _, path = rest.partition("/")
    return f"{scheme}://{host}/{quote(path, safe='/-_.~', errors='surrogateescape')}"
