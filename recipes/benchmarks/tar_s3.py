"""Tar shards from S3: open_tar_shards and read_tar_samples beside bare downloads, and the way up.

S3Proxy runs on the same machine, so that client and server share its cores; the ceiling is the better of bare pycurl
and obstore that stream the same objects and throw the bytes away. Photographs of 106 KB, each with its label.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pycurl
from torchvision.datasets import ImageFolder

from datapipes.catalog.s3_server import S3Server, parse_s3_url, resolve
from datapipes.catalog.s3_transport import signing
from datapipes.dataset.remote_dataset import RemoteDataset
from datapipes.iter import IterableWrapper
from datapipes.prepare.shard_writer import ShardWriter
from datapipes.prepare.upload_cv_dataset import upload_cv_dataset
from recipes.benchmarks.fresh_process import in_fresh_process, memory_over_epochs, resident_after_epochs
from recipes.benchmarks.harness import Bar, Table, alternate
from recipes.benchmarks.tar import PIECE, TIMES_OVER, drain, per_sample, photographs, sample, stream, times_as_fast
from recipes.servers import LocalS3, s3_server
from recipes.slow_proxy import slow_proxy

PACKAGES = ("pycurl", "obstore", "boto3", "fastcrc")
SHARD_BYTES = 1e8
AT_ONCE = 4
DELAY_S = 0.1
REPEATED = 6
ROUNDS = 9
EPOCHS = 20
_WHAT_BARE_LACKS = (
    "The bare downloads drop each piece as it comes. A reader keeps it (a copy), makes a sample's bytes of several "
    "(another), and verifies headers and checksums. Each run also waits once for the sizes and indexes of its first "
    "shards."
)


def measure() -> Iterable[Table]:
    with TemporaryDirectory() as name, s3_server() as server:
        folder, here = Path(name), server_at(server, server.endpoint_url)
        contents = photographs(folder)
        repeated = contents * TIMES_OVER
        server.client().create_bucket(Bucket="shards")
        urls = fill(here, "s3://shards/all", repeated)
        fill(here, str(folder / "local"), repeated)
        yield readers(server, here, folder, urls, len(repeated))
        yield at_a_distance(server, urls, len(repeated))
        yield uploads(server, here, folder, contents)
        yield memory(server)


def fill(here: S3Server, target: str, contents: list[bytes]) -> list[str]:
    with ShardWriter(f"{target}/s-%06d.tar", server=here, maxsize=SHARD_BYTES) as writer:
        for index, content in enumerate(contents):
            writer.write(sample(index, content))
    return [f"{target}/{shard.name}" for shard in writer.close().shards]


def readers(server: LocalS3, here: S3Server, folder: Path, urls: list[str], samples: int) -> Table:
    on_disk, cache = [str(folder / "local")], str(folder / "cache")
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
        [name, *per_sample(figure, samples), f"{times_as_fast(figures, best, name):.2f}x"]
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
    return Table("Shards of 100 MB from S3", columns, rows, bars, notes=_WHAT_BARE_LACKS)


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
        upload_cv_dataset(
            ds, client=here, bucket="shards", base_folder=uuid.uuid4().hex, maxsize=SHARD_BYTES, progress=False
        )

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


def memory(server: LocalS3) -> Table:
    login = {name: getattr(server, name) for name in ("endpoint_url", "region", "access_key", "secret_key")}
    ways = {"open_tar_shards": streamed_memory, "read_tar_samples": indexed_memory}
    return memory_over_epochs({name: in_fresh_process(way, login) for name, way in ways.items()})


def streamed_memory(login: dict[str, str]) -> list[float]:
    samples = stream(["s3://shards/all"], server=S3Server(**login))
    return resident_after_epochs(lambda: drain(samples), EPOCHS)


def indexed_memory(login: dict[str, str]) -> list[float]:
    samples = RemoteDataset(S3Server(**login), "shards", "all", shuffle=True)
    return resident_after_epochs(lambda: drain(samples), EPOCHS)


def by_index(folders: list[str]) -> Iterable[object]:
    return IterableWrapper(folders).list_tar_samples().distribute(block=256).read_tar_samples()


def server_at(server: LocalS3, endpoint_url: str) -> S3Server:
    return S3Server(
        endpoint_url=endpoint_url, region=server.region, access_key=server.access_key, secret_key=server.secret_key
    )


def bare_curl(server: S3Server, urls: list[str]) -> None:
    endpoint = resolve(server)
    multi, handles = pycurl.CurlMulti(), []
    multi.setopt(pycurl.M_MAX_TOTAL_CONNECTIONS, AT_ONCE)
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

    with ThreadPoolExecutor(AT_ONCE) as threads:
        list(threads.map(download, urls))
