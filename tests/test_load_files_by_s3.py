"""Objects of S3, from two real servers and from servers that misbehave."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import socket
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise

import pytest
from settling import settles
from torch.utils.data import DataLoader

from datapipes.catalog.s3_server import S3Server
from datapipes.iter import IterableWrapper
from datapipes.load.s3 import S3FileLoader
from datapipes.on_error import Skipped
from datapipes.transfer.retry import Backoff

ODD_KEYS = [
    "a b.jpg",
    "a+b.jpg",
    "k=v&x=y/1.jpg",
    "50%/é#ü?.jpg",
    "100%25.jpg",
    "日本/語 ~!'()*,;:@$.jpg",
    'q"uote.jpg',
]


def sample_urls(s3):
    return [f"s3://{s3.bucket}/{key}" for key in sorted(s3.keys())]


def sample_bytes(s3):
    return [(s3.folder / key).read_bytes() for key in sorted(s3.keys())]


def loaded(urls, server, **options):
    return [item for _, item in S3FileLoader(urls, server=server, **options).flow(enumerate(urls))]


@contextmanager
def faulty_server(answer):
    """An HTTP server whose `answer(handler, n)` decides about its n-th request; yields (S3Server, requests)."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            asked.append((time.monotonic(), self.path))
            answer(self, len(asked))

        def whole(self, body, status=200, **headers):
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 600

        def handle_error(self, *_):
            pass

    http = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, args=(0.02,))
    thread.start()
    url = f"http://127.0.0.1:{http.server_address[1]}"
    try:
        yield S3Server(endpoint_url=url, region="r", access_key="a", secret_key="hunter2"), asked
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


def s3_error(code, status, **headers):
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>m</Message></Error>".encode()
    return lambda handler, n: handler.whole(body, status, **headers)


def test_every_object_arrives_whole_and_in_order(s3):
    urls = sample_urls(s3) * 5
    got = loaded(urls, s3.server)
    assert [url for url, _ in got] == urls
    assert [body.read() for _, body in got] == sample_bytes(s3) * 5


def test_the_pipe_ports_from_torchdata(s3):
    urls = IterableWrapper(sample_urls(s3))
    pipe = S3FileLoader(urls, 3000, "us-east-1", None, None, server=s3.server)
    assert (pipe.request_timeout_s, pipe.server.region, len(pipe)) == (3.0, "us-east-1", 60)
    assert [url for url, _ in pipe] == list(urls)
    assert len(list(urls.load_files_by_s3(server=s3.server, ordered=False))) == 60


@pytest.mark.parametrize("kind", ["s3", "rclone_s3"])
def test_keys_of_any_letters_are_signed_right(kind, request):
    s3 = request.getfixturevalue(kind)
    client = s3.client()
    client.create_bucket(Bucket="odd-keys")
    for key in ODD_KEYS:
        client.put_object(Bucket="odd-keys", Key=key, Body=key.encode())
    got = loaded([f"s3://odd-keys/{key}" for key in ODD_KEYS], s3.server)
    assert [body.read().decode() for _, body in got] == ODD_KEYS


def test_credentials_may_come_from_the_environment(s3, monkeypatch):
    for name, value in s3.local.environment.items():
        monkeypatch.setenv(name, value)
    url = f"s3://imagenet/{s3.keys()[0]}"
    assert loaded([url], S3Server())[0][1].read() == (s3.folder / s3.keys()[0]).read_bytes()


def test_a_wrong_bucket_and_a_wrong_key_are_told_apart(s3):
    with pytest.raises(FileNotFoundError, match=r"s3://no-such-bucket/x: NoSuchBucket.*correct the bucket's name"):
        loaded(["s3://no-such-bucket/x"], s3.server)
    with pytest.raises(FileNotFoundError, match=r"s3://imagenet/x: NoSuchKey"):
        loaded(["s3://imagenet/x"], s3.server)


@pytest.mark.parametrize(
    "url", ["http://host/1.jpg", "imagenet/1.jpg", "s3:///1.jpg", "s3://b/a/../1.jpg", "s3://b/./1.jpg"]
)
def test_an_address_that_is_none_is_named(url, s3):
    with pytest.raises(ValueError, match=url):
        loaded([url], s3.server)


def test_wrong_credentials_are_an_error_that_shows_no_secret(s3):
    url = f"s3://imagenet/{s3.keys()[0]}"
    for who in ({"access_key": "nobody-of-them", "secret_key": "hunter2-hunter2"}, {"access_key": s3.access_key}):
        server = S3Server(**{"secret_key": "hunter2-hunter2"} | who, endpoint_url=s3.endpoint_url, region="r")
        with pytest.raises(PermissionError, match="key is not") as caught:
            loaded([url], server)
        assert "hunter2" not in str(caught.value)
    with pytest.raises(PermissionError, match="AccessDenied"):
        loaded([url], S3Server(endpoint_url=s3.endpoint_url, region="r", anonymous=True))


@pytest.mark.parametrize(
    ("code", "status", "kind", "message"),
    [
        ("ExpiredToken", 400, PermissionError, "session token has expired; sign in again"),
        ("RequestTimeTooSkewed", 403, PermissionError, "clock"),
        ("InvalidArgument", 400, OSError, "InvalidArgument .400.: m"),
        ("Teapot", 418, OSError, "Teapot"),
    ],
)
def test_s3_error_codes_say_what_to_do(code, status, kind, message):
    with faulty_server(s3_error(code, status)) as (server, asked), pytest.raises(kind, match=message):
        loaded(["s3://bucket/1"], server)
    assert len(asked) == 1


def test_a_bucket_elsewhere_names_its_region():
    answer = s3_error("PermanentRedirect", 301, x_amz_bucket_region="eu-west-1")
    with faulty_server(answer) as (server, _), pytest.raises(OSError, match="region='eu-west-1'"):
        loaded(["s3://bucket/1"], server)


def test_a_session_token_is_sent_and_anonymous_sends_nothing():
    seen = []

    def answer(handler, n):
        seen.append(dict(handler.headers))
        handler.whole(b"x")

    with faulty_server(answer) as (server, _):
        loaded(["s3://bucket/1"], S3Server(server.endpoint_url, "r", None, "key", "secret", "a-token"))
        loaded(["s3://bucket/1"], S3Server(server.endpoint_url, "r", anonymous=True))
    assert seen[0]["x-amz-security-token"] == "a-token"
    assert "x-amz-security-token" in seen[0]["Authorization"]
    assert "Authorization" not in seen[1]


def test_an_unreachable_server_is_named():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
    server = S3Server(endpoint_url=url, region="r", anonymous=True)
    with pytest.raises(ConnectionError, match=r"load_files_by_s3: s3://b/1: .*127.0.0.1.*7 attempts"):
        loaded(["s3://b/1"], server)


def test_an_overloaded_server_is_waited_for_as_it_asks():
    def answer(handler, n):
        slow_down = s3_error("SlowDown", 503, Retry_After="1")
        slow_down(handler, n) if n in (3, 4) else handler.whole(handler.path.encode())

    with faulty_server(answer) as (server, asked):
        got = loaded([f"s3://b/{i}" for i in range(40)], server, max_in_flight=4)
    assert [body.read() for _, body in got] == [f"/b/{i}".encode() for i in range(40)]
    assert len(asked) == 42
    times = [at for at, _ in asked]
    assert max(b - a for a, b in pairwise(times)) > 0.8


@pytest.mark.parametrize("fault", ["cut", "cut_chunks", "reset", "no_length", "error_500", "error_429"])
def test_what_breaks_on_its_way_is_fetched_again(fault):
    def answer(handler, n):
        if n % 4 != 2:
            handler.whole(b"whole" * 9000)
        elif fault.startswith("error"):
            handler.whole(b"oops", int(fault[-3:]))
        elif fault == "cut":
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 45000\r\n\r\n" + b"whole" * 800)
        elif fault == "cut_chunks":
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nwhole\r\n")
        elif fault == "no_length":
            handler.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n" + b"whole" * 800)
        handler.close_connection = handler.close_connection or not fault.startswith("error")

    with faulty_server(answer) as (server, asked):
        got = loaded([f"s3://b/{i}" for i in range(20)], server)
    assert {body.read() for _, body in got} == {b"whole" * 9000}
    assert len(asked) > 20


def test_a_hung_server_ends_at_the_deadline_and_others_go_on():
    hung = threading.Event()

    def answer(handler, n):
        if handler.path == "/b/3":
            hung.wait(10)
        handler.whole(b"x")

    with faulty_server(answer) as (server, asked):
        urls = [f"s3://b/{i}" for i in range(8)]
        loader = S3FileLoader(urls, server=server, request_timeout_s=0.1, on_error="skip")
        backoff = Backoff(first_wait_s=0.01)
        items = [item for _, item in loader.through_window(enumerate(urls), loader.transport(), backoff=backoff)]
        hung.set()
    assert [type(item) for item in items].index(Skipped) == 3
    assert items[3].reason == (
        "load_files_by_s3: no whole answer for s3://b/3 within 0.1 s; "
        "see whether the server is well, or raise request_timeout_s (7 attempts)"
    )
    assert len(asked) == 14


def test_an_object_deleted_since_the_listing_leaves_its_batch_one_short(s3):
    client = s3.client()
    client.create_bucket(Bucket="melting")
    for i in range(20):
        client.put_object(Bucket="melting", Key=f"{i}.jpg", Body=bytes([i]))
    client.delete_object(Bucket="melting", Key="7.jpg")
    urls = [f"s3://melting/{i}.jpg" for i in range(20)]
    items = loaded(urls, s3.server, on_error="skip")
    assert [i for i, item in enumerate(items) if type(item) is Skipped] == [7]
    assert items[7].key == "s3://melting/7.jpg"
    pipe = IterableWrapper(urls).load_files_by_s3(server=s3.server, on_error="skip")
    assert len(list(pipe)) == 19


def open_files():
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def test_closing_half_way_leaves_no_thread_and_no_file_open(s3):
    urls = sample_urls(s3) * 20
    loaded(urls[:9], s3.server)
    files, threads = open_files(), threading.active_count()
    for _ in range(5):
        stream = S3FileLoader(urls, server=s3.server).flow(enumerate(urls))
        next(stream)
        stream.close()
    assert settles(lambda: open_files() <= files and threading.active_count() <= threads)


def first_body_size(url_and_stream):
    return len(url_and_stream[1].read())


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_load_after_the_main_process_has_and_while_it_does(s3, context):
    pipe = IterableWrapper(sample_urls(s3)).load_files_by_s3(server=s3.server)
    halfway = iter(pipe)
    next(halfway)
    sizes = pipe.map(first_body_size)
    loader = DataLoader(sizes, batch_size=None, num_workers=2, multiprocessing_context=context, timeout=60)
    assert sorted(loader) == sorted(2 * [len(body) for body in sample_bytes(s3)])


def close_in_child(stream):
    stream.close()
    gc.collect()


def test_a_child_that_drops_a_half_read_stream_does_not_disturb_its_parent(s3):
    urls = sample_urls(s3) * 5
    stream = S3FileLoader(urls, server=s3.server).flow(enumerate(urls))
    next(stream)
    child = multiprocessing.get_context("fork").Process(target=close_in_child, args=(stream,))
    child.start()
    child.join(20)
    assert child.exitcode == 0
    before = time.monotonic()
    assert len(list(stream)) == len(urls) - 1
    assert time.monotonic() - before < 10


def test_the_pipe_pickles_unstarted_half_read_and_finished(s3):
    pipe = IterableWrapper(sample_urls(s3)).load_files_by_s3(server=s3.server)
    for read in (0, 3, 60):
        stream = iter(pipe)
        for _ in range(read):
            next(stream)
        assert b"local-secret-key" not in pickle.dumps(pipe)


@pytest.mark.parametrize(
    ("option", "value"),
    [("max_in_flight", 0), ("max_bytes", 0), ("request_timeout_s", 0), ("on_error", "ignore")],
)
def test_options_are_checked_when_the_pipe_is_built(option, value):
    with pytest.raises(ValueError, match=f"load_files_by_s3: {option} must be .*{value}"):
        IterableWrapper([]).load_files_by_s3(**{option: value})
