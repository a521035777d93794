"""One split file over tar shards: exactly its samples, in local shards and in a bucket, whoever reads them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.data import DataLoader

from datapipes.catalog.key_archive import all_keys, join_keys, key_table_from, select_keys
from datapipes.catalog.keys import StrKeys, key_table_of
from datapipes.catalog.row_file import RowFile, load_row_file, save_row_file
from datapipes.catalog.tar_keys import TarSampleKeys
from datapipes.dataset.as_dataset import as_dataset
from datapipes.iter import IterableWrapper
from datapipes.prepare.make_split import make_split, split_listing
from datapipes.prepare.shard_writer import ShardWriter
from recipes.servers import put_folder

SAMPLES = {f"{number % 3}-{number:04d}": number for number in range(200)}


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> Path:
    """200 samples of 3 classes in 7 shards; their names lie in no directory, so the labels are the index's."""
    folder = tmp_path_factory.mktemp("split") / "shards"
    with ShardWriter(f"{folder}/shard-%06d.tar", maxcount=30) as writer:
        for name, number in SAMPLES.items():
            writer.write({"__key__": name, "jpg": number.to_bytes(2, "big") * 500, "cls": number % 3})
    return folder


def listed(folder: Path | str, **options: Any) -> Any:
    return IterableWrapper([str(folder)]).list_tar_samples(**options)


def names_of(keys: Any) -> list[str]:
    return [key.name for key in all_keys(keys)]


def in_class_1(key: Any) -> bool:
    return key.name.startswith("1-")


def in_class_2(key: Any) -> bool:
    return key.name.startswith("2-")


def test_a_split_gives_exactly_its_samples_by_their_labels_and_no_other(shards, tmp_path):
    made = split_listing(listed(shards), ratio=(8, 2))
    assert made.num_classes == 3
    path = str(tmp_path / "split.npz")
    save_row_file(path, made)
    found = []
    for index in (0, 1):
        keys = IterableWrapper([path]).split_by_file(index=index)
        samples = list(keys.distribute(uneven="keep", shuffle=False).read_tar_samples())
        assert [sample["__key__"] for sample in samples] == names_of(made.keys_of(index))
        assert all(sample["jpg"] == SAMPLES[sample["__key__"]].to_bytes(2, "big") * 500 for sample in samples)
        assert sorted(np.bincount([sample["cls"] for sample in samples])) == ([53, 53, 54], [13, 13, 14])[index]
        found += [sample["__key__"] for sample in samples]
    assert sorted(found) == sorted(SAMPLES)


def test_a_split_is_in_the_shards_order_so_that_neighbours_are_read_together(shards):
    for split in split_listing(listed(shards)).splits:
        assert (np.diff(split) > 0).all()


def test_an_epoch_of_a_split_is_proven_over_workers_and_shuffled(shards, tmp_path):
    path = str(tmp_path / "split.npz")
    save_row_file(path, split_listing(listed(shards)))
    keys = IterableWrapper([path]).split_by_file(index=0).distribute(block=32, seed=3, uneven="keep")
    dataset = as_dataset(keys.read_tar_samples().to_tuple("__key__", "cls").batched(16))
    alone = list(DataLoader(dataset, batch_size=None))
    dataset.set_epoch(0)
    assert str(list(DataLoader(dataset, batch_size=None, num_workers=2))) == str(alone)
    assert "160 samples expected, each seen once" in str(dataset.report())
    read = [name for names, _ in alone for name in names]
    assert read != sorted(read, key=SAMPLES.get)


def test_a_split_of_shards_in_a_bucket_reads_exactly_its_samples(shards, s3, tmp_path):
    bucket = "split-shards"
    put_folder(s3.local, shards, bucket=bucket)
    server = s3.server
    made = split_listing(listed(f"s3://{bucket}", server=server), ratio=(5, 3, 2), seed=1)
    path = str(tmp_path / "split.npz")
    save_row_file(path, made)
    read = []
    for index in range(3):
        keys = IterableWrapper([path]).split_by_file(index=index).distribute(block=256, uneven="keep")
        read.append([sample["__key__"] for sample in keys.read_tar_samples(server=server)])
        assert sorted(read[-1]) == sorted(names_of(made.keys_of(index)))
    assert sorted(name for names in read for name in names) == sorted(SAMPLES)
    assert [len(names) for names in read] == [100, 60, 40]


def test_a_row_file_lists_every_sample_of_several_files(shards, tmp_path):
    whole, half = str(tmp_path / "all.npz"), str(tmp_path / "half.npz")
    table = listed(shards).key_table()
    save_row_file(whole, RowFile(table))
    save_row_file(half, RowFile(select_keys(table, np.arange(199, 99, -1))))
    pipe = IterableWrapper([whole, half]).list_rows_by_file()
    expected = [*SAMPLES, *list(SAMPLES)[:99:-1]]
    assert names_of(pipe.key_table()) == [key.name for key in pipe] == expected
    assert [sample["__key__"] for sample in pipe.read_tar_samples()] == expected


def test_a_file_takes_little_more_than_the_names_and_gives_back_every_key(tmp_path):
    names = [f"n{number % 1000:08d}/n{number % 1000:08d}_{number}" for number in range(50_000)]
    with ShardWriter(f"{tmp_path}/shards/shard-%06d.tar", maxcount=20_000) as writer:
        for number, name in enumerate(names):
            writer.write({"__key__": name, "jpg": b"image", "cls": number % 1000})
    table = listed(tmp_path / "shards").key_table()
    path = tmp_path / "split.npz"
    save_row_file(str(path), make_split(table, table.columns.labels, ratio=(8, 2)))
    rows = load_row_file(str(path))
    assert list(all_keys(rows.keys)) == list(all_keys(table))
    assert rows.keys.columns.labels.tolist() == [number % 1000 for number in range(50_000)]
    names_bytes = sum(map(len, names))
    # 8 B of each is its place in a split, 8 B the checksums of its two fields.
    assert path.stat().st_size - names_bytes < 30 * len(names)
    assert rows.keys.nbytes - names_bytes < 50 * len(names)


def test_classes_come_from_directories_where_indexes_have_no_labels(tmp_path):
    with ShardWriter(f"{tmp_path}/shard-%06d.tar") as writer:
        for number in range(20):
            writer.write({"__key__": f"{('cat', 'dog')[number % 2]}/{number}", "jpg": b"image"})
    made = split_listing(listed(tmp_path), ratio=(8, 2))
    assert made.num_classes == 2
    assert [sum(name.startswith("cat/") for name in names_of(made.keys_of(index))) for index in (0, 1)] == [8, 2]


def test_samples_without_label_and_directory_are_named(tmp_path):
    with ShardWriter(f"{tmp_path}/shard-%06d.tar") as writer:
        writer.write({"__key__": "lonely", "jpg": b"image"})
    with pytest.raises(ValueError, match=r"split_listing: \S+shard-000000\.tar: 'lonely' at offset 0 lies in no"):
        split_listing(listed(tmp_path))
    made = make_split(listed(tmp_path).key_table(), ratio=(1,))
    assert len(made.splits[0]) == 1 and made.num_classes == 0


def test_a_pickle_is_refused_by_a_word_on_the_name_that_will_do(shards, tmp_path):
    with pytest.raises(ValueError, match=r"save_row_file: .*split\.pckl: a pickle .* name that ends in \.npz"):
        save_row_file(str(tmp_path / "split.pckl"), split_listing(listed(shards)))
    assert not (tmp_path / "split.pckl").exists()


def test_shards_written_anew_are_noticed_when_the_split_is_read(tmp_path):
    def write(size):
        with ShardWriter(f"{tmp_path}/shards/shard-%06d.tar") as writer:
            for number in range(10):
                writer.write({"__key__": f"cat/{number}", "jpg": bytes(size), "cls": number})

    write(100)
    path = str(tmp_path / "split.npz")
    save_row_file(path, split_listing(listed(tmp_path / "shards")))
    for file in (tmp_path / "shards").iterdir():
        file.unlink()
    write(3000)
    with pytest.raises(ValueError, match=r"shard-000000\.tar"):
        list(IterableWrapper([path]).split_by_file(index=0).read_tar_samples())


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"tar_shard_ids": np.full(200, 9)}, "names shard 9 of 7"),
        ({"tar_shard_ids": np.full(200, -1)}, "names shard -1 of 7"),
        ({"tar_starts": np.zeros(200)[:199]}, ""),
        ({"tar_labels": np.zeros(3)}, "not equally long"),
        ({"tar_name_lengths": np.full(200, 5)}, "lengths disagree"),
        ({"tar_field_counts": np.full(200, 1)}, "lengths disagree"),
        ({"tar_field_counts": np.zeros((2, 2))}, ""),
        ({"tar_shards": np.frombuffer(b"[1, 2]", np.uint8)}, ""),
        ({"tar_shards": np.frombuffer(b"not JSON", np.uint8)}, ""),
    ],
)
def test_a_file_whose_arrays_contradict_each_other_is_refused(shards, tmp_path, change, what):
    path = str(tmp_path / "split.npz")
    save_row_file(path, RowFile(listed(shards).key_table()))
    with np.load(path) as archive:
        arrays = dict(archive) | change
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match=f"{re.escape(path)}.*{what}"):
        load_row_file(path)


def test_keys_that_pass_a_stage_one_by_one_are_a_table_again(shards):
    some = listed(shards).filter(in_class_1)
    table = key_table_of(some)
    assert isinstance(table, TarSampleKeys) and list(all_keys(table)) == list(some)
    read = [sample["cls"] for sample in some.distribute(uneven="keep").read_tar_samples()]
    assert read == [1] * 67
    assert len(key_table_of(some.filter(in_class_2))) == 0


def test_kinds_of_keys_are_not_mixed(shards):
    table = listed(shards).key_table()
    with pytest.raises(ValueError, match="keys must all be UUIDs or all text, got TarSampleKey"):
        join_keys([table, StrKeys.of(["a"])])
    with pytest.raises(ValueError, match="keys must all be UUIDs or all text, got TarSampleKey"):
        key_table_from(["a", *all_keys(table)])
