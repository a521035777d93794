import pickle
from collections import namedtuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch.utils.data import DataLoader
from torch.utils.data.datapipes.iter import IterableWrapper

from datapipes.stages.batched import SampleBatcher, collate


@given(n=st.integers(0, 50), batch_size=st.integers(1, 20), drop_last=st.booleans())
def test_batches_cover_the_samples_in_order_and_length_is_right(n, batch_size, drop_last):
    pipe = SampleBatcher(IterableWrapper(range(n)), batch_size, collate=None, drop_last=drop_last)
    batches = list(pipe)
    assert len(batches) == len(pipe)
    assert [sample for batch in batches for sample in batch] == list(range(n - n % batch_size if drop_last else n))
    assert all(len(batch) == batch_size for batch in batches[:-1])


def test_tuples_become_a_tuple_of_columns():
    samples = [(torch.ones(3, 2, 2), 1, "a"), (torch.zeros(3, 2, 2), 0, "b")]
    ((images, labels, names),) = IterableWrapper(samples).batched(4)
    assert images.shape == (2, 3, 2, 2) and images.dtype == torch.float32
    assert labels.tolist() == [1, 0] and labels.dtype == torch.int64
    assert names == ["a", "b"]


def test_dicts_become_a_dict_of_columns():
    samples = [{"__key__": "a", "cls": 1, "json": {"x": 1}}, {"__key__": "b", "cls": 2, "json": {}}]
    batch = collate(samples)
    assert batch["__key__"] == ["a", "b"]
    assert batch["cls"].tolist() == [1, 2]
    assert batch["json"] == [{"x": 1}, {}]


def test_two_views_of_an_image_become_two_tensors():
    (first, second), labels = collate([([torch.zeros(2), torch.ones(2)], 1)] * 3)
    assert first.shape == second.shape == (3, 2) and second.sum() == 6 and labels.shape == (3,)


def test_named_tuples_keep_their_names():
    Pair = namedtuple("Pair", "image label")
    assert collate([Pair(1.5, 1), Pair(2.5, 2)]).image.tolist() == [1.5, 2.5]


def test_arrays_that_are_read_only_or_flipped_are_stacked_too():
    image = np.asarray(Image.new("RGB", (4, 2), (1, 2, 3)))
    assert not image.flags.writeable
    batch = collate([image, image[:, ::-1], image[::-1]])
    assert batch.shape == (3, 2, 4, 3) and batch.dtype == torch.uint8 and batch[1, 1, 1].tolist() == [1, 2, 3]


@pytest.mark.parametrize("value", ["text", b"bytes", None, Image.new("L", (1, 1)), {"a": 1}, np.array(["a"])])
def test_what_cannot_be_a_tensor_stays_a_list(value):
    (column,) = collate([(value,), (value,)])
    assert isinstance(column, list) and len(column) == 2 and column[0] is value


@pytest.mark.parametrize("number", [True, 7, 2.5, np.int32(7), np.float32(2.5), np.bool_(True)])
def test_numbers_become_a_tensor(number):
    column = collate([number, number])
    assert isinstance(column, torch.Tensor) and column.tolist() == [number, number]


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (
            [(torch.zeros(3, 4), 0), (torch.zeros(3, 5), 0)],
            r"element 0 of sample.*\(3, 4\) and \(3, 5\); resize",
        ),
        ([{"jpg": np.zeros(2)}, {"jpg": np.zeros(3)}], "jpg has different shapes"),
        ([(1, 2), (1,)], "sample has from 1 to 2 elements"),
        ([{"jpg": 1}, {"png": 1}], "different fields, jpg and png"),
    ],
)
def test_samples_that_do_not_fit_together_say_what_to_do(samples, message):
    with pytest.raises(ValueError, match=f"batched: .*{message}"):
        list(IterableWrapper(samples).batched(2))


@pytest.mark.parametrize("batch_size", [0, -1, 2.0, True, None])
def test_an_impossible_batch_size_is_refused_at_once(batch_size):
    with pytest.raises(ValueError, match="batched: batch_size must be a whole number of at least 1"):
        IterableWrapper([]).batched(batch_size)


def test_batches_from_a_worker_process_are_whole():
    pipe = IterableWrapper([(np.full((8, 8), i), i) for i in range(10)]).batched(4)
    batches = list(DataLoader(pipe, batch_size=None, num_workers=1, multiprocessing_context="fork"))
    assert [labels.tolist() for _, labels in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert all((images == labels[:, None, None]).all() for images, labels in batches)


def test_the_pipe_pickles():
    pipe = SampleBatcher(IterableWrapper([1, 2, 3]), 2)
    assert [batch.tolist() for batch in pickle.loads(pickle.dumps(pipe))] == [[1, 2], [3]]
