"""list_files_by_s3: every object under a prefix once, in key order, from any server; or an error that says why."""

from __future__ import annotations

import functools
import os
import pickle
import random
import socket
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from settling import settles
from torch.utils.data import DataLoader

from datapipes.catalog import s3_tree
from datapipes.catalog.list_s3 import S3FileLister
from datapipes.catalog.s3_errors import explain_s3
from datapipes.catalog.s3_page import Page, parse_page
from datapipes.catalog.s3_server import S3Server
from datapipes.iter import IterableWrapper
from datapipes.transfer.http_error import HttpAnswer
from datapipes.transfer.retry import Backoff
from recipes.servers import put_folder, rclone_server

ODD_NAMES = ["a b", "a+b", "a=b", "a#b", "a?b", "a%b", "a%20b", "a&b", "<a>", "ünï", "日本", "q'\"", "a;b:c@d,e$f!(g)*"]
KEYS = sorted(
    [f"odd/x y+z/{name}.jpg" for name in ODD_NAMES]
    + [f"imagenet-val/n{index % 3}/{index}.JPEG" for index in range(12)]
    + [f"imagenet-val2/{index}.JPEG" for index in range(3)]
    + ["imagenet-val-old/1.JPEG", "lonely.tar", "lonely.tar.gz", "mixed/a.txt", "mixed/b/1.jpg", "mixed/c.jpg"]
    + [f"many/n{index // 370}/{index:05d}.JPEG" for index in range(1110)]
    + ["many/README", "many/n1.txt", "many/n2-notes.txt"]
)


def write_keys(folder: Path) -> Path:
    for key in KEYS:
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    return folder


@pytest.fixture(scope="module", params=["s3proxy", "rclone"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """S3Proxy, then rclone, with KEYS in the bucket `listing`, in S3Proxy with two folder markers as well."""
    folder = tmp_path_factory.mktemp("buckets")
    write_keys(folder / "listing")
    if request.param == "s3proxy":
        sample = request.getfixturevalue("s3")
        put_folder(sample.local, folder / "listing", bucket="listing")
        for marker in ("imagenet-val/", "only-a-marker/"):
            sample.client().put_object(Bucket="listing", Key=marker, Body=b"")
        yield sample.server
    else:
        # Its own: rclone keeps in mind for minutes what folders it has seen.
        with rclone_server(folder=folder) as local:
            yield S3Server(local.endpoint_url, local.region, None, local.access_key, local.secret_key)


def under(*prefixes: str) -> list[str]:
    return [f"s3://listing/{key}" for prefix in prefixes for key in KEYS if key.startswith(prefix)]


def listed(server: S3Server, *prefixes: str, **options: Any) -> list[str]:
    return list(
        IterableWrapper([f"s3://listing{prefix}" for prefix in prefixes]).list_files_by_s3(server=server, **options)
    )


def test_a_bucket_is_listed_whole_in_key_order(server: S3Server) -> None:
    assert listed(server, "") == listed(server, "/") == under("")


def test_odd_keys_come_as_they_are(server: S3Server) -> None:
    assert listed(server, "/odd/") == listed(server, "/odd/x y+z") == under("odd/")
    assert listed(server, "/odd/x y+z/a%20b.jpg") == ["s3://listing/odd/x y+z/a%20b.jpg"]


def test_a_prefix_names_a_folder_or_an_object_and_no_more(server: S3Server) -> None:
    assert listed(server, "/imagenet-val") == listed(server, "/imagenet-val/") == under("imagenet-val/")
    assert listed(server, "/lonely.tar") == ["s3://listing/lonely.tar"]
    assert listed(server, "/many") == under("many/")


def test_prefixes_keep_the_order_given(server: S3Server) -> None:
    assert listed(server, "/mixed", "/imagenet-val2", "/lonely.tar") == [
        *under("mixed/", "imagenet-val2/"),
        "s3://listing/lonely.tar",
    ]


def test_a_folder_of_more_than_a_page_lists_its_folders_beside_one_another(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert listed(server, "/many/") == under("many/")
    monkeypatch.setattr(s3_tree, "_LARGE_FOLDERS_A_PAGE", 0)
    assert listed(server, "/many/") == under("many/"), "plain paging must give the same"


def test_masks_select_by_base_name(server: S3Server) -> None:
    assert listed(server, "/mixed", masks="*.jpg") == ["s3://listing/mixed/b/1.jpg", "s3://listing/mixed/c.jpg"]
    assert listed(server, "/mixed", masks=["c.*", "a.*"]) == [
        "s3://listing/mixed/a.txt",
        "s3://listing/mixed/c.jpg",
    ]
    assert listed(server, "/mixed", masks="*/b/*") == ["s3://listing/mixed/b/1.jpg"]


@pytest.mark.parametrize("prefix", ["/absent/", "/absent", "/imagenet-va", "/only-a-marker/"])
def test_an_empty_prefix_is_an_error_that_names_it(server: S3Server, prefix: str) -> None:
    with pytest.raises(FileNotFoundError, match=f"list_files_by_s3: nothing under s3://listing{prefix}; check"):
        listed(server, "/mixed", prefix)


def test_masks_that_match_nothing_are_an_error_that_counts(server: S3Server) -> None:
    with pytest.raises(FileNotFoundError, match=r"none of the 12 files under .* matches masks='\*.jpeg'"):
        listed(server, "/imagenet-val", masks="*.jpeg")


def test_a_wrong_bucket_is_named(server: S3Server) -> None:
    with pytest.raises(FileNotFoundError, match="s3://no-such-bucket/x: NoSuchBucket"):
        list(S3FileLister(["s3://no-such-bucket/x"], server=server))


def test_wrong_credentials_are_told_apart(server: S3Server) -> None:
    url, region = server.endpoint_url, server.region
    for access_key, secret_key in ((server.access_key, "hunter2-hunter2"), ("nobody-known", "hunter2-hunter2")):
        wrong = S3Server(endpoint_url=url, region=region, access_key=access_key, secret_key=secret_key)
        with pytest.raises(PermissionError, match=r"key is not|AccessDenied") as caught:
            listed(wrong, "/mixed")
        assert "hunter2" not in str(caught.value)
    # S3Proxy says 403 to a request without a signature, rclone 400.
    with pytest.raises(OSError, match=r"AccessDenied|UnsupportedAlgorithm"):
        listed(S3Server(endpoint_url=url, region=region, anonymous=True), "/mixed")


def test_the_table_holds_the_same_keys(server: S3Server) -> None:
    table = IterableWrapper(["s3://listing/many", "s3://listing/odd"]).list_files_by_s3(server=server).key_table()
    assert table.take(np.arange(len(table))) == under("many/", "odd/")


def test_it_pickles_before_during_and_after_a_listing(server: S3Server) -> None:
    pipe = S3FileLister(IterableWrapper(["s3://listing/mixed/"]), server=server)
    pickle.loads(pickle.dumps(pipe))
    items = iter(pipe)
    next(items)
    pickle.loads(pickle.dumps(pipe))
    assert len(list(items)) == 2
    pickle.loads(pickle.dumps(pipe))
    assert list(pipe) == under("mixed/"), "a pipe can be read again"


def test_workers_may_list_after_the_main_process_has(server: S3Server) -> None:
    pipe = IterableWrapper(["s3://listing/imagenet-val"]).list_files_by_s3(server=server)
    assert list(pipe) == under("imagenet-val/")
    loader = DataLoader(pipe.sharding_filter(), batch_size=None, num_workers=2, multiprocessing_context="fork")
    assert sorted(loader) == under("imagenet-val/")


def test_the_older_signature_works(server: S3Server) -> None:
    pipe = S3FileLister(["s3://listing/mixed/"], 7, 20_000, "us-east-1", "*.jpg", server=server)
    assert len(pipe) == 7 and len(list(pipe)) == 2
    with pytest.raises(TypeError):
        len(S3FileLister([]))


def test_prefixes_that_overlap_are_refused() -> None:
    for prefixes in (["s3://b/a", "s3://b/a/c"], ["s3://b/a/", "s3://b/a"], ["s3://b/x", "s3://b"]):
        with pytest.raises(ValueError, match="would come twice"):
            list(S3FileLister(prefixes))


@pytest.mark.parametrize("options", [{"request_timeout_s": 0}, {"request_timeout_ms": -5}])
def test_a_timeout_must_be_positive(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="request_timeout_s must be more than 0"):
        S3FileLister([], **options)


VAL = ["s3://imagenet/val"]


def test_a_server_that_fails_and_recovers_costs_nothing_but_time(s3: Any, fault_proxy: Any) -> None:
    proxy = fault_proxy(s3.endpoint_url)
    proxy.answer(503)
    proxy.cut(after_bytes=700)
    proxy.reset(after_bytes=300)
    proxy.hang(times=1)
    pipe = S3FileLister(VAL, server=s3.server_at(proxy.endpoint_url), request_timeout_s=0.5)
    assert list(pipe) == [f"s3://imagenet/{key}" for key in s3.keys("val/")]
    assert proxy.requests == 5


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datapipes.transfer.attempts.Backoff", functools.partial(Backoff, first_wait_s=0.01))


def test_a_server_that_stays_overloaded_is_an_error(s3: Any, fault_proxy: Any, short_waits: None) -> None:
    proxy = fault_proxy(s3.endpoint_url)
    proxy.answer(503, times=7)
    with pytest.raises(ConnectionError, match=r"s3://imagenet/val: SlowDown \(503\).*\(7 attempts\)"):
        list(S3FileLister(VAL, server=s3.server_at(proxy.endpoint_url)))


def test_a_hung_server_is_an_error_in_good_time(s3: Any, fault_proxy: Any, short_waits: None) -> None:
    proxy = fault_proxy(s3.endpoint_url)
    proxy.hang()
    with pytest.raises(
        TimeoutError, match=r"no whole answer for s3://imagenet/val within 0.1 s.*request_timeout_s \(7 attempts\)"
    ):
        list(S3FileLister(VAL, server=s3.server_at(proxy.endpoint_url), request_timeout_s=0.1))


def test_a_listing_that_is_left_closes_its_connections(server: S3Server) -> None:
    before = len(os.listdir("/proc/self/fd"))
    items = iter(S3FileLister(["s3://listing/many"], server=server))
    next(items)
    items.close()  # type: ignore[attr-defined]
    assert settles(lambda: len(os.listdir("/proc/self/fd")) <= before)


def test_a_server_that_is_not_s3_is_told(tmp_path: Path, short_waits: None) -> None:
    (tmp_path / "b").write_text("<html>Welcome!</html>")
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as web:
        threading.Thread(target=web.serve_forever, args=(0.02,), daemon=True).start()
        url = f"http://127.0.0.1:{web.server_port}"
        with pytest.raises(OSError, match=rf"not a whole ListBucketResult.*check that {url} is an S3 server"):
            list(S3FileLister(["s3://b"], server=S3Server(endpoint_url=url, anonymous=True)))
        web.shutdown()


def test_an_unreachable_server_is_named(short_waits: None) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        nobody = S3Server(endpoint_url=url, region="x", access_key="a", secret_key="hunter2")
        with pytest.raises(ConnectionError, match=f"s3://imagenet/val: .*{url}.*see whether the server is up"):
            list(S3FileLister(VAL, server=nobody))


# --- The walk itself, over any keys, pages of any size and answers in any order ------------------------------


class BucketOf:
    """Answers the queries of a walk from a list of keys, some at a time, in a random order."""

    function = "test"

    def __init__(self, keys: list[str], page_size: int, seed: int, shuffled: bool) -> None:
        self.keys, self.page_size, self.shuffled = keys, page_size, shuffled
        self.random = random.Random(seed)
        self.waiting: list[tuple[Any, str]] = []

    def ask(self, url: str, *, told_as: str, rank: Any, tag: Any) -> None:
        self.waiting.append((tag, url.partition("?")[2]))

    def answers(self) -> list[tuple[Any, Page]]:
        self.random.shuffle(self.waiting)
        tag, query = self.waiting.pop()
        return [(tag, self.page(query))]

    def page(self, query: str) -> Page:
        asked = {name: values[0] for name, values in parse_qs(query).items()}
        prefix, delimiter = asked.get("prefix", ""), asked.get("delimiter", "")
        start, _, after = asked.get("continuation-token", "0 " + asked.get("start-after", "")).partition(" ")
        names: dict[str, None] = {}
        for key in self.keys:
            if key.startswith(prefix) and key > after:
                end = key.find("/", len(prefix)) if delimiter else -1
                names[key if end < 0 else key[: end + 1]] = None
        ordered = list(names)
        if self.shuffled:
            random.Random(len(ordered)).shuffle(ordered)
        end = int(start) + self.page_size
        page = ordered[int(start) : end]
        token = f"{end} {after}" if end < len(ordered) else None
        return Page(
            [name for name in page if not name.endswith("/")],
            [name for name in page if name.endswith("/")] if delimiter else [],
            token,
        )


def walk_of(keys: set[str], prefix: str, page_size: int, seed: int, shuffled: bool = False) -> list[str]:
    bucket = BucketOf(sorted(keys), page_size, seed, shuffled)
    walk = s3_tree._Walk(SimpleNamespace(url=lambda bucket: ""), bucket)  # type: ignore[arg-type]
    folder, steps = s3_tree._root(0, f"s3://bucket/{prefix}")
    return [key for page in walk.keys_of(walk.started(folder, steps)) for key in page]


@settings(deadline=None, max_examples=300)
@given(
    keys=st.sets(st.text("ab/", min_size=1, max_size=6), max_size=40),
    page_size=st.integers(1, 12),
    seed=st.integers(0, 99),
    prefix=st.sampled_from(["", "a", "a/", "ab", "b/a"]),
)
def test_every_key_comes_once_and_in_order(keys: set[str], page_size: int, seed: int, prefix: str) -> None:
    inside = prefix if prefix == "" or prefix.endswith("/") else prefix + "/"
    assert walk_of(keys, prefix, page_size, seed) == sorted(
        key for key in keys if not key.endswith("/") and (key == prefix or key.startswith(inside))
    )


def test_a_server_without_an_order_gives_the_same() -> None:
    keys = {f"n{index % 3}/{index}" for index in range(100)} | {f"{index}.txt" for index in range(30)}
    for seed in range(10):
        assert walk_of(keys, "", 40, seed, shuffled=True) == sorted(keys)
        assert walk_of(keys, "n1", 10, seed, shuffled=True) == sorted(k for k in keys if k.startswith("n1/"))


@pytest.mark.parametrize(
    "status, body, error, message",
    [
        (400, "<Code>ExpiredToken</Code>", PermissionError, "has expired; sign in again"),
        (403, "<Code>RequestTimeTooSkewed</Code>", PermissionError, "clock is wrong"),
        (301, "<Region>eu-south-1</Region>", OSError, r"S3Server\(region='eu-south-1'\)"),
        (404, "<Code>NoSuchKey</Code>", FileNotFoundError, "list again"),
        (418, "<Code>Teapot</Code>", OSError, r"Teapot \(418\)"),
    ],
)
def test_a_refusal_says_what_to_do(status: int, body: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        answer = HttpAnswer("http://h/b/p", status, {}, f"<Error>{body}</Error>".encode())
        raise explain_s3("list_files_by_s3", "s3://b/p", answer)


def test_a_page_that_cannot_be_read_is_refused() -> None:
    for body in (
        b"<ListBucketResult><Contents><Key><![CDATA[a]]></Key></Contents></ListBucketResult>",
        b"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
        b"<ListBucketResult><Contents><Key>a</Key></Contents>",
        b"",
    ):
        with pytest.raises(ValueError):
            parse_page(body)


def test_a_page_without_url_encoding_is_read_as_xml() -> None:
    body = "<ListBucketResult><Contents><Key>a&amp;b+c&#x27;%20é</Key></Contents></ListBucketResult>".encode()
    assert parse_page(body) == Page(["a&b+c'%20é"], [], None)
