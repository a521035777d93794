"""Training from every store: short runs, each of which ends with the proof that each sample was seen once."""

from __future__ import annotations

import os
import runpy
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from torchrun import Torchrun

from datapipes.catalog.row_file import RowFile, load_row_file, save_row_file
from datapipes.catalog.row_source import RowSource
from datapipes.iter import IterableWrapper
from datapipes.load.cassandra_session import cassandra_session
from datapipes.prepare.cassandra_ingest import Ingest, write_images
from datapipes.prepare.class_folders import classes_in, list_images
from datapipes.prepare.make_split import make_split, split_listing
from datapipes.prepare.metadata import read_metadata
from datapipes.prepare.shard_writer import ShardWriter
from recipes import distrib_train_from_file, distrib_train_from_s3, distrib_train_from_shards
from recipes.checkpoint import load_checkpoint
from recipes.data_source import store_of
from recipes.imagenette import distrib_train_from_cassandra
from recipes.local_process import free_port

RECIPES = Path(distrib_train_from_file.__file__).parent
SEED_OPTIONS = "-a resnet50 --dali_cpu --b 128 --loss-scale 128.0 --workers 4 --lr=0.4 --opt-level O2"
# The last of an option given twice counts: the seeds' lines, small enough for a CPU.
SMALL = "-a resnet10 --image-size 32 --b 8 --workers 0 --epochs 1 --no-accel -p 100"
TRAINED = "epoch 0: 48 samples expected, each seen once, 0 skipped"
VALIDATED = "(12 images)"

Train = Callable[..., str]


@pytest.fixture
def train(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Train:
    """Train in this process with a recipe's `main`; what it printed."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)

    def train(recipe, *options: object) -> str:
        words = [*map(str, options), *shlex.split(SEED_OPTIONS), *SMALL.split(), "--output-dir", str(tmp_path / "run")]
        recipe.main(words)
        return capsys.readouterr().out

    return train


@pytest.fixture(scope="module")
def shards(samples, tmp_path_factory) -> Path:
    """The sample images in shards, train/ and val/, each with a manifest that names the classes."""
    folder = tmp_path_factory.mktemp("shards")
    for split in ("train", "val"):
        paths = sorted((samples / split).rglob("*.JPEG"))
        classes = sorted({path.parent.name for path in paths})
        with ShardWriter(f"{folder}/{split}/shard-%06d.tar", maxcount=10, classes=classes) as writer:
            for path in paths:
                sample = {"jpg": path.read_bytes(), "cls": classes.index(path.parent.name)}
                writer.write({"__key__": f"{path.parent.name}/{path.stem}", **sample})
    return folder


@pytest.fixture(scope="module")
def table(cassandra, samples, tmp_path_factory) -> Iterator[Path]:
    """Tables of the sample images; a folder with train.rows, val.rows and split.pckl (20 % and 80 %)."""
    folder = tmp_path_factory.mktemp("rows")
    patch = pytest.MonkeyPatch()
    patch.setenv("CASSANDRA_HOSTS", cassandra.hosts[0])
    patch.setenv("CASSANDRA_PORT", str(cassandra.port))
    replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    with cassandra_session(cassandra.server, "test") as session:
        session.execute(f"CREATE KEYSPACE training WITH replication = {replication}", timeout=60)
        for split in ("train", "val"):
            columns = "patch_id uuid PRIMARY KEY, label int"
            session.execute(f"CREATE TABLE training.data_{split} ({columns}, data blob)", timeout=60)
            session.execute(
                f"CREATE TABLE training.metadata_{split} ({columns}, or_label text, or_split text)", timeout=60
            )
            source = RowSource(f"training.data_{split}", "patch_id", metadata_table=f"training.metadata_{split}")
            assert source.metadata_table is not None
            ingest = Ingest(samples, source.table, source.metadata_table, classes_in(samples, split), split)
            write_images(list_images(samples, split), ingest, cassandra.server)
            metadata = read_metadata(cassandra.server, source)
            save_row_file(str(folder / f"{split}.rows"), RowFile(metadata.keys, source))
            if split == "train":
                made = make_split(metadata.keys, metadata.labels, ratio=(2, 8), source=source)
                save_row_file(str(folder / "split.pckl"), made)
        yield folder
        session.execute("DROP KEYSPACE training", timeout=60)
    patch.undo()


def test_row_files_of_cassandra_train_and_the_metadata_tells_the_classes(train, table, tmp_path):
    output = train(
        distrib_train_from_cassandra,
        "--train-data-table=training.data_train", f"--train-rows-fn={table}/train.rows",
        "--val-data-table=training.data_val", f"--val-rows-fn={table}/val.rows",
    )  # fmt: skip
    assert TRAINED in output and VALIDATED in output
    assert load_checkpoint(tmp_path / "run")["num_classes"] == 4


def test_a_split_file_trains_with_swapped_indexes(train, table):
    splits = load_row_file(str(table / "split.pckl")).splits
    assert [len(split) for split in splits] == [10, 38]
    output = train(
        distrib_train_from_cassandra, f"--split-fn={table}/split.pckl", "--train-index=1", "--val-index", "0"
    )
    assert "epoch 0: 32 samples expected, each seen once, 0 skipped, 6 left out at the end" in output
    assert "(10 images)" in output
    # The same file as --data of any other recipe, and by default the first split is for training.
    output = train(distrib_train_from_file, "--data", table / "split.pckl")
    assert "10 images of 4 classes to train and 38 to validate" in output and "(38 images)" in output


def test_cassandra_trains_under_torchrun_from_the_tutorials_folder(table, tmp_path):
    command = ["--standalone", "--nproc_per_node=2", "distrib_train_from_cassandra.py"]
    command += ["--split-fn", str(table / "split.pckl"), "--train-index=1", "--val-index=0"]
    command += [*SEED_OPTIONS.split(), *SMALL.split(), "--workers=1", "--b=2", "--output-dir", str(tmp_path / "run")]
    training = Torchrun(command, tmp_path / "log", folder=RECIPES / "imagenette")
    assert training.wait(120) == 0, training.output
    assert "resnet10 on 2 x CPU" in training.output and "(10 images)" in training.output


@pytest.mark.parametrize("recipe", [distrib_train_from_shards, distrib_train_from_s3])
def test_shards_train_and_the_manifest_tells_the_classes(recipe, train, shards, tmp_path):
    output = train(recipe, "--data", shards)
    assert TRAINED in output and VALIDATED in output
    assert load_checkpoint(tmp_path / "run")["num_classes"] == 4


def test_a_split_file_of_shards_trains(train, shards, tmp_path):
    listing = IterableWrapper([str(shards / "train")]).list_tar_samples()
    save_row_file(f"{tmp_path}/split.npz", split_listing(listing, ratio=(3, 1)))
    output = train(distrib_train_from_shards, f"{tmp_path}/split.npz")
    assert "36 images of 4 classes to train and 12 to validate" in output and VALIDATED in output


def test_shards_whose_classes_differ_are_refused(train, samples, shards, tmp_path):
    with ShardWriter(f"{tmp_path}/val/shard-%06d.tar", classes=["cat", "dog"]) as writer:
        image = next((samples / "val").rglob("*.JPEG")).read_bytes()
        writer.write({"__key__": "1", "jpg": image, "cls": 0})
    with pytest.raises(ValueError, match=r"train has ClassMap\(4 classes.*but val ClassMap\(2"):
        train(distrib_train_from_shards, shards / "train", tmp_path / "val")


def test_a_service_trains(train, service):
    output = train(distrib_train_from_file, f"--data={service.url}/datasets/imagenet")
    assert TRAINED in output and VALIDATED in output


def test_a_bucket_trains_by_any_recipe_and_by_a_split_file(train, s3, monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret_key)
    output = train(distrib_train_from_file, "--data=s3://imagenet", "--endpoint-url", s3.endpoint_url)
    assert TRAINED in output and VALIDATED in output
    keys = list(IterableWrapper(["s3://imagenet/train/"]).list_files_by_s3(server=s3.server))
    save_row_file(f"{tmp_path}/split.npz", split_listing(keys, ratio=(3, 1)))
    output = train(distrib_train_from_s3, f"{tmp_path}/split.npz", "--endpoint-url", s3.endpoint_url)
    assert "36 images of 4 classes to train and 12 to validate" in output and VALIDATED in output


def test_shards_of_a_bucket_train_and_what_was_read_stays_on_the_local_disk(train, s3, shards, monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret_key)
    s3.client().create_bucket(Bucket="shards-to-train-on")
    for path in shards.rglob("*.*"):
        s3.client().upload_file(str(path), "shards-to-train-on", str(path.relative_to(shards)))
    remote = ["--data=s3://shards-to-train-on", "--endpoint-url", s3.endpoint_url, "--cache-dir", f"{tmp_path}/cache"]
    output = train(distrib_train_from_shards, *remote)
    assert TRAINED in output and VALIDATED in output
    cached = sum(path.stat().st_size for path in (tmp_path / "cache").rglob("*") if path.is_file())
    assert cached > sum(path.stat().st_size for path in shards.rglob("*.tar"))


def test_the_file_recipe_runs_from_the_tutorials_folder(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["distrib_train_from_file.py", "--help"])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(RECIPES / "imagenette" / "distrib_train_from_file.py"), run_name="__main__")
    assert end.value.code == 0 and "--dali_cpu" in capsys.readouterr().out


@pytest.mark.parametrize("indexes", ["", "--train-index 1 --val-index 0"])
def test_the_split_file_lines_parse(indexes):
    args = distrib_train_from_cassandra.parse(f"--split-fn prova_split.pckl {indexes} {SEED_OPTIONS}".split())
    assert args.splits == {"train": "prova_split.pckl", "val": "prova_split.pckl"}
    assert (args.train_index, args.val_index) == ((1, 0) if indexes else (0, 1))
    assert (args.arch, args.batch_size, args.lr, args.loss_scale, args.opt_level) == ("resnet50", 128, 0.4, 128.0, "O2")


@pytest.mark.parametrize(
    "line", ["", "--train-rows-fn train.rows", "--split-fn a.pckl --train-index 1", "--split-fn a.pckl --val-index -1"]
)
def test_rows_that_cannot_be_meant_are_refused(line, capsys):
    with pytest.raises(SystemExit):
        distrib_train_from_cassandra.parse(line.split())
    assert "error: " in capsys.readouterr().err


def test_data_is_told_apart_by_where_and_what_it_is(samples, shards):
    args = distrib_train_from_file.parse([str(samples)])
    for location, store in {
        str(samples / "train"): "files",
        str(shards / "train"): "shards",
        "gs://bucket/imagenet/train": "files",
        "s3://bucket/shards/train-000000.tar": "shards",
        "http://host:8080/datasets/imagenet/train": "service",
        "https://host/data/dataset/imagenet": "service",
        "s3://bucket/splits.npz": "rows",
    }.items():
        assert store_of(location, args) == store, location


def test_the_slurm_job_trains_on_one_node(samples, tmp_path):
    tools = tmp_path / "bin"
    tools.mkdir()
    # What these two do on a cluster of one node.
    (tools / "srun").write_text('#!/bin/bash\n[ "$1" = --kill-on-bad-exit=1 ] && shift\nexec "$@"\n')
    (tools / "scontrol").write_text('#!/bin/bash\n[ "$*" = "show hostnames 127.0.0.1" ] && echo 127.0.0.1\n')
    for tool in tools.iterdir():
        tool.chmod(0o755)
    environment = {
        "PATH": os.pathsep.join([str(tools), str(Path(sys.executable).parent), os.environ["PATH"]]),
        "SLURM_SUBMIT_DIR": str(RECIPES.parent),
        "SLURM_JOB_NODELIST": "127.0.0.1",
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_JOB_ID": str(free_port() - 20000 + 10000),
        "SLURM_GPUS_ON_NODE": "1",
    }
    # The scheduler runs a copy of the script, from a folder of its own.
    copy = tmp_path / "slurm_script"
    copy.write_bytes((RECIPES / "slurm" / "train.sbatch").read_bytes())
    command = ["bash", str(copy), "recipes/distrib_train_from_file.py", str(samples), *SMALL.split()]
    ended = subprocess.run(
        [*command, "--output-dir", str(tmp_path / "run")], env=environment, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    assert TRAINED in ended.stdout and VALIDATED in ended.stdout
    assert load_checkpoint(tmp_path / "run")["job"] == f"slurm-{environment['SLURM_JOB_ID']}"
