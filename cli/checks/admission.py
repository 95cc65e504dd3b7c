"""Checks of what admits objects: the admission policies, the webhooks and the CA by which they are trusted.

Each has to be registered as this version wants it, for every namespace. Without the webhook of Queues and PodGroups
those are stored unchecked. The CA that the API server trusts ends with the certificates that it signed.
"""

from __future__ import annotations

import base64
import datetime
import re
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
from admission.policies import policy_manifests
from cli.checks.reader import Finding, Level, Raw, Reader, some_of
from kube.client.clock import Clock
from wire import names
from wire.units import SECOND_NS

_ROOT: Final = "/apis/admissionregistration.k8s.io/v1"
_POLICIES: Final = "policies"
_APPLY_POLICIES: Final = "apply the policies of this version (admission/policies.py)"
#: Where a policy names users or groups: these an administrator may have extended.
_LETS_THROUGH: Final = re.compile(r"(request\.userInfo\.username|\bgroup) in \[([^\]]*)\]")


async def check_policies(reader: Reader) -> list[Finding]:
    """Each policy of ours is in force in all namespaces, and is the one of this version."""
    manifests = policy_manifests()
    bindings = await reader.items(f"{_ROOT}/validatingadmissionpolicybindings")
    findings: list[Finding] = []
    for wanted in manifests:
        if wanted["kind"] == "ValidatingAdmissionPolicy":
            name = wanted["metadata"]["name"]
            there = await reader.get(f"{_ROOT}/validatingadmissionpolicies/{name}")
            findings += _judged_policy(name, wanted["spec"], there, [one for one in bindings if _binds(one, name)])
    return findings


async def check_budget(reader: Reader) -> list[Finding]:
    """Nobody drains a node under its tenants."""
    (wanted,) = [one for one in policy_manifests() if one["kind"] == "PodDisruptionBudget"]
    meta = wanted["metadata"]
    path = f"/apis/policy/v1/namespaces/{meta['namespace']}/poddisruptionbudgets/{meta['name']}"
    if await reader.get(path) is None:
        said = (
            f"PodDisruptionBudget {meta['namespace']}/{meta['name']} is not there: a drain takes devices from tenants"
        )
        return [Finding(Level.WARNING, "budget", said, _APPLY_POLICIES)]
    return [Finding(Level.OK, "budget", "reservation pods that run are not evicted while they have tenants")]


def _binds(binding: Raw, policy: str) -> bool:
    return bool(binding["spec"].get("policyName") == policy)


def _judged_policy(name: str, wanted: Raw, there: Raw | None, bindings: list[Raw]) -> list[Finding]:
    if there is None:
        return [Finding(Level.FAILED, _POLICIES, f"{name} is not there", _APPLY_POLICIES)]
    spec: Raw = there["spec"]
    if spec.get("failurePolicy") != "Fail":
        said = f"{name} lets through what it can't judge (failurePolicy is {spec.get('failurePolicy')}; allowed: Fail)"
        return [Finding(Level.FAILED, _POLICIES, said, _APPLY_POLICIES)]
    if not any(_is_everywhere(binding["spec"]) for binding in bindings):
        said = f"{name} is in force nowhere, or in a part of the cluster only (no binding that denies everywhere)"
        return [Finding(Level.FAILED, _POLICIES, said, _APPLY_POLICIES)]
    different = [part for part in _PARTS if _part(spec, part) != _part(wanted, part)]
    if different:
        return [
            Finding(
                Level.FAILED,
                _POLICIES,
                f"{name} is not the one of this version: {', '.join(different)}",
                _APPLY_POLICIES,
            )
        ]
    further = sorted(_let_through(spec) - _let_through(wanted))
    if further:
        said = f"{name} lets further users through: {some_of(further)}"
        return [Finding(Level.WARNING, _POLICIES, said, "see that these are components of yours, and nobody's tenants")]
    return [Finding(Level.OK, _POLICIES, f"{name} is in force")]


def _is_everywhere(spec: Raw) -> bool:
    is_narrowed = bool(_plain(spec.get("matchResources") or {}) or spec.get("paramRef"))
    return "Deny" in (spec.get("validationActions") or ()) and not is_narrowed


#: The whole of a policy beside what it does with failures.
_PARTS: Final = (
    "matchConstraints",
    "matchConditions",
    "variables",
    "validations",
    "paramKind",
    "auditAnnotations",
)
_EXPRESSIONS: Final = ("matchConditions", "variables", "validations")
#: What the server adds to constraints that leave it out, and what narrows nothing or catches more.
_ADDED: Final = {"scope": "*", "matchPolicy": "Equivalent"}


def _part(spec: Raw, part: str) -> Any:
    """A part of a policy without what the server adds to it, and without the names of those whom it lets through."""
    if part == "matchConstraints":
        constraints = spec.get(part) or {}
        return _plain(
            {**constraints, "resourceRules": [_plain(rule) for rule in constraints.get("resourceRules") or ()]}
        )
    if part in {"paramKind", "auditAnnotations"}:
        return spec.get(part) or None
    return [(one.get("name"), _LETS_THROUGH.sub("", one["expression"])) for one in spec.get(part) or ()]


def _plain(fields: Raw) -> Raw:
    """Fields that say something: neither empty nor the server's own default."""
    return {key: value for key, value in fields.items() if value and value != _ADDED.get(key)}


def _let_through(spec: Raw) -> set[str]:
    texts = [one["expression"] for part in _EXPRESSIONS for one in spec.get(part) or ()]
    found = (names for text in texts for _, names in _LETS_THROUGH.findall(text))
    return set(_split(found))


def _split(lists: Iterable[str]) -> Iterable[str]:
    return (name.strip().strip('"') for text in lists for name in text.split(",") if name.strip())


_CHECK: Final = "webhooks"
_SOON: Final = datetime.timedelta(days=30)


def of_ca(name: str, hook: Raw, clock: Clock) -> list[Finding]:
    """Say when the CA of a webhook ends, if that is soon or over."""
    pem = base64.b64decode(hook["clientConfig"].get("caBundle") or "")
    if not pem:
        return []
    ends = max(certificate.not_valid_after_utc for certificate in x509.load_pem_x509_certificates(pem))
    now = datetime.datetime.fromtimestamp(clock.now_ns() // SECOND_NS, tz=datetime.UTC)
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
