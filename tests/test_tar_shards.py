"""Shards written, indexed, verified, read whole and by index, damaged and cut short."""

from __future__ import annotations

import gzip
import os
import random
import subprocess
import tarfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import webdataset
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from killed_writer import FORK, kill_at_random
from webdataset.tariterators import group_by_keys, tar_file_expander

from datapipes.catalog.manifest import Manifest
from datapipes.catalog.shard_index import ShardIndex
from datapipes.dataset.as_dataset import as_dataset
from datapipes.iter import IterableWrapper
from datapipes.prepare.shard_writer import ShardWriter
from datapipes.prepare.verify_shards import index_shards, verify_shards


def samples_of(count: int, size: int = 900) -> list[dict[str, Any]]:
    noise = random.Random(0)
    return [{"__key__": f"class{n % 3}/{n:05d}", "jpg": noise.randbytes(size + n), "cls": n % 3} for n in range(count)]


def write(folder: Path, samples: list[dict[str, Any]], **options: Any) -> Manifest:
    with ShardWriter(f"{folder}/shard-%06d.tar", **options) as writer:
        for sample in samples:
            writer.write(sample)
    assert writer.manifest is not None
    return writer.manifest


def streamed(*urls: Path, **options: Any) -> list[dict[str, Any]]:
    return list(IterableWrapper([str(url) for url in urls]).open_tar_shards(**options))


def by_index(*urls: Path, **options: Any) -> list[dict[str, Any]]:
    return list(IterableWrapper([str(url) for url in urls]).list_tar_samples().read_tar_samples(**options))


def without_url(samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in sample.items() if name != "__url__"} for sample in samples]


def in_key_order(samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(without_url(samples), key=lambda sample: sample["__key__"][-5:])


def test_what_is_written_reads_back_whole_and_by_index(tmp_path: Path) -> None:
    samples = samples_of(25)
    manifest = write(tmp_path, samples, maxcount=10)
    assert [shard.samples for shard in manifest.shards] == [10, 10, 5]
    assert in_key_order(streamed(tmp_path)) == samples
    assert without_url(by_index(tmp_path)) == samples
    assert len(IterableWrapper([str(tmp_path)]).list_tar_samples().read_tar_samples()) == 25


def test_webdataset_and_tarfile_read_what_is_written(tmp_path: Path) -> None:
    samples = [*samples_of(5), {"__key__": "ü" * 80, "jpg": b"long name", "cls": 1}]
    write(tmp_path, samples)
    shard = str(tmp_path / "shard-000000.tar")
    with open(shard, "rb") as file:
        found = list(group_by_keys(tar_file_expander([{"url": shard, "stream": file}])))
    assert [(sample["__key__"], sample["jpg"], int(sample["cls"])) for sample in found] == [
        (sample["__key__"], sample["jpg"], sample["cls"]) for sample in samples
    ]
    with tarfile.open(shard) as archive:
        assert len(archive.getnames()) == 12
    assert subprocess.run(["tar", "-tf", shard], capture_output=True, check=True).stderr == b""


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=30),
    maxcount=st.integers(1, 8),
    maxsize=st.integers(6000, 20000),
)
def test_no_shard_is_over_a_limit(
    sizes: list[int], maxcount: int, maxsize: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("limits")
    samples = [{"__key__": str(n), "bin": bytes(size), "cls": n} for n, size in enumerate(sizes)]
    manifest = write(folder, samples, maxcount=maxcount, maxsize=maxsize)
    for shard in manifest.shards:
        assert shard.samples <= maxcount
        assert shard.nbytes == (folder / shard.name).stat().st_size <= maxsize
    assert manifest.samples == len(samples)


def test_the_same_samples_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / name, samples_of(12), maxcount=5)
    files = [sorted((tmp_path / name).iterdir()) for name in ("a", "b")]
    assert [path.read_bytes() for path in files[0]] == [path.read_bytes() for path in files[1]]


@pytest.mark.parametrize(
    ("sample", "told"),
    [
        ({"__key__": "n01.v2_img", "jpg": b""}, "no dot"),
        ({"__key__": "", "jpg": b""}, "at least one character"),
        ({"__key__": "a", "JPG": b""}, "lower case"),
        ({"__key__": "a"}, "no field"),
        ({"jpg": b""}, "__key__"),
        ({"__key__": "a", "jpg": bytes(30000)}, "maxsize"),
    ],
)
def test_a_sample_that_would_not_come_back_is_refused(sample: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"ShardWriter.*{told}"):
        write(tmp_path, [sample], maxsize=20000)
    with pytest.raises(ValueError, match="not finished"):
        streamed(tmp_path)


def test_a_key_twice_is_an_error_on_both_sides(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'a' comes twice"):
        write(tmp_path, [{"__key__": "a", "jpg": b"1"}, {"__key__": "a", "jpg": b"2"}])
    with webdataset.TarWriter(str(tmp_path / "twice.tar")) as writer:
        for key in ("a", "b", "a"):
            writer.write({"__key__": key, "jpg": b"image"})
    for read in (streamed, by_index):
        with pytest.raises(
            ValueError,
            match=r"^(open|list)_tar_\w+: \S+twice\.tar: the key 'a' comes again at offset \d+",
        ):
            read(tmp_path / "twice.tar")


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_damage_anywhere_is_an_error_or_changes_nothing(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("damage")
    samples = samples_of(6)
    write(folder, samples)
    shard = folder / "shard-000000.tar"
    content = bytearray(shard.read_bytes())
    if data.draw(st.booleans(), label="cut"):
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    else:
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    shard.write_bytes(content)
    faults = [fault for verdict in verify_shards(str(folder)) for fault in verdict.faults]
    assert faults and "shard-000000.tar" in faults[0]
    for read in (streamed, by_index):
        try:
            found = in_key_order(read(folder))
        except (ValueError, OSError) as error:
            assert "shard-000000.tar" in str(error)
        else:
            assert found == samples  # it was in padding, or behind the last sample
        kept = in_key_order(read(folder, on_error="skip"))
        assert all(sample in samples for sample in kept)


def test_a_flipped_payload_bit_costs_its_sample_when_skipping(tmp_path: Path) -> None:
    samples = samples_of(6)
    write(tmp_path, samples)
    shard = tmp_path / "shard-000000.tar"
    content = bytearray(shard.read_bytes())
    content[content.index(samples[2]["jpg"]) + 100] ^= 1
    shard.write_bytes(content)
    for read in (streamed, by_index):
        with pytest.raises(ValueError, match=r"^\w+: \S+shard-000000\.tar: 'class2/00002' at offset \d+: its bytes"):
            read(tmp_path)
        kept = read(tmp_path, on_error="skip")
        assert without_url(kept) == samples[:2] + samples[3:]
        replaced = read(tmp_path, on_error=lambda key, error: {"__key__": "instead"})
        assert replaced[2] == {"__key__": "instead"}


def test_a_damaged_header_ends_its_shard_alone_when_skipping(tmp_path: Path) -> None:
    samples = samples_of(9)
    write(tmp_path, samples, maxcount=3)
    shard = tmp_path / "shard-000001.tar"
    content = bytearray(shard.read_bytes())
    content[content.index(b"class1/00004")] ^= 1
    shard.write_bytes(content)
    # Sample 3 stands right before the damage, so that no stream can tell whether it is whole.
    assert in_key_order(streamed(tmp_path, on_error="skip")) == samples[:3] + samples[6:]
    assert without_url(by_index(tmp_path, on_error="skip")) == samples[:4] + samples[5:]


def test_compressed_shards_stream(tmp_path: Path) -> None:
    samples = samples_of(8)
    write(tmp_path / "plain", samples)
    plain = (tmp_path / "plain/shard-000000.tar").read_bytes()
    for name, packed in (("a.tar.gz", gzip.compress(plain)), ("a.tar.zst", zstandard.compress(plain))):
        (tmp_path / name).write_bytes(packed)
        assert without_url(streamed(tmp_path / name)) == samples
        with pytest.raises(ValueError, match="compressed"):
            by_index(tmp_path / name)
        (tmp_path / f"cut-{name}").write_bytes(packed[: len(packed) // 2])
        with pytest.raises(ValueError, match=f"cut-{name}"):
            streamed(tmp_path / f"cut-{name}")


def test_shards_of_others_are_indexed_and_then_verified(tmp_path: Path) -> None:
    for number in range(2):
        with webdataset.TarWriter(str(tmp_path / f"s{number}.tar")) as writer:
            for sample in samples_of(4):
                writer.write({**sample, "__key__": f"{number}/{sample['__key__']}"})
    before = by_index(tmp_path)
    assert index_shards(str(tmp_path)).samples == 8
    assert by_index(tmp_path) == before
    assert sorted(sample["__key__"] for sample in streamed(tmp_path)) == sorted(s["__key__"] for s in before)
    assert all(not verdict.faults for verdict in verify_shards(str(tmp_path)))
    index = ShardIndex.load((tmp_path / "s0.tar.npz").read_bytes(), name="s0")
    assert index.labels.tolist() == [0, 1, 2, 0]


def test_an_index_of_another_shard_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, samples_of(6), maxcount=3)
    index = (tmp_path / "shard-000000.tar.npz").read_bytes()
    (tmp_path / "shard-000001.tar.npz").write_bytes(index)
    with pytest.raises(ValueError, match=r"shard-000001\.tar"):
        streamed(tmp_path)
    with pytest.raises(ValueError, match="not the index that the manifest names"):
        by_index(tmp_path)
    (tmp_path / "shard-000001.tar.npz").write_bytes(index[:-40])
    with pytest.raises(ValueError, match="index_shards"):
        streamed(tmp_path)


def test_a_longer_earlier_run_is_not_mixed_in(tmp_path: Path) -> None:
    write(tmp_path, samples_of(20), maxcount=4)
    with pytest.raises(FileExistsError, match="replace=True"):
        write(tmp_path, samples_of(6))
    write(tmp_path, samples_of(6), maxcount=4, replace=True)
    assert len(streamed(tmp_path)) == 6
    assert sorted(path.name for path in tmp_path.glob("*.tar*")) == [
        f"shard-00000{n}.tar{suffix}" for n in (0, 1) for suffix in ("", ".npz")
    ]


def test_shards_that_others_wrote_are_not_overwritten(tmp_path: Path) -> None:
    with webdataset.TarWriter(str(tmp_path / "shard-000007.tar")) as writer:
        writer.write({"__key__": "a", "jpg": b"image"})
    with pytest.raises(FileExistsError):
        write(tmp_path, samples_of(2))


def write_slowly(folder: Path, kept: Any) -> None:
    samples = samples_of(400, 2000)
    with ShardWriter(f"{folder}/shard-%06d.tar", maxcount=20, resume=True) as writer:
        kept.value = writer.samples_kept
        for sample in samples[writer.samples_kept :]:
            writer.write(sample)
            time.sleep(0.002)


def test_a_writer_killed_anywhere_leaves_no_data_set_and_the_next_run_goes_on(tmp_path: Path) -> None:
    seen = []
    for kept in kill_at_random(partial(write_slowly, tmp_path), runs=6, within_s=0.12):
        seen.append(kept)
        for read in (streamed, by_index):
            with pytest.raises(ValueError, match="not finished"):
                read(tmp_path)
    assert seen == sorted(seen) and seen[-1] > 0
    write_slowly(tmp_path, FORK.Value("i"))
    assert without_url(by_index(tmp_path)) == samples_of(400, 2000)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", *[".npz"] * 20, *[".tar"] * 20]
    write(tmp_path / "at-once", samples_of(400, 2000), maxcount=20)
    for path in (tmp_path / "at-once").glob("*.tar"):
        assert path.read_bytes() == (tmp_path / path.name).read_bytes()


def test_under_as_dataset_each_sample_is_seen_once_at_any_number_of_ranks(tmp_path: Path) -> None:
    write(tmp_path, samples_of(40), maxcount=7)
    keys = IterableWrapper([str(tmp_path)]).list_tar_samples().distribute(block=4, seed=3, uneven="keep")
    batches = keys.read_tar_samples().batched(5, collate=None)
    alone = [[sample["__key__"] for sample in batch] for batch in as_dataset(batches)]
    dataset = as_dataset(batches)
    assert sum(map(len, alone)) == 40
    list(dataset)
    assert dataset.report().proven
    shared = [
        [sample["__key__"] for batch in as_dataset(batches, rank=rank, world_size=2) for sample in batch]
        for rank in range(2)
    ]
    assert sorted(shared[0] + shared[1]) == sorted(key for batch in alone for key in batch)


def test_keys_take_60_bytes_a_sample_and_pickle(tmp_path: Path) -> None:
    write(tmp_path, [{"__key__": f"n01440764/n01440764_{n}", "jpg": b"", "cls": 0} for n in range(2000)])
    table = IterableWrapper([str(tmp_path)]).list_tar_samples().key_table()
    assert table.nbytes / len(table) < 70
    assert len(np.unique(table.hashes(np.arange(2000)))) == 2000


def test_a_process_with_no_file_left_says_so(tmp_path: Path) -> None:
    write(tmp_path, samples_of(3))
    os.remove(tmp_path / "shard-000000.tar")
    for read in (streamed, by_index):
        with pytest.raises(FileNotFoundError, match="shard-000000"):
            read(tmp_path)


def test_a_shard_on_another_file_system_that_is_cut_after_its_listing_is_an_error() -> None:
    with ShardWriter("memory://cut-later/s-%06d.tar") as writer:
        for sample in samples_of(20, 2000):
            writer.write(sample)
    keys = list(IterableWrapper(["memory://cut-later"]).list_tar_samples())
    with fsspec.open("memory://cut-later/s-000000.tar", "rb") as file:
        content = file.read()
    with fsspec.open("memory://cut-later/s-000000.tar", "wb") as file:
        file.write(content[:30_000])
    with pytest.raises(OSError, match=r"^read_tar_samples: \S+s-000000\.tar is cut at offset 30000"):
        list(IterableWrapper(keys).read_tar_samples())
