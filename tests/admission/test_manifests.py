from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
import yaml

from admission.certificates.rotation import CONFIGURATIONS
from admission.manifests import ServiceEndpoint, UrlEndpoint, adoption_manifest, queue_manifest, webhook_manifests
from admission.policies import Identities, policy_manifests
from wire import names


def test_the_webhooks_are_asked_about_our_pods_only_and_fail_closed() -> None:
    for manifest in webhook_manifests(ServiceEndpoint(), ca=b"pem"):
        (webhook,) = manifest["webhooks"]
        assert webhook["failurePolicy"] == "Fail"
        assert webhook["sideEffects"] == "None"
        assert webhook["matchConditions"][0]["expression"] == "object.spec.schedulerName == 'kai-scheduler'"
        assert webhook["name"].count(".") >= 2
        assert "kai" not in manifest["metadata"]["name"]


def test_only_mutation_is_called_again_when_others_change_the_pod() -> None:
    mutating, validating = (manifest["webhooks"][0] for manifest in webhook_manifests(ServiceEndpoint(), ca=b"pem"))
    assert mutating["reinvocationPolicy"] == "IfNeeded"
    assert "reinvocationPolicy" not in validating


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        (UrlEndpoint("https://127.0.0.1:9443/"), {"url": "https://127.0.0.1:9443/mutate--v1-pod"}),
        (
            ServiceEndpoint(namespace="moorage"),
            {"service": {"name": "moorage-admission", "namespace": "moorage", "port": 443, "path": "/mutate--v1-pod"}},
        ),
    ],
)
def test_the_webhooks_are_reached_by_service_or_address(
    endpoint: UrlEndpoint | ServiceEndpoint, expected: dict[str, object]
) -> None:
    mutating = webhook_manifests(endpoint, ca=b"pem")[0]["webhooks"][0]
    assert mutating["clientConfig"] == {"caBundle": base64.b64encode(b"pem").decode(), **expected}


def test_queues_and_groups_are_reviewed_when_their_spec_changes_and_taken_while_nobody_answers() -> None:
    queues, groups = queue_manifest(ServiceEndpoint(), ca=b"pem")["webhooks"]
    assert queues["failurePolicy"] == groups["failurePolicy"] == "Ignore"
    assert queues["matchConditions"] == groups["matchConditions"]
    assert "namespaceSelector" not in queues
    assert groups["namespaceSelector"]["matchExpressions"][0]["values"] == ["kube-system", "kai-scheduler"]
    assert queues["clientConfig"]["service"]["path"] == "/validate-scheduling-run-ai-v2-queue"
    assert groups["clientConfig"]["service"]["path"] == "/validate-scheduling-run-ai-v2alpha2-podgroup"
    asked = [(one["rules"][0]["resources"], one["rules"][0]["operations"]) for one in (queues, groups)]
    assert asked == [(["queues"], ["CREATE", "UPDATE", "DELETE"]), (["podgroups"], ["CREATE", "UPDATE"])]


def test_adoption_comes_first_and_is_asked_where_a_namespace_says_so() -> None:
    adoption = adoption_manifest(ServiceEndpoint(), ca=b"pem")
    (webhook,) = adoption["webhooks"]
    assert adoption["kind"] == "MutatingWebhookConfiguration"
    assert adoption["metadata"]["name"] < webhook_manifests(ServiceEndpoint(), ca=b"pem")[0]["metadata"]["name"]
    assert webhook["namespaceSelector"]["matchLabels"] == {"moorage.dev/adopt": "true"}
    assert webhook["namespaceSelector"]["matchExpressions"][0]["values"] == ["kube-system", "kai-scheduler"]
    assert webhook["failurePolicy"] == "Fail"
    assert webhook["clientConfig"]["service"]["path"] == "/adopt--v1-pod"


def test_every_policy_is_bound_and_denies() -> None:
    manifests = policy_manifests()
    policies = {m["metadata"]["name"] for m in manifests if m["kind"] == "ValidatingAdmissionPolicy"}
    bindings = [m["spec"] for m in manifests if m["kind"] == "ValidatingAdmissionPolicyBinding"]
    assert {binding["policyName"] for binding in bindings} == policies
    assert all(binding["validationActions"] == ["Deny"] for binding in bindings)
    assert all(
        m["spec"]["failurePolicy"] == "Fail"
        for m in manifests
        if m["metadata"]["name"] in policies and "failurePolicy" in m["spec"]
    )


def test_every_key_under_our_prefix_that_a_pod_can_bear_is_named_by_a_policy() -> None:
    text = json.dumps(policy_manifests())
    ours = {value for key, value in vars(names).items() if isinstance(value, str) and value.startswith("moorage.dev/")}
    of_namespaces = {names.VISIBLE_DEVICES_GUARD, names.DIALECTS, names.ADOPT}
    of_nodes = {
        names.NODE_CARDS,
        names.NODE_ENFORCES,
        names.NODE_UUIDS,
        names.NODE_AGENT_CONFIG,
        names.NODE_GPU_CLEARED,
        names.NODE_MIG,
        names.NODE_TENANT_VIEW,
    }
    of_users = {names.REQUIRE_ENFORCEMENT, names.TRACEPARENT, names.MAX_RUNTIME}
    #: Of a pod, by the podgrouper; who writes it starts pods of its own before they are grouped, and no others.
    of_users |= {names.ALONE}
    #: Of a reservation pod; nothing rests on it.
    hints = {names.OPENED_FOR}
    no_keys = {
        names.MOORAGE_PREFIX,
        names.CONDITION_LIMITS_ENFORCED,
        names.CONDITION_QUEUE_CLOSED,
        names.VIEW_DEVICE_PREFIX,
        names.LIMITS_DEVICE_PREFIX,
        names.GPU_SHARE_RESOURCE,
    }
    of_queues = {names.PATIENCE}
    of_pod_groups = {names.GROUPED, names.FOREIGN_GANG, names.KEPT_MINIMUM}
    of_other_objects = of_namespaces | of_nodes | of_users | of_queues | of_pod_groups | {names.POD_VERSION}
    assert [key for key in sorted(ours - of_other_objects - hints - no_keys) if key not in text] == []


def test_the_identities_are_those_that_the_roles_are_bound_to() -> None:
    rbac = Path(__file__).parents[2] / "admission" / "rbac.yaml"
    account, role, binding, secret, of_secret, _ = yaml.safe_load_all(rbac.read_text())
    assert account["metadata"] == {"name": "moorage-admission", "namespace": names.SYSTEM_NAMESPACE}
    namespaces, queues, *configurations = role["rules"]
    assert namespaces == {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list", "watch"]}
    assert queues == {"apiGroups": [names.SCHEDULING_GROUP], "resources": ["queues"], "verbs": ["list"]}
    of_webhooks = {(rule["resources"][0], name) for rule in configurations for name in rule["resourceNames"]}
    assert of_webhooks == {(resource.plural, name) for resource, name in CONFIGURATIONS}
    assert secret["metadata"] == {"name": names.CERTIFICATES_SECRET, "namespace": names.SYSTEM_NAMESPACE}
    assert "data" not in secret
    assert of_secret["rules"][0]["resourceNames"] == [names.CERTIFICATES_SECRET]
    assert binding["subjects"][0]["name"] == account["metadata"]["name"]
    assert all(user.startswith("system:serviceaccount:kai-scheduler:moorage-") for user in Identities().ours)
