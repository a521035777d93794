"""Where an S3 server is and who we are to it: settings that pickle, resolved in the process using them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal
from urllib.parse import quote, urlsplit

from datapipes.catalog.secret import Secret, as_secret

DEFAULT_REGION = "us-east-1"
_PLAIN_KEY = re.compile(r"[A-Za-z0-9/_.~-]*")
_DNS_BUCKET = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")


@dataclass(frozen=True)
class S3Server:
    """An S3 server and how to sign in. Empty, it means what the AWS command line would use.

    That is the standard chain: environment (`AWS_ACCESS_KEY_ID`, `AWS_PROFILE`, `AWS_REGION`,
    `AWS_ENDPOINT_URL_S3`, ...), the files in `~/.aws`, then the role of the container or instance. It is
    read by `resolve`, in each process that connects, so the settings may differ from machine to machine.

    >>> print(S3Server(access_key="me", secret_key="hunter2"))  # doctest: +ELLIPSIS
    S3Server(endpoint_url=None, region=None, profile=None, access_key='me', anonymous=False, ...)

    Args:
        endpoint_url: `http://host:port` of a server that is not AWS.
        region: the bucket's region. Servers that are not AWS mostly take any.
        profile: a section of `~/.aws/config` and `~/.aws/credentials`.
        access_key, secret_key, session_token: credentials given outright. They reach worker processes, but no
            repr, error or log, and no pickle made for anything else than a worker process (see `Secret`).
        anonymous: do not sign; for public buckets.
        address_style: "path" = http://host/bucket/key, "virtual" = http://bucket.host/key, "auto" = virtual
            on AWS, path elsewhere.
        ca_bundle: a file of certificates to trust instead of the system's.
        verify: False accepts any certificate.

    Raises:
        ValueError: the settings contradict each other; nothing is connected to or read yet.
    """

    endpoint_url: str | None = None
    region: str | None = None
    profile: str | None = None
    access_key: str | None = None
    secret_key: str | Secret | None = field(default=None, repr=False)
    session_token: str | Secret | None = field(default=None, repr=False)
    anonymous: bool = False
    address_style: Literal["auto", "path", "virtual"] = "auto"
    ca_bundle: str | None = None
    verify: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "secret_key", as_secret(self.secret_key))
        object.__setattr__(self, "session_token", as_secret(self.session_token))
        if (self.access_key is None) != (self.secret_key is None):
            raise ValueError("S3Server: access_key and secret_key go together; give both or neither")
        if self.session_token is not None and self.access_key is None:
            raise ValueError("S3Server: session_token needs its access_key and secret_key; give all three")
        if self.anonymous and (self.access_key is not None or self.profile is not None):
            raise ValueError("S3Server: anonymous=True signs nothing; leave out access_key and profile")
        if self.address_style not in ("auto", "path", "virtual"):
            raise ValueError(f"S3Server: address_style must be 'auto', 'path' or 'virtual', got {self.address_style!r}")
        if self.endpoint_url is not None:
            check_endpoint_url(self.endpoint_url)


@dataclass(frozen=True)
class S3Credentials:
    """What a request is signed with, until `expires_at`."""

    access_key: str
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)
    expires_at: datetime | None = None


@dataclass(frozen=True)
class S3Endpoint:
    """A resolved server, for use in this process only: it may hold credentials that renew themselves."""

    base_url: str
    region: str
    virtual_host: bool
    ca_bundle: str | None
    verify: bool
    signer: Any = field(repr=False)
    """botocore's credentials, which renew themselves, or our own `S3Credentials`, or None = anonymous."""

    def url(self, bucket: str, key: str = "") -> str:
        """The address of an object, or of the bucket where `key` is empty.

        >>> endpoint = resolve(S3Server(endpoint_url="http://127.0.0.1:9000", anonymous=True, region="x"))
        >>> endpoint.url("imagenet", "train/a b+c.jpg")
        'http://127.0.0.1:9000/imagenet/train/a%20b%2Bc.jpg'
        """
        if self.virtual_host and _DNS_BUCKET.fullmatch(bucket):
            scheme, host = self.base_url.split("://", 1)
            return f"{scheme}://{bucket}.{host}/{quote_key(key)}"
        return f"{self.base_url}/{bucket}/{quote_key(key)}" if key else f"{self.base_url}/{bucket}"

    def credentials(self) -> S3Credentials | None:
        """The credentials to sign with now, renewed where they were about to expire; None = do not sign.

        Ask before each burst of requests: it costs 2 us where there is nothing to renew.
        """
        if self.signer is None or isinstance(self.signer, S3Credentials):
            return self.signer
        now = self.signer.get_frozen_credentials()
        expires_at = getattr(self.signer, "_expiry_time", None)
        return S3Credentials(now.access_key, now.secret_key, now.token, expires_at)

    def __reduce__(self) -> Any:
        raise TypeError("S3Endpoint: it holds live credentials and does not pickle; pickle its S3Server")


def resolve(server: S3Server) -> S3Endpoint:
    """Find what `server` leaves open: address, region and credentials, by the rules of the AWS command line.

    Raises:
        PermissionError: no credentials were found.
        ValueError: no such profile, or settings in the AWS files that cannot be used.
    """
    explicit = server.anonymous or server.access_key is not None
    if explicit and server.endpoint_url and server.region:
        return _endpoint(server, server.endpoint_url, server.region, "auto", _given_credentials(server))

    # botocore takes 0.1 s to import, so only what needs its chain pays for it.
    import botocore.exceptions
    import botocore.session

    session = botocore.session.Session(profile=server.profile)
    try:
        # botocore reads AWS_DEFAULT_REGION alone; the command line and every other SDK read AWS_REGION first.
        region = server.region or os.environ.get("AWS_REGION") or session.get_config_variable("region")
        configured = server.endpoint_url or _configured_endpoint_url(session)
        base_url = configured or _aws_url(session, region or DEFAULT_REGION)
        style = (session.get_scoped_config().get("s3") or {}).get("addressing_style", "auto")
        if configured is None and style == "auto":
            style = "virtual"
        ca_bundle = session.get_config_variable("ca_bundle")
        signer = _given_credentials(server) if explicit else session.get_credentials()
    except botocore.exceptions.BotoCoreError as error:
        raise ValueError(
            f"S3Server: the AWS settings cannot be used: {error}; correct ~/.aws/config, the AWS_ variables, "
            "or give the settings to S3Server"
        ) from None
    if signer is None and not server.anonymous:
        raise PermissionError(
            "S3Server: no credentials found in the environment, ~/.aws, or this machine's role; "
            "give access_key and secret_key, a profile, or anonymous=True for a public bucket"
        )
    return _endpoint(server, base_url, region or DEFAULT_REGION, style, signer, ca_bundle)


def _endpoint(
    server: S3Server, base_url: str, region: str, style: str, signer: Any, ca_bundle: str | None = None
) -> S3Endpoint:
    check_endpoint_url(base_url)
    style = style if server.address_style == "auto" else server.address_style
    ca_bundle = server.ca_bundle or ca_bundle
    return S3Endpoint(base_url.rstrip("/"), region, style == "virtual", ca_bundle, server.verify, signer)


def _given_credentials(server: S3Server) -> S3Credentials | None:
    if server.access_key is None or not isinstance(server.secret_key, Secret):
        return None
    token = server.session_token.reveal() if isinstance(server.session_token, Secret) else None
    return S3Credentials(server.access_key, server.secret_key.reveal(), token)


def _configured_endpoint_url(session: Any) -> str | None:
    from botocore.configprovider import ConfiguredEndpointProvider

    if session.get_config_variable("ignore_configured_endpoint_urls"):
        return None
    found: str | None = ConfiguredEndpointProvider(
        full_config=session.full_config, scoped_config=session.get_scoped_config(), client_name="s3"
    ).provide()
    return found


def _aws_url(session: Any, region: str) -> str:
    from botocore.regions import EndpointResolver

    # The host's ending differs in China and in closed regions, and with FIPS or IPv6: botocore knows all.
    found = EndpointResolver(session.get_data("endpoints")).construct_endpoint(
        "s3",
        region,
        use_dualstack_endpoint=bool(session.get_config_variable("use_dualstack_endpoint")),
        use_fips_endpoint=bool(session.get_config_variable("use_fips_endpoint")),
    )
    host = found["hostname"] if found else f"s3.{region}.amazonaws.com"
    return f"https://{host}"


def check_endpoint_url(endpoint_url: str) -> None:
    """Refuse an address that is none, or one that carries a password where every error would show it."""
    parts = urlsplit(endpoint_url)
    if parts.username or parts.password:
        raise ValueError("S3Server: endpoint_url holds a user or password; give access_key and secret_key")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(
            f"S3Server: endpoint_url must look like https://host or http://host:port, got {endpoint_url!r}"
        )


def parse_s3_url(url: str) -> tuple[str, str]:
    """Split `s3://bucket/key`; the key is taken as it stands, with nothing decoded.

    >>> parse_s3_url("s3://imagenet/train/a b%20#1?.jpg"), parse_s3_url("s3://imagenet")
    (('imagenet', 'train/a b%20#1?.jpg'), ('imagenet', ''))
    """
    bucket, _, key = url[5:].partition("/")
    if not url.startswith("s3://") or not bucket:
        raise ValueError(f"parse_s3_url: an S3 address looks like s3://bucket/key, got {url!r}")
    return bucket, key


def quote_key(key: str) -> str:
    """A key as a request's path has it: UTF-8, all but letters, digits and `/-_.~` escaped, as S3 signs it.

    >>> quote_key("train/a b+ü%.jpg")
    'train/a%20b%2B%C3%BC%25.jpg'
    """
    # Nearly every key is plain, and finding that out costs a third of `quote`.
    return key if _PLAIN_KEY.fullmatch(key) else quote(key, safe="/-_.~", errors="surrogateescape")
