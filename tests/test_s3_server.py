"""S3Server: settings found as AWS tools find them, and secrets that go to workers and nowhere else."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import traceback
from pathlib import Path

import pytest

from datapipes.catalog.s3_server import S3Server, parse_s3_url, quote_key, resolve
from datapipes.catalog.secret import Secret

LOCAL = "http://127.0.0.1:9000"
KEYED = S3Server(endpoint_url=LOCAL, access_key="me", secret_key="hunter2", session_token="tok3n")


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """An environment without AWS settings, other than those that a test puts in."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return monkeypatch


def test_given_settings_need_no_environment(aws: pytest.MonkeyPatch) -> None:
    endpoint = resolve(KEYED)
    signed = endpoint.credentials()
    assert signed and (signed.access_key, signed.secret_key, signed.session_token) == (
        "me",
        "hunter2",
        "tok3n",
    )
    assert (endpoint.base_url, endpoint.region, endpoint.virtual_host) == (LOCAL, "us-east-1", False)


def test_the_environment_fills_what_was_left_open(aws: pytest.MonkeyPatch) -> None:
    aws.setenv("AWS_ACCESS_KEY_ID", "env")
    aws.setenv("AWS_SECRET_ACCESS_KEY", "hunter3")
    aws.setenv("AWS_REGION", "eu-south-1")
    aws.setenv("AWS_DEFAULT_REGION", "eu-south-1")
    aws.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    aws.setenv("AWS_ENDPOINT_URL_S3", LOCAL)
    endpoint = resolve(S3Server())
    signed = endpoint.credentials()
    assert signed and (signed.access_key, signed.secret_key) == ("env", "hunter3")
    assert (endpoint.base_url, endpoint.region) == (LOCAL, "eu-south-1")


def test_aws_region_alone_is_enough(aws: pytest.MonkeyPatch) -> None:
    aws.setenv("AWS_REGION", "eu-south-1")
    assert resolve(S3Server(anonymous=True)).region == "eu-south-1"


def test_a_profile_gives_address_region_style_and_credentials(aws: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "config").write_text(
        f"[profile lab]\nregion = lab-1\nendpoint_url = {LOCAL}\ns3 =\n  addressing_style = virtual\n"
    )
    (tmp_path / "credentials").write_text("[lab]\naws_access_key_id = p\naws_secret_access_key = hunter4\n")
    by_name = resolve(S3Server(profile="lab"))
    aws.setenv("AWS_PROFILE", "lab")
    for endpoint in (by_name, resolve(S3Server())):
        signed = endpoint.credentials()
        assert signed and (signed.access_key, signed.secret_key) == ("p", "hunter4")
        assert (endpoint.base_url, endpoint.region, endpoint.virtual_host) == (LOCAL, "lab-1", True)


def test_credentials_that_expire_are_renewed(aws: pytest.MonkeyPatch, tmp_path: Path) -> None:
    counter = tmp_path / "runs"
    counter.write_text("")
    script = tmp_path / "credentials.sh"
    script.write_text(
        f"#!/bin/sh\nprintf x >> {counter}\nN=$(wc -c < {counter})\n"
        'echo "{\\"Version\\": 1, \\"AccessKeyId\\": \\"run$N\\", \\"SecretAccessKey\\": \\"hunter5\\",'
        ' \\"SessionToken\\": \\"t\\", \\"Expiration\\": \\"$(date -u -d +30sec +%FT%TZ)\\"}"\n'
    )
    script.chmod(0o755)
    (tmp_path / "config").write_text(f"[default]\nregion = x\ncredential_process = {script}\n")
    endpoint = resolve(S3Server(endpoint_url=LOCAL))
    first, second = endpoint.credentials(), endpoint.credentials()
    assert first and second and first.expires_at is not None
    assert first.access_key < second.access_key, "30 s before they expire they must be fetched anew"


def test_aws_itself_is_addressed_by_virtual_host_where_the_name_allows_it(aws: pytest.MonkeyPatch) -> None:
    endpoint = resolve(S3Server(region="eu-west-1", anonymous=True))
    assert endpoint.url("imagenet", "a b") == "https://imagenet.s3.eu-west-1.amazonaws.com/a%20b"
    assert endpoint.url("image.net", "a") == "https://s3.eu-west-1.amazonaws.com/image.net/a"
    china = resolve(S3Server(region="cn-north-1", anonymous=True))
    assert china.url("imagenet") == "https://imagenet.s3.cn-north-1.amazonaws.com.cn/"


def test_no_credentials_and_no_profile_say_what_to_give(aws: pytest.MonkeyPatch) -> None:
    with pytest.raises(PermissionError, match=r"no credentials found.*anonymous=True"):
        resolve(S3Server(endpoint_url=LOCAL))
    with pytest.raises(ValueError, match="nowhere"):
        resolve(S3Server(profile="nowhere"))


@pytest.mark.parametrize(
    "settings, complaint",
    [
        ({"access_key": "me"}, "go together"),
        ({"secret_key": "hunter2"}, "go together"),
        ({"session_token": "hunter2"}, "all three"),
        ({"anonymous": True, "profile": "x"}, "signs nothing"),
        ({"address_style": "subdomain"}, "'subdomain'"),
        ({"endpoint_url": "127.0.0.1:9000"}, "127.0.0.1:9000"),
        ({"endpoint_url": "http://me:hunter2@host"}, "user or password"),
    ],
)
def test_settings_that_contradict_are_refused_at_once(settings: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as caught:
        S3Server(**settings)  # type: ignore[arg-type]
    assert "hunter2" not in str(caught.value)


def test_a_secret_is_in_no_repr_and_in_no_pickle() -> None:
    endpoint = resolve(KEYED)
    for text in (
        repr(KEYED),
        str(KEYED),
        repr(endpoint),
        repr(endpoint.credentials()),
        repr(KEYED.secret_key),
    ):
        assert "hunter2" not in text and "tok3n" not in text
    written = pickle.dumps(KEYED)
    assert b"hunter2" not in written and b"tok3n" not in written
    with pytest.raises(ValueError, match="left out of a pickle") as caught:
        resolve(pickle.loads(written))
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))
    with pytest.raises(TypeError, match="does not pickle"):
        pickle.dumps(endpoint)


def test_a_copy_in_this_process_keeps_its_secret() -> None:
    assert copy.deepcopy(KEYED) == KEYED and hash(copy.copy(KEYED)) == hash(KEYED)
    assert Secret("a") != Secret("b")


def _reveal(server: S3Server, answer: multiprocessing.SimpleQueue[str]) -> None:
    assert isinstance(server.secret_key, Secret)
    answer.put(server.secret_key.reveal()[::-1])


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_a_secret_reaches_a_worker_process(method: str) -> None:
    context = multiprocessing.get_context(method)
    answer = context.SimpleQueue()
    worker = context.Process(target=_reveal, args=(KEYED, answer))
    worker.start()
    assert answer.get() == "hunter2"[::-1]
    worker.join()


def test_a_key_is_taken_as_it_stands() -> None:
    assert parse_s3_url("s3://b/a//b/../c%2F+") == ("b", "a//b/../c%2F+")
    assert quote_key("a//b/ü€~_-.") == "a//b/%C3%BC%E2%82%AC~_-."
    for wrong in ("s3:///key", "http://b/k", "b/k", "s3:/b"):
        with pytest.raises(ValueError, match="s3://bucket/key"):
            parse_s3_url(wrong)
