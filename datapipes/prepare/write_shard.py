"""One planned shard of images, written by whichever process has a hand free."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from datapipes.catalog.manifest import Shard
from datapipes.catalog.s3_server import S3Server
from datapipes.catalog.tar_format import END_OF_ARCHIVE
from datapipes.prepare.shard_file import EncodedSample, ShardFile
from datapipes.prepare.shard_target import target_of


class PlannedImage(NamedTuple):
    """An image and what it becomes. `offset` is -1 where it is a file of a folder, `name` its path in the source."""

    name: str
    key: str
    field: str
    label: int
    offset: int
    size: int


Prepare: TypeAlias = Callable[[bytes], bytes]


class PlannedShard(NamedTuple):
    name: str
    images: list[PlannedImage]


@dataclass(frozen=True)
class ShardJob:
    """What all shards of a data set have in common: from where, to where, under which limit, prepared how."""

    source: str
    target: str
    server: S3Server
    maxsize: int
    prepare: Prepare | None


def write_shard(job: ShardJob, planned: PlannedShard, *, stop: threading.Event | None = None) -> Shard:
    """Write a shard with as many of its images, from the first on, as fit; `samples` says how many.

    Once `stop` is set it ends in an InterruptedError and leaves nothing.

    Raises:
        ValueError: an image is too large for any shard, cannot be prepared, or the source changed meanwhile.
    """
    shard = ShardFile(target_of(job.target, server=job.server), planned.name)
    try:
        for image, content in read_images(job.source, planned.images):
            content = prepared(content, image, job.prepare)
            sample = EncodedSample({"__key__": image.key, image.field: content, "cls": image.label})
            whole = sample.nbytes + len(END_OF_ARCHIVE)
            if shard.nbytes + whole > job.maxsize:
                if shard.samples:
                    break
                raise ValueError(
                    f"imagenet_sharding: {image.name} needs a shard of {whole} bytes, and maxsize is "
                    f"{job.maxsize}; raise maxsize"
                )
            shard.write(sample)
            if stop is not None and stop.is_set():
                raise InterruptedError(f"imagenet_sharding: {planned.name} was stopped on its way")
        return shard.finish()
    except BaseException:
        shard.discard()
        raise


def read_images(source: str, images: list[PlannedImage]) -> Iterator[tuple[PlannedImage, bytes]]:
    """Each image with its bytes, in order.

    Raises:
        ValueError: an image is no longer as large as the index says.
    """
    if os.path.isdir(source):
        for image in images:
            with open(os.path.join(source, image.name), "rb", buffering=0) as file:
                yield image, _whole(file.read(), image, source)
        return
    archive = os.open(source, os.O_RDONLY)
    try:
        for image in images:
            yield image, _whole(os.pread(archive, image.size, image.offset), image, source)
    finally:
        os.close(archive)


def prepared(content: bytes, image: PlannedImage, prepare: Prepare | None) -> bytes:
    """The content as it goes into the shard.

    Raises:
        ValueError: it is no whole image.
    """
    if prepare is None:
        return content
    try:
        return prepare(content)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"imagenet_sharding: {image.name} is no whole image ({error}); fetch it again, or leave it out with "
            "filePattern"
        ) from None


def _whole(content: bytes, image: PlannedImage, source: str) -> bytes:
    if len(content) != image.size:
        raise ValueError(
            f"imagenet_sharding: {image.name} in {source} had {image.size} bytes and now has {len(content)}; leave "
            "the source alone while it is sharded, and run again"
        )
    return content
