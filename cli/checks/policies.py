"""The admission policies: there, as this version wants them, bound everywhere, and refusing what they must."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from admission.policies import policy_manifests
from cli.checks.reader import Finding, Level, Raw, Reader, some_of

_ROOT: Final = "/apis/admissionregistration.k8s.io/v1"
_CHECK: Final = "policies"
_APPLY: Final = "apply the policies of this version (admission/policies.py)"
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
            findings += _judged(name, wanted["spec"], there, [one for one in bindings if _binds(one, name)])
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
        return [Finding(Level.WARNING, "budget", said, _APPLY)]
    return [Finding(Level.OK, "budget", "reservation pods that run are not evicted while they have tenants")]


def _binds(binding: Raw, policy: str) -> bool:
    return bool(binding["spec"].get("policyName") == policy)


def _judged(name: str, wanted: Raw, there: Raw | None, bindings: list[Raw]) -> list[Finding]:
    if there is None:
        return [Finding(Level.FAILED, _CHECK, f"{name} is not there", _APPLY)]
    spec: Raw = there["spec"]
    if spec.get("failurePolicy") != "Fail":
        said = f"{name} lets through what it can't judge (failurePolicy is {spec.get('failurePolicy')}; allowed: Fail)"
        return [Finding(Level.FAILED, _CHECK, said, _APPLY)]
    if not any(_is_everywhere(binding["spec"]) for binding in bindings):
        said = f"{name} is in force nowhere, or in a part of the cluster only (no binding that denies everywhere)"
        return [Finding(Level.FAILED, _CHECK, said, _APPLY)]
    different = [part for part in _PARTS if _part(spec, part) != _part(wanted, part)]
    if different:
        return [Finding(Level.FAILED, _CHECK, f"{name} is not the one of this version: {', '.join(different)}", _APPLY)]
    further = sorted(_let_through(spec) - _let_through(wanted))
    if further:
        said = f"{name} lets further users through: {some_of(further)}"
        return [Finding(Level.WARNING, _CHECK, said, "see that these are components of yours, and nobody's tenants")]
    return [Finding(Level.OK, _CHECK, f"{name} is in force")]


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
