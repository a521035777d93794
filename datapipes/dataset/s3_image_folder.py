"""`S3ImageFolder`: torchvision's ImageFolder over a bucket."""

from __future__ import annotations

import operator
import os
import threading
from array import array
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import Any

import numpy as np
from torch.utils.data import Dataset

from datapipes.catalog.class_map import ClassMap
from datapipes.catalog.keys import StrKeys
from datapipes.catalog.s3_server import S3Server, resolve
from datapipes.catalog.s3_transport import s3_transport
from datapipes.catalog.s3_tree import list_keys
from datapipes.dataset.sample_list import SampleList, Targets
from datapipes.load.depth import Depth
from datapipes.load.window import MAX_BYTES, REQUEST_TIMEOUT_S, check_window, in_flight
from datapipes.stages.image_formats import decode_to_pil
from datapipes.transfer.request import Request, Transport

_NAME = "S3ImageFolder"
# torchvision's own list; importing torchvision for it would take a spawned worker seconds.
IMG_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


class S3ImageFolder(Dataset[tuple[Any, Any]]):
    """Images of a bucket, a folder a class, as `(image, label)`: use it where ImageFolder was.

        dataset = S3ImageFolder("bucket", "imagenet/train", transform)
        loader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=4)

    `bucket/prefix/class/any/where/name.jpg`: the first folder below the prefix is the class, and classes are
    numbered in sorted order. What is no image by its extension is left out, as torchvision does. The listing
    is made here, once; workers share it. A DataLoader that asks for a batch has all of its objects in flight
    at once, and decodes the first while others arrive.

    Args:
        bucket_name: the bucket.
        prefix: the folder that holds the class folders; "" = the bucket itself.
        transform: of the image, which comes as PIL in RGB.
        target_transform: of the label.
        server: where and as whom; by default what the AWS command line would use.
        classes: their names in the order of their labels, where another split decides; `train.classes`, say.
        max_in_flight: requests at once, in each worker. By default as many as latency and rate ask for.
        max_bytes: bound on images on their way or waiting to be decoded, in each worker.
        request_timeout_s: deadline of an attempt, in seconds; there are seven.

    Attributes:
        classes: names, sorted. class_to_idx: each name's label.
        samples, imgs: `(url, label)` of each; targets: their labels. All read-only lists.

    Raises:
        FileNotFoundError: no such bucket, nothing under the prefix, no class folders, or a class without an
            image.
        PermissionError: no right to list, or wrong credentials.
        ValueError: a class that `classes` does not name.
        OSError: an object that is no image, or cannot be had; when it is asked for, and with its URL.
    """

    def __init__(
        self,
        bucket_name: str,
        prefix: str = "",
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        server: S3Server = S3Server(),
        *,
        classes: Sequence[str] | ClassMap | None = None,
        max_in_flight: int | None = None,
        max_bytes: int = MAX_BYTES,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        check_window(_NAME, max_in_flight, max_bytes, request_timeout_s)
        folder = prefix.strip("/")
        self.root = f"s3://{bucket_name}/{folder}/" if folder else f"s3://{bucket_name}/"
        self.transform = transform
        self.target_transform = target_transform
        self.server = server
        self.max_in_flight = max_in_flight
        self.max_bytes = max_bytes
        self.request_timeout_s = request_timeout_s
        class_map = classes if isinstance(classes, ClassMap) or classes is None else ClassMap(classes)
        self.classes, self.samples = _listed(self.root, server, class_map, request_timeout_s)
        self.class_to_idx = {name: label for label, name in enumerate(self.classes)}
        self.targets = self.samples.targets
        self._here = threading.local()

    @property
    def imgs(self) -> SampleList:
        """The samples, by torchvision's other name for them."""
        return self.samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Any, Any]]:
        """Those samples, fetched together; a DataLoader asks for each of its batches so."""
        places = [self._place(index) for index in indices]
        urls = self.samples.urls(places)
        # Closed by name: a traceback would keep it, and its requests, alive into the next batch.
        with closing(self._bodies(urls)) as bodies:
            return [self._sample(url, body, self.targets[place]) for url, body, place in zip(urls, bodies, places)]

    def _sample(self, url: str, body: bytes, label: int) -> tuple[Any, Any]:
        try:
            image = decode_to_pil(body, "RGB")
        except Exception as error:
            raise OSError(
                f"{_NAME}: {url} is no readable image ({len(body):,} bytes; {error}); replace or delete the object"
            ) from None
        return (
            image if self.transform is None else self.transform(image),
            label if self.target_transform is None else self.target_transform(label),
        )

    def _place(self, index: int) -> int:
        place = operator.index(index)
        if not -len(self) <= place < len(self):
            raise IndexError(f"{_NAME}: index {place} is out of range; there are {len(self):,} samples")
        return place % len(self)

    def _bodies(self, urls: list[str]) -> Generator[bytes, None, None]:
        here = self._here
        if getattr(here, "process", None) != os.getpid():
            here.transport = s3_transport(self.server, _NAME)
            here.depth = Depth(self.max_in_flight)
            here.process = os.getpid()
        flight = in_flight(
            enumerate(urls),
            _KeptOpen(here.transport),
            function=_NAME,
            item_of=lambda url, body: body,
            depth=here.depth,
            max_bytes=self.max_bytes,
            request_timeout_s=self.request_timeout_s,
        )
        try:
            for _, body in flight:
                yield body
        finally:
            flight.close()  # type: ignore[attr-defined]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_here"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._here = threading.local()

    def __repr__(self) -> str:
        return f"{_NAME}({self.root}: {len(self):,} images in {len(self.classes):,} classes)"


class _KeptOpen:
    """A transport that outlives a flight, so that the next batch finds its connections open."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._tickets: set[int] = set()

    def start(self, ticket: int, request: Request) -> None:
        self._transport.start(ticket, request)
        self._tickets.add(ticket)

    def finished(self, timeout_s: float) -> list[tuple[int, Any, Exception | None]]:
        answers = self._transport.finished(timeout_s)
        self._tickets.difference_update(ticket for ticket, _, _ in answers)
        return answers

    def cancel(self, ticket: int) -> None:
        self._tickets.discard(ticket)
        self._transport.cancel(ticket)

    def close(self) -> None:
        for ticket in list(self._tickets):
            self.cancel(ticket)


def _listed(root: str, server: S3Server, class_map: ClassMap | None, timeout_s: float) -> tuple[list[str], SampleList]:
    """The class names and the images under `root`, by class and then by key."""
    start = root[: root.index("/", len("s3://")) + 1]
    below = len(root) - len(start)
    first_seen: dict[str, int] = {}
    labels = array("i")

    def image_urls() -> Iterator[str]:
        for _, pages in list_keys(resolve(server), [root], function=_NAME, timeout_s=timeout_s):
            for page in pages:
                for key in page:
                    name, slash, _ = key[below:].partition("/")
                    if not slash:
                        continue
                    label = first_seen.setdefault(name, len(first_seen))
                    if key.lower().endswith(IMG_EXTENSIONS):
                        labels.append(label)
                        yield start + key

    keys = StrKeys.of(image_urls())
    if not first_seen:
        raise FileNotFoundError(
            f"{_NAME}: no class folders under {root}; expected objects such as {root}cat/1.jpg, check the prefix"
        )
    seen = np.array(labels, np.int32)
    images = np.bincount(seen, minlength=len(first_seen))
    empty = sorted(name for name, label in first_seen.items() if images[label] == 0)
    if empty:
        raise FileNotFoundError(
            f"{_NAME}: no image in {len(empty):,} of {len(first_seen):,} class folders under {root}: "
            f"{', '.join(empty[:5])}; images end in {', '.join(IMG_EXTENSIONS)}"
        )
    numbering = class_map if class_map is not None else ClassMap(sorted(first_seen), source=root)
    final = np.array([numbering[name] for name in first_seen], np.int32)[seen]
    # Keys come in byte order, in which "a-b/" precedes "a/"; ImageFolder goes by the names.
    if np.all(final[1:] >= final[:-1]):
        return list(numbering), SampleList(keys, Targets(final))
    order = np.argsort(final, kind="stable")
    return list(numbering), SampleList(keys, Targets(final[order]), order)
