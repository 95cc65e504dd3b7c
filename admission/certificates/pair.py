"""A server certificate of the webhooks with its key and CA, made and read, and the CAs that a ``caBundle`` has.

The API server trusts exactly the CAs whose PEM is in ``caBundle``. CA and certificate live as long as the caller says;
admission/certificates/steps.py replaces a pair that is about to end.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from typing_extensions import override

from wire.units import SECOND_NS

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

    The CA's key is dropped, so a renewed certificate comes with a new CA. A thief of the Secret can play the webhooks
    until that certificate ends, and can sign nothing. Raises ValueError when there is no name.
    """
    subjects: list[x509.GeneralName] = [x509.DNSName(name) for name in dns_names]
    subjects += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
    if not subjects:
        raise ValueError("a certificate needs at least one DNS name or IP address")
    now = datetime.datetime.fromtimestamp(now_ns // SECOND_NS, tz=datetime.UTC)
    begin = now - datetime.timedelta(seconds=min(_BACKDATED_S, lifetime_s // 12))
    end = now + datetime.timedelta(seconds=lifetime_s)
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca = _new_authority(ca_key, begin, end)
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


def _new_authority(
    key: ec.EllipticCurvePrivateKey, begin: datetime.datetime, end: datetime.datetime
) -> x509.Certificate:
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


_BEGIN: Final = b"-----BEGIN CERTIFICATE-----"
_END: Final = b"-----END CERTIFICATE-----"
#: What cryptography raises for bytes that are not what they should be.
_UNREADABLE: Final = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)


class Authority(msgspec.Struct, frozen=True):
    """A CA as the API server may trust it. ``id`` is the SHA-256 of its DER, in hex; times in seconds since 1970."""

    id: str
    pem: bytes
    not_before_s: int
    not_after_s: int

    def lives(self, now_s: int) -> bool:
        """Whether it has not ended."""
        return now_s < self.not_after_s


class Pair(msgspec.Struct, frozen=True):
    """``certificate`` and ``key`` (PEM) belong together, and ``authority`` signed them. Both must be valid."""

    authority: Authority
    certificate: bytes
    key: bytes
    not_before_s: int
    not_after_s: int
    #: DNS names and IP addresses, as text.
    names: frozenset[str]

    @property
    def life_s(self) -> int:
        """How long it is valid, all in all."""
        return self.not_after_s - self.not_before_s

    def is_valid(self, now_s: int) -> bool:
        """Whether a client that trusts its CA takes it at this time."""
        return self.not_before_s <= now_s < self.not_after_s

    @override
    def __repr__(self) -> str:
        """Tell which one it is, and nothing of its key."""
        return f"Pair({self.authority.id[:12]}, {self.not_before_s} to {self.not_after_s})"

    @override
    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Tell rich no more than anybody else."""
        return []


class Bundle(msgspec.Struct, frozen=True):
    """What one webhook's ``caBundle`` says: the CAs of ours in it, and whether it holds nothing else."""

    ours: tuple[Authority, ...] = ()
    is_clean: bool = True


def read_pair(ca: bytes, certificate: bytes, key: bytes) -> Pair | str:
    """Read PEM texts; in a few words why they are no pair, if they are none. The words quote nothing of them."""
    try:
        (authority,) = x509.load_pem_x509_certificates(ca)
        (leaf,) = x509.load_pem_x509_certificates(certificate)
        private = serialization.load_pem_private_key(key, password=None)
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        basic = authority.extensions.get_extension_for_class(x509.BasicConstraints).value
    except (*_UNREADABLE, x509.ExtensionNotFound):
        return "is not a CA, a certificate and a key in PEM"
    if _public_pem(private.public_key()) != _public_pem(leaf.public_key()):
        return "has a key of another certificate"
    if not basic.ca or not _signed(authority, leaf):
        return "has a certificate of another CA"
    trusted = _authority(authority)
    return Pair(
        authority=trusted,
        certificate=certificate,
        key=key,
        not_before_s=max(trusted.not_before_s, _seconds(leaf.not_valid_before_utc)),
        not_after_s=min(trusted.not_after_s, _seconds(leaf.not_valid_after_utc)),
        names=frozenset(str(name.value) for name in names if isinstance(name, x509.DNSName | x509.IPAddress)),
    )


def read_bundle(pem: bytes) -> Bundle:
    """Read a ``caBundle``. Only our own CAs count, told by their subject; each once; anything else makes it unclean."""
    found: dict[str, Authority] = {}
    for block in _blocks(pem):
        try:
            certificate = x509.load_pem_x509_certificate(block)
        except _UNREADABLE:
            continue
        if certificate.subject.rfc4514_string() == f"CN={AUTHORITY}":
            authority = _authority(certificate)
            found[authority.id] = authority
    ours = tuple(found.values())
    return Bundle(ours, is_clean=pem == write_bundle(ours))


def write_bundle(authorities: Iterable[Authority]) -> bytes:
    """Write a ``caBundle``."""
    return b"".join(authority.pem for authority in authorities)


def _blocks(pem: bytes) -> list[bytes]:
    """Split a text, so that one block that can't be read does not take the others with it."""
    blocks = [part.partition(_END)[0] for part in pem.split(_BEGIN)[1:]]
    return [_BEGIN + block + _END + b"\n" for block in blocks]


def _authority(certificate: x509.Certificate) -> Authority:
    return Authority(
        id=certificate.fingerprint(hashes.SHA256()).hex(),
        pem=certificate.public_bytes(serialization.Encoding.PEM),
        not_before_s=_seconds(certificate.not_valid_before_utc),
        not_after_s=_seconds(certificate.not_valid_after_utc),
    )


def _signed(authority: x509.Certificate, leaf: x509.Certificate) -> bool:
    try:
        leaf.verify_directly_issued_by(authority)
    except (*_UNREADABLE, InvalidSignature):
        return False
    return True


def _public_pem(key: object) -> bytes:
    made: bytes = key.public_bytes(  # type: ignore[attr-defined]  # every kind of public key has it, and no common type
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return made


def _seconds(time: datetime.datetime) -> int:
    return int(time.timestamp())
