"""Signed GET requests with small answers, several at a time and in this thread: what a listing is made of."""

from __future__ import annotations

import heapq
import io
import itertools
import random
import re
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pycurl

from datapipes.catalog.s3_errors import answer_error, error_code, is_transient
from datapipes.catalog.s3_server import S3Endpoint

MAX_ATTEMPTS = 6
_FIRST_WAIT_S = 0.1
_BUCKET_REGION = re.compile(rb"^x-amz-bucket-region:\s*(\S+)", re.IGNORECASE | re.MULTILINE)
_CERTIFICATE_ERRORS = (pycurl.E_SSL_CACERT, pycurl.E_SSL_CACERT_BADFILE, pycurl.E_SSL_PEER_CERTIFICATE)


class Asked(NamedTuple):
    """A request as it waits for its turn: the smallest goes first."""

    not_before: float
    rank: Any
    number: int
    url: str
    told_as: str
    tag: Any
    attempt: int


class SignedGets:
    """At most `max_in_flight` GET requests, each tried up to six times within about 5 s.

    Args:
        function: the functional name that errors begin with.
        parse: makes of a body what `answers` gives; its ValueError means that the body is broken.
        timeout_s: of one request, connecting included.
    """

    def __init__(
        self,
        function: str,
        endpoint: S3Endpoint,
        parse: Callable[[bytes], Any],
        *,
        timeout_s: float,
        max_in_flight: int,
    ) -> None:
        self.function = function
        self.endpoint = endpoint
        self.parse = parse
        self.timeout_s = timeout_s
        self._multi = pycurl.CurlMulti()
        self._idle = [pycurl.Curl() for _ in range(max_in_flight)]
        self._running: dict[pycurl.Curl, tuple[Asked, io.BytesIO, io.BytesIO]] = {}
        self._waiting: list[Asked] = []
        self._numbers = itertools.count()
        # Its own generator: the random state of a training loop in this process is not touched.
        self._jitter = random.Random()

    def ask(self, url: str, *, told_as: str, rank: Any, tag: Any) -> None:
        """Queue a request; errors call it `told_as`, and its answer comes with `tag`."""
        heapq.heappush(self._waiting, Asked(0.0, rank, next(self._numbers), url, told_as, tag, 1))
        self._start_waiting()
        self._multi.perform()

    def answers(self) -> list[tuple[Any, Any]]:
        """(tag, parsed body) of the requests that have succeeded; waits for the first.

        Raises:
            FileNotFoundError, PermissionError, ValueError, OSError: as `answer_error` says.
            TimeoutError, ConnectionError: no answer within `timeout_s`, six times.
        """
        if not self._running and not self._waiting:
            raise RuntimeError("SignedGets.answers: nothing was asked")
        succeeded: list[tuple[Any, Any]] = []
        while not succeeded:
            self._start_waiting()
            # Descriptors past 1,023 cannot be selected on: it answers -1 at once, and polling has to do.
            if not self._running or self._multi.select(0.1) == -1:
                time.sleep(0.002)
            self._multi.perform()
            more = 1
            while more:
                more, done, failed = self._multi.info_read()
                for curl in done:
                    succeeded += self._answered(curl)
                for curl, number, text in failed:
                    self._broken(curl, number, text)
        return succeeded

    def close(self) -> None:
        """Drop what is under way, and close the connections."""
        for curl in self._running:
            self._multi.remove_handle(curl)
            curl.close()
        for curl in self._idle:
            curl.close()
        self._running.clear()
        self._idle.clear()
        self._waiting.clear()
        self._multi.close()

    def _start_waiting(self) -> None:
        now = time.monotonic()
        while self._idle and self._waiting and self._waiting[0].not_before <= now:
            asked = heapq.heappop(self._waiting)
            curl, body, headers = self._idle.pop(), io.BytesIO(), io.BytesIO()
            prepare(curl, self.endpoint, asked.url, self.timeout_s)
            curl.setopt(pycurl.WRITEDATA, body)
            curl.setopt(pycurl.HEADERFUNCTION, headers.write)
            self._running[curl] = (asked, body, headers)
            self._multi.add_handle(curl)

    def _answered(self, curl: pycurl.Curl) -> list[tuple[Any, Any]]:
        asked, body, headers = self._freed(curl)
        status = curl.getinfo(pycurl.RESPONSE_CODE)
        if 200 <= status < 300:
            try:
                return [(asked.tag, self.parse(body.getvalue()))]
            except ValueError as broken:
                self._again(asked, self._unreadable(asked, broken))
                return []
        named = _BUCKET_REGION.search(headers.getvalue())
        region = named[1].decode() if named else ""
        error = answer_error(self.function, asked.told_as, status, body.getvalue(), region)
        if not is_transient(status, error_code(body.getvalue())):
            raise error
        self._again(asked, error)
        return []

    def _broken(self, curl: pycurl.Curl, number: int, text: str) -> None:
        asked, _, _ = self._freed(curl)
        start = f"{self.function}: {asked.told_as} of {self.endpoint.base_url}"
        if number in _CERTIFICATE_ERRORS:
            raise ConnectionError(f"{start}: its certificate is not trusted ({text}); give S3Server(ca_bundle=...)")
        if number == pycurl.E_OPERATION_TIMEDOUT:
            error: OSError = TimeoutError(
                f"{start}: no answer within {self.timeout_s:g} s ({text}); "
                "check the server, or give a longer request_timeout_s"
            )
        else:
            error = ConnectionError(f"{start}: {text}; check the endpoint_url and the network")
        self._again(asked, error)

    def _unreadable(self, asked: Asked, broken: ValueError) -> OSError:
        return OSError(
            f"{self.function}: the answer for {asked.told_as} cannot be read ({broken}); "
            f"check that {self.endpoint.base_url} is an S3 server"
        )

    def _again(self, asked: Asked, error: Exception) -> None:
        if asked.attempt == MAX_ATTEMPTS:
            error.args = (f"{error} ({MAX_ATTEMPTS} attempts)",)
            raise error
        wait_s = _FIRST_WAIT_S * 2 ** (asked.attempt - 1) * self._jitter.uniform(0.5, 1.5)
        not_before = time.monotonic() + wait_s
        heapq.heappush(self._waiting, asked._replace(not_before=not_before, attempt=asked.attempt + 1))

    def _freed(self, curl: pycurl.Curl) -> tuple[Asked, io.BytesIO, io.BytesIO]:
        self._multi.remove_handle(curl)
        self._idle.append(curl)
        return self._running.pop(curl)


def prepare(curl: pycurl.Curl, endpoint: S3Endpoint, url: str, timeout_s: float) -> None:
    """Set `curl` to a signed GET of `url`; where the bytes go is left to the caller."""
    curl.reset()
    curl.setopt(pycurl.URL, url)
    curl.setopt(pycurl.NOSIGNAL, 1)
    curl.setopt(pycurl.TIMEOUT_MS, int(timeout_s * 1000))
    curl.setopt(pycurl.CONNECTTIMEOUT_MS, int(timeout_s * 1000))
    if endpoint.ca_bundle is not None:
        curl.setopt(pycurl.CAINFO, endpoint.ca_bundle)
    if not endpoint.verify:
        curl.setopt(pycurl.SSL_VERIFYPEER, 0)
        curl.setopt(pycurl.SSL_VERIFYHOST, 0)
    credentials = endpoint.credentials()
    if credentials is not None:
        headers = ["x-amz-content-sha256: UNSIGNED-PAYLOAD"]
        if credentials.session_token is not None:
            headers.append(f"x-amz-security-token: {credentials.session_token}")
        curl.setopt(pycurl.AWS_SIGV4, f"aws:amz:{endpoint.region}:s3")
        curl.setopt(pycurl.USERNAME, credentials.access_key)
        curl.setopt(pycurl.PASSWORD, credentials.secret_key)
        curl.setopt(pycurl.HTTPHEADER, headers)
