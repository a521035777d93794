"""loop_read.py over a bucket, shards and a folder: every image of every epoch counted, by one process or two."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from torchrun import Torchrun

from datapipes.prepare.shard_writer import ShardWriter
from recipes.imagenette import loop_read


@pytest.fixture
def of_bucket(s3, monkeypatch) -> None:
    """The environment of somebody whose AWS settings lead to the test server."""
    for name, value in {
        "AWS_ENDPOINT_URL": s3.endpoint_url,
        "AWS_ACCESS_KEY_ID": s3.access_key,
        "AWS_SECRET_ACCESS_KEY": s3.secret_key,
        "AWS_REGION": s3.region,
    }.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def shards(samples, tmp_path) -> Path:
    """The 48 training images in shards of 20."""
    with ShardWriter(f"{tmp_path}/shards/shard-%06d.tar", maxcount=20) as writer:
        for number, path in enumerate(sorted((samples / "train").rglob("*.JPEG"))):
            writer.write({"__key__": f"{number:06d}", "jpg": path.read_bytes(), "cls": number % 4})
    return tmp_path / "shards"


def check(output: str, samples: Path, epochs: int = 3) -> None:
    """Every epoch read every image, and its bytes, as images/s and MB/s tell them."""
    found = re.findall(r"^epoch (\d): 48 images, ([\d,]+) images/s, ([\d,.]+) MB/s$", output, re.MULTILINE)
    assert [int(epoch) for epoch, _, _ in found] == list(range(epochs))
    mean_mb = sum(path.stat().st_size for path in (samples / "train").rglob("*.JPEG")) / 48 / 1e6
    for _, images, size in found:
        rate, mb = (float(text.replace(",", "")) for text in (images, size))
        assert mb == pytest.approx(rate * mean_mb, abs=0.06 + mean_mb)
    number = r"[\d,]+\.\d"
    average = rf"average of {epochs - 1} epochs: {number} \+- {number} images/s, {number} \+- {number} MB/s"
    assert re.search(average, output)


def test_a_bucket_is_read(of_bucket, samples, capsys):
    loop_read.main(["--reader=s3", "--file-root=s3://imagenet/train/", "--epochs=3", "--bs=10"])
    check(capsys.readouterr().out, samples)


@pytest.mark.parametrize("workers", [0, 2])
def test_shards_are_read(shards, samples, capsys, workers):
    loop_read.main(["--reader=tar", f"--file-root={shards}", "--epochs=3", "--bs=10", f"--workers={workers}"])
    check(capsys.readouterr().out, samples)


def test_a_folder_is_read(samples, capsys):
    loop_read.main(["--reader=file", f"--file-root={samples}/train", "--epochs=3"])
    check(capsys.readouterr().out, samples)


def test_shards_in_a_bucket_are_shared_by_two_processes(of_bucket, s3, shards, samples, tmp_path):
    client = s3.client()
    client.create_bucket(Bucket="loop-shards")
    for path in shards.iterdir():
        client.put_object(Bucket="loop-shards", Key=f"all/{path.name}", Body=path.read_bytes())
    command = ["--standalone", "--nproc_per_node=2", "loop_read.py"]
    command += ["--reader=tar", "--file-root=s3://loop-shards/all", "--epochs=3", "--bs=10"]
    reading = Torchrun(command, tmp_path / "log", folder=Path(loop_read.__file__).parent)
    assert reading.wait(120) == 0, reading.output
    check(reading.output, samples)


def test_without_a_gpu_use_gpu_says_so(shards, capsys, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(SystemExit) as end:
        loop_read.main(["--reader=tar", f"--file-root={shards}", "--use-gpu"])
    assert end.value.code == 2
    assert "--use-gpu: torch finds no GPU here; leave it out" in capsys.readouterr().err


def test_a_bucket_that_is_not_there_is_named(of_bucket):
    with pytest.raises(FileNotFoundError, match="no-such-bucket"):
        loop_read.main(["--reader=s3", "--file-root=s3://no-such-bucket/train/", "--epochs=1"])
