"""Shards on a real S3 server that answers badly for a while, and a writer to one that is killed."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest
from killed_writer import FORK, kill_at_random

from datapipes.catalog.s3_server import S3Server
from datapipes.iter import IterableWrapper
from datapipes.prepare.shard_writer import ShardWriter
from datapipes.prepare.verify_shards import verify_shards

SAMPLES = [
    {"__key__": f"n{number:03}", "jpg": random.Random(number).randbytes(20_000), "cls": number % 10}
    for number in range(120)
]


@pytest.fixture
def folder(s3: Any) -> str:
    """An address in a bucket that no other test knows."""
    bucket = f"shards-{uuid.uuid4().hex[:12]}"
    s3.client().create_bucket(Bucket=bucket)
    return f"s3://{bucket}/all"


def write(folder: str, server: S3Server) -> None:
    with ShardWriter(f"{folder}/s-%06d.tar", server=server, maxcount=40) as writer:
        for sample in SAMPLES:
            writer.write(sample)


def streamed(folder: str, server: S3Server) -> Iterable[dict[str, Any]]:
    return IterableWrapper([folder]).open_tar_shards(server=server)


def by_index(folder: str, server: S3Server) -> Iterable[dict[str, Any]]:
    keys = IterableWrapper([folder]).list_tar_samples(server=server).distribute(seed=1, block=16)
    return keys.read_tar_samples(server=server)


def contents(samples: Iterable[dict[str, Any]]) -> list[tuple[str, bytes, int]]:
    return sorted((sample["__key__"], sample["jpg"], sample["cls"]) for sample in samples)


WRITTEN = contents(SAMPLES)


@pytest.mark.parametrize("kind", ["s3", "rclone_s3"])
def test_any_server_gives_back_what_was_written_to_it(kind, request):
    s3 = request.getfixturevalue(kind)
    s3.client().create_bucket(Bucket="written-shards")
    write("s3://written-shards/all", s3.server)
    for read in (streamed, by_index):
        assert contents(read("s3://written-shards/all", s3.server)) == WRITTEN


def test_one_damaged_sample_of_a_range_costs_itself_alone(folder, s3):
    write(folder, s3.server)
    bucket, key = folder.removeprefix("s3://").split("/")[0], "all/s-000001.tar"
    whole = s3.client().get_object(Bucket=bucket, Key=key)["Body"].read()
    at = whole.index(SAMPLES[50]["jpg"]) + 100
    s3.client().put_object(Bucket=bucket, Key=key, Body=whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    with pytest.raises(ValueError, match=r"^\w+: \S+: 'n050' at offset .* not those of its index"):
        list(by_index(folder, s3.server))
    keys = IterableWrapper([folder]).list_tar_samples(server=s3.server)
    left = contents(keys.read_tar_samples(server=s3.server, on_error="skip"))
    assert left == [sample for sample in WRITTEN if sample[0] != "n050"]


@pytest.mark.parametrize("only", ["HEAD ", "range: bytes="])
@pytest.mark.parametrize("read", [streamed, by_index])
def test_a_store_that_refuses_cuts_and_resets_for_a_while_loses_nothing(read, only, folder, s3, fault_proxy):
    write(folder, s3.server)
    proxy = fault_proxy(s3.endpoint_url)
    proxy.only = only
    proxy.answer(503, times=3)
    proxy.cut(100, times=2)
    proxy.reset(100_000 if "range" in only else 50, times=2)
    assert contents(read(folder, s3.server_at(proxy.endpoint_url))) == WRITTEN


def test_a_shard_that_is_gone_and_a_store_that_stays_down_are_named(folder, s3, fault_proxy):
    write(folder, s3.server)
    missing = folder.replace("/all", "/none") + "/s-000000.tar"
    with pytest.raises(FileNotFoundError, match=f"^open_tar_shards: {missing}.* not found"):
        list(IterableWrapper([missing]).open_tar_shards(server=s3.server))
    proxy = fault_proxy(s3.endpoint_url)
    proxy.answer(503, times=1000)
    with pytest.raises(ConnectionError, match=r"^open_tar_shards: s3://.*503.*\(7 attempts\)"):
        list(IterableWrapper([f"{folder}/s-000000.tar"]).open_tar_shards(server=s3.server_at(proxy.endpoint_url)))


def write_slowly(folder: str, server: S3Server, kept: Any) -> None:
    with ShardWriter(f"{folder}/s-%06d.tar", server=server, maxcount=10, resume=True) as writer:
        kept.value = writer.samples_kept
        for sample in SAMPLES[writer.samples_kept :]:
            writer.write(sample)
            # The killed runs have 0.8 s in all, less than it takes to write everything.
            time.sleep(0.008)


def test_a_writer_to_s3_killed_anywhere_leaves_nothing_to_read_and_the_next_run_goes_on(folder, s3):
    seen = []
    for kept in kill_at_random(partial(write_slowly, folder, s3.server), runs=4, within_s=0.4):
        seen.append(kept)
        for read in (streamed, by_index):
            with pytest.raises((ValueError, FileNotFoundError), match=r"not finished|no shards"):
                list(read(folder, s3.server))
    assert seen == sorted(seen) and 0 < seen[-1] < len(SAMPLES)
    write_slowly(folder, s3.server, FORK.Value("i"))
    assert contents(streamed(folder, s3.server)) == contents(by_index(folder, s3.server)) == WRITTEN
    assert not any(verdict.faults for verdict in verify_shards(folder, server=s3.server))
