"""The dataset service beside nginx: a large file down and up, many small ones at once; and its pipe beside S3's.

Debian's nginx (apt-get install nginx) serves the same files from the same disk with sendfile and a process a core,
takes uploads by WebDAV, and writes its access log; the service logs too. Large files go through one process of the
service, whose memory is what counts there; small ones through a process a core, as with nginx. The client, curl or
libcurl's multi interface, shares the machine with the server, so that rates are lower than a cluster's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import pycurl

from datapipes.load.service import ServiceFileLoader
from recipes.benchmarks.harness import Bar, Figures, Table, alternate
from recipes.benchmarks.load_s3 import read_all, server_at
from recipes.local_process import LocalProcess, free_port
from recipes.local_service import LocalService, dataset_service
from recipes.sample_images import write_sample_images
from recipes.servers import put_folder, s3_server

PACKAGES = ("fastapi", "uvicorn", "uvloop", "httptools", "pycurl")
LARGE_BYTES = 2 << 30
IMAGES = 2000
AT_ONCE = 64
ROUNDS = 5

NGINX = """
worker_processes auto;
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
{user}
events {{ worker_connections 768; }}
http {{
    sendfile on;
    tcp_nopush on;
    access_log {folder}/access.log;
    client_max_body_size 0;
    client_body_temp_path {root}/.nginx;
    server {{
        listen 127.0.0.1:{port};
        root {root};
        location / {{ dav_methods PUT; create_full_put_path on; }}
    }}
}}
"""


def measure() -> Iterable[Table]:
    with TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        images = write_sample_images(root / "images", images=IMAGES, val_images=0, size=(500, 375))
        names = sorted(path.relative_to(images).as_posix() for path in images.rglob("*.JPEG"))
        with nginx(root) as peer_url:
            with dataset_service(root) as service:
                yield large_files(service, peer_url, root)
            with dataset_service(root, "--workers", str(os.cpu_count())) as service:
                yield small_files(service, peer_url, names)
        with dataset_service(root, "--workers", str(os.cpu_count())) as service:
            yield pipes(service, images, names)


@contextmanager
def nginx(root: Path) -> Iterator[str]:
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    if not Path(program).exists():
        raise FileNotFoundError("service: there is no nginx to compare with; apt-get install nginx")
    port = free_port()
    with TemporaryDirectory() as folder:
        config = Path(folder) / "nginx.conf"
        user = "user root;" if os.geteuid() == 0 else ""
        config.write_text(NGINX.format(folder=folder, root=root, port=port, user=user))

        def is_ready() -> bool:
            return subprocess.run(["curl", "-s", f"http://127.0.0.1:{port}/"], capture_output=True).returncode == 0

        with LocalProcess("nginx", [program, "-c", str(config)], is_ready=is_ready):
            yield f"http://127.0.0.1:{port}"


def large_files(service: LocalService, peer_url: str, root: Path) -> Table:
    source = root.parent / "large.bin"
    with source.open("wb") as out:
        block = os.urandom(1 << 24)
        for _ in range(LARGE_BYTES >> 24):
            out.write(block)
    (root / "large").mkdir()
    ours, theirs = f"{service.url}/datasets/large/files/a.bin", f"{peer_url}/large/b.bin"
    up = alternate({"service": lambda: send(source, ours), "nginx": lambda: send(source, theirs)}, rounds=3)
    source.unlink()
    down = alternate({"service": lambda: receive(ours), "nginx": lambda: receive(theirs)}, ROUNDS)
    memory_mb = peak_memory_mb(service.pid)
    rows = [
        [name, *(f"{LARGE_BYTES / figures[name].median_wall_s / 1e6:.0f}" for figures in (down, up))]
        for name in ("service", "nginx")
    ]
    bars = [
        Bar("its download, of nginx's", rate_of(down, "nginx"), at_least=0.6),
        Bar("its upload, of nginx's", rate_of(up, "nginx"), at_least=0.4),
        Bar("its memory at most, MB", memory_mb, at_most=150),
    ]
    shutil.rmtree(root / "large")
    return Table(
        f"A file of {LARGE_BYTES / 1e9:.1f} GB, one process", ["server", "download MB/s", "upload MB/s"], rows, bars
    )


def small_files(service: LocalService, peer_url: str, names: list[str]) -> Table:
    ours = [f"{service.url}/datasets/images/files/{name}" for name in names]
    theirs = [f"{peer_url}/images/{name}" for name in names]
    errors = {"service": 0, "nginx": 0}

    def get_all(name: str, urls: list[str]) -> None:
        errors[name] += get_side_by_side(urls)

    ways = {"service": lambda: get_all("service", ours), "nginx": lambda: get_all("nginx", theirs)}
    figures = alternate(ways, ROUNDS)
    rows = [
        [name, f"{len(names) / figures[name].median_wall_s:.0f}", str(errors[name])] for name in ("service", "nginx")
    ]
    bars = [
        Bar("its rate, of nginx's", rate_of(figures, "nginx"), at_least=0.3),
        Bar("errors", errors["service"], at_most=0),
    ]
    title = f"{len(names)} photographs of 106 KB, {AT_ONCE} at once, a process a core"
    return Table(title, ["server", "files/s", "errors"], rows, bars)


def pipes(service: LocalService, images: Path, names: list[str]) -> Table:
    urls = [f"{service.url}/datasets/images/files/{name}" for name in names]
    with s3_server() as local:
        put_folder(local, images, bucket="imagenet")
        server = server_at(local, local.endpoint_url)
        objects = [f"s3://imagenet/{name}" for name in names]
        ways: dict[str, Callable[[], object]] = {
            "load_files_by_service": lambda: load_all(urls),
            "load_files_by_s3": lambda: read_all(server, objects),
        }
        figures = alternate(ways, ROUNDS)
    rows = [[name, f"{len(names) / figures[name].median_wall_s:.0f}"] for name in ways]
    ratio = median(
        s3 / ours
        for s3, ours in zip(figures["load_files_by_s3"].wall_s, figures["load_files_by_service"].wall_s, strict=True)
    )
    bar = Bar("load_files_by_service's rate, of load_files_by_s3's from S3Proxy", ratio, at_least=0.7)
    return Table("The pipes", ["pipe", "files/s"], rows, [bar])


def rate_of(figures: dict[str, Figures], peer: str) -> float:
    """The median of the rounds' own ratios: what slowed one server in a round slowed the other as well."""
    return median(theirs / ours for theirs, ours in zip(figures[peer].wall_s, figures["service"].wall_s, strict=True))


def receive(url: str) -> None:
    subprocess.run(["curl", "-sSf", "-o", "/dev/null", url], check=True)


def send(source: Path, url: str) -> None:
    subprocess.run(["curl", "-sSf", "-o", "/dev/null", "-H", "Expect:", "-T", str(source), url], check=True)


def peak_memory_mb(pid: int) -> float:
    """The most memory that the process ever held."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e6


def load_all(urls: list[str]) -> None:
    files = ServiceFileLoader(urls).flow(enumerate(urls))
    assert sum(1 for _, (_, stream) in files if stream.getbuffer().nbytes) == len(urls)


def get_side_by_side(urls: list[str]) -> int:
    """Get every URL, AT_ONCE at a time over kept connections; how many failed."""
    multi, waiting, failed, running = pycurl.CurlMulti(), iter(urls), 0, 0
    multi.setopt(pycurl.M_MAXCONNECTS, 2 * AT_ONCE)

    def start(handle: pycurl.Curl) -> int:
        url = next(waiting, None)
        if url is None:
            return 0
        handle.setopt(pycurl.URL, url)
        multi.add_handle(handle)
        return 1

    for _ in range(AT_ONCE):
        handle = pycurl.Curl()
        handle.setopt(pycurl.BUFFERSIZE, 512 << 10)
        handle.setopt(pycurl.WRITEFUNCTION, lambda piece: None)
        running += start(handle)
    while running:
        multi.perform()
        _, whole, broken = multi.info_read()
        for handle in [*whole, *(handle for handle, _, _ in broken)]:
            failed += handle.getinfo(pycurl.RESPONSE_CODE) != 200
            multi.remove_handle(handle)
            running += start(handle) - 1
        failed += len(broken)
        multi.select(0.1)
    return failed


if __name__ == "__main__":
    for table in measure():
        print(table.markdown())
