"""One Cassandra node as a local process: its settings, its Java command, and how to tell that it answers."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from recipes.certificates import Certificates
from recipes.java import fetch_jars, java_program
from recipes.local_process import LocalProcess

VERSION = "5.0.6"

# What Cassandra's own jvm17-server.options opens to it, as far as a Java runtime has it.
_EXPORTS = """
java.base/jdk.internal.misc java.base/jdk.internal.ref java.base/sun.nio.ch java.base/java.lang.ref
java.management.rmi/com.sun.jmx.remote.internal.rmi java.rmi/sun.rmi.registry java.rmi/sun.rmi.server
java.rmi/sun.rmi.transport.tcp java.sql/java.sql jdk.unsupported/sun.misc jdk.attach/sun.tools.attach
"""
_OPENS = """
java.base/java.io java.base/java.lang java.base/java.lang.module java.base/java.lang.reflect
java.base/java.math java.base/java.net java.base/java.nio java.base/java.nio.charset
java.base/java.nio.file.spi java.base/java.time java.base/java.util java.base/java.util.concurrent
java.base/java.util.concurrent.atomic java.base/jdk.internal.loader java.base/jdk.internal.math
java.base/jdk.internal.module java.base/jdk.internal.ref java.base/jdk.internal.reflect
java.base/jdk.internal.util.jar java.base/sun.nio.ch java.rmi/sun.rmi.transport.tcp
jdk.management/com.sun.management.internal
"""

_LOGBACK = """<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%-5level %date{HH:mm:ss,SSS} %logger{0} %msg%n</pattern></encoder>
  </appender>
  <!-- Every flush and compaction; without them a log ends with what went wrong. -->
  <logger name="org.apache.cassandra.db" level="WARN"/>
  <logger name="org.apache.cassandra.io" level="WARN"/>
  <root level="INFO"><appender-ref ref="OUT"/></root>
</configuration>
"""


def node_settings(home: Path, host: str, port: int, storage_port: int) -> dict[str, Any]:
    """cassandra.yaml; what it leaves out has Cassandra's own default."""
    folders = {
        "commitlog_directory": "commitlog",
        "saved_caches_directory": "saved_caches",
        "hints_directory": "hints",
        "cdc_raw_directory": "cdc",
    }
    seed_provider = {
        "class_name": "org.apache.cassandra.locator.SimpleSeedProvider",
        "parameters": [{"seeds": f"127.0.0.1:{storage_port}"}],
    }
    return {name: str(home / folder) for name, folder in folders.items()} | {
        "cluster_name": "local",
        "data_file_directories": [str(home / "data")],
        "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
        "num_tokens": 1,
        "auto_bootstrap": False,
        "endpoint_snitch": "SimpleSnitch",
        "seed_provider": [seed_provider],
        "listen_address": host,
        "rpc_address": host,
        "native_transport_port": port,
        "storage_port": storage_port,
        "commitlog_sync": "periodic",
        "commitlog_sync_period": "10s",
        # Dropping a table of a test takes no copy of it.
        "auto_snapshot": False,
    }


PASSWORD_SETTINGS = {
    "authenticator": "PasswordAuthenticator",
    "authorizer": "CassandraAuthorizer",
    # By default a node goes by what it knew of a role for 2 s: the first superuser would go on being let in.
    "roles_validity": "0ms",
    "permissions_validity": "0ms",
    "credentials_validity": "0ms",
}


def encryption_settings(certificates: Certificates) -> dict[str, Any]:
    """CQL for those alone who show a certificate of our authority."""
    options = {
        "enabled": True,
        "optional": False,
        "require_client_auth": True,
        "ssl_context_factory": {"class_name": "org.apache.cassandra.security.PEMBasedSslContextFactory"},
        "keystore": str(certificates.server),
        "truststore": str(certificates.authority),
    }
    return {"client_encryption_options": options}


def cassandra_node(home: Path, settings: dict[str, Any], *, alone: bool, fast_start: bool) -> LocalProcess:
    """The process of one node, not started; all that is its own lies in `home`."""
    for folder in ("data", "commitlog", "saved_caches", "hints", "cdc", "tmp"):
        (home / folder).mkdir(parents=True, exist_ok=True)
    # JSON is YAML.
    (home / "cassandra.yaml").write_text(json.dumps(settings, indent=2))
    (home / "logback.xml").write_text(_LOGBACK)
    jars = fetch_jars("org.apache.cassandra", "cassandra-all", VERSION)
    properties = {
        "cassandra.config": (home / "cassandra.yaml").as_uri(),
        "cassandra.storagedir": home,
        "cassandra.skip_wait_for_gossip_to_settle": 0,
        # How long to wait for other nodes, and to remember those that left.
        "cassandra.ring_delay_ms": 1 if alone else 60_000,
        "cassandra.shutdown_announce_in_ms": 1,
        "cassandra.superuser_setup_delay_ms": 0,
        "cassandra-foreground": "yes",
        "java.io.tmpdir": home / "tmp",
        "logback.configurationFile": home / "logback.xml",
    }
    command = [
        java_program(),
        "-Xmx1g" if alone else "-Xmx320m",
        "-XX:+UseSerialGC",
        # The first compiler alone: 5.8 s of CPU to start instead of 9.6.
        *(["-XX:TieredStopAtLevel=1"] if fast_start else []),
        "-Djdk.attach.allowAttachSelf=true",
        *(f"--add-exports={package}=ALL-UNNAMED" for package in _EXPORTS.split()),
        *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENS.split()),
        *(f"-D{name}={value}" for name, value in properties.items()),
        "-cp",
        ":".join(str(jar) for jar in jars),
        "org.apache.cassandra.service.CassandraDaemon",
    ]
    host, port = settings["listen_address"], settings["native_transport_port"]
    encrypted = "client_encryption_options" in settings
    return LocalProcess(
        "cassandra",
        command,
        is_ready=lambda: _answers_cql(host, port, encrypted),
        folder=home,
        ready_timeout_s=180,
    )


def _answers_cql(host: str, port: int, encrypted: bool) -> bool:
    """Whether a node answers CQL's OPTIONS; of one that speaks TLS alone, whether it accepts."""
    with socket.create_connection((host, port), timeout=2) as connection:
        if encrypted:
            return True
        connection.sendall(bytes([4, 0, 0, 0, 5, 0, 0, 0, 0]))
        answer = connection.recv(9)
    return len(answer) == 9 and answer[4] == 6
