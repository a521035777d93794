"""The proxies that tests and benchmarks lean on delay, carry, cut, reset, hang and answer as they say."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import psutil
import pytest

from recipes.slow_proxy import slow_proxy

IMAGE = bytes(range(256)) * 450


@pytest.fixture
def files(tmp_path):
    """An HTTP/1.1 server of a folder with one file of 115 KB; its URL."""

    class Handler(SimpleHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def copyfile(self, source, outputfile):
            with suppress(ConnectionError):
                super().copyfile(source, outputfile)

    (tmp_path / "image").write_bytes(IMAGE)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(tmp_path)))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def connect(url: str) -> http.client.HTTPConnection:
    address = urlsplit(url)
    return http.client.HTTPConnection(address.hostname, address.port, timeout=5)


def get(connection: http.client.HTTPConnection) -> bytes:
    connection.request("GET", "/image")
    return connection.getresponse().read()


def fetch(url: str, timeout_s: float = 5) -> bytes:
    """Over a connection of its own."""
    with closing(connect(url)) as connection:
        connection.timeout = timeout_s
        return get(connection)


def test_every_request_waits_for_the_delay_and_the_bytes_are_the_same(files):
    with slow_proxy(files, delay_s=0.1) as proxy:
        connection = connect(proxy.endpoint_url)
        times = []
        for _ in range(3):
            start = time.monotonic()
            assert get(connection) == IMAGE
            times.append(time.monotonic() - start)
        connection.close()
    assert min(times) >= 0.1
    assert min(times) < 0.3


def test_delays_overlap(files):
    with slow_proxy(files, delay_s=0.2) as proxy, ThreadPoolExecutor(20) as pool:
        start = time.monotonic()
        assert list(pool.map(fetch, [proxy.endpoint_url] * 20)) == [IMAGE] * 20
        assert time.monotonic() - start < 20 * 0.2 * 0.75


def test_a_client_that_reads_slowly_gets_everything_and_stops_no_other(files):
    with slow_proxy(files, delay_s=0) as proxy:
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", proxy.port))
        slow.sendall(b"GET /image HTTP/1.1\r\nConnection: close\r\n\r\n")
        time.sleep(0.1)
        assert fetch(proxy.endpoint_url) == IMAGE
        received = b""
        while data := slow.recv(2048):
            received += data
        slow.close()
        assert received.endswith(IMAGE)


def test_the_proxy_keeps_no_connection_of_clients_that_left(files):
    with slow_proxy(files, delay_s=0) as proxy:
        process = psutil.Process(proxy.process.pid)
        for _ in range(30):
            assert fetch(proxy.endpoint_url) == IMAGE
        deadline = time.monotonic() + 5
        while process.net_connections(kind="tcp")[1:] and time.monotonic() < deadline:
            time.sleep(0.02)
        assert len(process.net_connections(kind="tcp")) == 1
        assert process.num_fds() < 20


def test_a_server_that_is_not_there_is_a_closed_connection():
    with slow_proxy("127.0.0.1:1", delay_s=0) as proxy:
        with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
            fetch(proxy.endpoint_url)
        assert proxy.process.running


def test_faults_meet_the_next_requests_and_then_all_is_well(files, fault_proxy):
    proxy = fault_proxy(files)
    url = proxy.endpoint_url
    proxy.answer(503, times=2)
    proxy.cut(1000)
    proxy.reset(1000)
    for _ in range(2):
        assert b"<Code>SlowDown</Code>" in fetch(url)
    with pytest.raises(http.client.IncompleteRead):
        fetch(url)
    with pytest.raises(ConnectionResetError):
        fetch(url)
    assert fetch(url) == IMAGE
    assert proxy.requests == 5


def test_a_hung_proxy_answers_nothing_until_healed(files, fault_proxy):
    proxy = fault_proxy(files)
    proxy.hang()
    with pytest.raises(TimeoutError):
        fetch(proxy.endpoint_url, timeout_s=0.3)
    proxy.heal()
    assert fetch(proxy.endpoint_url) == IMAGE


def test_a_closed_proxy_refuses(files, fault_proxy):
    proxy = fault_proxy(files)
    proxy.close()
    with pytest.raises(ConnectionRefusedError):
        fetch(proxy.endpoint_url)


def test_signed_requests_pass_both_proxies(s3, fault_proxy):
    import boto3

    key = s3.keys()[0]
    with slow_proxy(s3.endpoint_url, delay_s=0.01) as slow:
        client = boto3.client(
            "s3",
            endpoint_url=fault_proxy(slow.endpoint_url).endpoint_url,
            aws_access_key_id=s3.access_key,
            aws_secret_access_key=s3.secret_key,
            region_name=s3.region,
        )
        body = client.get_object(Bucket=s3.bucket, Key=key)["Body"].read()
        client.close()
    assert body == (s3.folder / key).read_bytes()
