import io
import os
import pickle

import pytest
from torch.utils.data import DataLoader
from torch.utils.data.datapipes.iter import IterableWrapper

from datapipes.catalog.class_map import ClassMap
from datapipes.catalog.keys import StrKeys
from datapipes.dataset.as_dataset import as_dataset
from datapipes.pipe import Pipe
from datapipes.stages.parse_label import LabelParser


def files(*urls):
    return IterableWrapper([(url, io.BytesIO(url.encode())) for url in urls], deepcopy=False)


def with_bytes(url):
    return url, b""


class Listing(Pipe):
    """A catalog pipe: it knows its keys, and yields them with their bytes."""

    def __init__(self, *urls):
        self.urls = urls

    def key_table(self):
        return StrKeys.of(self.urls)

    def __iter__(self):
        return iter(files(*self.urls))


def labels(pipe):
    return [sample["cls"] for sample in pipe]


def test_a_number_of_any_number_of_digits_is_the_label_itself():
    urls = [f"s3://b/train/{directory}/x.JPEG" for directory in ("1", "12", "999", "007")]
    assert labels(files(*urls).parse_label()) == [1, 12, 999, 7]


def test_a_sample_holds_its_key_url_bytes_and_label():
    url = "s3://b/train/12/n01.v2_img.JPEG"
    (sample,) = files(url).parse_label()
    assert sample == {"__key__": "12/n01.v2_img", "__url__": url, "jpeg": url.encode(), "cls": 12}


def test_bytes_come_out_of_a_fresh_stream_without_a_copy():
    payload = b"x" * 1000
    (sample,) = IterableWrapper([("a/1/x.jpg", io.BytesIO(payload))], deepcopy=False).parse_label()
    assert sample["jpg"] is payload


@pytest.mark.parametrize(
    "payload", [b"abc", bytearray(b"abc"), memoryview(b"abc"), io.BufferedReader(io.BytesIO(b"abc"))]
)
def test_buffers_and_other_streams_become_bytes(payload):
    (sample,) = IterableWrapper([("a/1/x.png", payload)], deepcopy=False).parse_label()
    assert sample["png"] == b"abc" and type(sample["png"]) is bytes


def test_names_are_numbered_by_the_listing_upstream_in_sorted_order():
    listing = Listing("s3://b/train/tench/1.jpg", "s3://b/train/ostrich/2.jpg", "s3://b/train/tench/3.jpg")
    assert labels(listing.parse_label()) == [1, 0, 1]
    assert sorted(labels(listing.shuffle().parse_label())) == [0, 1, 1]


def test_a_pipe_that_offers_a_class_map_goes_before_the_listing():
    class Relabelled(Listing):
        def class_map(self):
            return ClassMap(["tench", "shark", "ostrich"])

    assert labels(Relabelled("a/ostrich/1.jpg").parse_label()) == [2]


@pytest.mark.parametrize("form", ["map", "path", "names", "function"])
def test_classes_may_be_a_map_a_path_names_or_a_function(tmp_path, form):
    given = ClassMap(["ostrich", "12", "tench"])
    given.save(tmp_path / "classes.json")
    classes = {
        "map": given,
        "path": str(tmp_path / "classes.json"),
        "names": (name for name in given),
        "function": lambda url: given[url.split("/")[-2]],
    }[form]
    pipe = files("b/tench/1.jpg", "b/12/1.jpg").parse_label(classes=classes)
    assert labels(pipe) == [2, 1]
    assert labels(pipe) == [2, 1]


def test_samples_that_are_dicts_keep_their_fields_and_get_a_label():
    samples = [
        {"__key__": "x", "__url__": "s3://b/3/x.jpg", "jpg": b"1"},
        {"__key__": "4/y", "mask.png": b"2"},
    ]
    assert list(IterableWrapper(samples).parse_label()) == [
        {**samples[0], "cls": 3},
        {**samples[1], "cls": 4},
    ]


def test_a_class_in_val_missing_from_the_class_map_is_named_with_the_file():
    train = ClassMap.of_keys(["s3://b/train/cat/1.jpg"], source="s3://b/train/")
    message = "'s3://b/val/dog/1.jpg': class 'dog' is not in the class map of 1 classes from s3://b/train/"
    with pytest.raises(ValueError, match=f"parse_label: {message}"):
        labels(files("s3://b/val/cat/1.jpg", "s3://b/val/dog/1.jpg").parse_label(classes=train))


def test_on_error_skip_leaves_the_others():
    pipe = files("b/cat/1.jpg", "b/dog/1.jpg", "b/cat/2.jpg").parse_label(classes=["cat"], on_error="skip")
    assert labels(pipe) == [0, 0]


@pytest.mark.parametrize(
    ("pipe", "message"),
    [
        (files("s3://b/cat/1.jpg"), "no listing upstream"),
        (Listing("s3://b/7/1.jpg", "s3://b/cat/1.jpg"), "mix numbers \\('7'\\) and names"),
        (Listing("s3://b/x/cat/1.jpg", "s3://b/1.jpg"), "in no directory"),
        (Listing("s3://b/cat/README"), "no extension"),
        (IterableWrapper([("b/1/1.jpg", 7)]), "came with a int"),
    ],
)
def test_what_cannot_be_labelled_is_an_error_that_says_why(pipe, message):
    with pytest.raises((ValueError, TypeError), match=f"parse_label: .*{message}"):
        labels(pipe.parse_label())


def test_a_query_string_is_no_part_of_the_extension():
    (sample,) = files("https://host/data/3/x.png?version=1.2").parse_label()
    assert sample["__key__"] == "3/x" and "png" in sample


def test_the_pipe_pickles_unstarted_half_read_and_finished():
    pipe = LabelParser(Listing("b/cat/1.jpg", "b/dog/1.jpg"))
    stream = iter(pipe)
    for _ in range(3):
        assert labels(pickle.loads(pickle.dumps(pipe))) == [0, 1]
        next(stream, None)
    assert len(LabelParser(files("b/1/1.jpg"))) == 1


def test_one_listing_serves_the_class_maps_of_all_workers_and_epochs():
    listed = []

    class CountedListing(Listing):
        def key_table(self):
            listed.append(os.getpid())
            return super().key_table()

    keys = CountedListing("s3://b/tench/1.jpg", "s3://b/ostrich/2.jpg", "s3://b/tench/3.jpg")
    samples = keys.distribute(shuffle=False, uneven="keep").map(with_bytes).parse_label()
    loader = DataLoader(as_dataset(samples), batch_size=None, num_workers=2, multiprocessing_context="fork")
    for _ in range(2):
        assert sorted(sample["cls"] for sample in loader) == [0, 1, 1]
    assert listed == [os.getpid()]
