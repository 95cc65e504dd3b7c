"""The webhooks: registered as this version wants them, for every namespace; adoption for those that say so.

The CA that the API server trusts when it asks a webhook: it ends with the certificates that it signed.

The webhooks for Queues and PodGroups: registered as this version wants them. Without one objects go unchecked.
"""

from __future__ import annotations

import base64
import datetime
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from cryptography import x509

from admission.manifests import (
    ADOPTION,
    POD_GROUPS,
    QUEUES,
    RULES_OF_ADOPTION,
    RULES_OF_MUTATION,
    RULES_OF_VALIDATION,
    WEBHOOK,
    ServiceEndpoint,
    adoption_manifest,
    queue_manifest,
    webhook_manifests,
)
from cli.checks.reader import Finding, Level, Raw, Reader, some_of
from kube.client.clock import Clock
from wire import names

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


_APPLY: Final = "register the webhooks of this version (admission/manifests.py)"
_COMPARED: Final = ("failurePolicy", "matchConditions", "objectSelector")
_CALLED: Final = {QUEUES: "Queues", POD_GROUPS: "PodGroups"}


def of_objects(configurations: Iterable[Raw], clock: Clock) -> list[Finding]:
    """Judge what validating configurations say of both webhooks."""
    found = {hook["name"]: hook for one in configurations for hook in one.get("webhooks") or ()}
    ours = {hook["name"]: hook for hook in queue_manifest(ServiceEndpoint(), ca=b"")["webhooks"]}
    return [each for name, hook in ours.items() for each in _judged_object_hook(name, found.get(name), hook, clock)]


def _judged_object_hook(name: str, hook: Raw | None, ours: Raw, clock: Clock) -> list[Finding]:
    kind = _CALLED[name]
    if hook is None:
        said = f"no validatingwebhookconfigurations has {name}: {kind} are stored unchecked"
        return [Finding(Level.WARNING, _CHECK, said, _APPLY)]
    # The API server stores an absent selector as an empty one.
    differing = [key for key in _COMPARED if (hook.get(key) or None) != (ours.get(key) or None)]
    if missing := [f"{operation} {plural}" for plural, operation in sorted(_asked(ours) - _asked(hook))]:
        differing.append(f"rules: not asked about {', '.join(missing)}")
    if differing:
        said = f"{name} differs from this version's in {'; '.join(differing)}: {kind} may be stored unchecked"
        return [Finding(Level.WARNING, _CHECK, said, _APPLY)]
    return of_ca(name, hook, clock) or [Finding(Level.OK, _CHECK, f"{name} is asked about {kind}")]


def _asked(hook: Raw) -> set[tuple[str, str]]:
    """Plural and operation of each rule."""
    rules = hook.get("rules") or ()
    return {(plural, each) for rule in rules for plural in rule["resources"] for each in rule["operations"]}


_MUTATING: Final = "mutatingwebhookconfigurations"
_VALIDATING: Final = "validatingwebhookconfigurations"
_KINDS: Final[dict[str, Mapping[str, tuple[str, ...]]]] = {
    _MUTATING: RULES_OF_MUTATION,
    _VALIDATING: RULES_OF_VALIDATION,
}
_EXEMPT: Final = frozenset({"kube-system", names.SYSTEM_NAMESPACE})


def webhooks_check(clock: Clock) -> Callable[[Reader], Any]:
    """Return the check of all registrations."""

    async def check(reader: Reader) -> list[Finding]:
        spaces = await reader.items("/api/v1/namespaces")
        findings: list[Finding] = []
        found = {kind: await reader.items(f"/apis/admissionregistration.k8s.io/v1/{kind}") for kind in _KINDS}
        for kind, configurations in found.items():
            ours = [hook for one in configurations for hook in one.get("webhooks") or () if _is_ours(hook)]
            if not ours:
                findings.append(Finding(Level.FAILED, _CHECK, f"no {kind} has {WEBHOOK}", _APPLY))
            for hook in ours:
                findings += _judged(kind, hook, spaces=spaces, clock=clock)
        findings += _of_adoption(found[_MUTATING], spaces=spaces, clock=clock)
        return [*findings, *of_objects(found[_VALIDATING], clock)]

    return check


def _judged(kind: str, hook: Raw, *, spaces: list[Raw], clock: Clock) -> list[Finding]:
    ours = webhook_manifests(ServiceEndpoint(), ca=b"")[0]
    wrong = _wrong(hook, _KINDS[kind], ours["webhooks"][0])
    if wrong:
        return [Finding(Level.FAILED, _CHECK, f"{WEBHOOK} in {kind}: {wrong}", _APPLY)]
    findings = of_ca(kind, hook, clock)
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


def _of_adoption(configurations: list[Raw], *, spaces: list[Raw], clock: Clock) -> list[Finding]:
    """Namespaces that say that their pods are to be ours, and the webhook that sees to it."""
    said = {space["metadata"]["name"]: (space["metadata"].get("labels") or {}).get(names.ADOPT) for space in spaces}
    adopting = sorted(name for name, value in said.items() if value == "true")
    unclear = sorted(name for name, value in said.items() if value not in {None, "true", "false"})
    findings: list[Finding] = []
    if unclear:
        told = f"the label {names.ADOPT} means nothing in {some_of(unclear)}; allowed: true"
        findings.append(Finding(Level.WARNING, _CHECK, told, "correct the label, or take it away"))
    hooks = [(one, hook) for one in configurations for hook in one.get("webhooks") or () if hook["name"] == ADOPTION]
    if adopting and not hooks:
        told = f"no {_MUTATING} has {ADOPTION}: pods are not adopted in {some_of(adopting)}"
        findings.append(Finding(Level.FAILED, _CHECK, told, _APPLY))
    asking = [
        one["metadata"]["name"] for one in configurations if any(_is_ours(each) for each in one.get("webhooks") or ())
    ]
    for configuration, hook in hooks:
        before = sorted(name for name in asking if name <= configuration["metadata"]["name"])
        adopted = [space for space in spaces if space["metadata"]["name"] in adopting]
        findings += _judged_adoption(hook, before=before, adopting=adopted, clock=clock)
    return findings


def _is_ours(hook: Raw) -> bool:
    return bool(hook["name"] == WEBHOOK)


def _judged_adoption(hook: Raw, *, before: list[str], adopting: list[Raw], clock: Clock) -> list[Finding]:
    """``before``: configurations of our webhook that are asked earlier. ``adopting``: the namespaces that say so."""
    wrong = _wrong(hook, RULES_OF_ADOPTION, adoption_manifest(ServiceEndpoint(), ca=b"")["webhooks"][0])
    if wrong:
        return [Finding(Level.FAILED, _CHECK, f"{ADOPTION}: {wrong}", _APPLY)]
    if before:
        said = f"{ADOPTION} is asked after {WEBHOOK} in {some_of(before)}, so adopted pods are not admitted"
        return [Finding(Level.FAILED, _CHECK, said, _APPLY)]
    findings = of_ca(ADOPTION, hook, clock)
    selector = hook.get("namespaceSelector") or {}
    left_out = sorted(space["metadata"]["name"] for space in adopting if not _selects(selector, space))
    if left_out:
        said = f"{ADOPTION} is not asked in {some_of(left_out)}, whose label says so"
        findings.append(Finding(Level.WARNING, _CHECK, said, "take the label away, or see that it is asked"))
    return findings or [Finding(Level.OK, _CHECK, f"{ADOPTION} is asked first, where a namespace says so")]


def _wrong(hook: Raw, rules: Mapping[str, tuple[str, ...]], ours: Raw) -> str:
    """Say what makes a webhook let something through that ``ours`` does not; "" if nothing."""
    if hook.get("failurePolicy") != "Fail":
        return f"failurePolicy is {hook.get('failurePolicy')}; allowed: Fail"
    if hook.get("objectSelector"):
        return "objectSelector leaves pods out by their labels, which tenants write; allowed: none"
    wanted = ours["matchConditions"]
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
