"""A dataset service that tests share, and plain HTTP to speak to it."""

from __future__ import annotations

import http.client
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from recipes.local_service import LocalService, dataset_service


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def ask(
    url: str, method: str = "GET", path: str = "/", body: Any = None, encode: bool = True, **headers: str
) -> Answer:
    """One request over a connection of its own; nothing of `path` is tidied up, unlike in most clients."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    if isinstance(body, dict):
        body, named = json.dumps(body).encode(), {"Content-Type": "application/json", **named}
    try:
        connection.request(method, quote(path, safe="/?&=%") if encode else path, body, named)
        response = connection.getresponse()
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
    finally:
        connection.close()


def new_dataset(url: str, name: str, **headers: str) -> None:
    answer = ask(url, "POST", "/datasets", {"name": name}, **headers)
    assert answer.status == 201, answer.body


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory, samples: Path) -> Iterator[LocalService]:
    """The dataset service over a folder; its data set `imagenet` holds the sample images.

    A test that writes makes a data set of its own.
    """
    root = tmp_path_factory.mktemp("datasets")
    with dataset_service(root) as running:
        shutil.copytree(samples, root / "imagenet")
        yield running
