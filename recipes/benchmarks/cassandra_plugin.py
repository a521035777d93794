"""A part of load_cassandra: the C++ plugin's epochs and ours in turn, over one table of a running server.

The plugin needs an environment of its own, so it takes part where CASSANDRA_PEER_IN_ORDER and
CASSANDRA_PEER_OUT_OF_ORDER name commands that run it: `{host}`, `{port}`, `{ids}` (a file, a UUID a line) and
`{table}` are filled in, and for each epoch the command prints a JSON object with `rate` (images/s) and `us` (CPU of
an image).
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from statistics import median

from datapipes.catalog.cassandra_server import CassandraServer
from datapipes.iter import IterableWrapper
from recipes.benchmarks.harness import Bar, Table, own_cpu_s

ROUNDS = 5


def beside_the_plugin(server: CassandraServer, keys: list[uuid.UUID]) -> Iterator[Table]:
    """Our epochs and the plugin's in turn, ours in exact order in both comparisons."""
    bars, rows = [], []
    for order, at_least in (("in order", 1.1), ("out of order", 1.0)):
        command = os.environ.get(f"CASSANDRA_PEER_{order.replace(' ', '_').upper()}")
        if command is None:
            continue
        rates, cpu_us = [], []
        for _ in range(ROUNDS):
            theirs = run_plugin(command, server, keys)
            mine = own_epochs(server, keys)
            rates.append((mine[0], theirs[0]))
            cpu_us.append((mine[1], theirs[1]))
        for place, name in enumerate(("read_cassandra", f"C++ plugin, {order}")):
            rows.append([name, f"{median(r[place] for r in rates):.0f}", f"{median(c[place] for c in cpu_us):.0f}"])
        bars += [
            Bar(f"its rate, of the plugin's {order}", median(m / t for m, t in rates), at_least=at_least),
            Bar(f"its CPU a row, of the plugin's {order}", median(m / t for m, t in cpu_us), at_most=0.7),
        ]
    if rows:
        yield Table("Beside the C++ plugin", ["reader", "rows/s", "client CPU a row, us"], rows, bars)


def run_plugin(command: str, server: CassandraServer, keys: list[uuid.UUID]) -> tuple[float, float]:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as ids:
        ids.write("\n".join(map(str, keys)))
        ids.flush()
        filled = command.format(host=server.hosts[0], port=server.port, ids=ids.name, table="bench.data")
        said = subprocess.run(shlex.split(filled), capture_output=True, text=True, check=True).stdout
    epochs = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return median(epoch["rate"] for epoch in epochs), median(epoch["us"] for epoch in epochs)


def own_epochs(server: CassandraServer, keys: list[uuid.UUID], epochs: int = 3) -> tuple[float, float]:
    """Rate and CPU of a steady reader: epochs on end, the first not counted, as the plugin counts its own."""
    samples = iter(
        IterableWrapper(keys * (epochs + 1), deepcopy=False).read_cassandra(server=server, table="bench.data")
    )
    for _ in keys:
        next(samples)
    start, cpu_s = time.perf_counter(), own_cpu_s()
    count = sum(1 for sample in samples if sample["bin"])
    return count / (time.perf_counter() - start), (own_cpu_s() - cpu_s) / count * 1e6
