"""The contract of every pipe, on real servers: what holds for one holds for all."""

from __future__ import annotations

import gc
import pickle
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import psutil
import pytest
from cassandra_tables import fill, keyspace
from pipe_cases import CASES, SECRET, Place, nowhere, plain
from settling import settles
from torch.utils.data import DataLoader

import datapipes.iter
from datapipes.catalog.dataset_service import DatasetService
from datapipes.catalog.keys import UuidKeys
from datapipes.catalog.row_file import RowFile, save_row_file
from datapipes.catalog.row_source import RowSource
from datapipes.pipe import FUNCTIONAL_FORMS

every_pipe = pytest.mark.parametrize("name", sorted(CASES))


@pytest.fixture(scope="module")
def place(s3, samples, cassandra, service, tmp_path_factory) -> Iterator[Place]:
    rows = str(tmp_path_factory.mktemp("rows") / "rows.npz")
    keys = s3.keys("train/")
    served = DatasetService(service.url)
    place = Place(s3.server, samples, keys, cassandra.server, rows, served, (s3.secret_key,))
    keys = UuidKeys.of(place.row_keys)
    save_row_file(rows, RowFile(keys, RowSource("contract.data"), (np.arange(len(keys)),)))
    with keyspace(cassandra.server, name="contract") as (_, session):
        fill(session, "contract.data", place.row_keys)
        yield place


def test_every_functional_form_has_a_case():
    assert set(CASES) == set(FUNCTIONAL_FORMS)


def test_every_pipe_is_exported_by_its_class_name():
    missing = {cls.__name__ for cls in FUNCTIONAL_FORMS.values()} - set(datapipes.iter.__all__)
    assert not missing


@every_pipe
def test_it_is_built_without_touching_its_server(name):
    started = time.monotonic()
    pipe = CASES[name].build(nowhere(["train/cat/1.jpg", "train/dog/2.jpg"]))
    assert isinstance(pipe, FUNCTIONAL_FORMS[name])
    assert time.monotonic() - started < 5


@every_pipe
def test_it_pickles_unstarted_half_read_and_finished(name, place):
    pipe = CASES[name].build(place)
    pickle.loads(pickle.dumps(pipe))
    items = iter(pipe)
    seen = [plain(next(items))]
    assert type(pickle.loads(pickle.dumps(pipe))) is type(pipe)
    seen += [plain(item) for item in items]
    pickle.loads(pickle.dumps(pipe))
    assert seen == [plain(item) for item in pipe]


@every_pipe
def test_it_starts_again_and_gives_the_same(name, place):
    pipe = CASES[name].build(place)
    assert [plain(item) for item in pipe] == [plain(item) for item in pipe]


@every_pipe
def test_its_length_is_true_or_refused(name, place):
    pipe = CASES[name].build(place)
    if CASES[name].has_length:
        assert len(pipe) == len(list(pipe))
    else:
        with pytest.raises(TypeError):
            len(pipe)


@every_pipe
def test_ranks_and_workers_cover_the_input_exactly_once(name, place):
    case = CASES[name]
    whole = sorted(repr(plain(item)) for item in case.build(place))
    if name == "distribute":
        pipe = case.build(place)
    elif case.one_for_one:
        pipe = case.build_distributed(place)
    else:
        pipe = case.build(place).distribute(uneven="keep")
    loader = DataLoader(pipe, batch_size=None, num_workers=2, collate_fn=plain)
    assert sorted(map(repr, loader)) == whole


@every_pipe
def test_no_secret_is_in_its_repr_its_errors_or_its_pickle(name, place):
    pipe = CASES[name].build(nowhere(["train/cat/1.jpg", "train/dog/2.jpg"]))
    shown = [repr(pipe), str(pipe), repr(vars(pipe)), repr(pickle.dumps(pipe))]
    assert not any(SECRET in text for text in shown)
    case, missing = CASES[name], replace(place, keys=["train/none/no-such-file.jpg"], samples=place.samples / "none")
    try:
        list(case.build(missing))
    except Exception as error:
        text = "".join(traceback.format_exception(error))
        assert not any(secret in text for secret in place.secrets)


@every_pipe
def test_nothing_runs_on_after_it_was_left_half_read(name, place):
    process = psutil.Process()
    list(CASES[name].build(place))
    gc.collect()
    threads, files, children = threading.active_count(), process.num_fds(), len(process.children())
    for _ in range(3):
        pipe = CASES[name].build(place)
        items = iter(pipe)
        next(items)
        del items, pipe
        gc.collect()
    assert settles(lambda: threading.active_count() <= threads)
    assert settles(lambda: process.num_fds() <= files)
    assert settles(lambda: len(process.children()) <= children)
