"""Images into a real Cassandra: every one once, whatever was killed on the way, and only what fits."""

from __future__ import annotations

import io
import random
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from cassandra_tables import keyspace
from PIL import Image

from datapipes.catalog.class_map import ClassMap
from datapipes.catalog.key_archive import all_keys
from datapipes.catalog.keys import UuidKeys
from datapipes.catalog.row_file import load_row_file
from datapipes.catalog.row_source import RowSource
from datapipes.iter import IterableWrapper
from datapipes.load.cassandra_session import cassandra_session
from datapipes.prepare.cassandra_ingest import Ingest, missing_images, verify_counts, write_images
from datapipes.prepare.class_folders import classes_in, image_bytes, list_images
from datapipes.prepare.make_split import make_split
from datapipes.prepare.metadata import load_metadata, read_metadata, save_metadata
from recipes.imagenette import cache_uuids, create_split

RECIPES = Path(__file__).parent.parent / "recipes" / "imagenette"


@pytest.fixture
def tables(cassandra):
    """Empty tables of data (classes, masks, no labels) and metadata in a keyspace of their own."""
    with keyspace(cassandra.server) as (name, session):
        for table, label in {"data_train": "label int,", "data_masked": "label blob,", "data_bare": ""}.items():
            session.execute(f"CREATE TABLE {name}.{table} (id uuid PRIMARY KEY, {label} data blob)", timeout=60)
        columns = "id uuid PRIMARY KEY, label int, or_label text, or_split text"
        session.execute(f"CREATE TABLE {name}.metadata_train ({columns})", timeout=60)
        yield name


def ingest_of(samples, tables, **changes):
    made = Ingest(
        str(samples), f"{tables}.data_train", f"{tables}.metadata_train", classes_in(samples, "train"), "train"
    )
    return replace(made, **changes)


def source_of(ingest, label_type="int"):
    return RowSource(ingest.data_table, metadata_table=ingest.metadata_table, label_type=label_type)


def test_every_file_is_a_row_with_its_bytes_and_class(cassandra, samples, tables):
    ingest, images = ingest_of(samples, tables), list(list_images(samples, "train"))
    reported = []
    assert write_images(images, ingest, cassandra.server, on_written=reported.append) == len(images) == sum(reported)
    assert verify_counts(images, ingest, cassandra.server) == Counter(image.class_name for image in images)
    keys = [ingest.key_of(image) for image in images]
    found = list(IterableWrapper(keys).read_cassandra(server=cassandra.server, table=ingest.data_table))
    for image, sample in zip(images, found, strict=True):
        assert sample["jpg"] == (samples / image.path).read_bytes()
        assert ingest.classes.names[sample["cls"]] == image.class_name
    assert missing_images(images, ingest, cassandra.server) == []


def test_masks_are_labels_and_tables_may_have_none(cassandra, samples, tables, tmp_path):
    images = list(list_images(samples, "train"))[:5]
    for image in images:
        path = (tmp_path / image.path).with_suffix(".png")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4), len(image.path)).save(path)
    masked = ingest_of(samples, tables, data_table=f"{tables}.data_masked", masks=str(tmp_path))
    bare = ingest_of(samples, tables, data_table=f"{tables}.data_bare", masks="")
    for ingest, label_type in ((masked, "image"), (bare, "none")):
        assert write_images(images, ingest, cassandra.server) == 5
        keys = IterableWrapper([ingest.key_of(image) for image in images])
        found = list(keys.read_cassandra(server=cassandra.server, table=ingest.data_table, label_type=label_type))
        assert ["mask.png" in sample for sample in found] == [label_type == "image"] * 5
    (tmp_path / images[2].path).with_suffix(".png").unlink()
    with pytest.raises(FileNotFoundError, match=r"extract: no mask .* each image needs one"):
        write_images(images, masked, cassandra.server)


def test_filling_tables_imports_no_torch():
    """Each of Spark's workers would pay for it."""
    program = f"import sys; sys.path.insert(0, {str(RECIPES)!r}); import extract_serial, extract_spark; "
    subprocess.run([sys.executable, "-c", program + "assert 'torch' not in sys.modules"], check=True)


@pytest.mark.parametrize("img_format", ["JPEG", "PNG", "TIFF"])
def test_images_are_converted_to_rgb_with_the_shorter_side_as_asked(tmp_path, img_format):
    Image.new("RGBA", (90, 60), (200, 10, 10, 128)).save(tmp_path / "a.png")
    with Image.open(io.BytesIO(image_bytes(tmp_path / "a.png", img_format, 32))) as image:
        assert (image.format, image.mode, image.size) == (img_format, "RGB", (48, 32))


def test_classes_are_those_of_all_splits_sorted(tmp_path):
    for folder in ("train/b", "train/c", "val/a", "val/b", ".cache/x"):
        (tmp_path / folder).mkdir(parents=True)
        Image.new("RGB", (2, 2)).save(tmp_path / folder / "1.png")
    assert classes_in(tmp_path, "train").names == classes_in(tmp_path, "val").names == ("a", "b", "c")
    assert [image.path for image in list_images(tmp_path, "train")] == ["train/b/1.png", "train/c/1.png"]
    with pytest.raises(FileNotFoundError, match=r"list_images: no folder .*test; name the folder"):
        list(list_images(tmp_path, "test"))


def test_a_run_killed_at_any_point_and_run_again_leaves_each_row_once(cassandra, samples, tables, tmp_path):
    images, ingest = list(list_images(samples, "train")), ingest_of(samples, tables)
    command = [sys.executable, str(RECIPES / "extract_serial.py"), str(samples), "--split-subdir=train",
               f"--data-table={ingest.data_table}", f"--metadata-table={ingest.metadata_table}",
               f"--cassandra-port={cassandra.port}"]  # fmt: skip
    # The process kills itself once so many writes, of data or of metadata, have been acknowledged.
    killed = "import datapipes.prepare.cassandra_ingest as ingest, os, runpy, signal, sys\n"
    killed += "settle, left = ingest._Writer._settle, int(sys.argv[1])\n"
    killed += "def dies(writer):\n    global left\n    settle(writer)\n    left -= 1\n"
    killed += "    if not left: os.kill(os.getpid(), signal.SIGKILL)\n"
    killed += f"ingest._Writer._settle = dies\nsys.path.insert(0, {str(RECIPES)!r})\n"
    killed += "sys.argv = sys.argv[2:]\nrunpy.run_path(sys.argv[0], run_name='__main__')\n"
    counts = [0]
    for writes in (random.randrange(10, 40), random.randrange(1, 10)):
        ended = subprocess.run([sys.executable, "-c", killed, str(writes), *command[1:]], cwd=tmp_path,
                               capture_output=True, timeout=120)  # fmt: skip
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        counts.append(len(images) - len(missing_images(images, ingest, cassandra.server)))
        assert counts[-2] <= counts[-1] < len(images)
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    new = len(images) - counts[-1]
    assert f"{new} images written, {counts[-1]} were there before; {len(images)} counted" in ended.stdout
    metadata = read_metadata(cassandra.server, source_of(ingest))
    assert sorted(all_keys(metadata.keys)) == sorted(map(ingest.key_of, images))
    assert ClassMap.load(tmp_path / f"{tables}.classes.json").names == ingest.classes.names


def test_a_write_that_fails_names_the_file_and_the_count(cassandra, samples, tables, tmp_path):
    images, ingest = list(list_images(samples, "train")), ingest_of(samples, tables)
    # More than Cassandra takes in one write.
    large = tmp_path / "train" / "cat" / "large.jpg"
    large.parent.mkdir(parents=True)
    large.write_bytes(bytes(20 << 20))
    too_large = replace(ingest, root=str(tmp_path), classes=ClassMap(["cat"]))
    with pytest.raises(RuntimeError, match=r"extract: train/cat/large\.jpg was not written to .*; 0 images"):
        write_images(list_images(tmp_path, "train"), too_large, cassandra.server)
    with pytest.raises(ValueError, match=r"column label of \S+data_masked is of type blob, .* pass --mask-dir"):
        write_images(images[:3], replace(ingest, data_table=f"{tables}.data_masked"), cassandra.server)
    with pytest.raises(ValueError, match=f"extract: no table {tables}.nothing at .*; create it first"):
        write_images(images[:3], replace(ingest, data_table=f"{tables}.nothing"), cassandra.server)


def test_rows_that_are_missing_are_counted_by_class(cassandra, samples, tables):
    images, ingest = list(list_images(samples, "train")), ingest_of(samples, tables)
    write_images(images[1:], ingest, cassandra.server)
    lacking = f"lacks rows of 1 classes \\({images[0].class_name}: 11 of 12\\); run the same command again"
    with pytest.raises(RuntimeError, match=lacking):
        verify_counts(images, ingest, cassandra.server)


def test_metadata_is_read_once_and_kept(cassandra, samples, tables, tmp_path):
    images, ingest = list(list_images(samples, "train")), ingest_of(samples, tables)
    write_images(images, ingest, cassandra.server)
    metadata = read_metadata(cassandra.server, source_of(ingest))
    assert isinstance(metadata.keys, UuidKeys) and len(metadata.keys) == len(images)
    path = str(tmp_path / "metadata.cache")
    save_metadata(path, metadata)
    cached = load_metadata(path)
    assert cached.source == metadata.source and cached.labels.tolist() == metadata.labels.tolist()
    fresh, again = (make_split(each.keys, each.labels, source=each.source) for each in (metadata, cached))
    assert [split.tolist() for split in fresh.splits] == [split.tolist() for split in again.splits]
    Path(path).write_bytes(Path(path).read_bytes()[:-30])
    with pytest.raises(ValueError, match=r"load_metadata: .*metadata\.cache: not a whole archive"):
        load_metadata(path)


def test_metadata_of_the_wrong_table_or_column_is_named(cassandra, tables):
    source = RowSource(f"{tables}.data_train", "patch_id", metadata_table=f"{tables}.metadata_train")
    with pytest.raises(ValueError, match=r"create_split: table .*metadata_train: .*Undefined column name patch_id"):
        read_metadata(cassandra.server, source, function="create_split")


def test_recipes_find_the_column_that_a_table_is_keyed_by(cassandra, samples, tables, tmp_path, monkeypatch):
    ingest = ingest_of(samples, tables)
    write_images(list_images(samples, "train"), ingest, cassandra.server)
    with cassandra_session(cassandra.server, "test") as session:
        session.execute(f'CREATE TABLE {tables}.metadata_named ("Name" text PRIMARY KEY, label int)', timeout=60)
        session.execute(f"""INSERT INTO {tables}.metadata_named ("Name", label) VALUES ('tench/1', 0)""")
        session.execute(f"CREATE TABLE {tables}.metadata_two (id int, part int, PRIMARY KEY (id, part))", timeout=60)
    monkeypatch.setenv("CASSANDRA_HOSTS", cassandra.hosts[0])
    monkeypatch.setenv("CASSANDRA_PORT", str(cassandra.port))
    split, rows = str(tmp_path / "split.pckl"), str(tmp_path / "train.rows")
    create_split.main(["-k", tables, "-s", "train", "-o", split])
    made = load_row_file(split)
    assert made.source.id_col == "id" and sorted(map(len, made.splits)) == [10, 38]
    cache_uuids.main(["--metadata-table", f"{tables}.metadata_named", "--rows-fn", rows])
    assert load_row_file(rows).source.id_col == "Name" and list(all_keys(load_row_file(rows).keys)) == ["tench/1"]
    with pytest.raises(ValueError, match=r"create_split: the key of \S+metadata_two is id, part; a key of one column"):
        create_split.main(["-k", tables, "-s", "two", "-o", split])
    with pytest.raises(ValueError, match=r"create_split: no table \S+metadata_nothing at .*; create it first"):
        create_split.main(["-k", tables, "-s", "nothing", "-o", split])
