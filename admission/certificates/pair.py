"""A server certificate with its key and the CA that signed it, and which of its CAs a ``caBundle`` has.

Each CA signs one certificate and its key is dropped then (admission/certs.py), so what is stolen from the Secret can
play the webhooks until that certificate ends, and can sign nothing.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from typing_extensions import override

from admission.certs import AUTHORITY

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
