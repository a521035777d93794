"""Objects from S3: load_files_by_s3 beside other clients, beside bare libcurl, and at a distance.

The server is S3Proxy on the same machine, so client and server share its cores and the rates are lower than a
cluster's; the ratios are what counts. Every client reads the same 2,000 photographs of 106 KB (the slow ones the
first 400), in one process, in turn; the ones with a concurrency to set run at their best of several.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import pycurl

from datapipes.catalog.s3_server import S3Server, resolve
from datapipes.catalog.s3_transport import object_address, signing
from datapipes.load.s3 import S3FileLoader
from recipes.benchmarks.harness import Bar, Figures, Table, alternate
from recipes.sample_images import write_sample_images
from recipes.servers import LocalS3, put_folder, s3_server
from recipes.slow_proxy import slow_proxy

PACKAGES = ("pycurl", "obstore", "s3torchconnector", "boto3", "s3fs")
OBJECTS = 2000
FEW = 400
ROUNDS = 5
DELAY_S = 0.1
START_S = 2.0
WATCH_S = 4.0
CONCURRENCIES = (8, 16, 32)


def measure() -> Iterable[Table]:
    with bucket_of_photographs() as (local, keys):
        yield beside_other_clients(local, keys)
        yield at_a_distance(local, keys)


@contextmanager
def bucket_of_photographs() -> Iterator[tuple[LocalS3, list[str]]]:
    with TemporaryDirectory() as folder, s3_server() as local:
        images = write_sample_images(folder, images=OBJECTS, val_images=0, size=(500, 375))
        put_folder(local, images, bucket="imagenet")
        yield local, sorted(path.relative_to(images).as_posix() for path in Path(images).rglob("*.JPEG"))


def beside_other_clients(local: LocalS3, keys: list[str]) -> Table:
    server = server_at(local, local.endpoint_url)
    urls = [f"s3://imagenet/{key}" for key in keys]
    ways: dict[str, tuple[int, Callable[[], object]]] = {
        "load_files_by_s3": (OBJECTS, lambda: read_all(server, urls)),
        "bare pycurl multi: the ceiling": (OBJECTS, lambda: bare_curl(server, urls)),
        "obstore": (OBJECTS, best_of(obstore_ways(local, keys))),
        "s3torchconnector": (OBJECTS, best_of(s3torchconnector_ways(local, urls))),
        "s3fs, cat of 64": (FEW, s3fs_way(local, keys[:FEW])),
        "boto3, 16 threads": (FEW, boto3_way(local, keys[:FEW])),
    }
    figures = alternate({name: run for name, (_, run) in ways.items()}, ROUNDS)
    rates = {name: count / figures[name].median_wall_s for name, (count, _) in ways.items()}
    cpu_us = {name: figures[name].median_cpu_s / count * 1e6 for name, (count, _) in ways.items()}
    ours = "load_files_by_s3"

    def faster(other: str) -> float:
        """The median of the rounds' own ratios: what slowed one contender in a round slowed the next as well."""
        return paired(figures[other], figures[ours], ways[ours][0] / ways[other][0])

    bars = [
        Bar("its rate, of the ceiling's", faster("bare pycurl multi: the ceiling"), at_least=0.9),
        Bar("its rate, of s3fs's", faster("s3fs, cat of 64"), at_least=8),
        Bar("its rate, of boto3's", faster("boto3, 16 threads"), at_least=8),
    ]
    for peer in ("obstore", "s3torchconnector"):
        bars.append(Bar(f"its rate, of {peer}'s", faster(peer), at_least=1.2))
        bars.append(Bar(f"its CPU an object, of {peer}'s", cpu_us[ours] / cpu_us[peer], at_most=0.7))
    rows = [[name, f"{rates[name]:.0f}", f"{faster(name):.2f}", f"{cpu_us[name]:.0f}"] for name in ways]
    columns = ["client", "objects/s", "ours is faster by", "client CPU an object, us"]
    return Table("Beside the server", columns, rows, bars)


def paired(other: Figures, ours: Figures, count_ratio: float) -> float:
    return median(o / u for o, u in zip(other.wall_s, ours.wall_s, strict=True)) * count_ratio


def at_a_distance(local: LocalS3, keys: list[str]) -> Table:
    urls = [f"s3://imagenet/{key}" for key in keys] * 40
    rates: dict[float, list[float]] = {0.0: [], DELAY_S: []}
    for _ in range(3):
        for delay_s, found in rates.items():
            with slow_proxy(local.endpoint_url, delay_s=delay_s) as proxy:
                found.append(settled_rate(server_at(local, proxy.endpoint_url), urls))
    rows = [[f"{delay_s * 1e3:.0f} ms", f"{median(found):.0f}"] for delay_s, found in rates.items()]
    ratio = median(far / near for near, far in zip(*rates.values(), strict=True))
    bar = Bar(f"rate with {DELAY_S * 1e3:.0f} ms added, of the rate without", ratio, at_least=0.8)
    return Table(
        f"Behind a proxy, default settings, after the first {START_S:.0f} s", ["delay", "objects/s"], rows, [bar]
    )


def server_at(local: LocalS3, endpoint_url: str) -> S3Server:
    return S3Server(
        endpoint_url=endpoint_url, region=local.region, access_key=local.access_key, secret_key=local.secret_key
    )


def read_all(server: S3Server, urls: list[str]) -> None:
    loaded = S3FileLoader(urls, server=server).flow(enumerate(urls))
    count = sum(1 for _, (_, stream) in loaded if stream.getbuffer().nbytes)
    assert count == len(urls)


def settled_rate(server: S3Server, urls: list[str]) -> float:
    began = time.perf_counter()
    first = settled_at = 0.0
    for number, _ in enumerate(S3FileLoader(urls, server=server).flow(enumerate(urls))):
        now = time.perf_counter()
        if now - began > START_S and not first:
            first, settled_at = number, now
        if now - began > START_S + WATCH_S:
            return (number - first) / (now - settled_at)
    raise RuntimeError(f"load_s3: {len(urls)} objects were read within {START_S + WATCH_S} s; give it more")


def bare_curl(server: S3Server, urls: list[str], depth: int = 16) -> None:
    """libcurl's multi interface and nothing around it: no order, no bounds, no checks but the status."""
    endpoint = resolve(server)
    options = {pycurl.BUFFERSIZE: 512 << 10, pycurl.NOSIGNAL: 1} | signing(endpoint)
    multi, addresses = pycurl.CurlMulti(), iter([object_address(endpoint, url, "load_s3") for url in urls])
    running = 0
    pieces = {}

    def start(handle: pycurl.Curl) -> int:
        address = next(addresses, None)
        if address is None:
            return 0
        handle.setopt(pycurl.URL, address)
        pieces[handle] = []
        handle.setopt(pycurl.WRITEFUNCTION, pieces[handle].append)
        multi.add_handle(handle)
        return 1

    for _ in range(depth):
        handle = pycurl.Curl()
        for option, value in options.items():
            handle.setopt(option, value)
        running += start(handle)
    while running:
        multi.perform()
        for handle in multi.info_read()[1]:
            multi.remove_handle(handle)
            assert handle.getinfo(pycurl.RESPONSE_CODE) == 200
            b"".join(pieces[handle])
            running += start(handle) - 1
        multi.select(0.1)


def best_of(ways: dict[str, Callable[[], object]]) -> Callable[[], object]:
    """The fastest of several settings of one client, by their second runs."""
    figures = alternate(ways, rounds=2)
    return ways[min(figures, key=lambda name: min(figures[name].wall_s))]


def obstore_ways(local: LocalS3, keys: list[str]) -> dict[str, Callable[[], object]]:
    import obstore
    from obstore.store import S3Store

    store = S3Store(
        "imagenet",
        endpoint=local.endpoint_url,
        access_key_id=local.access_key,
        secret_access_key=local.secret_key,
        region=local.region,
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
    )

    def threads(number: int) -> None:
        with ThreadPoolExecutor(number) as pool:
            assert all(pool.map(lambda key: len(obstore.get(store, key).bytes()), keys))

    async def read(key: str, gate: asyncio.Semaphore) -> int:
        async with gate:
            return len(await (await obstore.get_async(store, key)).bytes_async())

    async def tasks(number: int) -> None:
        gate = asyncio.Semaphore(number)
        assert all(await asyncio.gather(*(read(key, gate) for key in keys)))

    ways: dict[str, Callable[[], object]] = {}
    for number in CONCURRENCIES:
        ways[f"{number} threads"] = lambda number=number: threads(number)
        ways[f"{number} tasks"] = lambda number=number: asyncio.run(tasks(number))
    return ways


def s3torchconnector_ways(local: LocalS3, urls: list[str]) -> dict[str, Callable[[], object]]:
    # Its client reads credentials from the environment alone.
    os.environ.update(AWS_ACCESS_KEY_ID=local.access_key, AWS_SECRET_ACCESS_KEY=local.secret_key)
    from s3torchconnector import S3ClientConfig, S3MapDataset

    dataset = S3MapDataset.from_objects(
        urls,
        region=local.region,
        endpoint=local.endpoint_url,
        s3client_config=S3ClientConfig(force_path_style=True, throughput_target_gbps=100),
    )

    def threads(number: int) -> None:
        with ThreadPoolExecutor(number) as pool:
            assert all(pool.map(lambda index: len(dataset[index].read()), range(len(urls))))

    return {f"{number} threads": (lambda number=number: threads(number)) for number in CONCURRENCIES}


def s3fs_way(local: LocalS3, keys: list[str]) -> Callable[[], object]:
    import s3fs

    files = s3fs.S3FileSystem(key=local.access_key, secret=local.secret_key, endpoint_url=local.endpoint_url)
    paths = [f"imagenet/{key}" for key in keys]

    def cat() -> None:
        for start in range(0, len(paths), 64):
            assert all(files.cat(paths[start : start + 64]).values())

    return cat


def boto3_way(local: LocalS3, keys: list[str]) -> Callable[[], object]:
    client = local.client()

    def threads() -> None:
        with ThreadPoolExecutor(16) as pool:
            bodies = pool.map(lambda key: client.get_object(Bucket="imagenet", Key=key)["Body"].read(), keys)
            assert all(bodies)

    return threads


if __name__ == "__main__":
    for table in measure():
        print(table.markdown())
