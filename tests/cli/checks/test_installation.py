"""What moorage check says of the installation: webhooks, policies, definitions, versions."""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable
from typing import Any

import pytest

from admission.certificates.pair import serving_certificate
from admission.manifests import ServiceEndpoint, adoption_manifest, queue_manifest, webhook_manifests
from admission.policies import policy_manifests
from cli.checks.admission import check_policies, of_ca, of_objects, webhooks_check
from cli.checks.reader import Finding, Level, Reader
from cli.upgrade_crds import known
from kube.client.clock import SystemClock
from tests.cli.checks.told import Told
from wire import names
from wire.crds import queue
from wire.crds.render import DEFINITIONS

# What ``moorage check`` says of the webhooks for Queues and PodGroups.

OURS = queue_manifest(ServiceEndpoint(), ca=b"")


def changed(**fields: Any) -> dict[str, Any]:
    """Our configuration with other fields in the webhook for Queues."""
    made = copy.deepcopy(OURS)
    made["webhooks"][0] |= fields
    return made


def test_webhooks_of_this_version_are_asked_as_the_api_server_stores_them() -> None:
    assert [(each.level, each.said) for each in of_objects([changed(objectSelector={})], SystemClock())] == [
        (Level.OK, "queues.admission.moorage.dev is asked about Queues"),
        (Level.OK, "podgroups.admission.moorage.dev is asked about PodGroups"),
    ]


def test_without_them_objects_are_stored_unchecked() -> None:
    queues, groups = of_objects([], SystemClock())
    assert queues.level is groups.level is Level.WARNING
    assert queues.said.endswith("has queues.admission.moorage.dev: Queues are stored unchecked")
    assert groups.said.endswith("has podgroups.admission.moorage.dev: PodGroups are stored unchecked")


@pytest.mark.parametrize(
    ("configuration", "words"),
    [
        (changed(failurePolicy="Fail"), "failurePolicy"),
        (changed(matchConditions=[]), "matchConditions"),
        (changed(objectSelector={"matchLabels": {"a": "b"}}), "objectSelector"),
        (
            changed(rules=[{"resources": ["queues"], "operations": ["CREATE"]}]),
            "rules: not asked about DELETE queues, UPDATE queues",
        ),
    ],
    ids=["fails closed", "asked of all", "narrowed", "not asked"],
)
def test_what_differs_is_named(configuration: dict[str, Any], words: str) -> None:
    queues, groups = of_objects([configuration], SystemClock())
    assert (queues.level, groups.level) == (Level.WARNING, Level.OK)
    assert f"differs from this version's in {words}: Queues may be stored unchecked" in queues.said


# What is said of adoption; what is said of the other webhooks is asked of a real cluster (tests/e2e/test_check.py).

ROOT = "/apis/admissionregistration.k8s.io/v1"
MUTATING, VALIDATING = webhook_manifests(ServiceEndpoint(), ca=b"")
ADOPTION = adoption_manifest(ServiceEndpoint(), ca=b"")


def webhooks_changed(name: str = "moorage-adoption", **fields: Any) -> dict[str, Any]:
    made = copy.deepcopy(ADOPTION)
    made["metadata"]["name"] = name
    made["webhooks"][0] |= fields
    return made


async def said(adoption: dict[str, Any] | None, label: str | None) -> list[tuple[Level, str]]:
    """What is found of adoption, where one namespace has the label."""
    labels = {"kubernetes.io/metadata.name": "team"} | ({names.ADOPT: label} if label else {})
    namespaces = [{"metadata": {"name": "team", "labels": labels}}, {"metadata": {"name": "other"}}]
    told = Told(
        {
            "/api/v1/namespaces": {"items": namespaces},
            f"{ROOT}/mutatingwebhookconfigurations": {"items": [MUTATING, *([adoption] if adoption else [])]},
            f"{ROOT}/validatingwebhookconfigurations": {"items": [VALIDATING]},
        }
    )
    findings = await webhooks_check(SystemClock())(Reader(told))
    return [(each.level, each.said) for each in findings if "adopt" in each.said]


async def test_adoption_that_is_in_force_is_told() -> None:
    expected = (Level.OK, "adopt.admission.moorage.dev is asked first, where a namespace says so")
    assert await said(ADOPTION, "true") == [expected]
    assert await said(ADOPTION, None) == [expected]


async def test_nobody_misses_adoption_where_no_namespace_says_so() -> None:
    assert await said(None, None) == []
    assert await said(None, "false") == []


@pytest.mark.parametrize(
    ("adoption", "words"),
    [
        pytest.param(None, "pods are not adopted in team", id="not there"),
        pytest.param(
            webhooks_changed("zz-last"), "is asked after pods.admission.moorage.dev in moorage-pods", id="too late"
        ),
        pytest.param(
            webhooks_changed(failurePolicy="Ignore"), "failurePolicy is Ignore; allowed: Fail", id="fails open"
        ),
        pytest.param(webhooks_changed(objectSelector={"matchLabels": {"a": "b"}}), "objectSelector", id="narrowed"),
        pytest.param(webhooks_changed(matchConditions=[]), "matchConditions are not those", id="another condition"),
        pytest.param(webhooks_changed(rules=[]), "not asked about CREATE pods", id="not asked"),
    ],
)
async def test_adoption_that_does_not_hold_fails(adoption: dict[str, Any] | None, words: str) -> None:
    ((level, text),) = await said(adoption, "true")
    assert level is Level.FAILED
    assert words in text


async def test_a_namespace_that_is_left_out_though_it_says_so_is_told() -> None:
    selector = {"matchLabels": {"a": "b"}}
    ((level, text),) = await said(webhooks_changed(namespaceSelector=selector), "true")
    assert (level, text) == (Level.WARNING, "adopt.admission.moorage.dev is not asked in team, whose label says so")


async def test_a_label_that_means_nothing_is_told() -> None:
    (level, text), _ = await said(ADOPTION, "yes")
    assert (level, text) == (Level.WARNING, "the label moorage.dev/adopt means nothing in team; allowed: true")


# What ``moorage check`` says of a CA that ends.

DAY_S = 86_400
MADE = serving_certificate(dns_names=["hook"], addresses=[], now_ns=0, lifetime_s=365 * DAY_S)
HOOK = {"clientConfig": {"caBundle": base64.b64encode(MADE.ca).decode()}}


class Day:
    """A clock that shows one day."""

    def __init__(self, number: int) -> None:
        self.number = number

    def now_ns(self) -> int:
        return self.number * DAY_S * 10**9


@pytest.mark.parametrize(
    ("day", "level"), [(300, None), (350, Level.WARNING), (366, Level.FAILED)], ids=["long", "soon", "over"]
)
def test_a_ca_that_ends_soon_is_told_and_one_that_has_ended_fails(day: int, level: Level | None) -> None:
    assert [each.level for each in of_ca("a hook", HOOK, Day(day))] == ([] if level is None else [level])


def test_a_webhook_without_a_ca_of_its_own_says_nothing() -> None:
    assert of_ca("a hook", {"clientConfig": {}}, Day(366)) == []


def test_the_ca_of_the_webhooks_for_queues_and_pod_groups_is_judged_too() -> None:
    manifest = queue_manifest(ServiceEndpoint(), ca=MADE.ca)
    assert [each.level for each in of_objects([manifest], Day(350))] == [Level.WARNING, Level.WARNING]


Object = dict[str, Any]

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


# What one definition knows and another does not, in a table of changes.

Raw = dict[str, Any]
Change = Callable[[Raw], None]


def crd(change: Change = lambda _: None) -> Raw:
    """A definition with one of everything that is compared, changed."""
    spec: Raw = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "mode": {"type": "string", "enum": ["a", "b"]},
            "amount": {"x-kubernetes-int-or-string": True},
            "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "levels": {"type": "array", "items": {"type": "object", "properties": {"key": {"type": "string"}}}},
            "limits": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    }
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    version = {"name": "v2", "served": True, "storage": True, "schema": schema, "subresources": {"status": {}}}
    made = {"spec": {"versions": [version]}, "status": {"storedVersions": ["v2"]}}
    change(made)
    return made


def fields(made: Raw) -> Raw:
    properties: Raw = made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    return properties


def _another_version(made: Raw) -> None:
    made["spec"]["versions"].append({**copy.deepcopy(made["spec"]["versions"][0]), "name": "v3", "storage": False})


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        (lambda made: fields(made).update(new={"type": "boolean"}), ["v2 spec.new (boolean)"]),
        (
            lambda made: fields(made)["levels"]["items"]["properties"].update(new={"type": "string"}),
            ["v2 spec.levels[].new (string)"],
        ),
        (
            lambda made: fields(made)["limits"].update(additionalProperties={"type": "integer"}),
            ["v2 spec.limits.* (integer)"],
        ),
        (lambda made: fields(made)["limits"].update(additionalProperties=True), ["v2 spec.limits (anything)"]),
        (lambda made: fields(made).update(name={"type": "integer"}), ["v2 spec.name (integer)"]),
        (lambda made: fields(made)["mode"]["enum"].append("c"), ["v2 spec.mode=c"]),
        (
            lambda made: fields(made)["name"].update({"x-kubernetes-preserve-unknown-fields": True}),
            ["v2 spec.name (anything)"],
        ),
        (lambda made: made["spec"]["versions"][0]["subresources"].update(scale={}), ["v2 scale"]),
        (lambda made: made["status"].update(storedVersions=["v1", "v2"]), ["v1 (of stored objects)"]),
        (lambda made: made["spec"].update(conversion={"strategy": "Webhook"}), ["a webhook that converts"]),
        (lambda made: made["spec"].update(preserveUnknownFields=True), ["fields that no schema names"]),
    ],
    ids=lambda each: each[0] if isinstance(each, list) else "",
)
def test_what_only_the_other_knows_is_named(change: Change, lost: list[str]) -> None:
    ours, theirs = known(crd()), known(crd(change))
    assert list(ours.lacks(theirs)) == lost


def test_a_version_that_only_the_other_has_is_named_with_all_its_fields() -> None:
    lost = known(crd()).lacks(known(crd(_another_version)))
    assert {"v3", "v3 (served)", "v3 spec.name (string)"} <= set(lost)
    assert all(fact.startswith("v3") for fact in lost)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda _: None, id="nothing"),
        pytest.param(
            lambda made: fields(made)["name"].update(description="another text", maxLength=7, default="x"),
            id="what is said of a field",
        ),
        pytest.param(lambda made: fields(made)["name"].update(enum=["x"]), id="values where ours allows all"),
        pytest.param(
            lambda made: fields(made)["any"].update(properties={"x": {"type": "string"}}),
            id="a field where ours keeps everything",
        ),
        pytest.param(lambda made: made["spec"].update(conversion={"strategy": "None"}), id="a default"),
        pytest.param(lambda made: made.pop("status"), id="no status"),
        pytest.param(lambda made: made["spec"]["versions"][0].pop("subresources"), id="no subresource"),
        pytest.param(lambda made: fields(made).pop("levels"), id="no field"),
    ],
)
def test_what_takes_nothing_away_is_no_difference(change: Change) -> None:
    assert known(crd()).lacks(known(crd(change))) == ()


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda each: each.plural)
def test_our_own_know_what_they_know(definition: Any) -> None:
    own = known(definition.manifest())
    assert own.lacks(own) == ()
    assert f"{definition.version} (served)" in own.facts


def test_a_field_of_ours_is_named_as_people_write_it() -> None:
    assert "v2 spec.resources.gpu.quota (number)" in known(queue.DEFINITION.manifest()).facts
