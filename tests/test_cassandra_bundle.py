"""Astra's way in, without Astra: a bundle, a metadata service that wants its certificate, a node behind TLS."""

from __future__ import annotations

import json
import ssl
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cassandra_tables import data_of, fill, keys_of, keyspace
from cryptography.hazmat.primitives import serialization
from torch.utils.data import DataLoader

from datapipes.catalog.cassandra_server import CassandraServer
from datapipes.iter import IterableWrapper
from recipes.certificates import write_certificates
from recipes.local_process import free_port

KEYS = keys_of(100)


@dataclass
class Astra:
    """What a bundle is made of, and the server that it leads to."""

    files: dict[str, bytes]
    server: CassandraServer
    table: str
    folder: Path

    def bundle(self, name: str, **changes: bytes | None) -> CassandraServer:
        """The server by way of a bundle of these files, `None` for one that is left out."""
        path = self.folder / name
        with zipfile.ZipFile(path, "w") as bundle:
            for file, content in (self.files | changes).items():
                if content is not None:
                    bundle.writestr(file, content)
        return CassandraServer(cloud_bundle=str(path), username=self.server.username, password=self.server.password)


@pytest.fixture(scope="module")
def astra(secure_cassandra, tmp_path_factory) -> Iterator[Astra]:
    """A node with a table, and a service that tells those who show a certificate where the node is."""
    certificates = secure_cassandra.certificates
    key = serialization.load_pem_private_key(
        certificates.client_key.read_bytes(), certificates.client_key_password.encode()
    )
    with keyspace(secure_cassandra.server) as (name, session):
        fill(session, f"{name}.data_train", KEYS)
        host_id = session.execute("SELECT host_id FROM system.local").one()[0]
        answer = {
            "contact_info": {
                "type": "sni_proxy",
                "local_dc": "datacenter1",
                "contact_points": [str(host_id)],
                "sni_proxy_address": f"{secure_cassandra.hosts[0]}:{secure_cassandra.port}",
            }
        }
        with metadata_service(json.dumps(answer).encode(), certificates) as port:
            config = json.dumps({"host": "127.0.0.1", "port": port}).encode()
            files = {
                "config.json": config,
                "ca.crt": certificates.authority.read_bytes(),
                "cert": certificates.client.read_bytes(),
                "key": key.private_bytes(
                    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
                ),
            }
            yield Astra(files, secure_cassandra.server, f"{name}.data_train", tmp_path_factory.mktemp("bundles"))


class metadata_service:
    """HTTPS on a free port, for clients of the authority alone; it answers /metadata."""

    def __init__(self, answer: bytes, certificates) -> None:
        class Service(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200 if self.path == "/metadata" else 404)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *args: object) -> None:
                pass

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates.server)
        context.load_verify_locations(certificates.authority)
        context.verify_mode = ssl.CERT_REQUIRED
        self.httpd = ThreadingHTTPServer(("127.0.0.1", 0), Service)
        self.httpd.socket = context.wrap_socket(self.httpd.socket, server_side=True, do_handshake_on_connect=False)
        # A client that does not believe us is what a test wants to see, not the service's own account of it.
        self.httpd.handle_error = lambda request, address: None
        self.thread = threading.Thread(target=self.httpd.serve_forever)

    def __enter__(self) -> int:
        self.thread.start()
        return self.httpd.server_address[1]

    def __exit__(self, *_: object) -> None:
        self.httpd.shutdown()
        self.thread.join()
        self.httpd.server_close()


def read(server: CassandraServer, table: str):
    return IterableWrapper(KEYS, deepcopy=False).read_cassandra(server=server, table=table)


def test_samples_are_read_through_a_bundle_in_workers_too(astra):
    pipe = read(astra.bundle("good.zip"), astra.table)
    expected = [data_of(key) for key in KEYS]
    assert [sample["jpg"] for sample in pipe] == expected
    assert [sample["jpg"] for sample in DataLoader(pipe, batch_size=None, num_workers=1)] == expected


def test_what_a_bundle_holds_is_not_left_on_the_disk(astra, tmp_path, monkeypatch):
    server = astra.bundle("tidy.zip")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    before = set(astra.folder.iterdir())
    next(iter(read(server, astra.table)))
    assert set(astra.folder.iterdir()) == before and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"key": None, "cert": None}, "it lacks cert, key"),
        ({"config.json": b"{"}, "Expecting property name"),
        ({"config.json": b"[]"}, "names no host and port"),
        ({"config.json": b"\xff\xfe\xfd"}, ""),
        ({"ca.crt": b"no certificate"}, "its certificates cannot be used"),
        ({"key": b"no key"}, "its certificates cannot be used"),
    ],
    ids=["lacks files", "no JSON", "no host", "no text", "no authority", "no key"],
)
def test_a_broken_bundle_is_named(astra, changes, what):
    server = astra.bundle("broken.zip", **changes)
    with pytest.raises(ValueError, match=rf"read_cassandra: \S+/broken\.zip is no secure-connect bundle: .*{what}"):
        list(read(server, astra.table))


def test_a_bundle_that_is_no_zip_or_not_there_is_named(astra, tmp_path):
    (tmp_path / "cut.zip").write_bytes(Path(astra.bundle("whole.zip").cloud_bundle).read_bytes()[:200])
    with pytest.raises(ValueError, match=r"cut\.zip is no secure-connect bundle: File is not a zip file"):
        list(read(replace(astra.bundle("a.zip"), cloud_bundle=str(tmp_path / "cut.zip")), astra.table))
    with pytest.raises(FileNotFoundError, match=r"read_cassandra: no bundle \S+/absent\.zip; give cloud_bundle="):
        list(read(replace(astra.bundle("a.zip"), cloud_bundle=str(tmp_path / "absent.zip")), astra.table))


def test_a_database_that_is_asleep_is_named(astra):
    port = free_port()
    config = json.dumps({"host": "127.0.0.1", "port": port}).encode()
    server = replace(astra.bundle("asleep.zip", **{"config.json": config}), connect_timeout_s=2)
    what = rf"asleep\.zip is out of reach: .*https://127\.0\.0\.1:{port}/metadata.*refused.*is active"
    with pytest.raises(ConnectionError, match=what):
        list(read(server, astra.table))


def test_a_service_of_another_authority_is_not_believed(astra, tmp_path):
    other = write_certificates(tmp_path, ["127.0.0.1"])
    server = astra.bundle("other.zip", **{"ca.crt": other.authority.read_bytes()})
    with pytest.raises(ConnectionError, match=r"other\.zip is out of reach: .*certificate verify failed"):
        list(read(server, astra.table))


def test_a_wrong_password_is_refused_by_name(astra):
    server = replace(astra.bundle("password.zip"), password="hunter2")
    with pytest.raises(PermissionError, match=r"the cluster of \S+password\.zip refused user 'me'") as caught:
        list(read(server, astra.table))
    assert "hunter2" not in str(caught.value)
