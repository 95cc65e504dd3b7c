"""The CA that the API server trusts when it asks a webhook: it ends with the certificates that it signed."""

from __future__ import annotations

import base64
import datetime
from typing import Final

from cryptography import x509

from cli.checks.finding import Finding, Level
from cli.checks.reader import Raw
from kube.client.clock import Clock

_CHECK: Final = "webhooks"
_SOON: Final = datetime.timedelta(days=30)


def of_ca(name: str, hook: Raw, clock: Clock) -> list[Finding]:
    """Say when the CA of a webhook ends, if that is soon or over."""
    pem = base64.b64decode(hook["clientConfig"].get("caBundle") or "")
    if not pem:
        return []
    ends = max(certificate.not_valid_after_utc for certificate in x509.load_pem_x509_certificates(pem))
    now = datetime.datetime.fromtimestamp(clock.now_ns() // 1_000_000_000, tz=datetime.UTC)
    said = f"the CA of {name} ends on {ends:%Y-%m-%d}"
    do = "renew the webhooks' certificates, or see why they are not renewed (docs/certificates.md)"
    if ends <= now:
        return [Finding(Level.FAILED, _CHECK, said, do)]
    return [Finding(Level.WARNING, _CHECK, said, do)] if ends - now < _SOON else []
