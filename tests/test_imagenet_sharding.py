"""recipes/imagenet_sharding.py: every kind of source, one seeded order, limits that hold, runs that go on."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from imagenet_archives import SORTED_WNIDS, WNIDS, ImageNet, make_imagenet, pack
from PIL import Image
from scipy.io import loadmat
from webdataset.tariterators import group_by_keys, tar_file_expander

from datapipes.catalog.class_map import ClassMap
from datapipes.catalog.manifest import Manifest
from datapipes.catalog.tar_format import TarDamage
from datapipes.iter import IterableWrapper
from datapipes.order.permutation import permute
from datapipes.prepare.imagenet_source import index_images
from datapipes.prepare.resize_image import Resize
from datapipes.prepare.shard_images import shard_images
from datapipes.prepare.shard_plan import shard_ends
from datapipes.prepare.verify_shards import verify_shards
from recipes.imagenet_sharding import main, parse_options

RECIPE = Path(__file__).parent.parent / "recipes" / "imagenet_sharding.py"


@pytest.fixture(scope="module")
def imagenet(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> ImageNet:
    return make_imagenet(samples, tmp_path_factory.mktemp("imagenet"))


@pytest.fixture(scope="module")
def reference(imagenet: ImageNet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The training set in shards of 7, by one process that nobody disturbed."""
    folder = tmp_path_factory.mktemp("reference")
    main(["-d", str(imagenet.train_tar), "-o", str(folder), "-x", "7"])
    return folder


def samples_of(folder: Path) -> list[dict[str, Any]]:
    return list(IterableWrapper([str(folder)]).open_tar_shards(interleave=1))


def images_of(folder: Path) -> dict[str, bytes]:
    samples = samples_of(folder)
    images = {sample["__key__"]: sample["jpg"] for sample in samples}
    assert len(images) == len(samples)
    return images


def files_of(folder: Path, suffix: str = ".tar") -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name.endswith(suffix)}


def manifest_of(folder: Path) -> Manifest:
    return Manifest.load((folder / "manifest.json").read_bytes(), name="manifest.json")


def test_every_image_of_a_tar_of_tars_comes_once_with_its_bytes_and_torchvisions_label(imagenet, reference):
    assert images_of(reference) == imagenet.train
    assert all(SORTED_WNIDS[sample["cls"]] == sample["__key__"][:9] for sample in samples_of(reference))
    assert manifest_of(reference).classes == SORTED_WNIDS
    assert [verdict.faults for verdict in verify_shards(str(reference))] == [[]] * 7


def test_webdataset_and_tarfile_read_the_shards(imagenet, reference):
    shards = [str(path) for path in sorted(reference.glob("*.tar"))]
    images, names = {}, []
    for shard in shards:
        with open(shard, "rb") as stream:
            for sample in group_by_keys(tar_file_expander([{"stream": stream, "url": shard}])):
                images[sample["__key__"]] = sample["jpg"]
        with tarfile.open(shard) as archive:
            names += archive.getnames()
    assert images == imagenet.train
    assert sorted(names) == sorted(f"{key}.{field}" for key in imagenet.train for field in ("cls", "jpg"))


def test_one_order_shuffles_the_whole_data_set_and_the_seed_decides(imagenet, reference, tmp_path):
    labels = [sample["cls"] for sample in samples_of(reference)]
    assert labels != sorted(labels)
    assert len(set(labels[:12])) > 2  # the archive's first twelve are of one class
    main(["-d", str(imagenet.train_tar), "-o", str(tmp_path), "-x", "7", "--seed", "2"])
    assert [sample["cls"] for sample in samples_of(tmp_path)] != labels
    assert images_of(tmp_path) == imagenet.train


def test_three_workers_write_the_same_bytes_as_one(imagenet, reference, tmp_path):
    main(["-d", str(imagenet.train_tar), "-o", str(tmp_path), "-x", "7", "--workers", "3"])
    assert files_of(tmp_path, "") == files_of(reference, "")


@pytest.mark.parametrize("kind", ["folder", "gz", "gz in memory", "standard input"])
def test_the_same_bytes_whatever_the_source_is_packed_in(kind, imagenet, reference, tmp_path):
    source = imagenet.train_folder if kind == "folder" else imagenet.train_tar_gz
    options = ["-d", str(source), "-o", str(tmp_path), "-x", "7", *(["-y"] if "memory" in kind else [])]
    if kind == "standard input":
        command = [sys.executable, str(RECIPE), "-d", "-", "-o", str(tmp_path), "-x", "7"]
        with open(imagenet.train_tar, "rb") as stdin:
            subprocess.run(command, stdin=stdin, check=True, capture_output=True)
    else:
        main(options)
    assert files_of(tmp_path) == files_of(reference)


@given(
    st.lists(st.integers(1, 40), max_size=60),
    st.integers(1, 20),
    st.integers(42, 200),
)
def test_planned_shards_are_filled_one_by_one_up_to_their_limits(blocks, maxcount, max_blocks):
    sizes = [512 * count for count in blocks]
    ends = shard_ends(np.array(sizes, np.int64), maxcount=maxcount, maxsize=512 * max_blocks)
    filled: list[list[int]] = []
    for size in sizes:
        if not filled or len(filled[-1]) == maxcount or sum(filled[-1]) + size + 1024 > 512 * max_blocks:
            filled.append([])
        filled[-1].append(size)
    assert ends == np.cumsum([len(shard) for shard in filled], dtype=int).tolist()


def test_no_shard_is_larger_than_asked_and_none_could_take_the_next_sample(imagenet, tmp_path):
    main(["-d", str(imagenet.train_tar), "-o", str(tmp_path), "-s", "60_000"])
    sizes = [path.stat().st_size for path in sorted(tmp_path.glob("*.tar"))]
    assert len(sizes) > 5 and max(sizes) <= 60_000
    with tarfile.open(tmp_path / "Dataset-000001.tar") as archive:
        first = [member.size for member in archive][:2]
    assert sizes[0] + sum(512 + -(-size // 512) * 512 for size in first) > 60_000
    with pytest.raises(ValueError, match=r"n\d+_\d+\.JPEG needs a shard of \d+ bytes, and maxsize is 4000; raise"):
        main(["-d", str(imagenet.train_tar), "-o", str(tmp_path / "small"), "-s", "4000"])


def test_a_run_killed_midway_leaves_nothing_to_read_and_the_next_goes_on(imagenet, tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    options = ["-d", str(imagenet.train_tar), "-x", "1"]
    main([*options, "-o", str(whole)])
    command = [sys.executable, str(RECIPE), *options, "-o", str(cut), "--workers", "2"]
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while len(noted(cut)) < 3:
        assert run.poll() is None
        time.sleep(0.002)
    workers = psutil.Process(run.pid).children(recursive=True)
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    # No worker goes on without the process that gave it work.
    psutil.wait_procs(workers, timeout=20)
    assert not [worker for worker in workers if worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE]
    assert 3 <= len(noted(cut)) < 48
    with pytest.raises(ValueError, match="is not finished"):
        samples_of(cut)

    kept = {name: (cut / name).stat().st_mtime_ns for name in noted(cut)}
    main([*options, "-o", str(cut)])
    assert files_of(cut, "") == files_of(whole, "")
    assert {name: (cut / name).stat().st_mtime_ns for name in kept} == kept


def noted(folder: Path) -> list[str]:
    try:
        return [shard["name"] for shard in json.loads((folder / "unfinished.json").read_bytes())["shards"]]
    except FileNotFoundError:
        return []


def test_a_finished_data_set_is_left_alone_and_another_only_replaces_it_when_asked(imagenet, tmp_path):
    options = ["-d", str(imagenet.train_tar), "-o", str(tmp_path)]
    main([*options, "-x", "5"])
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    main([*options, "-x", "5"])
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
    with pytest.raises(FileExistsError, match="holds a data set"):
        main([*options, "-x", "9"])
    main([*options, "-x", "9", "--replace"])
    assert len(list(tmp_path.glob("*.tar"))) == 6
    assert images_of(tmp_path) == imagenet.train


@pytest.mark.parametrize("source", ["val_tar", "val_folder"])
@pytest.mark.parametrize("metadata", [["devkit"], ["meta", "truth"]], ids=["devkit", "meta.mat and ground truth"])
def test_validation_images_get_the_class_that_the_ground_truth_says(source, metadata, imagenet, tmp_path):
    files = [str(getattr(imagenet, name)) for name in metadata]
    main(["-d", str(getattr(imagenet, source)), "-o", str(tmp_path), "-m", *files, "-n", "val"])
    assert images_of(tmp_path) == imagenet.val
    assert all(SORTED_WNIDS[sample["cls"]] == sample["__key__"][:9] for sample in samples_of(tmp_path))
    assert [path.name for path in tmp_path.glob("*.tar")] == ["val-000000.tar"]


def test_labels_in_the_devkits_order_when_asked(imagenet, tmp_path):
    order = ["--classOrder", "devkit", "-m", str(imagenet.devkit)]
    main(["-d", str(imagenet.train_tar), "-o", str(tmp_path), *order])
    assert manifest_of(tmp_path).classes == WNIDS
    assert all(WNIDS[sample["cls"]] == sample["__key__"][:9] for sample in samples_of(tmp_path))


def test_a_ground_truth_of_bare_ids_serves_in_its_own_order_only(imagenet, tmp_path):
    options = ["-d", str(imagenet.val_tar), "-o", str(tmp_path), "-m", str(imagenet.truth)]
    with pytest.raises(
        ValueError, match=r"order is not that of sorted WNIDs; give the development kit's meta\.mat too"
    ):
        main(options)
    main([*options, "--classOrder", "devkit"])
    ids = [int(line) for line in imagenet.truth.read_text().split()]
    labels = {sample["__key__"]: sample["cls"] for sample in samples_of(tmp_path)}
    assert labels == {f"ILSVRC2012_val_{number:08}": known - 1 for number, known in enumerate(ids, 1)}


def test_a_class_map_of_ones_own_decides_labels(imagenet, tmp_path):
    labels = tmp_path / "classes.json"
    labels.write_text(json.dumps({wnid: label for label, wnid in enumerate(["n00000001", *WNIDS])}))
    main(["-d", str(imagenet.train_tar), "-o", str(tmp_path / "shards"), "-m", str(labels)])
    assert {sample["cls"] for sample in samples_of(tmp_path / "shards")} == {1, 2, 3, 4}
    labels.write_text(json.dumps(WNIDS[:3]))
    with pytest.raises(ValueError, match=rf"class '{WNIDS[3]}' is not in the class map of 3 classes"):
        main(["-d", str(imagenet.train_tar), "-o", str(tmp_path / "short"), "-m", str(labels)])


def test_the_test_meta_is_what_torchvision_reads(imagenet):
    # torchvision.datasets.imagenet.parse_devkit_archive, its steps.
    synsets = loadmat(imagenet.meta, squeeze_me=True)["synsets"]
    children = list(zip(*synsets))[4]
    leaves = [synsets[place] for place, count in enumerate(children) if count == 0]
    ids, wnids = list(zip(*leaves))[:2]
    assert dict(zip(ids, wnids)) == dict(enumerate(WNIDS, 1))


def test_a_pattern_chooses_images_and_names_their_class(imagenet, tmp_path, capsys):
    pattern = r"(n0144\d+)_\d+\.JPEG$"
    main(["-d", str(imagenet.train_tar), "-o", str(tmp_path), "-r", pattern, "--dataType", "img"])
    samples = samples_of(tmp_path)
    assert {sample["__key__"][:9] for sample in samples} == {"n01440764", "n01443537"}
    assert all(sample["img"] == imagenet.train[sample["__key__"]] for sample in samples)
    assert "passed over: 24 files" in capsys.readouterr().out
    with pytest.raises(ValueError, match="filePattern needs a group for the class"):
        main(["-d", str(imagenet.train_tar), "-o", str(tmp_path / "other"), "-r", "n01.*"])


def test_images_that_nobody_says_the_class_of_are_an_error(imagenet, tmp_path):
    with pytest.raises(
        ValueError, match=r"ILSVRC2012_val_00000001\.JPEG lies in no class's directory; give its ground"
    ):
        main(["-d", str(imagenet.val_tar), "-o", str(tmp_path)])
    (imagenet.val_folder.parent / "short.txt").write_text("1\n")
    with pytest.raises(ValueError, match="has no line in the ground truth, which has 1"):
        files = [str(imagenet.val_folder.parent / "short.txt"), str(imagenet.meta)]
        main(["-d", str(imagenet.val_tar), "-o", str(tmp_path), "-m", *files])
    assert not list(tmp_path.iterdir())


def test_two_images_with_one_key_are_an_error(imagenet, tmp_path):
    for split in ("a", "b"):
        (tmp_path / split / "cat").mkdir(parents=True)
        (tmp_path / split / "cat" / "1.jpg").write_bytes(b"image")
    with pytest.raises(ValueError, match=r"a/cat/1\.jpg and b/cat/1\.jpg would have the same key"):
        main(["-d", str(tmp_path), "-o", str(tmp_path / "shards")])


def test_damage_in_a_class_tar_is_named_and_leaves_no_data_set(imagenet, tmp_path):
    whole = imagenet.train_tar.read_bytes()
    damaged = bytearray(whole)
    header = whole.index(b"n01440764_0.JPEG")
    damaged[header + 3] ^= 1
    (tmp_path / "damaged.tar").write_bytes(damaged)
    with pytest.raises(TarDamage, match=rf"damaged\.tar/n01440764\.tar: damaged header at offset {header}"):
        main(["-d", str(tmp_path / "damaged.tar"), "-o", str(tmp_path / "shards")])
    (tmp_path / "cut.tar").write_bytes(whole[: len(whole) // 2 // 512 * 512])
    with pytest.raises(TarDamage, match=r"cut\.tar.*: cut at offset"):
        main(["-d", str(tmp_path / "cut.tar"), "-o", str(tmp_path / "shards")])
    (tmp_path / "cut.tar.gz").write_bytes(imagenet.train_tar_gz.read_bytes()[:-100])
    with pytest.raises(TarDamage, match=r"cut\.tar\.gz: damaged gzip stream"):
        main(["-d", str(tmp_path / "cut.tar.gz"), "-o", str(tmp_path / "shards")])
    assert not (tmp_path / "shards").exists()


def test_resized_images_have_their_short_side_and_keep_to_the_limits(imagenet, tmp_path):
    options = ["-p", "--shortSide", "36", "--quality", "80", "-s", "10_000"]
    main(["-d", str(imagenet.train_tar), "-o", str(tmp_path), *options])
    images = images_of(tmp_path)
    assert images.keys() == imagenet.train.keys()
    assert {Image.open(io.BytesIO(content)).size for content in images.values()} == {(48, 36)}
    assert max(path.stat().st_size for path in tmp_path.glob("*.tar")) <= 10_000


def test_resized_images_that_do_not_fit_where_they_were_planned_go_to_the_end(imagenet, tmp_path):
    # Bitmaps shrink to a quarter and JPEGs not at all, so that what all shrink by on average fits no shard.
    for number, content in enumerate(imagenet.train.values()):
        path = tmp_path / "source" / f"n{number % 2:08}" / f"n{number % 2:08}_{number}.JPEG"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        if number % 2:
            Image.open(path).save(path.with_suffix(".bmp"))
            path.unlink()
    options = ["-d", str(tmp_path / "source"), "-s", "30_000", "-p", "--shortSide", "72"]
    main([*options, "-o", str(tmp_path / "one")])
    main([*options, "-o", str(tmp_path / "two"), "--workers", "2"])
    assert files_of(tmp_path / "one", "") == files_of(tmp_path / "two", "")
    assert len(images_of(tmp_path / "one")) == 48
    shards = manifest_of(tmp_path / "one").shards
    assert max(shard.nbytes for shard in shards) <= 30_000
    index = index_images(str(tmp_path / "source"), class_of=lambda name: None)
    keys = [sample["__key__"] for sample in samples_of(tmp_path / "one")]
    order = [index.name(i).partition(".")[0] for i in permute(np.arange(48), 48, seed=1)]
    assert sorted(keys) == sorted(order)
    assert keys != order


@pytest.mark.parametrize("mode", ["L", "CMYK", "RGBA", "P"])
def test_resizing_makes_rgb_of_every_kind_of_image(mode):
    file = io.BytesIO()
    Image.new("RGB", (40, 30), "orange").convert(mode).save(file, "PNG" if mode in ("RGBA", "P") else "JPEG")
    for short_side in (10, 30, 100):
        with Image.open(io.BytesIO(Resize(short_side=short_side)(file.getvalue()))) as image:
            assert (image.format, image.mode, min(image.size)) == ("JPEG", "RGB", min(short_side, 30))


def test_an_image_that_cannot_be_resized_is_named(imagenet, tmp_path):
    (tmp_path / "source" / "cat").mkdir(parents=True)
    whole = next(iter(imagenet.train.values()))
    (tmp_path / "source" / "cat" / "1.jpg").write_bytes(whole)
    (tmp_path / "source" / "cat" / "2.jpg").write_bytes(whole[:900])
    with pytest.raises(ValueError, match=r"cat/2\.jpg is no whole image"):
        main(["-d", str(tmp_path / "source"), "-o", str(tmp_path / "shards"), "-p"])


def test_shards_go_to_a_bucket_as_well(imagenet, s3):
    s3.client().create_bucket(Bucket="sharded")
    index = index_images(str(imagenet.train_tar), class_of=lambda name: None)
    manifest = shard_images(
        index, "s3://sharded/train", classes=ClassMap(SORTED_WNIDS), maxcount=24, workers=2, server=s3.server
    )
    assert [shard.samples for shard in manifest.shards] == [24, 24]
    pipe = IterableWrapper(["s3://sharded/train/"]).open_tar_shards(server=s3.server)
    assert {sample["__key__"]: sample["jpg"] for sample in pipe} == imagenet.train


def test_configurations_come_first_to_last_and_the_command_line_wins(tmp_path):
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    first.write_text('{"dataSource": "a.tar", "maxcount": 10, "seed": 5, "metaDataFile": ["meta.mat", "truth.txt"]}')
    second.write_text('{"maxcount": 20, "targetFolder": "shards", "preprocess": true, "inmemory": false}')
    args = parse_options(["-c", str(first), "--conf", str(second), "-e", "6"])
    assert (args.dataSource, args.targetFolder, args.maxcount, args.seed) == ("a.tar", "shards", 20, 6)
    assert (args.preprocess, args.inmemory, args.metaDataFile) == (True, False, ["meta.mat", "truth.txt"])
    assert parse_options(["-c", str(first), "-o", "x", "-m", "kit.tar"]).metaDataFile == ["kit.tar"]
    assert not parse_options(["-c", str(first), "-c", str(second), "--no-preprocess"]).preprocess


@pytest.mark.parametrize(
    ("content", "message"),
    [('{"maxCount": 1}', "no option 'maxCount'"), ('{"maxcount": "many"}', "invalid int"), ("[1]", "JSON object")],
)
def test_a_configuration_that_says_nothing_known_is_an_error(content, message, tmp_path, capsys):
    (tmp_path / "c.json").write_text(content)
    with pytest.raises(SystemExit, match="2"):
        parse_options(["-c", str(tmp_path / "c.json"), "-d", "a.tar", "-o", "b"])
    assert message in capsys.readouterr().err


def test_help_names_every_option(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    shown = capsys.readouterr().out
    options = "-c -d -o -m -r -n -x -s -y -g -p -e --conf --dataSource --targetFolder --metaDataFile --filePattern"
    options += " --datasetName --maxcount --maxsize --inmemory --groundTruthBaseName --preprocess --seed --dataType"
    assert [option for option in options.split() if option not in shown] == []


def test_a_flat_archive_beside_others_that_hold_no_images_is_read_alone(imagenet, tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    (folder / "n01440764_1.JPEG").write_bytes(b"image")
    (folder / "LICENSE").write_text("none")
    pack(folder, tmp_path / "flat.tar")
    index = index_images(str(tmp_path / "flat.tar"), class_of=lambda name: None)
    assert (index.class_names, index.passed_over) == (["n01440764"], 1)


def test_the_slurm_job_shards_with_a_process_a_core(imagenet, reference, tmp_path):
    script = RECIPE.parent / "slurm" / "shard_imagenet.sbatch"
    environment = {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "SLURM_SUBMIT_DIR": str(RECIPE.parent.parent),
        "SLURM_CPUS_PER_TASK": "2",
    }
    # The scheduler runs a copy of the script, from a folder of its own.
    copy = tmp_path / "slurm_script"
    copy.write_bytes(script.read_bytes())
    command = ["bash", copy, "-d", imagenet.train_tar, "-o", tmp_path / "shards", "-x", "7"]
    ended = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert files_of(tmp_path / "shards") == files_of(reference)
