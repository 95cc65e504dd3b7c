"""Keys of a throw-away control plane: its authority, the API server's certificate, the service-account key."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME = datetime.timedelta(days=30)
#: Begun a little in the past, so that a clock that is off by some minutes does no harm.
_LEEWAY = datetime.timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Pair:
    """A private key and what goes with it (a certificate or a public key), both as PEM."""

    key_pem: bytes
    public_pem: bytes


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority that lives as long as the control plane."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def new(cls, now_ns: int) -> Self:
        """Make one, valid for 30 days."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("moorage test authority")
        usage = _key_usage(key_cert_sign=True, digital_signature=False)
        builder = (
            _builder(now_ns, subject=name, issuer=name, key=key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
        )
        return cls(key, builder.sign(key, hashes.SHA256()))

    @property
    def pem(self) -> str:
        """The certificate, for clients."""
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def server(self, now_ns: int, names: Sequence[str]) -> Pair:
        """Make a serving certificate for DNS names and IP addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = (
            _builder(now_ns, subject=_name(names[0]), issuer=self.certificate.subject, key=key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(key_cert_sign=False, digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
            .add_extension(authority, critical=False)
        )
        certificate = builder.sign(self.key, hashes.SHA256())
        return Pair(_private_pem(key), certificate.public_bytes(serialization.Encoding.PEM))


def signing_pair() -> Pair:
    """Make the key pair with which service-account tokens are signed and checked."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return Pair(_private_pem(key), public)


def _builder(
    now_ns: int, *, subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.fromtimestamp(now_ns // 1_000_000_000, tz=datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _LEEWAY)
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _key_usage(*, key_cert_sign: bool, digital_signature: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=key_cert_sign,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
