"""The webhooks: registered as this version wants them, for every namespace; adoption for those that say so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from admission.manifests import (
    ADOPTION,
    RULES_OF_ADOPTION,
    RULES_OF_MUTATION,
    RULES_OF_VALIDATION,
    WEBHOOK,
    ServiceEndpoint,
    adoption_manifest,
    webhook_manifests,
)
from cli.checks.finding import Finding, Level, some_of
from cli.checks.objecthooks import of_objects
from cli.checks.reader import Raw, Reader
from cli.checks.trustedca import of_ca
from kube.client.clock import Clock
from wire import names

_CHECK: Final = "webhooks"
_APPLY: Final = "register the webhooks of this version (admission/manifests.py)"
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
