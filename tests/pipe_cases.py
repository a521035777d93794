"""A chain for every functional form: what the contract of all pipes is tested on.

A new pipe is a new entry here; `test_every_pipe` fails for a form that has none.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from datapipes.catalog.cassandra_server import CassandraServer
from datapipes.catalog.s3_server import S3Server
from datapipes.iter import IterableWrapper, IterDataPipe

SECRET = "hunter2-never-shown"
NOWHERE = "http://127.0.0.1:1"


@dataclass(frozen=True)
class Place:
    """Where the data of the cases is: on real servers, or nowhere at all."""

    s3: S3Server
    samples: Path
    keys: list[str]
    """Every key under train/, as S3 lists them."""
    cassandra: CassandraServer
    rows: str
    """A split file whose first split has every row of the table `contract.data`."""
    secrets: tuple[str, ...] = (SECRET,)

    @property
    def urls(self) -> list[str]:
        return [f"s3://imagenet/{key}" for key in self.keys]

    @property
    def row_keys(self) -> list[UUID]:
        return [uuid5(NAMESPACE_URL, key) for key in self.keys]

    @property
    def paths(self) -> list[str]:
        return [f"file://{self.samples}/{key}" for key in self.keys]


def nowhere(keys: list[str]) -> Place:
    """The same chains with servers that do not exist, and a secret that nothing may show."""
    server = S3Server(endpoint_url=NOWHERE, region="us-east-1", access_key="me", secret_key=SECRET)
    cassandra = CassandraServer(port=1, username="me", password=SECRET)
    return Place(server, Path("/nonexistent"), keys, cassandra, "/nonexistent/rows.npz")


@dataclass(frozen=True)
class Case:
    """One pipe in a chain. `chain(keys, place)` puts it behind `keys`, a pipe of the keys that `keys_of` gives."""

    chain: Callable[[Any, Place], IterDataPipe[Any]]
    keys_of: Callable[[Place], list[Any]]
    one_for_one: bool = True
    """Whether an item comes out for each key that goes in, so that shares can be counted."""
    has_length: bool = True

    def build(self, place: Place) -> IterDataPipe[Any]:
        return self.chain(IterableWrapper(self.keys_of(place), deepcopy=False), place)

    def build_distributed(self, place: Place) -> IterDataPipe[Any]:
        keys = IterableWrapper(self.keys_of(place), deepcopy=False)
        return self.chain(keys.distribute(uneven="keep"), place)


def folder_urls(place: Place) -> list[str]:
    return ["s3://imagenet/train/"]


def folder_paths(place: Place) -> list[str]:
    return [f"file://{place.samples}/train/"]


def loaded(keys: Any, place: Place) -> Any:
    return keys.load_files_by_s3(server=place.s3)


def sized(image: Any) -> tuple[int, int]:
    width, height = image.size
    return width, height


CASES: dict[str, Case] = {
    "distribute": Case(lambda keys, place: keys.distribute(shuffle=False, uneven="keep"), lambda place: place.urls),
    "list_files_by_s3": Case(
        lambda keys, place: keys.list_files_by_s3(server=place.s3), folder_urls, one_for_one=False, has_length=False
    ),
    "list_files_by_fsspec": Case(
        lambda keys, place: keys.list_files_by_fsspec(), folder_paths, one_for_one=False, has_length=False
    ),
    "list_rows_by_file": Case(
        lambda keys, place: keys.list_rows_by_file(), lambda place: [place.rows], one_for_one=False
    ),
    "split_by_file": Case(
        lambda keys, place: keys.split_by_file(index=0), lambda place: [place.rows], one_for_one=False
    ),
    "load_from_cassandra": Case(
        lambda keys, place: keys.load_from_cassandra(server=place.cassandra, table="contract.data"),
        lambda place: place.row_keys,
    ),
    "read_cassandra": Case(
        lambda keys, place: keys.read_cassandra(server=place.cassandra, table="contract.data"),
        lambda place: place.row_keys,
    ),
    "load_files_by_s3": Case(loaded, lambda place: place.urls),
    "load_files_by_fsspec": Case(lambda keys, place: keys.load_files_by_fsspec(), lambda place: place.paths),
    "parse_label": Case(
        lambda keys, place: loaded(keys, place).parse_label(classes=classes_of(place)), lambda place: place.urls
    ),
    "decode": Case(
        lambda keys, place: loaded(keys, place).parse_label(classes=classes_of(place)).decode("rgb"),
        lambda place: place.urls,
    ),
    "to_tuple": Case(
        lambda keys, place: loaded(keys, place).parse_label(classes=classes_of(place)).to_tuple("jpg;jpeg", "cls"),
        lambda place: place.urls,
    ),
    "map_tuple": Case(
        lambda keys, place: (
            loaded(keys, place)
            .parse_label(classes=classes_of(place))
            .decode("pil")
            .to_tuple("jpg;jpeg", "cls")
            .map_tuple(sized, str)
        ),
        lambda place: place.urls,
    ),
    "batched": Case(lambda keys, place: keys.batched(1), lambda place: place.urls),
    "prefetch": Case(lambda keys, place: loaded(keys, place).prefetch(3), lambda place: place.urls),
}


def classes_of(place: Place) -> list[str]:
    return sorted({key.split("/")[-2] for key in place.keys})


def plain(item: Any) -> Any:
    """An item in a form that compares: streams as bytes, images and arrays as their content."""
    if isinstance(item, io.BytesIO):
        return item.getvalue()
    if isinstance(item, dict):
        return {name: plain(value) for name, value in sorted(item.items())}
    if isinstance(item, (list, tuple)):
        return [plain(value) for value in item]
    if hasattr(item, "tolist"):
        return item.tolist()
    if hasattr(item, "tobytes"):
        return item.tobytes()
    return item
