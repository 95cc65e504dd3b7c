"""A certificate authority of our own and a server certificate for the webhooks.

The API server trusts exactly the CAs whose PEM is in ``caBundle``. Both live as long as the caller says; a new pair
takes the place of one that is about to end by admission/certificates.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable
from typing import Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

#: The subject (common name) of our CAs.
AUTHORITY: Final = "moorage-admission-ca"
YEAR_S: Final = 365 * 24 * 3600

#: Certificates begin so long before now, or a twelfth of their life if that is less, so that a clock that is a little
#: behind accepts them.
_BACKDATED_S: Final = 3600


class ServingCertificate(msgspec.Struct, frozen=True):
    """PEM texts: the CA for ``caBundle``, the server's certificate and its private key (PKCS#8, not encrypted)."""

    ca: bytes
    certificate: bytes
    key: bytes


def serving_certificate(
    *, dns_names: Iterable[str] = (), addresses: Iterable[str] = (), now_ns: int, lifetime_s: int = YEAR_S
) -> ServingCertificate:
    """Make a new CA and a P-256 certificate of it for these names and IP addresses.

    The CA's key is dropped: a renewed certificate comes with a new CA. Raises ValueError when there is no name.
    """
    subjects: list[x509.GeneralName] = [x509.DNSName(name) for name in dns_names]
    subjects += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
    if not subjects:
        raise ValueError("a certificate needs at least one DNS name or IP address")
    now = datetime.datetime.fromtimestamp(now_ns // 1_000_000_000, tz=datetime.UTC)
    begin = now - datetime.timedelta(seconds=min(_BACKDATED_S, lifetime_s // 12))
    end = now + datetime.timedelta(seconds=lifetime_s)
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca = _authority(ca_key, begin, end)
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    leaf = (
        _unsigned("moorage-admission", key, begin, end)
        .issuer_name(ca.subject)
        .add_extension(x509.SubjectAlternativeName(subjects), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    return ServingCertificate(
        ca=ca.public_bytes(pem),
        certificate=leaf.public_bytes(pem),
        key=key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


def _authority(key: ec.EllipticCurvePrivateKey, begin: datetime.datetime, end: datetime.datetime) -> x509.Certificate:
    builder = _unsigned(AUTHORITY, key, begin, end)
    may_sign = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        builder.issuer_name(_name(AUTHORITY))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(may_sign, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _unsigned(
    name: str, key: ec.EllipticCurvePrivateKey, begin: datetime.datetime, end: datetime.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
