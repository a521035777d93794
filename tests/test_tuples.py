import pickle

import pytest
import webdataset
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data.datapipes.iter import IterableWrapper

from datapipes.stages.map_tuple import TupleMapper
from datapipes.stages.to_tuple import FieldPicker

SAMPLE = {"__key__": "cat/1", "jpeg": b"image", "cls": 0, "json": {}}


def test_the_first_alternative_that_is_there_is_taken():
    assert list(IterableWrapper([SAMPLE]).to_tuple("jpg;png;jpeg", "cls", "__key__")) == [(b"image", 0, "cat/1")]
    both = {"__key__": "x", "png": 1, "jpg": 2}
    assert list(IterableWrapper([both]).to_tuple("jpg;png")) == [(2,)]


def test_one_string_may_name_all_fields():
    assert list(IterableWrapper([SAMPLE]).to_tuple("jpeg;png cls")) == [(b"image", 0)]


def test_capital_letters_do_not_matter():
    assert list(IterableWrapper([{"JPG": 1, "cls": 2}]).to_tuple("Jpg", "CLS")) == [(1, 2)]


def test_a_missing_field_names_the_sample_what_was_wanted_and_what_is_there():
    message = "to_tuple: 'cat/1' has no field jpg or png; it has __key__, jpeg, cls, json"
    with pytest.raises(ValueError, match=message):
        list(IterableWrapper([SAMPLE]).to_tuple("jpg;png", "cls"))
    with pytest.raises(ValueError, match="no field mask"):
        list(IterableWrapper([{"mask": None}]).to_tuple("mask"))


def test_a_sample_without_the_field_can_be_skipped_or_replaced():
    samples = IterableWrapper([{"a": 1}, {"b": 2}, {"a": 3}])
    assert list(samples.to_tuple("a", on_error="skip")) == [(1,), (3,)]
    assert list(samples.to_tuple("a", on_error=lambda key, error: (0,))) == [(1,), (0,), (3,)]


@pytest.mark.parametrize("fields", [(), ("",), ("jpg;", "cls"), ("jpg", "")])
def test_fields_without_a_name_are_refused_at_once(fields):
    with pytest.raises(ValueError, match="to_tuple: name at least one field"):
        IterableWrapper([]).to_tuple(*fields)


FIELDS = st.sampled_from(["jpg", "png", "cls", "json", "txt"])


@given(
    st.dictionaries(FIELDS, st.integers()),
    st.lists(st.lists(FIELDS, min_size=1, max_size=3).map(";".join), min_size=2, max_size=3),
)
def test_the_same_tuples_as_webdataset(sample, fields):
    try:
        expected = list(webdataset.to_tuple(*fields)([sample]))
    except ValueError:
        with pytest.raises(ValueError, match="to_tuple"):
            list(IterableWrapper([sample]).to_tuple(*fields))
    else:
        assert list(IterableWrapper([sample]).to_tuple(*fields)) == expected


def test_each_function_gets_its_element_and_the_rest_passes():
    pairs = IterableWrapper([(1, 2, 3), [4, 5, 6]])
    assert list(pairs.map_tuple(str, None)) == [("1", 2, 3), ("4", 5, 6)]
    assert list(pairs.map_tuple(str, None)) == list(webdataset.map_tuple(str, None)([(1, 2, 3), [4, 5, 6]]))
    assert list(pairs.map_tuple(str, lambda x: -x, float)) == [("1", -2, 3.0), ("4", -5, 6.0)]


def test_more_functions_than_elements_is_an_error():
    with pytest.raises(ValueError, match="map_tuple: got 2 functions for a tuple of 1"):
        list(IterableWrapper([(1,)]).map_tuple(str, str))
    with pytest.raises(TypeError, match="map_tuple: expected a tuple, got a dict"):
        list(IterableWrapper([SAMPLE]).map_tuple(str))


def test_what_is_no_function_is_refused_at_once():
    with pytest.raises(TypeError, match=r"map_tuple: expected functions.* got 'jpg'"):
        IterableWrapper([]).map_tuple("jpg")


def test_the_users_own_exception_comes_through_as_it_is():
    with pytest.raises(ZeroDivisionError):
        list(IterableWrapper([(0,)]).map_tuple(lambda x: 1 / x))


def test_the_pipes_pickle_and_know_their_length():
    pipe = TupleMapper(FieldPicker(IterableWrapper([SAMPLE, SAMPLE]), "cls"), str)
    assert list(pickle.loads(pickle.dumps(pipe))) == [("0",), ("0",)]
    assert len(pipe) == 2
