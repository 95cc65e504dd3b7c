"""Keys of a throw-away control plane: what its servers show, and the key pair of service-account tokens."""

from __future__ import annotations

from dataclasses import dataclass

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from trustme import CA


@dataclass(frozen=True, slots=True)
class Pair:
    """A private key and what goes with it (a certificate or a public key), both as PEM."""

    key_pem: bytes
    public_pem: bytes


def serving_pair(authority: CA, *names: str) -> Pair:
    """Make a serving certificate for DNS names and IP addresses."""
    issued = authority.issue_cert(*names)
    return Pair(issued.private_key_pem.bytes(), issued.cert_chain_pems[0].bytes())


def signing_pair() -> Pair:
    """Make the key pair with which service-account tokens are signed and checked."""
    key = ec.generate_private_key(ec.SECP256R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return Pair(private, public)
