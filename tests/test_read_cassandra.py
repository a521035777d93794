"""Rows by key from a real Cassandra: exact order, named errors, groups that fall back, forks that stay apart."""

from __future__ import annotations

import pickle
import time
import uuid

import numpy as np
import pytest
from cassandra_tables import data_of, fill, keys_of, keyspace
from torch.utils.data import DataLoader

from datapipes.catalog.cassandra_server import CassandraServer
from datapipes.catalog.keys import UuidKeys
from datapipes.catalog.row_file import RowFile, save_row_file
from datapipes.catalog.row_source import RowSource
from datapipes.catalog.secret import Secret
from datapipes.dataset.as_dataset import as_dataset
from datapipes.iter import IterableWrapper
from recipes.local_process import free_port

KEYS = keys_of(300)
PNG = b"\x89PNG and so on"


@pytest.fixture(scope="module")
def tables(cassandra):
    """A keyspace with tables of every kind; the session is open until the module's end."""
    with keyspace(cassandra.server) as (name, session):
        fill(session, f"{name}.data_train", KEYS)
        for column in ("label blob", "label text", "other int"):
            table = f"{name}.with_{column.replace(' ', '_')}"
            session.execute(f"CREATE TABLE {table} (id uuid PRIMARY KEY, {column}, data blob)", timeout=60)
        session.execute(
            f"INSERT INTO {name}.with_label_blob (id, label, data) VALUES (%s, %s, %s)", (KEYS[0], PNG, b"II*\0 tiff")
        )
        session.execute(f"INSERT INTO {name}.with_other_int (id, data) VALUES (%s, %s)", (KEYS[0], b"unknown"))
        session.execute(f"CREATE TABLE {name}.by_name (name text PRIMARY KEY, label int, data blob)", timeout=60)
        for number in range(5):
            session.execute(
                f"INSERT INTO {name}.by_name (name, label, data) VALUES (%s, %s, %s)", (f"n{number}", number, PNG)
            )
        yield name


def read(cassandra, keys, table, **options):
    options = {"server": cassandra.server, "table": table, **options}
    return IterableWrapper(keys, deepcopy=False).read_cassandra(**options)


def sample(number):
    return {"__key__": str(KEYS[number]), "jpg": data_of(KEYS[number]), "cls": number % 10}


def test_samples_come_in_the_order_of_their_keys(cassandra, tables):
    order = [*range(299, -1, -1), 7, 7, 8]
    found = list(read(cassandra, [KEYS[number] for number in order], f"{tables}.data_train"))
    assert found == [sample(number) for number in order]


def test_load_gives_key_and_row(cassandra, tables):
    keys = IterableWrapper([str(KEYS[3]), KEYS[4]])
    (text, row), (key, other) = keys.load_from_cassandra(server=cassandra.server, table=f"{tables}.data_train")
    assert (text, row.label, row.data) == (str(KEYS[3]), 3, data_of(KEYS[3]))
    assert (key, other) == (KEYS[4], (4, data_of(KEYS[4])))


@pytest.mark.parametrize("options", [{"max_in_flight": 1}, {"max_bytes": 1}, {"connections": 3}])
def test_bounds_change_nothing_but_the_speed(cassandra, tables, options):
    found = list(read(cassandra, KEYS[:100], f"{tables}.data_train", **options))
    assert found == [sample(number) for number in range(100)]


def test_unordered_gives_each_row_once(cassandra, tables):
    found = list(read(cassandra, KEYS, f"{tables}.data_train", ordered=False))
    assert sorted(item["__key__"] for item in found) == sorted(map(str, KEYS))


def test_a_second_blob_is_a_field_and_no_label_is_none(cassandra, tables):
    (masked,) = read(cassandra, KEYS[:1], f"{tables}.with_label_blob", label_type="image")
    assert masked == {"__key__": str(KEYS[0]), "tif": b"II*\0 tiff", "mask.png": PNG}
    (bare,) = read(cassandra, KEYS[:1], f"{tables}.with_other_int", label_type="none")
    assert bare == {"__key__": str(KEYS[0]), "bin": b"unknown"}


def test_keys_may_be_text(cassandra, tables):
    found = list(read(cassandra, ["n3", "n1"], f"{tables}.by_name", id_col="name"))
    assert [(item["__key__"], item["cls"]) for item in found] == [("n3", 3), ("n1", 1)]


def test_table_and_columns_come_from_the_split_file_through_shuffle_and_sharding(cassandra, tables, tmp_path):
    path = str(tmp_path / "split.pckl")
    save_row_file(
        path, RowFile(UuidKeys.of(KEYS), RowSource(f"{tables}.data_train"), (np.arange(10), np.arange(10, 300)), 10)
    )
    split = IterableWrapper([path]).split_by_file(index=0).shuffle().sharding_filter()
    pipe = split.read_cassandra(server=cassandra.server)
    found = list(DataLoader(pipe, batch_size=None, num_workers=2))
    assert sorted(item["__key__"] for item in found) == sorted(map(str, KEYS[:10]))


def test_an_epoch_over_workers_has_an_exact_proof_and_exact_batches(cassandra, tables, tmp_path):
    path = str(tmp_path / "train.npz")
    save_row_file(path, RowFile(UuidKeys.of(KEYS), RowSource(f"{tables}.data_train")))
    keys = IterableWrapper([path]).list_rows_by_file().distribute(uneven="keep", seed=3)
    dataset = as_dataset(keys.read_cassandra(server=cassandra.server).to_tuple("__key__", "jpg").batched(16))
    alone = list(DataLoader(dataset, batch_size=None))
    dataset.set_epoch(0)
    shared = list(DataLoader(dataset, batch_size=None, num_workers=2))
    assert alone == shared and len(alone) == 19
    report = dataset.report()
    assert "300 samples expected, each seen once" in str(report)


def test_a_worker_forked_from_a_process_that_reads_does_not_touch_its_connection(cassandra, tables):
    mine = iter(read(cassandra, KEYS, f"{tables}.data_train", max_in_flight=1))
    first = next(mine)
    loader = DataLoader(
        read(cassandra, KEYS, f"{tables}.data_train"), batch_size=None, num_workers=2, multiprocessing_context="fork"
    )
    theirs = list(loader)
    assert len(theirs) == 600 and theirs[0] == first
    assert [first, *mine] == [sample(number) for number in range(300)]


def test_a_row_that_is_missing_is_named_and_the_rest_of_its_group_comes(cassandra, tables):
    missing = uuid.uuid4()
    keys = [*KEYS[:20], missing, *KEYS[20:40]]
    with pytest.raises(LookupError, match=rf"read_cassandra: key {missing} has no row in table {tables}\.data_train"):
        list(read(cassandra, keys, f"{tables}.data_train"))
    found = list(read(cassandra, keys, f"{tables}.data_train", on_error="skip"))
    assert found == [sample(number) for number in range(40)]
    seen = []
    instead = list(read(cassandra, keys, f"{tables}.data_train", on_error=lambda key, error: seen.append(key) or key))
    assert seen == [str(missing)] and instead[20] == str(missing) and len(instead) == 41


@pytest.mark.parametrize(
    ("options", "error", "what"),
    [
        ({"table": "{0}.nothing"}, ValueError, "table {0}.nothing: 127.0.0.1 port .* refused the query"),
        ({"table": "nowhere.nothing"}, ValueError, "[Kk]eyspace nowhere does not exist"),
        ({"label_col": "lable"}, ValueError, "Undefined column name lable"),
        ({"data_col": "label"}, ValueError, "column label of .*data_train is of type int, not blob; pass data_col="),
        ({"label_type": "image"}, ValueError, "column label .* is of type int, which is no label of type 'image'"),
        ({"table": "{0}.with_label_text"}, ValueError, "is of type varchar, which is no label of type 'int'"),
        ({"keys": ["not-a-uuid"]}, ValueError, "key 'not-a-uuid': it is not a UUID, as column id is"),
        ({"keys": [7]}, ValueError, "key 7: Got a non-UUID"),
        ({"table": None}, ValueError, "no table is named, neither by a split or row file"),
    ],
)
def test_what_cannot_be_read_says_why_and_what_to_do(cassandra, tables, options, error, what):
    options = {"keys": KEYS[:3], "table": "{0}.data_train", **options}
    options["table"] = options["table"] and options["table"].format(tables)
    with pytest.raises(error, match=f"read_cassandra: .*{what.format(tables)}"):
        list(read(cassandra, options.pop("keys"), **options))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"max_in_flight": 0}, "max_in_flight must be at least 1, got 0"),
        ({"connections": 0}, "connections must be at least 1, got 0"),
        ({"table": "train"}, "a table is named keyspace.table, such as imagenette.train, got 'train'"),
        ({"label_type": "str"}, "label_type must be one of int, image, blob, none, got 'str'"),
        ({"on_error": "ignore"}, "on_error must be"),
    ],
)
def test_wrong_options_are_refused_at_construction(options, what):
    with pytest.raises(ValueError, match=f"load_from_cassandra: .*{what}"):
        IterableWrapper([]).load_from_cassandra(**options)


def test_a_server_that_nobody_listens_at_is_named_soon(tables):
    server = CassandraServer("127.0.0.1", port=free_port(), connect_timeout_s=2)
    start = time.monotonic()
    with pytest.raises(ConnectionError, match=rf"read_cassandra: 127\.0\.0\.1 port {server.port} is out of reach"):
        list(IterableWrapper(KEYS).read_cassandra(server=server, table="a.b"))
    assert time.monotonic() - start < 5


def test_the_settings_hide_their_secrets_and_check_each_other():
    server = CassandraServer(username="me", password="hunter2", client_certificate="c", client_key="k",
                             client_key_password="hunter3")  # fmt: skip
    assert "hunter" not in repr(server) and b"hunter" not in pickle.dumps(server)
    assert isinstance(server.password, Secret) and server.use_tls
    for wrong in ({"hosts": ""}, {"port": 0}, {"username": "me"}, {"client_key": "k"}, {"connect_timeout_s": 0},
                  {"cloud_bundle": "b.zip", "use_tls": True}):  # fmt: skip
        with pytest.raises(ValueError, match="CassandraServer: "):
            CassandraServer(**wrong)
