"""Servers and sample data that tests share: started when first asked for, stopped at the session's end."""

from __future__ import annotations

import gc
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fault_proxy import FaultProxy, FaultProxyFactory
from hypothesis import settings
from service_fixtures import service  # noqa: F401

from recipes.sample_images import write_sample_images
from recipes.servers import LocalCassandra, LocalS3, cassandra_server, put_folder, rclone_server, s3_server

if TYPE_CHECKING:
    from datapipes.catalog.s3_server import S3Server

BUCKET = "imagenet"

# A run starts some hundred Pythons. Where the environment forbids bytecode, each would compile torch anew, for 5 s.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# An example that takes long for once says nothing but that the machine is busy.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


def pytest_collection_finish() -> None:
    """What the imports made stays to the end: left out of every later collection, which takes 0.25 s with torch in it.

    Tests that look for leaks collect many times.
    """
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Extensions that count their objects at the end, triton's, would take the frozen ones for leaks."""
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def no_credentials_of_this_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The AWS settings of whoever runs the suite must not decide what a test sees."""
    patch = pytest.MonkeyPatch()
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        patch.delenv(name)
    nowhere = tmp_path_factory.mktemp("aws")
    patch.setenv("AWS_CONFIG_FILE", str(nowhere / "config"))
    patch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(nowhere / "credentials"))
    patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    yield
    patch.undo()


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in ImageNet layout, not to be changed: train/ of 48 and val/ of 12 photographs, 4 classes."""
    folder = tmp_path_factory.mktemp("samples")
    return write_sample_images(folder, classes=4, images=48, val_images=12, size=(96, 72))


@dataclass
class SampleS3:
    """A running S3 server whose bucket holds what `folder` holds, under the same names."""

    local: LocalS3
    folder: Path
    bucket: str = BUCKET

    @property
    def endpoint_url(self) -> str:
        return self.local.endpoint_url

    @property
    def access_key(self) -> str:
        return self.local.access_key

    @property
    def secret_key(self) -> str:
        return self.local.secret_key

    @property
    def region(self) -> str:
        return self.local.region

    @property
    def server(self) -> S3Server:
        """The server as our pipes take it."""
        return self.server_at(self.endpoint_url)

    def server_at(self, endpoint_url: str) -> S3Server:
        """The same server reached another way, through a proxy say."""
        from datapipes.catalog.s3_server import S3Server

        return S3Server(
            endpoint_url=endpoint_url,
            region=self.region,
            access_key=self.access_key,
            secret_key=self.secret_key,
        )

    def client(self) -> Any:
        """A boto3 client, for what a test puts there or takes away."""
        return self.local.client()

    def keys(self, prefix: str = "") -> list[str]:
        """What the bucket holds, sorted, as the folder on disk has it."""
        paths = (path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*.JPEG"))
        return sorted(key for key in paths if key.startswith(prefix))


@pytest.fixture(scope="session")
def s3(samples: Path) -> Iterator[SampleS3]:
    """S3Proxy with the bucket `imagenet` of the sample images. A test that writes makes its own bucket."""
    with s3_server() as local:
        put_folder(local, samples, bucket=BUCKET)
        yield SampleS3(local, samples)


@pytest.fixture(scope="session")
def rclone_s3(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SampleS3]:
    """rclone's S3 server over the same bucket; a file written under `local.folder`/BUCKET is an object."""
    folder = tmp_path_factory.mktemp("rclone")
    shutil.copytree(samples, folder / BUCKET)
    with rclone_server(folder=folder) as local:
        yield SampleS3(local, samples)


@pytest.fixture(scope="session")
def cassandra() -> Iterator[LocalCassandra]:
    """One node, `cassandra.server` as our pipes take it. A test makes its own keyspace, and never stops it."""
    with cassandra_server() as running:
        yield running


@pytest.fixture(scope="session")
def secure_cassandra() -> Iterator[LocalCassandra]:
    """One node that wants a password and a client certificate, whose private key is encrypted.

    Every address of this machine reaches it; the certificate names one of them.
    """
    who = {"username": "me", "password": "it's hunter2", "client_key_password": "hunter3"}
    settings = {"rpc_address": "0.0.0.0", "broadcast_rpc_address": "127.0.0.1"}
    with cassandra_server(**who, tls=True, settings=settings) as running:
        yield running


@pytest.fixture
def fault_proxy() -> Iterator[FaultProxyFactory]:
    """Makes proxies that misbehave on request, as `fault_proxy(s3.endpoint_url)`; closed when the test ends."""
    proxies: list[FaultProxy] = []

    def make(target: str) -> FaultProxy:
        proxies.append(FaultProxy(target))
        return proxies[-1]

    yield make
    for proxy in proxies:
        proxy.close()
