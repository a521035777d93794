"""Tar shards: open_tar_shards and read_tar_samples beside webdataset, bare downloads and plain reads.

Locally each reader takes the same shards from the page cache, real photographs of 106 KB or samples of 1 KB, each
with its label: as this package writes them, and as webdataset does, which puts a pax header with the time in front
of every member. From S3 (S3Proxy on the same machine, so that client and server share its cores) the ceiling is
the better of bare pycurl and obstore that stream the same objects and throw the bytes away.
"""

from __future__ import annotations

import io
import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import pycurl
import webdataset
from torchvision.datasets import ImageFolder

from datapipes.catalog.s3_server import S3Server, parse_s3_url, resolve
from datapipes.catalog.s3_transport import signing
from datapipes.dataset.remote_dataset import RemoteDataset
from datapipes.iter import IterableWrapper
from datapipes.prepare.shard_writer import ShardWriter
from datapipes.prepare.upload_cv_dataset import upload_cv_dataset
from recipes.benchmarks.harness import Bar, Figures, Table, alternate
from recipes.sample_images import write_sample_images
from recipes.servers import LocalS3, s3_server
from recipes.slow_proxy import slow_proxy

PACKAGES = ("webdataset", "pycurl", "obstore", "google-crc32c")
PHOTOGRAPHS = 2000
SMALL = 20_000
DELAY_S = 0.1
REPEATED = 5
ROUNDS = 5
PIECE = 1 << 20
_WHAT_BARE_LACKS = (
    "The bare downloads drop each piece as it comes. A reader keeps it (a copy), makes a sample's bytes of seven or so "
    "(another), and verifies headers and checksums. Tried in a bare loop: ranges of 1, 2 and 8 MiB, and one buffer a "
    "request that pieces are written into; none was clearly better than making samples straight from the pieces of "
    "4 MiB ranges. Each run also waits once for the sizes and indexes of its first shards."
)


def measure() -> Iterable[Table]:
    with TemporaryDirectory() as name:
        folder = Path(name)
        images = photographs(folder)
        small = [os.urandom(1024) for _ in range(SMALL)]
        yield local(folder, "106 KB photographs", images, wanted=(5.0, 4.0))
        yield local(folder, "1 KB samples", small, wanted=(10.0, 7.0))
        with s3_server() as server:
            yield from remote(server, folder, images)


def photographs(folder: Path) -> list[bytes]:
    made = write_sample_images(folder / "images", images=PHOTOGRAPHS, val_images=0, size=(500, 375))
    return [path.read_bytes() for path in sorted(Path(made).rglob("*.JPEG"))]


def local(folder: Path, title: str, contents: list[bytes], wanted: tuple[float, float]) -> Table:
    rows: list[list[str]] = []
    bars: list[Bar] = []
    for writer, shards in (("webdataset", by_webdataset(folder, contents)), ("us", by_us(folder, contents))):
        ways: dict[str, Callable[[], object]] = {
            "webdataset": lambda shards=shards: drain(webdataset.WebDataset(shards, shardshuffle=False)),
            "open_tar_shards, headers": lambda shards=shards: drain(stream(shards, checksums=False)),
            "plain reads: the ceiling": lambda shards=shards: read_plainly(shards),
        }
        if writer == "us":
            ways["open_tar_shards, headers and contents"] = lambda shards=shards: drain(stream(shards))
        figures = alternate(ways, ROUNDS)
        for name, figure in figures.items():
            times = times_as_fast(figures, "webdataset", name)
            rows.append([f"{name}; shards of {writer}", *per_sample(figure, len(contents)), f"{times:.1f}x"])
        headers = times_as_fast(figures, "webdataset", "open_tar_shards, headers")
        bars.append(Bar(f"headers verified / webdataset, shards of {writer}", headers, at_least=wanted[0]))
        if writer == "us":
            both = times_as_fast(figures, "webdataset", "open_tar_shards, headers and contents")
            bars.append(Bar("contents verified too / webdataset", both, at_least=wanted[1]))
    return Table(f"Local shards, {title}", ["reader", "us a sample", "CPU us", "webdataset = 1"], rows, bars)


def by_webdataset(folder: Path, contents: list[bytes]) -> list[str]:
    shards = []
    for number in range(4):
        shards.append(f"{folder}/webdataset-{len(contents)}-{number}.tar")
        with webdataset.TarWriter(shards[-1]) as writer:
            for index in range(number, len(contents), 4):
                writer.write(sample(index, contents[index]))
    return shards


def by_us(folder: Path, contents: list[bytes]) -> list[str]:
    target = f"{folder}/us-{len(contents)}"
    with ShardWriter(f"{target}/shard-%06d.tar", maxcount=-(-len(contents) // 4)) as writer:
        for index, content in enumerate(contents):
            writer.write(sample(index, content))
    return [str(path) for path in sorted(Path(target).glob("*.tar"))]


def sample(index: int, content: bytes) -> dict[str, object]:
    return {"__key__": f"n01440764/n01440764_{index}", "jpg": content, "cls": index % 1000}


def stream(shards: list[str], **options: object) -> Iterable[object]:
    return IterableWrapper(shards).open_tar_shards(**options)


def drain(items: Iterable[object]) -> int:
    return sum(1 for _ in items)


def read_plainly(shards: list[str]) -> None:
    piece = bytearray(PIECE)
    for shard in shards:
        with open(shard, "rb", buffering=0) as file:
            while file.readinto(piece):
                pass


def remote(server: LocalS3, folder: Path, contents: list[bytes]) -> Iterator[Table]:
    here = server_at(server, server.endpoint_url)
    server.client().create_bucket(Bucket="shards")
    with ShardWriter("s3://shards/all/s-%06d.tar", server=here, maxsize=5e7) as writer:
        for index, content in enumerate(contents):
            writer.write(sample(index, content))
    urls = [f"s3://shards/all/{shard.name}" for shard in writer.close().shards]
    on_disk = [f"{folder}/us-{len(contents)}"]
    cache = str(folder / "cache")
    ways: dict[str, Callable[[], object]] = {
        "open_tar_shards": lambda: drain(stream(urls, server=here)),
        "read_tar_samples, block=256": lambda: drain(RemoteDataset(here, "shards", "all")),
        "read_tar_samples, cached": lambda: drain(RemoteDataset(here, "shards", "all", cache_dir=cache)),
        "read_tar_samples, local": lambda: drain(by_index(on_disk)),
        "bare pycurl: the ceiling": lambda: bare_curl(here, urls),
        "bare obstore": lambda: bare_obstore(server, urls),
    }
    figures = alternate(ways, ROUNDS)
    best = min(("bare pycurl: the ceiling", "bare obstore"), key=lambda name: figures[name].median_wall_s)
    rows = [
        [name, *per_sample(figure, len(contents)), f"{times_as_fast(figures, best, name):.2f}x"]
        for name, figure in figures.items()
    ]
    streamed = times_as_fast(figures, best, "open_tar_shards")
    by_blocks = times_as_fast(figures, "open_tar_shards", "read_tar_samples, block=256")
    cached = times_as_fast(figures, "read_tar_samples, local", "read_tar_samples, cached")
    bars = [
        Bar("open_tar_shards / the better bare download", streamed, at_least=0.9),
        Bar("read_tar_samples at block=256 / streaming", by_blocks, at_least=0.7),
        Bar("by index from the cache / from local shards", cached, at_least=0.9),
    ]
    columns = ["reader", "us a sample", "CPU us", "bare = 1"]
    yield Table("Shards from S3, 106 KB photographs", columns, rows, bars, notes=_WHAT_BARE_LACKS)
    yield at_a_distance(server, urls, len(contents))
    yield uploads(server, here, folder, contents)


def at_a_distance(server: LocalS3, urls: list[str], samples: int) -> Table:
    with (
        slow_proxy(server.endpoint_url, delay_s=0.0) as near,
        slow_proxy(server.endpoint_url, delay_s=DELAY_S) as far,
    ):
        ways: dict[str, Callable[[], object]] = {
            name: lambda at=at: drain(stream(urls * REPEATED, server=server_at(server, at.endpoint_url)))
            for name, at in (("no delay", near), (f"{DELAY_S * 1e3:.0f} ms", far))
        }
        figures = alternate(ways, 3)
    rows = [[name, *per_sample(figure, samples * REPEATED)] for name, figure in figures.items()]
    ratio = times_as_fast(figures, *list(ways))
    bar = Bar(f"{DELAY_S * 1e3:.0f} ms added to every round trip, of the rate without", ratio, at_least=0.8)
    return Table("open_tar_shards behind a proxy, default settings", ["delay", "us a sample", "CPU us"], rows, [bar])


def uploads(server: LocalS3, here: S3Server, folder: Path, contents: list[bytes]) -> Table:
    ds = ImageFolder(str(folder / "images" / "train"))

    def ours() -> None:
        upload_cv_dataset(ds, client=here, bucket="shards", base_folder=uuid.uuid4().hex, maxsize=5e7, progress=False)

    bodies = [b"".join(contents[first::4]) for first in range(4)]

    def bare() -> None:
        for body in bodies:
            server.client().upload_fileobj(io.BytesIO(body), "shards", f"bare/{uuid.uuid4().hex}")

    figures = alternate({"upload_cv_dataset": ours, "bare multipart upload": bare}, 3)
    rows = [[name, *per_sample(figure, len(contents))] for name, figure in figures.items()]
    bar = Bar(
        "upload_cv_dataset / boto3's multipart upload of the same bytes",
        times_as_fast(figures, "bare multipart upload", "upload_cv_dataset"),
        at_least=0.8,
    )
    return Table("Upload of an ImageFolder", ["way", "us a sample", "CPU us"], rows, [bar])


def by_index(folders: list[str]) -> Iterable[object]:
    return IterableWrapper(folders).list_tar_samples().distribute(block=256).read_tar_samples()


def server_at(server: LocalS3, endpoint_url: str) -> S3Server:
    return S3Server(
        endpoint_url=endpoint_url, region=server.region, access_key=server.access_key, secret_key=server.secret_key
    )


def bare_curl(server: S3Server, urls: list[str]) -> None:
    endpoint = resolve(server)
    multi, handles = pycurl.CurlMulti(), []
    for url in urls:
        handle = pycurl.Curl()
        settings = {pycurl.URL: endpoint.url(*parse_s3_url(url)), pycurl.BUFFERSIZE: 512 << 10}
        for option, value in (settings | signing(endpoint)).items():
            handle.setopt(option, value)
        handle.setopt(pycurl.WRITEFUNCTION, len)
        handles.append(handle)
        multi.add_handle(handle)
    running = 1
    while running:
        multi.select(1.0)
        _, running = multi.perform()
    if any(handle.getinfo(pycurl.RESPONSE_CODE) != 200 for handle in handles):
        raise OSError("bare_curl: a shard was not served")


def bare_obstore(server: LocalS3, urls: list[str]) -> None:
    import obstore.store

    store = obstore.store.S3Store(
        "shards",
        endpoint=server.endpoint_url,
        region=server.region,
        access_key_id=server.access_key,
        secret_access_key=server.secret_key,
        client_options={"allow_http": True},
    )

    def download(url: str) -> int:
        return sum(len(piece) for piece in obstore.get(store, parse_s3_url(url)[1]).stream(min_chunk_size=PIECE))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(download, urls))


def per_sample(figure: Figures, samples: int) -> list[str]:
    return [f"{figure.median_wall_s / samples * 1e6:.1f}", f"{figure.median_cpu_s / samples * 1e6:.1f}"]


def times_as_fast(figures: dict[str, Figures], other: str, name: str) -> float:
    """How much less time `name` takes than `other`: the median of the rounds' own ratios."""
    return median(theirs / ours for theirs, ours in zip(figures[other].wall_s, figures[name].wall_s, strict=True))
