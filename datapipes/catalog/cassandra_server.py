"""Where a Cassandra cluster is and who we are to it: settings that each process connects with."""

from __future__ import annotations

from dataclasses import dataclass, field

from datapipes.catalog.secret import Secret, as_secret


@dataclass(frozen=True)
class CassandraServer:
    """A Cassandra cluster (or ScyllaDB, or DataStax Astra) and how to sign in.

    >>> CassandraServer(hosts="10.0.0.1, 10.0.0.2", username="me", password="hunter2").hosts
    ('10.0.0.1', '10.0.0.2')
    >>> "hunter2" in repr(CassandraServer(username="me", password="hunter2"))
    False

    Args:
        hosts: addresses of one or more nodes; the others are found through them.
        port: where they speak CQL.
        username, password: where the cluster asks for them.
        use_tls: encrypt the connection. Any of the certificates below says so, too.
        ca_certificate: a PEM file of the authority that signed the servers' certificates; None = those of
            the system.
        check_hostname: whether a server's certificate must name the address that we connect to, as the driver
            does it: the IP address, of every node. False = any certificate of the authority will do, for
            clusters whose certificates name no addresses, if the authority signs for nothing else.
        client_certificate, client_key, client_key_password: PEM files, where the cluster asks for ours.
        cloud_bundle: an Astra secure-connect bundle, a zip file; it names the hosts itself, and username and
            password are its client id and client secret.
        local_dc: the data center to read from; None = that of the first host that answers.
        connect_timeout_s: how long to try before the cluster counts as out of reach.

    Raises:
        ValueError: the settings contradict each other; nothing is connected to or read yet.
    """

    hosts: tuple[str, ...] | list[str] | str = ("127.0.0.1",)
    port: int = 9042
    username: str | None = None
    password: str | Secret | None = field(default=None, repr=False)
    use_tls: bool = False
    ca_certificate: str | None = None
    check_hostname: bool = True
    client_certificate: str | None = None
    client_key: str | None = None
    client_key_password: str | Secret | None = field(default=None, repr=False)
    cloud_bundle: str | None = None
    local_dc: str | None = None
    connect_timeout_s: float = 10.0

    def __post_init__(self) -> None:
        listed = self.hosts.split(",") if isinstance(self.hosts, str) else self.hosts
        hosts = tuple(host.strip() for host in listed if host.strip())
        object.__setattr__(self, "hosts", hosts)
        object.__setattr__(self, "password", as_secret(self.password))
        object.__setattr__(self, "client_key_password", as_secret(self.client_key_password))
        object.__setattr__(self, "use_tls", bool(self.use_tls or self.ca_certificate or self.client_certificate))
        if not hosts and self.cloud_bundle is None:
            raise ValueError("CassandraServer: hosts is empty; give the address of at least one node")
        if not 0 < self.port < 65536:
            raise ValueError(f"CassandraServer: port must be between 1 and 65535, got {self.port}")
        if (self.username is None) != (self.password is None):
            raise ValueError("CassandraServer: username and password go together; give both or neither")
        if (self.client_certificate is None) != (self.client_key is None):
            raise ValueError("CassandraServer: client_certificate and client_key go together")
        if self.cloud_bundle is not None and self.use_tls:
            raise ValueError("CassandraServer: cloud_bundle brings its own certificates; leave out the others")
        if self.connect_timeout_s <= 0:
            raise ValueError(f"CassandraServer: connect_timeout_s must be above 0, got {self.connect_timeout_s}")

    @property
    def address(self) -> str:
        """The server as errors name it."""
        if self.cloud_bundle is not None:
            return f"the cluster of {self.cloud_bundle}"
        return f"{', '.join(self.hosts)} port {self.port}"
