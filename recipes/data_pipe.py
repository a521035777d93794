"""The chain of pipes from any store to batches: it differs in how keys are listed and how they are loaded."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from datapipes.catalog.class_map import ClassMap
from datapipes.catalog.keys import UuidKeys
from datapipes.catalog.row_file import load_row_file
from datapipes.catalog.shard_store import is_shard, manifest_of
from datapipes.catalog.tar_keys import TarSampleKey
from datapipes.iter import IterableWrapper
from datapipes.prepare.metadata import read_metadata
from recipes.data_source import IMAGE_FIELDS, IMAGE_FILES, Store, path_or_url, service_at, store_of, store_of_file
from recipes.transforms import image_transform


def build_pipe(args: argparse.Namespace, split: str, classes: ClassMap | None) -> Any:
    """From what DATA names to batches of uint8 images (3, size, size) and labels."""
    is_train = split == "train"
    keys, store, place = list_keys(args, split)
    keys = keys.distribute(
        shuffle=is_train,
        seed=args.seed,
        uneven="drop" if is_train else "keep",
        # Neighbours in a shard stay near each other, so that one request fetches several.
        block=256 if store == "shards" else None,
    )
    return (
        load_samples(keys, store, place, args, split, classes)
        .decode("torch", on_error=args.on_error)
        .to_tuple(IMAGE_FIELDS, "cls")
        .map_tuple(image_transform(split, args.image_size), int)
        .batched(args.batch_size)
    )


def list_keys(args: argparse.Namespace, split: str) -> tuple[Any, Store, str]:
    """The keys of a split, the store that they are of, and where that is."""
    location = args.splits[split]
    store = store_of(location, args)
    source = IterableWrapper([path_or_url(location)])
    if store == "shards":
        return source.list_tar_samples(server=args.s3_server), store, location
    if store == "s3":
        return source.list_files_by_s3(masks=IMAGE_FILES, server=args.s3_server), store, location
    if store == "service":
        return source.list_files_by_service(masks=IMAGE_FILES, server=service_at(location)), store, location
    if store == "files":
        return source.list_files_by_fsspec(masks=IMAGE_FILES), store, location
    rows = load_row_file(location)
    if rows.splits:
        source = source.split_by_file(index=args.train_index if split == "train" else args.val_index)
    elif args.splits["train"] == args.splits["val"]:
        raise ValueError(f"training: {location} has no splits; make them with create_split.py, or give TRAIN and VAL")
    else:
        source = source.list_rows_by_file()
    if rows.source or args.tables[split] or isinstance(rows.keys, UuidKeys):
        return source, "rows", location
    # All keys of a file are of one store.
    (first_key,) = rows.keys.take(np.zeros(1, np.int64))
    if isinstance(first_key, TarSampleKey):
        return source, "shards", first_key.shard
    return source, store_of_file(first_key), first_key


def load_samples(
    keys: Any, store: Store, place: str, args: argparse.Namespace, split: str, classes: ClassMap | None
) -> Any:
    """Samples with an image and its class in `cls`."""
    reading = {"on_error": args.on_error, "request_timeout_s": args.request_timeout}
    if store == "shards":
        return keys.read_tar_samples(server=args.s3_server, cache_dir=args.cache_dir, **reading)
    if store == "rows":
        return keys.read_cassandra(server=args.cassandra_server, table=args.tables[split], **reading)
    if store == "s3":
        files = keys.load_files_by_s3(server=args.s3_server, **reading)
    elif store == "service":
        files = keys.load_files_by_service(server=service_at(place), **reading)
    else:
        files = keys.load_files_by_fsspec(**reading)
    return files.parse_label(classes=classes)


def count_classes(args: argparse.Namespace) -> int:
    """The classes of data that lies in no folders: by its own records, or else by its labels. 0 = nobody knows."""
    locations = args.splits.values()
    stores = [store_of(location, args) for location in locations]
    if all(store == "shards" for store in stores):
        return _classes_of_shards(args)
    if all(store == "rows" for store in stores):
        return max(_classes_of_rows(args, split) for split in ("train", "val"))
    return 0


def _classes_of_shards(args: argparse.Namespace) -> int:
    classes: dict[str, list[str] | None] = {}
    for split, location in args.splits.items():
        manifest = None
        if not is_shard(location):
            manifest = manifest_of(location, server=args.s3_server, function="training")
        classes[split] = manifest.classes if manifest else None
    if classes["train"] and classes["val"] and classes["train"] != classes["val"]:
        train, val = (ClassMap(names, source=args.splits[split]) for split, names in classes.items() if names)
        raise ValueError(f"training: train has {train!r}, but val {val!r}; write both with the same classes")
    return len(classes["train"] or classes["val"] or ())


def _classes_of_rows(args: argparse.Namespace, split: str) -> int:
    rows = load_row_file(args.splits[split])
    if rows.num_classes or rows.source is None:
        return rows.num_classes
    labels = read_metadata(args.cassandra_server, rows.source, function="training").labels
    return 0 if labels is None or not len(labels) else int(labels.max()) + 1
