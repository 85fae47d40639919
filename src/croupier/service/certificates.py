"""Certificates for trying things out: a self-signed one for this machine. Real ones come from whoever runs the network."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ..files import write_whole

_DAYS = 30


def development_certificate(folder: Path) -> tuple[Path, Path]:
    """Certificate and key for localhost, made anew where there are none or they have run out."""
    certificate, key = folder / "dev-certificate.pem", folder / "dev-key.pem"
    now = datetime.datetime.now(datetime.UTC)
    if certificate.exists() and x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc > now:
        return certificate, key
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "croupier development")])
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=_DAYS))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(private, hashes.SHA256())
    )
    encoded = private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_whole(key, encoded, private=True)
    write_whole(certificate, signed.public_bytes(serialization.Encoding.PEM))
    return certificate, key
