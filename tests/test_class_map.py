import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datapipes.catalog.class_map import ClassMap, directory_of

NAMES = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="/"), min_size=1)


@pytest.mark.parametrize(
    ("key", "directory"),
    [
        ("s3://bucket/train/n01440764/x.JPEG", "n01440764"),
        ("s3://bucket/12/x.JPEG", "12"),
        ("s3://bucket/x.JPEG", ""),
        ("http://host/x.JPEG", ""),
        ("memory://tench/x.JPEG", "tench"),
        ("file:///tench/x.JPEG", "tench"),
        ("/data/tench/x.JPEG", "tench"),
        ("tench/x.JPEG", "tench"),
        ("x.JPEG", ""),
    ],
)
def test_the_class_is_the_directory_never_the_bucket(key, directory):
    assert directory_of(key) == directory


def test_names_are_numbered_from_zero_in_sorted_order_as_torchvision_does(tmp_path):
    from torchvision.datasets.folder import find_classes

    names = ["n02", "n01", "B", "a", "10", "9"]
    for name in names:
        (tmp_path / name).mkdir()
    classes = ClassMap.of_keys(f"s3://bucket/train/{name}/1.jpg" for name in names)
    expected_names, expected_labels = find_classes(tmp_path)
    assert list(classes) == expected_names
    assert {name: classes[name] for name in classes} == expected_labels


@given(st.lists(NAMES, unique=True))
def test_a_saved_map_loads_as_it_was(tmp_path_factory, names):
    path = tmp_path_factory.mktemp("map") / "classes.json"
    classes = ClassMap(names)
    classes.save(path)
    assert ClassMap.load(path) == classes
    assert pickle.loads(pickle.dumps(classes)) == classes
    assert [file.name for file in path.parent.iterdir()] == ["classes.json"]


def test_a_map_saved_by_others_loads_in_the_order_of_its_labels(tmp_path):
    path = tmp_path / "class_to_idx.json"
    path.write_text(json.dumps({"tench": 1, "ostrich": 0}))
    assert ClassMap.load(path).names == ("ostrich", "tench")
    path.write_text(json.dumps(["tench", "ostrich"]))
    assert ClassMap.load(path).names == ("tench", "ostrich")


@pytest.mark.parametrize("content", ['{"a": 0, "b": 2}', '{"a": "0"}', "7", "[1]", "{", '{"a": 0, "b": 0}'])
def test_a_file_that_is_no_class_map_is_refused_by_name(tmp_path, content):
    path = tmp_path / "classes.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"ClassMap.load: .*classes\.json"):
        ClassMap.load(path)


def test_a_failed_save_leaves_the_old_file_and_no_litter(tmp_path):
    path = tmp_path / "classes.json"
    ClassMap(["cat"]).save(path)
    with pytest.raises(UnicodeEncodeError):
        ClassMap(["\ud800"]).save(path)
    assert ClassMap.load(path).names == ("cat",)
    assert list(tmp_path.iterdir()) == [path]


def test_an_unknown_class_names_itself_the_map_and_the_way_out():
    classes = ClassMap.of_keys(["train/cat/1.jpg"], source="s3://photos/train/")
    with pytest.raises(ValueError, match=r"'dog'.*1 classes from s3://photos/train/.*pass classes="):
        classes["dog"]


def test_a_repeated_or_empty_name_is_refused():
    with pytest.raises(ValueError, match="'cat' comes twice"):
        ClassMap(["cat", "dog", "cat"])
    with pytest.raises(ValueError, match="empty class name"):
        ClassMap(["cat", ""])


def test_a_large_map_has_a_short_repr():
    assert len(repr(ClassMap(f"n{number:08}" for number in range(1000)))) < 100
