"""The webhooks: registered as this version wants them, for every namespace."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Callable, Mapping
from typing import Any, Final

from cryptography import x509

from admission.manifests import RULES_OF_MUTATION, RULES_OF_VALIDATION, WEBHOOK, ServiceEndpoint, webhook_manifests
from cli.checks.finding import Finding, Level, some_of
from cli.checks.reader import Raw, Reader
from kube.clock import Clock
from wire import names

_CHECK: Final = "webhooks"
_APPLY: Final = "register the webhooks of this version (admission/manifests.py)"
_KINDS: Final[dict[str, Mapping[str, tuple[str, ...]]]] = {
    "mutatingwebhookconfigurations": RULES_OF_MUTATION,
    "validatingwebhookconfigurations": RULES_OF_VALIDATION,
}
_EXEMPT: Final = frozenset({"kube-system", names.SYSTEM_NAMESPACE})
_SOON: Final = datetime.timedelta(days=30)


def webhooks_check(clock: Clock) -> Callable[[Reader], Any]:
    """Return the check of both registrations."""

    async def check(reader: Reader) -> list[Finding]:
        spaces = await reader.items("/api/v1/namespaces")
        findings: list[Finding] = []
        for kind in _KINDS:
            configurations = await reader.items(f"/apis/admissionregistration.k8s.io/v1/{kind}")
            ours = [hook for one in configurations for hook in one.get("webhooks") or () if hook["name"] == WEBHOOK]
            if not ours:
                findings.append(Finding(Level.FAILED, _CHECK, f"no {kind} has {WEBHOOK}", _APPLY))
            for hook in ours:
                findings += _judged(kind, hook, spaces=spaces, clock=clock)
        return findings

    return check


def _judged(kind: str, hook: Raw, *, spaces: list[Raw], clock: Clock) -> list[Finding]:
    wrong = _wrong(hook, _KINDS[kind])
    if wrong:
        return [Finding(Level.FAILED, _CHECK, f"{WEBHOOK} in {kind}: {wrong}", _APPLY)]
    findings = _of_certificate(kind, hook, clock)
    left_out = sorted(
        space["metadata"]["name"]
        for space in spaces
        if space["metadata"]["name"] not in _EXEMPT and not _selects(hook.get("namespaceSelector") or {}, space)
    )
    if left_out:
        said = (
            f"{WEBHOOK} in {kind} is not asked in {some_of(left_out)}: shares don't run there, devices are not guarded"
        )
        findings.append(Finding(Level.WARNING, _CHECK, said, "see that no tenants work there"))
    return findings or [Finding(Level.OK, _CHECK, f"{WEBHOOK} in {kind} is asked everywhere")]


def _wrong(hook: Raw, rules: Mapping[str, tuple[str, ...]]) -> str:
    """Say what makes a webhook of ours let something through; "" if nothing."""
    if hook.get("failurePolicy") != "Fail":
        return f"failurePolicy is {hook.get('failurePolicy')}; allowed: Fail"
    if hook.get("objectSelector"):
        return "objectSelector leaves pods out by their labels, which tenants write; allowed: none"
    wanted = webhook_manifests(ServiceEndpoint(), ca=b"")[0]["webhooks"][0]["matchConditions"]
    if hook.get("matchConditions") != wanted:
        return f"matchConditions are not those of this version; allowed: {wanted[0]['expression']}"
    asked = {
        (resource, operation)
        for rule in hook.get("rules") or ()
        for resource in rule["resources"]
        for operation in rule["operations"]
    }
    missing = [f"{op} {name}" for name, ops in rules.items() for op in ops if not asked & {(name, op), (name, "*")}]
    return f"not asked about {', '.join(missing)}" if missing else ""


def _of_certificate(kind: str, hook: Raw, clock: Clock) -> list[Finding]:
    """The CA that the API server trusts there ends with the certificates that it signed, so it tells when."""
    pem = base64.b64decode(hook["clientConfig"].get("caBundle") or "")
    if not pem:
        return []
    ends = max(certificate.not_valid_after_utc for certificate in x509.load_pem_x509_certificates(pem))
    now = datetime.datetime.fromtimestamp(clock.now_ns() // 1_000_000_000, tz=datetime.UTC)
    said, do = f"the CA of {kind} ends on {ends:%Y-%m-%d}", "make new certificates (admission/certs.py)"
    if ends <= now:
        return [Finding(Level.FAILED, _CHECK, said, do)]
    return [Finding(Level.WARNING, _CHECK, said, do)] if ends - now < _SOON else []


def _selects(selector: Raw, space: Raw) -> bool:
    labels = space["metadata"].get("labels") or {}
    exact = all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())
    return exact and all(_meets(one, labels) for one in selector.get("matchExpressions") or ())


def _meets(expression: Raw, labels: dict[str, str]) -> bool:
    value, values = labels.get(expression["key"]), expression.get("values") or ()
    match expression["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case _:
            return value is None
