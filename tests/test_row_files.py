"""Row files and split files: every known form is read, nothing in them is run, and what is broken is named."""

from __future__ import annotations

import os
import pickle
import uuid
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datapipes.catalog.key_archive import all_keys
from datapipes.catalog.keys import StrKeys, UuidKeys
from datapipes.catalog.row_file import RowFile, load_row_file, save_row_file
from datapipes.catalog.row_source import RowSource, find_row_source
from datapipes.catalog.safe_pickle import load_safe_pickle
from datapipes.iter import IterableWrapper

UUIDS = [uuid.UUID(int=number) for number in range(5)]
SPLITS = (np.array([4, 0, 2]), np.array([1, 3]))
# The file of seed 000, field by field.
SEED_SPLIT = {
    "keyspace": "imagenette",
    "table_suffix": "train_256_jpg",
    "id_col": "patch_id",
    "data_col": "data",
    "label_type": "int",
    "label_col": "label",
    "row_keys": np.array(UUIDS, dtype=object),
    "split": list(SPLITS),
    "num_classes": 10,
}
NEWER_SPLIT = {
    "data_table": "imagenette.images",
    "data_id_col": "patch_id",
    "data_label_col": "class",
    "metadata_table": "imagenette.classes",
    "metadata_label_col": "class",
    "data_col": "blob",
    "label_type": "image",
    "row_keys": np.array(UUIDS, dtype=object),
    "split": list(SPLITS),
    "num_classes": 2,
}
ROWS = {"row_keys": UUIDS, "config": {"table": "imagenette.metadata_train", "id_col": "id"}, "split": None}


def written(folder: Path, content: object, name: str = "file.pckl") -> str:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else pickle.dumps(content))
    return str(path)


@pytest.mark.parametrize(
    ("content", "source"),
    [
        (SEED_SPLIT, RowSource(
            "imagenette.data_train_256_jpg", "patch_id", metadata_table="imagenette.metadata_train_256_jpg"
        )),
        (NEWER_SPLIT, RowSource(
            "imagenette.images", "patch_id", "class", "blob", "image", "imagenette.classes"
        )),
        (ROWS, RowSource("imagenette.data_train", metadata_table="imagenette.metadata_train")),
    ],
    ids=["seed", "newer", "rows"],
)  # fmt: skip
def test_every_known_form_is_read(tmp_path, content, source):
    path = written(tmp_path, content)
    rows = load_row_file(path)
    assert list(all_keys(rows.keys)) == UUIDS
    assert rows.source == source
    assert [split.tolist() for split in rows.splits] == [s.tolist() for s in (content["split"] or [])]
    assert IterableWrapper([path]).list_rows_by_file().row_source() == source


def test_what_is_written_as_a_pickle_is_the_dict_that_the_seed_shows(tmp_path):
    path = str(tmp_path / "split.pckl")
    source = RowSource("imagenette.data_train_256_jpg", "patch_id", metadata_table="imagenette.metadata_train_256_jpg")
    save_row_file(path, RowFile(UuidKeys.of(UUIDS), source, SPLITS, 10))
    found = pickle.loads(Path(path).read_bytes())
    assert set(found) == set(SEED_SPLIT)
    assert found["row_keys"].dtype == object and found["row_keys"].tolist() == UUIDS
    assert [split.tolist() for split in found.pop("split")] == [split.tolist() for split in SPLITS]
    del found["row_keys"]
    assert found == {name: SEED_SPLIT[name] for name in found}


@pytest.mark.parametrize("name", ["file.npz", "file.pckl"])
@given(
    texts=st.lists(st.text(st.characters(codec="utf-8"), max_size=20), max_size=20),
    as_uuids=st.booleans(),
    splits=st.integers(0, 3),
)
def test_a_file_gives_back_what_was_saved(tmp_path_factory, name, texts, as_uuids, splits):
    path = str(tmp_path_factory.mktemp("rows") / name)
    keys = UuidKeys.of(uuid.uuid5(uuid.NAMESPACE_URL, text) for text in texts) if as_uuids else StrKeys.of(texts)
    parts = tuple(np.arange(len(texts))[index::splits] for index in range(splits))
    save_row_file(path, RowFile(keys, None, parts, 7 if parts else 0))
    rows = load_row_file(path)
    assert list(all_keys(rows.keys)) == list(all_keys(keys))
    assert [split.tolist() for split in rows.splits] == [part.tolist() for part in parts]
    assert rows.num_classes == (7 if parts else 0)


def test_a_split_gives_its_keys_in_its_order_and_its_table_through_cores_stages(tmp_path):
    path = written(tmp_path, SEED_SPLIT)
    split = IterableWrapper([path]).split_by_file(index=0)
    assert list(split) == [UUIDS[index] for index in SPLITS[0]]
    assert len(split) == 3
    assert list(all_keys(split.key_table())) == list(split)
    through = split.shuffle().sharding_filter().filter(bool)
    assert find_row_source(through).table == "imagenette.data_train_256_jpg"
    assert through.read_cassandra().row_source().id_col == "patch_id"
    assert through.read_cassandra(table="other.images", id_col="id").row_source().table == "other.images"


def test_files_of_two_tables_in_one_chain_are_refused(tmp_path):
    paths = [written(tmp_path, SEED_SPLIT, "a"), written(tmp_path, NEWER_SPLIT, "b")]
    with pytest.raises(ValueError, match=r"split_by_file: .*/a is of table .*, .*/b of imagenette\.images"):
        IterableWrapper(paths).split_by_file(index=0).read_cassandra().row_source()


def test_a_split_that_is_not_there_is_named(tmp_path):
    with pytest.raises(IndexError, match=r"file\.pckl has 2 splits, none with index 2"):
        list(IterableWrapper([written(tmp_path, SEED_SPLIT)]).split_by_file(index=2))


class Runs:
    """Pickles as a call of what it is given."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    ("attack", "name"),
    [
        (lambda target: Runs(os.system, f"touch {target}"), "system"),
        (lambda target: Runs(eval, f"open({target!r}, 'w')"), "eval"),
        (lambda target: {"row_keys": [Runs(Path.touch, Path(target))]}, "touch|PosixPath|getattr"),
        (lambda target: Runs(np.ndarray, (10**13,), "u1"), "not callable|NEWOBJ|ndarray|_reconstructor|object"),
        (lambda target: Runs(np.load, target), r"numpy\S*load"),
    ],
    ids=["system", "eval", "method", "memory", "numpy"],
)
def test_a_pickle_that_asks_for_more_is_refused_and_not_run(tmp_path, attack, name, protocol):
    target = tmp_path / "created"
    content = pickle.dumps(attack(str(target)), protocol=protocol)
    path = written(tmp_path, content)
    with pytest.raises(ValueError, match=rf"split_by_file: .*refused as a pickle: .*({name})"):
        list(IterableWrapper([path]).split_by_file(index=0))
    assert not target.exists()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_arrays_and_uuids_of_every_protocol_are_admitted(protocol):
    content = {**SEED_SPLIT, "scalar": np.int64(3), "floats": np.eye(2), "texts": np.array(["a", "b"]), "b": b"\xff"}
    found = load_safe_pickle(pickle.dumps(content, protocol=protocol), name="file")
    assert found["row_keys"].tolist() == UUIDS and found["scalar"] == 3 and found["b"] == b"\xff"
    assert found["texts"].tolist() == ["a", "b"] and (found["floats"] == np.eye(2)).all()


def test_the_module_names_of_numpy_1_and_2_are_both_admitted():
    content = pickle.dumps(np.arange(3), protocol=2)
    older = content.replace(b"cnumpy._core.", b"cnumpy.core.")
    newer = older.replace(b"cnumpy.core.", b"cnumpy._core.")
    for spelled in (older, newer):
        assert load_safe_pickle(spelled, name="file").tolist() == [0, 1, 2]


@given(cut=st.floats(0, 1), name=st.sampled_from(["f.npz", "f.pckl"]), noise=st.binary(max_size=8))
def test_a_file_that_is_cut_or_damaged_is_an_error_or_whole(tmp_path_factory, cut, name, noise):
    path = tmp_path_factory.mktemp("rows") / name
    save_row_file(str(path), RowFile(UuidKeys.of(UUIDS), RowSource("a.data_b"), SPLITS, 3))
    content = path.read_bytes()
    at = int(len(content) * cut)
    path.write_bytes(content[:at] + (noise + content[at + len(noise) :] if noise else b""))
    try:
        rows = load_row_file(str(path))
    except ValueError as error:
        assert str(path) in str(error)
    else:
        assert len(rows.keys) <= 5 and all(split.max(initial=0) < len(rows.keys) for split in rows.splits)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"split": [np.array([0, 5])]}, "a split names row 5 of 5 rows"),
        ({"split": [np.array([-1])]}, "a split names row -1 of 5 rows"),
        ({"split": [np.array([0.5])]}, "a split must be a list of row numbers"),
        ({"row_keys": np.array([UUIDS[0], "text"], dtype=object)}, "all be UUIDs or all text"),
        ({"row_keys": np.array([1, 2])}, "got int64"),
        ({"label_type": "float"}, "label_type must be one of int, image, blob, none"),
        ({"keyspace": "a; DROP TABLE b"}, "a table is named keyspace.table"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused_and_says_why(tmp_path, change, what):
    with pytest.raises(ValueError, match=what):
        load_row_file(written(tmp_path, {**SEED_SPLIT, **change}))


@pytest.mark.parametrize("content", [[1, 2], {"keys": []}, "text"])
def test_a_pickle_of_something_else_is_refused(tmp_path, content):
    with pytest.raises(ValueError, match="it has no field row_keys"):
        load_row_file(written(tmp_path, content))
