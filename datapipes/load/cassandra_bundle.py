"""Astra's secure-connect bundle: a zip file that says where the cluster is, with the certificates to get in."""

from __future__ import annotations

import json
import ssl
import tempfile
import zipfile
from typing import Any

from cassandra import DriverException
from cassandra.cluster import Cluster

from datapipes.catalog.cassandra_server import CassandraServer

_NEEDED = ("config.json", "ca.crt", "cert", "key")


def cluster_of_bundle(server: CassandraServer, function: str, **options: Any) -> Cluster:
    """The cluster that the bundle leads to, not connected; its metadata service is asked for the nodes.

    Raises:
        FileNotFoundError, ValueError: there is no such bundle, or it lacks what a bundle has.
        ConnectionError: the metadata service does not answer.
    """
    path = str(server.cloud_bundle)
    # Unpacked for a moment: not beside the bundle, which may be in a folder that nobody writes to.
    cloud = {
        "secure_connect_bundle": path,
        "use_default_tempdir": True,
        "connect_timeout": server.connect_timeout_s,
        "ssl_context": _context_of(path, function),
    }
    try:
        return Cluster(cloud=cloud, **options)
    except (DriverException, KeyError) as error:
        reason = "; ".join(dict.fromkeys(str(cause).strip() for cause in (error, error.__context__) if cause))
        raise ConnectionError(
            f"{function}: {server.address} is out of reach: {reason}; see in Astra's console whether the database is "
            "active (one that nobody uses is put to sleep), and whether the bundle is its own"
        ) from None


def _context_of(path: str, function: str) -> ssl.SSLContext:
    """The bundle's certificates. Its authority is the database's own; a node is asked for by its id, not address."""
    try:
        with zipfile.ZipFile(path) as bundle, tempfile.TemporaryDirectory() as folder:
            missing = [name for name in _NEEDED if name not in bundle.namelist()]
            if missing:
                raise _not_a_bundle(path, function, f"it lacks {', '.join(missing)}")
            config = json.loads(bundle.read("config.json"))
            if not isinstance(config, dict) or not {"host", "port"} <= set(config):
                raise _not_a_bundle(path, function, "its config.json names no host and port")
            authority, certificate, key = (bundle.extract(name, folder) for name in _NEEDED[1:])
            context = ssl.create_default_context(cafile=authority)
            context.check_hostname = False
            context.load_cert_chain(certificate, key)
            return context
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{function}: no bundle {path}; give cloud_bundle= the zip file that Astra's console offers"
        ) from None
    except (zipfile.BadZipFile, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise _not_a_bundle(path, function, str(error)) from None
    except ssl.SSLError as error:
        raise _not_a_bundle(path, function, f"its certificates cannot be used ({error})") from None


def _not_a_bundle(path: str, function: str, reason: str) -> ValueError:
    return ValueError(f"{function}: {path} is no secure-connect bundle: {reason}; download it again")
