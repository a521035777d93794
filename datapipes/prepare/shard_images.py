"""An index of images in, a shuffled and sharded data set out, by many processes, with the same bytes by any number."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from functools import partial

import numpy as np
from numpy.typing import NDArray

from datapipes.catalog.class_map import ClassMap
from datapipes.catalog.manifest import FILE_NAME, Manifest, Shard
from datapipes.catalog.s3_server import S3Server
from datapipes.catalog.tar_format import BLOCK
from datapipes.order.permutation import permute
from datapipes.prepare.imagenet_source import ImageIndex, field_of, key_of
from datapipes.prepare.resize_image import Resize
from datapipes.prepare.shard_plan import shard_ends
from datapipes.prepare.shard_target import target_of
from datapipes.prepare.shard_writer import ShardWriter
from datapipes.prepare.write_shard import PlannedImage, PlannedShard, ShardJob, prepared, read_images, write_shard

# Images that say within some percent how much smaller all become, and what then rather stays empty in a shard than
# goes into one more.
_PROBES = 48
_MARGIN = 1.05


def shard_images(
    index: ImageIndex,
    target: str,
    *,
    classes: ClassMap,
    name: str = "Dataset",
    seed: int = 1,
    maxcount: int = 100_000,
    maxsize: float = 1e9,
    resize: Resize | None = None,
    data_type: str | None = None,
    workers: int = 1,
    server: S3Server = S3Server(),
    replace: bool = False,
    on_shard: Callable[[Shard], object] = lambda shard: None,
) -> Manifest:
    """Images in, shards of their permutation out: `TARGET/NAME-000000.tar` and on, an index beside each, a manifest.

    >>> import pathlib, tempfile
    >>> from datapipes.prepare.imagenet_source import index_images
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for number in range(3):
    ...     image = folder / "train" / f"n{number:08}" / f"n{number:08}_1.JPEG"
    ...     image.parent.mkdir(parents=True)
    ...     _ = image.write_bytes(b"image")
    >>> index = index_images(str(folder / "train"), class_of=lambda name: None)
    >>> manifest = shard_images(index, str(folder / "shards"), classes=ClassMap(index.class_names), maxcount=2)
    >>> [(shard.name, shard.samples) for shard in manifest.shards]
    [('Dataset-000000.tar', 2), ('Dataset-000001.tar', 1)]

    A run that was cut goes on when called again; one that had finished returns its manifest. Resized images
    are planned by how much smaller a few of them become; what then does not fit into its shard goes into further
    ones at the end.

    Args:
        classes: labels of `index.class_names`, kept in the manifest.
        seed: of the permutation.
        maxcount, maxsize: samples and bytes a shard, at most.
        resize: what is done to each image.
        data_type: the image's field, by default its extension.
        workers: processes that write shards, about 60 MB each; 1 writes in this one.
        replace: take the place of another finished data set.
        on_shard: called with each shard that this call wrote.

    Raises:
        FileExistsError: another finished data set is there.
        ValueError: an image without a label, broken or too large.
        RuntimeError: a worker was killed.
    """
    if workers < 1:
        raise ValueError(f"imagenet_sharding: workers must be at least 1, got {workers}")
    labels = np.array([classes[name] for name in index.class_names], np.int64)
    options = {
        "dataset_name": name,
        "seed": seed,
        "images": len(index),
        "source": index.fingerprint(),
        "resize": None if resize is None else asdict(resize),
        "data_type": data_type,
        "maxcount": maxcount,
        "maxsize": int(maxsize),
    }
    finished = _finished(target, server, options, list(classes))
    if finished is not None:
        return finished
    shards = _Shards(
        f"{target.rstrip('/')}/{name}-%06d.tar",
        maxcount=maxcount,
        maxsize=maxsize,
        server=server,
        classes=list(classes),
        options=options,
        replace=replace,
        resume=True,
    )
    job = ShardJob(index.path, target, server, shards.maxsize, resize)
    nbytes = index.sample_bytes() if resize is None else _expected_bytes(index, resize, seed)
    pending = permute(np.arange(len(index)), len(index), seed=seed)
    first = 0
    while len(pending):
        ends = shard_ends(nbytes[pending], maxcount=maxcount, maxsize=shards.maxsize)
        parts = np.split(pending, ends[:-1])
        names = [f"{name}-{first + number:06d}.tar" for number in range(len(parts))]
        planned = (
            PlannedShard(shard, _planned(index, part, labels, resize, data_type))
            for shard, part in zip(names, parts)
            if shard not in shards.kept
        )
        for shard in _written(job, planned, workers):
            shards.add(shard)
            on_shard(shard)
        # Of resized images, those that did not fit after all.
        pending = np.concatenate([part[shards.kept[shard].samples :] for shard, part in zip(names, parts)])
        first += len(parts)
    return shards.close()


class _Shards(ShardWriter):
    """The data set that the shards of many processes make: notes each as it comes, ends with the manifest."""

    @property
    def kept(self) -> dict[str, Shard]:
        return {shard.name: shard for shard in self._shards}

    def add(self, shard: Shard) -> None:
        self._shards = sorted([*self._shards, shard])
        self._note(self._shards)


def _finished(target: str, server: S3Server, options: dict[str, object], classes: list[str]) -> Manifest | None:
    content = target_of(target, server=server).read(FILE_NAME)
    if content is None:
        return None
    manifest = Manifest.load(content, name=f"{target}/{FILE_NAME}")
    return manifest if manifest.options == options and manifest.classes == classes else None


def _planned(
    index: ImageIndex, part: NDArray[np.int64], labels: NDArray[np.int64], resize: Resize | None, data_type: str | None
) -> list[PlannedImage]:
    images = []
    for i in part.tolist():
        name = index.name(i)
        field = data_type or ("jpg" if resize is not None else field_of(name))
        label = int(labels[index.class_ids[i]])
        key = key_of(name, index.class_name(i))
        images.append(PlannedImage(name, key, field, label, int(index.offsets[i]), int(index.sizes[i])))
    return images


def _expected_bytes(index: ImageIndex, resize: Resize, seed: int) -> NDArray[np.int64]:
    """What samples will about take when resized, judged by a few of them."""
    probes = permute(np.arange(min(_PROBES, len(index))), len(index), seed=seed)
    images = _planned(index, probes, np.zeros(len(index.class_names), np.int64), resize, None)
    resized = sum(len(prepared(content, image, resize)) for image, content in read_images(index.path, images))
    ratio = _MARGIN * resized / int(index.sizes[probes].sum())
    return index.header_bytes + np.ceil(index.sizes * ratio / BLOCK).astype(np.int64) * BLOCK


def _written(job: ShardJob, planned: Iterator[PlannedShard], workers: int) -> Iterator[Shard]:
    """Shards as they are finished; at most one more is planned than are being written."""
    stop = threading.Event()
    pool: Executor
    write: Callable[[PlannedShard], Shard]
    if workers == 1:
        # One shard is filled while the other is flushed to the disk.
        at_once, pool = 2, ThreadPoolExecutor(2)
        write = partial(write_shard, job, stop=stop)
    else:
        # Spawned, not forked: a fork copies whatever threads and locks the caller has. Nothing here imports torch.
        # The job goes along when a worker starts, for a queue would not carry its server's secret.
        spawn = multiprocessing.get_context("spawn")
        at_once, pool = workers, ProcessPoolExecutor(workers, spawn, initializer=_start_worker, initargs=(job,))
        write = _write
    running: set[Future[Shard]] = set()
    try:
        for shard in planned:
            running.add(pool.submit(write, shard))
            if len(running) > at_once:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
    except BrokenProcessPool:
        raise RuntimeError(
            "imagenet_sharding: a worker was killed, for lack of memory perhaps; start again with fewer workers, "
            "and it goes on from here"
        ) from None
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)


_job: ShardJob
"""Of a worker process."""


def _start_worker(job: ShardJob) -> None:
    global _job
    _job = job
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        # A worker that outlived a killed parent would write into the next run's files.
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


def _write(planned: PlannedShard) -> Shard:
    return write_shard(_job, planned)
