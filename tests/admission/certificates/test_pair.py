"""PEM in, a pair or a bundle out: what stands in a Secret or a ``caBundle`` is read or refused; nothing is raised."""

from __future__ import annotations

import datetime
import ipaddress

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError
from hypothesis import given
from hypothesis import strategies as st

from admission.certificates.pair import (
    AUTHORITY,
    Bundle,
    Pair,
    ServingCertificate,
    read_bundle,
    read_pair,
    serving_certificate,
    write_bundle,
)
from tests.values import of_kind

NAME = "moorage-admission.kai-scheduler.svc"
BEGIN_S, LIFE_S = 1_767_225_600, 1200
#: Certificates begin a twelfth of their life before they are made.
BACKDATED_S = 100
NOT_PEM = "is not a CA, a certificate and a key in PEM"


def made(*, names: tuple[str, ...] = (NAME,), begin_s: int = BEGIN_S) -> ServingCertificate:
    return serving_certificate(
        dns_names=names, addresses=["127.0.0.1", "::1"], now_ns=begin_s * 10**9, lifetime_s=LIFE_S
    )


ONE, OTHER = made(), made()
P256 = ec.generate_private_key(ec.SECP256R1())


def pem_of(key: CertificateIssuerPrivateKeyTypes, *, password: bytes | None = None) -> bytes:
    locked = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)


def self_signed(
    *extensions: x509.ExtensionType, name: str = AUTHORITY, key: ec.EllipticCurvePrivateKey = P256
) -> bytes:
    """A certificate that signed itself."""
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    begin = datetime.datetime.fromtimestamp(BEGIN_S, tz=datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + datetime.timedelta(days=1))
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def test_what_we_make_is_read_as_it_was_made() -> None:
    pair = of_kind(Pair, read_pair(ONE.ca, ONE.certificate, ONE.key))
    assert (pair.certificate, pair.key, pair.authority.pem) == (ONE.certificate, ONE.key, ONE.ca)
    assert pair.names == {NAME, "127.0.0.1", "::1"}
    assert (pair.not_before_s, pair.not_after_s) == (BEGIN_S - BACKDATED_S, BEGIN_S + LIFE_S)
    assert pair.life_s == LIFE_S + BACKDATED_S


@pytest.mark.parametrize(
    ("at_s", "valid"),
    [
        (BEGIN_S - BACKDATED_S - 1, False),
        (BEGIN_S - BACKDATED_S, True),
        (BEGIN_S + LIFE_S - 1, True),
        (BEGIN_S + LIFE_S, False),
    ],
)
def test_an_expired_pair_is_read_and_is_not_valid(at_s: int, *, valid: bool) -> None:
    """Whether it is used is for the rules to say (steps.py): they count by the API server's clock."""
    pair = of_kind(Pair, read_pair(ONE.ca, ONE.certificate, ONE.key))
    assert pair.is_valid(at_s) is valid
    assert pair.authority.lives(at_s) is (at_s < BEGIN_S + LIFE_S)


def test_a_pair_for_another_name_is_read_with_that_name() -> None:
    """The rules make another one then (steps.py)."""
    theirs = made(names=("somebody.else.svc",))
    pair = of_kind(Pair, read_pair(theirs.ca, theirs.certificate, theirs.key))
    assert NAME not in pair.names


CA = x509.BasicConstraints(ca=True, path_length=0)
NAMED = x509.SubjectAlternativeName([x509.DNSName(NAME)])
REFUSED: dict[str, tuple[bytes, bytes, bytes, str]] = {
    "nothing": (b"", b"", b"", NOT_PEM),
    "no CA": (b"", ONE.certificate, ONE.key, NOT_PEM),
    "no certificate": (ONE.ca, b"", ONE.key, NOT_PEM),
    "no key": (ONE.ca, ONE.certificate, b"", NOT_PEM),
    "not PEM": (b"\x00\xff" * 100, b"certificate", b"key", NOT_PEM),
    "the certificate's DER": (
        ONE.ca,
        x509.load_pem_x509_certificate(ONE.certificate).public_bytes(serialization.Encoding.DER),
        ONE.key,
        NOT_PEM,
    ),
    "a certificate that breaks off": (ONE.ca, ONE.certificate[: len(ONE.certificate) // 2], ONE.key, NOT_PEM),
    "a CA that breaks off": (ONE.ca[:-30], ONE.certificate, ONE.key, NOT_PEM),
    "a key that breaks off": (ONE.ca, ONE.certificate, ONE.key[: len(ONE.key) // 2], NOT_PEM),
    "base64 of something else": (
        ONE.ca,
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        ONE.key,
        NOT_PEM,
    ),
    "two certificates": (ONE.ca, ONE.certificate + OTHER.certificate, ONE.key, NOT_PEM),
    "two CAs": (ONE.ca + OTHER.ca, ONE.certificate, ONE.key, NOT_PEM),
    "the key where the certificate should be": (ONE.ca, ONE.key, ONE.key, NOT_PEM),
    "the certificate where the key should be": (ONE.ca, ONE.certificate, ONE.certificate, NOT_PEM),
    "a locked key": (ONE.ca, ONE.certificate, pem_of(P256, password=b"secret"), NOT_PEM),
    "megabytes of something": (b"A" * 2**20, b"B" * 2**20, b"C" * 2**20, NOT_PEM),
    "a megabyte of lines that begin certificates": (b"-----BEGIN CERTIFICATE-----\n" * 40_000, b"", b"", NOT_PEM),
    "no names": (self_signed(CA), self_signed(CA), pem_of(P256), NOT_PEM),
    "a CA that says nothing of being one": (self_signed(NAMED), self_signed(NAMED), pem_of(P256), NOT_PEM),
    "the key of another certificate": (ONE.ca, ONE.certificate, OTHER.key, "has a key of another certificate"),
    "a key of another kind": (
        ONE.ca,
        ONE.certificate,
        pem_of(rsa.generate_private_key(65537, 2048)),
        "has a key of another certificate",
    ),
    "another CA of ours": (OTHER.ca, ONE.certificate, ONE.key, "has a certificate of another CA"),
    "the certificate as its own CA": (ONE.certificate, ONE.certificate, ONE.key, "has a certificate of another CA"),
    "a CA of the same name": (self_signed(CA), ONE.certificate, ONE.key, "has a certificate of another CA"),
}


@pytest.mark.parametrize(("ca", "certificate", "key", "said"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_pair_is_told_in_words(ca: bytes, certificate: bytes, key: bytes, said: str) -> None:
    assert read_pair(ca, certificate, key) == said


@given(st.data())
def test_no_damage_to_a_pair_raises(data: st.DataObject) -> None:
    texts = [ONE.ca, ONE.certificate, ONE.key]
    number = data.draw(st.integers(0, 2))
    text = texts[number]
    begin = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(begin, len(text)))
    texts[number] = text[:begin] + data.draw(st.binary(max_size=40)) + text[end:]
    read = read_pair(*texts)
    assert isinstance(read, Pair | str)
    read_bundle(texts[0])


FOREIGN = self_signed(CA, name="somebody-else")
BUNDLES: dict[str, tuple[bytes, list[bytes], bool]] = {
    "nothing": (b"", [], True),
    "ours": (ONE.ca, [ONE.ca], True),
    "two of ours": (ONE.ca + OTHER.ca, [ONE.ca, OTHER.ca], True),
    "twice the same": (ONE.ca + ONE.ca, [ONE.ca], False),
    "somebody else's": (FOREIGN, [], False),
    "ours beside somebody else's": (FOREIGN + ONE.ca, [ONE.ca], False),
    "ours, and words": (b"# a comment\n" + ONE.ca, [ONE.ca], False),
    "ours, without its last line feed": (ONE.ca[:-1], [ONE.ca], False),
    "ours, with lines as on Windows": (ONE.ca.replace(b"\n", b"\r\n"), [ONE.ca], False),
    "a broken one does not take ours with it": (
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n" + ONE.ca,
        [ONE.ca],
        False,
    ),
    "one that breaks off, and ours": (OTHER.ca[: len(OTHER.ca) // 2] + ONE.ca, [ONE.ca], False),
    "ours, and one that breaks off": (ONE.ca + OTHER.ca[: len(OTHER.ca) // 2], [ONE.ca], False),
    "a certificate that a CA of ours signed": (ONE.certificate, [], False),
    "bytes": (b"\x00\xff" * 100, [], False),
    "a megabyte of beginnings": (b"-----BEGIN CERTIFICATE-----\n" * 40_000, [], False),
}


@pytest.mark.parametrize(("pem", "ours", "clean"), BUNDLES.values(), ids=BUNDLES)
def test_of_a_bundle_our_cas_are_read(pem: bytes, ours: list[bytes], *, clean: bool) -> None:
    read = read_bundle(pem)
    assert [each.pem for each in read.ours] == ours
    assert read.is_clean is clean


def test_a_bundle_is_read_as_it_was_written() -> None:
    ours = read_bundle(ONE.ca + OTHER.ca).ours
    assert read_bundle(write_bundle(ours)) == Bundle(ours)


def test_a_ca_in_a_bundle_is_the_same_as_in_its_pair() -> None:
    pair = of_kind(Pair, read_pair(ONE.ca, ONE.certificate, ONE.key))
    assert read_bundle(ONE.ca).ours == (pair.authority,)


NOW = datetime.datetime(2026, 5, 1, tzinfo=datetime.UTC)
NOW_NS = int(NOW.timestamp()) * 10**9


def _make() -> ServingCertificate:
    return serving_certificate(
        dns_names=["moorage-admission.kai-scheduler.svc"],
        addresses=["127.0.0.1", "::1"],
        now_ns=NOW_NS,
        lifetime_s=90 * 86400,
    )


def _verify(made: ServingCertificate, subject: x509.DNSName | x509.IPAddress, when: datetime.datetime) -> None:
    """By the rules of the web's PKI, which are stricter than Go's."""
    store = Store([x509.load_pem_x509_certificate(made.ca)])
    verifier = PolicyBuilder().store(store).time(when).build_server_verifier(subject)
    verifier.verify(x509.load_pem_x509_certificate(made.certificate), [])


@pytest.mark.parametrize(
    "subject",
    [
        x509.DNSName("moorage-admission.kai-scheduler.svc"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        x509.IPAddress(ipaddress.ip_address("::1")),
    ],
)
def test_the_certificate_is_good_for_each_of_its_names(subject: x509.DNSName | x509.IPAddress) -> None:
    _verify(_make(), subject, NOW)


@pytest.mark.parametrize(
    ("subject", "when"),
    [
        ("other.svc", NOW),
        ("moorage-admission.kai-scheduler.svc", NOW + datetime.timedelta(days=91)),
        ("moorage-admission.kai-scheduler.svc", NOW - datetime.timedelta(hours=2)),
    ],
)
def test_the_certificate_is_good_for_no_other_name_or_time(subject: str, when: datetime.datetime) -> None:
    with pytest.raises(VerificationError):
        _verify(_make(), x509.DNSName(subject), when)


def test_a_certificate_of_one_authority_is_not_trusted_by_another() -> None:
    made, other = _make(), _make()
    mixed = ServingCertificate(ca=other.ca, certificate=made.certificate, key=made.key)
    with pytest.raises(VerificationError):
        _verify(mixed, x509.DNSName("moorage-admission.kai-scheduler.svc"), NOW)


def test_a_certificate_needs_a_name() -> None:
    with pytest.raises(ValueError, match="at least one DNS name"):
        serving_certificate(now_ns=NOW_NS)
