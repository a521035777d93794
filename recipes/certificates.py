"""An authority of our own and certificates signed by it, for trying TLS on this machine."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Certificates:
    """PEM files: the authority's certificate, and the server's and a client's with their private keys."""

    authority: Path
    server: Path
    """Private key and certificate in one file, as Cassandra's PEM reader takes it."""
    client: Path
    client_key: Path
    client_key_password: str | None


def write_certificates(folder: Path, addresses: list[str], *, client_key_password: str | None = None) -> Certificates:
    """Write an authority, a server certificate for `addresses` and a client certificate, good for a day."""
    folder.mkdir(parents=True, exist_ok=True)
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = _certificate("local authority", authority_key, issuer=None, signer=authority_key)
    written = Certificates(
        folder / "authority.pem",
        folder / "server.pem",
        folder / "client.pem",
        folder / "client-key.pem",
        client_key_password,
    )
    written.authority.write_bytes(_pem(authority))
    server_key, client_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    server = _certificate("local server", server_key, authority, authority_key, addresses)
    client = _certificate("local client", client_key, authority, authority_key)
    written.server.write_bytes(_key_pem(server_key, None) + _pem(server))
    written.client.write_bytes(_pem(client))
    written.client_key.write_bytes(_key_pem(client_key, client_key_password))
    return written


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Certificate | None,
    signer: ec.EllipticCurvePrivateKey,
    addresses: list[str] | None = None,
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if addresses:
        names = [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(signer, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey, password: str | None) -> bytes:
    encryption = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
