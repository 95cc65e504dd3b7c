from __future__ import annotations

import datetime
import ipaddress

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from admission.certificates.pair import ServingCertificate, serving_certificate

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
