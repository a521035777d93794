"""Passwords and certificates, on a real server that asks for both."""

from __future__ import annotations

import argparse
from dataclasses import replace

import pytest
from cassandra_tables import data_of, fill, keys_of, keyspace
from torch.utils.data import DataLoader

from datapipes.catalog.row_source import RowSource
from datapipes.iter import IterableWrapper
from datapipes.prepare.metadata import read_metadata
from recipes.cassandra_options import add_server_options, server_from
from recipes.certificates import write_certificates

KEYS = keys_of(200)


@pytest.fixture(scope="module")
def secured(secure_cassandra):
    """A server that wants a password and, over TLS alone, a client's certificate whose key has a password too."""
    with keyspace(secure_cassandra.server) as (name, session):
        fill(session, f"{name}.data_train", KEYS, size=40_000)
        yield secure_cassandra.server, f"{name}.data_train"


def read(server, table):
    return IterableWrapper(KEYS, deepcopy=False).read_cassandra(server=server, table=table)


def test_password_and_certificate_open_the_door_in_spawned_workers_too(secured):
    expected = [data_of(key, 40_000) for key in KEYS]
    assert [item["jpg"] for item in read(*secured)] == expected
    loader = DataLoader(read(*secured), batch_size=None, num_workers=1, multiprocessing_context="spawn")
    assert [item["jpg"] for item in loader] == expected


@pytest.mark.parametrize(
    ("change", "error", "what"),
    [
        ({"password": "wrong"}, PermissionError, r"refused user 'me': .*; check username and password"),
        ({"client_key_password": "wrong"}, ValueError, "the certificates .* cannot be used: .*the key's password"),
        ({"client_certificate": None, "client_key": None, "client_key_password": None}, ConnectionError, ""),
        ({"ca_certificate": "/no/such.pem"}, ValueError, r"the certificates /no/such\.pem, .* cannot be used"),
    ],
    ids=["password", "key's password", "no client certificate", "no file"],
)
def test_what_does_not_fit_is_refused_by_name_and_without_secrets(secured, change, error, what):
    server, table = secured
    with pytest.raises(error, match=f"read_cassandra: .*{what}") as caught:
        list(read(replace(server, **change), table))
    assert "hunter" not in str(caught.value) and "wrong" not in str(caught.value)


def test_a_server_of_another_authority_is_refused_not_accepted_silently(secured, tmp_path):
    server, table = secured
    other = write_certificates(tmp_path, ["127.0.0.1"])
    with pytest.raises(ConnectionError, match=r"no TLS connection: .*certificate verify failed"):
        list(read(replace(server, ca_certificate=str(other.authority)), table))


def test_a_certificate_for_another_host_is_refused_unless_that_is_allowed(secured):
    server, table = secured
    elsewhere = replace(server, hosts="127.0.0.2")
    advice = r"127\.0\.0\.2 port \d+: no TLS connection: .*is not valid for '127\.0\.0\.2'.* check_hostname=False"
    with pytest.raises(ConnectionError, match=advice):
        list(read(elsewhere, table))
    with pytest.raises(ConnectionError, match=advice):
        read_metadata(elsewhere, RowSource(table))
    assert len(list(read(replace(elsewhere, check_hostname=False), table))) == len(KEYS)


@pytest.mark.parametrize("variable", [None, "CASSANDRA_NO_CHECK_HOSTNAME"])
def test_recipes_are_told_by_option_or_environment_to_accept_other_names(variable, monkeypatch):
    parser = argparse.ArgumentParser()
    if variable:
        monkeypatch.setenv(variable, "1")
    add_server_options(parser)
    assert server_from(parser.parse_args([])).check_hostname is (variable is None)
    assert not server_from(parser.parse_args(["--cassandra-no-check-hostname"])).check_hostname


def test_a_host_that_is_not_there_is_named(secured):
    server, table = secured
    with pytest.raises(ConnectionError, match=r"read_cassandra: no-such\.invalid port \d+: no such host"):
        list(read(replace(server, hosts="no-such.invalid"), table))


def test_a_connection_without_tls_is_refused(secured):
    server, table = secured
    plain = replace(
        server, use_tls=False, ca_certificate=None, client_certificate=None, client_key=None, connect_timeout_s=3
    )
    with pytest.raises(ConnectionError, match="is out of reach"):
        list(read(plain, table))
