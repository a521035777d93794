"""How every recipe is told which Cassandra to use: options, or the environment for what they leave out.

    export CASSANDRA_HOSTS=10.0.0.1,10.0.0.2 CASSANDRA_USERNAME=me CASSANDRA_PASSWORD=...

A password has no option, since other users of the machine see a command's options.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import fields
from typing import Any

from datapipes.catalog.cassandra_server import CassandraServer
from datapipes.catalog.secret import Secret


def add_server_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where Cassandra is; the defaults are the environment's."""
    group = parser.add_argument_group("Cassandra", "default: CASSANDRA_HOSTS, CASSANDRA_PORT, ... if set")
    for name, meaning in {
        "hosts": "addresses of some nodes, with commas between (default: 127.0.0.1)",
        "port": "where they speak CQL (default: 9042)",
        "username": "its password is read from CASSANDRA_PASSWORD",
        "ca-certificate": "PEM file of the authority of the nodes' certificates; turns TLS on",
        "client-certificate": "PEM file; its key's password is read from CASSANDRA_CLIENT_KEY_PASSWORD",
        "client-key": "PEM file",
        "cloud-bundle": "an Astra secure-connect bundle",
        "local-dc": "the data center to use",
    }.items():
        variable = f"CASSANDRA_{name.upper().replace('-', '_')}"
        group.add_argument(f"--cassandra-{name}", default=os.environ.get(variable), help=meaning, metavar="...")
    group.add_argument(
        "--cassandra-no-check-hostname",
        action="store_true",
        default=os.environ.get("CASSANDRA_NO_CHECK_HOSTNAME", "") not in ("", "0"),
        help="any certificate of the authority will do, whatever address it names",
    )


def server_from(args: argparse.Namespace) -> CassandraServer:
    """The server that options and environment name."""
    return CassandraServer(
        hosts=args.cassandra_hosts or "127.0.0.1",
        port=int(args.cassandra_port or 9042),
        username=args.cassandra_username,
        password=os.environ.get("CASSANDRA_PASSWORD") if args.cassandra_username else None,
        ca_certificate=args.cassandra_ca_certificate,
        check_hostname=not args.cassandra_no_check_hostname,
        client_certificate=args.cassandra_client_certificate,
        client_key=args.cassandra_client_key,
        client_key_password=os.environ.get("CASSANDRA_CLIENT_KEY_PASSWORD"),
        cloud_bundle=args.cassandra_cloud_bundle,
        local_dc=args.cassandra_local_dc,
    )


def settings_with_secrets(server: CassandraServer) -> dict[str, Any]:
    """The server's arguments, passwords as text: for a job that another machine runs for us.

    A pickled `CassandraServer` leaves its secrets out, unless the pickle is for a worker process.
    """
    settings = {field.name: getattr(server, field.name) for field in fields(server)}
    return {name: value.reveal() if isinstance(value, Secret) else value for name, value in settings.items()}
