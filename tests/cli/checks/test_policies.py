from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from admission.policies import policy_manifests
from cli.checks.policies import check_policies
from cli.checks.reader import Finding, Level, Reader
from tests.cli.checks.told import Told

Object = dict[str, Any]

ROOT = "/apis/admissionregistration.k8s.io/v1"
NAME = "moorage-protected-keys"
STATUS = {"apiGroups": [""], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["pods/status"]}


async def _bad(change: Callable[[Object, Object], object]) -> list[Finding]:
    """What is found bad once the specs of a policy and of its binding were changed."""
    policies = {one["metadata"]["name"]: one for one in policy_manifests() if one["kind"].endswith("Policy")}
    bindings = {one["metadata"]["name"]: one for one in policy_manifests() if one["kind"].endswith("PolicyBinding")}
    policies, bindings = copy.deepcopy((policies, bindings))
    for one in policies.values():
        _as_served(one["spec"]["matchConstraints"])
    change(policies[NAME]["spec"], bindings[NAME]["spec"])
    answers: Object = {f"{ROOT}/validatingadmissionpolicies/{name}": one for name, one in policies.items()}
    answers[f"{ROOT}/validatingadmissionpolicybindings"] = {"items": list(bindings.values())}
    return [finding for finding in await check_policies(Reader(Told(answers))) if finding.level is not Level.OK]


def _as_served(constraints: Object) -> None:
    """What the API server fills in."""
    constraints |= {"namespaceSelector": {}, "objectSelector": {}, "matchPolicy": "Equivalent"}
    for rule in constraints["resourceRules"]:
        rule["scope"] = "*"


async def test_policies_as_the_server_keeps_them_are_ours() -> None:
    assert await _bad(lambda policy, binding: None) == []


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda spec: spec["matchConstraints"].update(excludeResourceRules=[STATUS]), "matchConstraints"),
        (lambda spec: spec["matchConstraints"].update(matchPolicy="Exact"), "matchConstraints"),
        (lambda spec: spec["matchConstraints"]["resourceRules"][0].update(resourceNames=["x"]), "matchConstraints"),
        (lambda spec: spec["matchConstraints"]["resourceRules"][0].update(scope="Cluster"), "matchConstraints"),
        (lambda spec: spec["matchConstraints"]["resourceRules"][0]["resources"].pop(), "matchConstraints"),
        (lambda spec: spec.update(paramKind={"apiVersion": "v1", "kind": "ConfigMap"}), "paramKind"),
        (lambda spec: spec["matchConditions"].append({"name": "n", "expression": "false"}), "matchConditions"),
    ],
    ids=["excluded", "exact", "names", "scope", "fewer", "parameters", "condition"],
)
async def test_a_policy_that_is_asked_less_is_not_ours(change: Callable[[Object], object], part: str) -> None:
    (finding,) = await _bad(lambda policy, binding: change(policy))
    assert (finding.level, finding.said) == (Level.FAILED, f"{NAME} is not the one of this version: {part}")


@pytest.mark.parametrize(
    "narrowed",
    [
        {"matchResources": {"excludeResourceRules": [STATUS]}},
        {"matchResources": {"matchPolicy": "Exact"}},
        {"paramRef": {"name": "x", "parameterNotFoundAction": "Allow"}},
        {"validationActions": ["Audit"]},
    ],
    ids=["excluded", "exact", "parameters", "audit"],
)
async def test_a_binding_that_is_narrowed_puts_nothing_in_force(narrowed: Object) -> None:
    (finding,) = await _bad(lambda policy, binding: binding.update(narrowed))
    assert finding.level is Level.FAILED
    assert finding.said.startswith(f"{NAME} is in force nowhere, or in a part of the cluster only")
