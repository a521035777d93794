"""HTTP as a transport: ranges as several servers answer them, and what a range must not become."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from datapipes.catalog.s3_server import resolve
from datapipes.catalog.s3_transport import object_address, s3_transport
from datapipes.load.depth import SHALLOWEST, Depth
from datapipes.load.window import in_flight
from datapipes.transfer.curl import CurlTransport
from datapipes.transfer.curl_transfer import Get
from datapipes.transfer.request import Request
from recipes.slow_proxy import slow_proxy


def of_ranges(ranges):
    """A request a range; the key is the range itself."""

    def form_requests(placed):
        for place, _ in placed:
            yield Request((place,), ("s3://imagenet/" + str(ranges[place]),), ranges[place])

    return form_requests


@pytest.mark.parametrize("kind", ["s3", "rclone_s3"])
def test_a_range_is_exactly_that_whatever_the_status(kind, request):
    s3 = request.getfixturevalue(kind)
    key = sorted(s3.keys())[0]
    body = (s3.folder / key).read_bytes()
    endpoint = resolve(s3.server)
    url = object_address(endpoint, f"s3://imagenet/{key}", "load")
    ranges = [(0, 1), (0, 100), (7, 1000), (len(body) - 5, 5), (0, len(body))]
    transport = s3_transport(s3.server, "load", address=lambda request: Get(url, *request.detail))
    placed = [(i, "") for i in range(len(ranges))]
    got = [part for _, (_, part) in in_flight(placed, transport, function="load", form_requests=of_ranges(ranges))]
    assert got == [body[first : first + n_bytes] for first, n_bytes in ranges]


@pytest.mark.parametrize("kind", ["s3", "rclone_s3"])
def test_a_range_past_the_end_is_an_error(kind, request):
    s3 = request.getfixturevalue(kind)
    key = sorted(s3.keys())[0]
    size = (s3.folder / key).stat().st_size
    url = object_address(resolve(s3.server), f"s3://imagenet/{key}", "load")
    for first, n_bytes in ((size - 5, 10), (size + 5, 10)):
        get = Get(url, first, n_bytes)
        transport = s3_transport(s3.server, "load", address=lambda _, get=get: get)
        with pytest.raises(OSError, match=r"load: a-shard: "):
            list(in_flight([(0, "a-shard")], transport, function="load"))


@contextmanager
def server_of(answer):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.wfile.write(answer)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/shard.tar"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def range_from(answer, first, n_bytes):
    with server_of(answer) as url:
        transport = CurlTransport(function="load", address=lambda _: Get(url, first, n_bytes))
        ((_, (_, body)),) = in_flight([(0, url)], transport, function="load")
        return body


def test_a_server_that_knows_no_ranges_is_cut_to_measure():
    assert range_from(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789", 3, 4) == b"3456"


def test_another_range_than_the_one_asked_for_is_an_error():
    answer = b"HTTP/1.1 206 OK\r\nContent-Length: 4\r\nContent-Range: bytes 0-3/10\r\n\r\n0123"
    with pytest.raises(OSError, match=r"bytes 3 to 7 were asked for, the server gave bytes 0-3/10"):
        range_from(answer, 3, 4)


@pytest.mark.parametrize(("status", "kind"), [(404, FileNotFoundError), (401, PermissionError), (416, OSError)])
def test_a_status_becomes_the_built_in_error(status, kind):
    with pytest.raises(kind, match=f"the server answered {status}"):
        range_from(b"HTTP/1.1 %d Oh\r\nContent-Length: 0\r\n\r\n" % status, 0, 4)


def test_at_100_ms_the_window_deepens_by_itself(s3):
    depth = Depth()
    with slow_proxy(s3.endpoint_url, delay_s=0.1) as proxy:
        urls = [f"s3://imagenet/{key}" for key in sorted(s3.keys())] * 10
        transport = s3_transport(s3.server_at(proxy.endpoint_url), "load")
        stream = in_flight(enumerate(urls), transport, function="load", depth=depth)
        deepest = max(depth.present for _ in stream)
    assert deepest >= 4 * SHALLOWEST
