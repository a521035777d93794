"""S3 over TLS: a server is verified unless its user says otherwise, for listing and for loading alike."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from datapipes import S3Server
from datapipes.iter import IterableWrapper
from recipes.certificates import write_certificates

LISTING = b"""<?xml version="1.0"?><ListBucketResult><IsTruncated>false</IsTruncated>
<Contents><Key>train/cat/1.jpg</Key><Size>5</Size></Contents></ListBucketResult>"""


class Bucket(BaseHTTPRequestHandler):
    """One bucket with one object, over whatever socket it is given."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = LISTING if "list-type=2" in self.path else b"image"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[S3Server, Path]]:
    """A server with a certificate of an authority that nobody trusts, and that authority's certificate."""
    certificates = write_certificates(tmp_path_factory.mktemp("tls"), ["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server)
    with ThreadingHTTPServer(("127.0.0.1", 0), Bucket) as httpd:
        httpd.socket = context.wrap_socket(httpd.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=httpd.serve_forever)
        thread.start()
        url = f"https://127.0.0.1:{httpd.server_address[1]}"
        yield (
            S3Server(endpoint_url=url, region="us-east-1", access_key="me", secret_key="s3cret"),
            certificates.authority,
        )
        httpd.shutdown()
        thread.join()


def read(server: S3Server) -> list[bytes]:
    keys = IterableWrapper(["s3://bucket/train/"]).list_files_by_s3(server=server)
    return [stream.getvalue() for _, stream in keys.load_files_by_s3(server=server)]


def test_a_server_whose_authority_is_given_is_read(secure):
    server, authority = secure
    assert read(replace(server, ca_bundle=str(authority))) == [b"image"]


def test_a_server_of_an_unknown_authority_is_refused_when_listing(secure):
    with pytest.raises(ConnectionError, match="ca_bundle"):
        read(secure[0])


def test_a_server_of_an_unknown_authority_is_refused_when_loading(secure):
    with pytest.raises(ConnectionError, match="ca_bundle") as raised:
        list(IterableWrapper(["s3://bucket/train/cat/1.jpg"]).load_files_by_s3(server=secure[0]))
    assert "s3cret" not in str(raised.value)


def test_verification_can_be_turned_off(secure):
    assert read(replace(secure[0], verify=False)) == [b"image"]
