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
from datapipes.catalog.dataset_service import DatasetService
from datapipes.catalog.s3_server import S3Server
from datapipes.iter import IterableWrapper, IterDataPipe
from datapipes.prepare.shard_writer import ShardWriter

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
    service: DatasetService
    secrets: tuple[str, ...] = (SECRET,)

    @property
    def urls(self) -> list[str]:
        return [f"s3://imagenet/{key}" for key in self.keys]

    @property
    def service_urls(self) -> list[str]:
        return [f"{self.service.url}/datasets/imagenet/files/{key}" for key in self.keys]

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
    service = DatasetService(NOWHERE, token=SECRET)
    return Place(server, Path("/nonexistent"), keys, cassandra, "/nonexistent/rows.npz", service)


@dataclass(frozen=True)
class Case:
    """One pipe in a chain. `chain(keys, place)` puts it behind `keys`, a pipe of the keys that `keys_of` gives."""

    chain: Callable[[Any, Place], IterDataPipe[Any]]
    keys_of: Callable[[Place], list[Any]]
    one_for_one: bool = True
    """Whether an item comes out for each key that goes in, so that shares can be counted."""
    has_length: bool = True
    distributed: Callable[[Any, Place], IterDataPipe[Any]] | None = None
    """The chain with its own `distribute`, where that does not stand right behind `keys`."""

    def build(self, place: Place) -> IterDataPipe[Any]:
        return self.chain(IterableWrapper(self.keys_of(place), deepcopy=False), place)

    def build_distributed(self, place: Place) -> IterDataPipe[Any]:
        keys = IterableWrapper(self.keys_of(place), deepcopy=False)
        if self.distributed is not None:
            return self.distributed(keys, place)
        return self.chain(keys.distribute(uneven="keep"), place)


def folder_urls(place: Place) -> list[str]:
    return ["s3://imagenet/train/"]


def folder_paths(place: Place) -> list[str]:
    return [f"file://{place.samples}/train/"]


def shard_folder(place: Place) -> list[str]:
    """A folder of shards beside the samples, packed by the first case that asks for it."""
    shards = place.samples.parent / "shards"
    if place.samples.is_dir() and not (shards / "manifest.json").exists():
        with ShardWriter(f"{shards}/shard-%06d.tar", maxcount=10) as writer:
            for number, key in enumerate(place.keys):
                image = (place.samples / key).read_bytes()
                writer.write({"__key__": f"{number:04d}", "jpg": image, "cls": number % 4})
    return [str(shards)]


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
    "list_files_by_service": Case(
        lambda keys, place: keys.list_files_by_service(server=place.service),
        lambda place: ["imagenet/train"],
        one_for_one=False,
        has_length=False,
    ),
    "load_files_by_service": Case(
        lambda keys, place: keys.load_files_by_service(server=place.service), lambda place: place.service_urls
    ),
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
    "list_tar_samples": Case(
        lambda keys, place: keys.list_tar_samples(), shard_folder, one_for_one=False, has_length=True
    ),
    "open_tar_shards": Case(
        lambda keys, place: keys.open_tar_shards(),
        lambda place: [
            f"{shard_folder(place)[0]}/shard-{number:06d}.tar" for number in range(-(-len(place.keys) // 10))
        ],
        has_length=False,
    ),
    "read_tar_samples": Case(
        lambda keys, place: keys.list_tar_samples().read_tar_samples(),
        shard_folder,
        distributed=lambda keys, place: keys.list_tar_samples().distribute(block=8, uneven="keep").read_tar_samples(),
    ),
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
