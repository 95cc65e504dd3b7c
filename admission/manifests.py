"""The webhook configurations, under names of our own: KAI's operator takes over objects with its names (erratum 12)."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from admission.server import ADOPT_PATH, MUTATE_PATH, POD_GROUP_PATH, QUEUE_PATH, VALIDATE_PATH
from wire import names

Manifest = dict[str, Any]

_API: Final = "admissionregistration.k8s.io/v1"
PODS_CONFIGURATION: Final = "moorage-pods"
WEBHOOK: Final = "pods.admission.moorage.dev"
#: Configurations are asked in the order of their names, and this one has to be asked first.
ADOPTION_CONFIGURATION: Final = "moorage-adoption"
ADOPTION: Final = "adopt.admission.moorage.dev"
QUEUES_CONFIGURATION: Final = "moorage-queues"
QUEUES: Final = "queues.admission.moorage.dev"
POD_GROUPS: Final = "podgroups.admission.moorage.dev"

#: Resource -> operations that each webhook is asked about.
RULES_OF_MUTATION: Final = {"pods": ("CREATE",), "pods/ephemeralcontainers": ("UPDATE",)}
RULES_OF_ADOPTION: Final = {"pods": ("CREATE",)}
RULES_OF_VALIDATION: Final = {"pods": ("CREATE", "UPDATE"), "pods/ephemeralcontainers": ("UPDATE",)}

#: An object is new, is deleted, or has another spec than before.
_SPEC_CHANGES: Final = {
    "name": "spec-changes",
    "expression": (
        "object == null || oldObject == null || !has(object.spec) || !has(oldObject.spec)"
        " || object.spec != oldObject.spec"
    ),
}


class ServiceEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The webhooks behind a Service, whose DNS name ``<name>.<namespace>.svc`` the certificate must bear."""

    name: str = "moorage-admission"
    namespace: str = names.SYSTEM_NAMESPACE
    port: int = 443


class UrlEndpoint(msgspec.Struct, frozen=True):
    """The webhooks at an address outside the cluster: ``https://host:port``."""

    base: str


#: Namespaces that no webhook is asked about.
EXEMPT: Final = ("kube-system", names.SYSTEM_NAMESPACE)
_TIMEOUT_S: Final = 5


def all_manifests(endpoint: ServiceEndpoint | UrlEndpoint, *, ca: bytes) -> list[Manifest]:
    """Return every configuration with its defaults, as the chart has them."""
    return [adoption_manifest(endpoint, ca=ca), *webhook_manifests(endpoint, ca=ca), queue_manifest(endpoint, ca=ca)]


def adoption_manifest(endpoint: ServiceEndpoint | UrlEndpoint, *, ca: bytes) -> Manifest:
    """Return the configuration that makes pods ours in namespaces that say so (admission/settings.py).

    It fails closed, so while nobody answers no pod of another scheduler is made in those namespaces: one that is let by
    stays another scheduler's for good. It may be left out where no namespace is to say so.
    """
    webhook = {
        **_webhook(endpoint, ADOPT_PATH, ca, name=ADOPTION),
        "reinvocationPolicy": "IfNeeded",
        "rules": _rules(RULES_OF_ADOPTION),
        "matchConditions": [
            {"name": "of-another-scheduler", "expression": f"object.spec.schedulerName != '{names.SCHEDULER_NAME}'"}
        ],
    }
    webhook["namespaceSelector"] = {**webhook["namespaceSelector"], "matchLabels": {names.ADOPT: "true"}}
    return _configuration("MutatingWebhookConfiguration", webhook, name=ADOPTION_CONFIGURATION)


def webhook_manifests(endpoint: ServiceEndpoint | UrlEndpoint, *, ca: bytes) -> list[Manifest]:
    """Return both configurations. ``ca`` is the PEM of the CA to trust.

    Where certificates are self-made or cert-manager's, ``ca`` is empty and no ``caBundle`` is named: applying such a
    manifest again leaves the stored one unchanged.

    A share of a pod in an exempt namespace is not handed over, so such a pod is never bound.
    """
    ours = [{"name": "scheduler-name", "expression": f"object.spec.schedulerName == '{names.SCHEDULER_NAME}'"}]
    mutating = {
        **_webhook(endpoint, MUTATE_PATH, ca, name=WEBHOOK),
        "matchConditions": ours,
        "reinvocationPolicy": "IfNeeded",
        "rules": _rules(RULES_OF_MUTATION),
    }
    validating = {
        **_webhook(endpoint, VALIDATE_PATH, ca, name=WEBHOOK),
        "matchConditions": ours,
        "rules": _rules(RULES_OF_VALIDATION),
    }
    return [
        _configuration("MutatingWebhookConfiguration", mutating, name=PODS_CONFIGURATION),
        _configuration("ValidatingWebhookConfiguration", validating, name=PODS_CONFIGURATION),
    ]


def queue_manifest(endpoint: ServiceEndpoint | UrlEndpoint, *, ca: bytes) -> Manifest:
    """Return the configuration of the webhooks for Queues and PodGroups (admission/objects).

    They are asked when a spec changes or a queue is deleted, so who writes metadata or status needs no webhook: gangs
    are placed while nobody answers. Queues have no namespace, so no selector leaves one out.

    While admission does not answer, both are taken unchecked, where KAI refuses them: the chart makes its own queues in
    one go with this configuration, before any replica runs. Schedulers have to live with what was stored earlier.
    """
    both = {"failurePolicy": "Ignore", "matchConditions": [_SPEC_CHANGES]}
    queues = {
        **_webhook(endpoint, QUEUE_PATH, ca, name=QUEUES),
        **both,
        "rules": [_rule_of("v2", "queues", ("CREATE", "UPDATE", "DELETE"), scope="Cluster")],
    }
    del queues["namespaceSelector"]
    groups = {
        **_webhook(endpoint, POD_GROUP_PATH, ca, name=POD_GROUPS),
        **both,
        "rules": [_rule_of("v2alpha2", "podgroups", ("CREATE", "UPDATE"), scope="Namespaced")],
    }
    return _configuration("ValidatingWebhookConfiguration", queues, groups, name=QUEUES_CONFIGURATION)


def _rule_of(version: str, resource: str, operations: tuple[str, ...], *, scope: str) -> Manifest:
    """A rule for one of KAI's kinds."""
    return {
        "apiGroups": [names.SCHEDULING_GROUP],
        "apiVersions": [version],
        "resources": [resource],
        "operations": list(operations),
        "scope": scope,
    }


def _webhook(endpoint: ServiceEndpoint | UrlEndpoint, path: str, ca: bytes, *, name: str) -> Manifest:
    """What all of them have."""
    return {
        "name": name,
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "timeoutSeconds": _TIMEOUT_S,
        "namespaceSelector": {
            "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": list(EXEMPT)}]
        },
        "clientConfig": _client_config(endpoint, path, ca),
    }


def _configuration(kind: str, *webhooks: Manifest, name: str) -> Manifest:
    return {"apiVersion": _API, "kind": kind, "metadata": {"name": name}, "webhooks": list(webhooks)}


def _rules(resources: Mapping[str, tuple[str, ...]]) -> list[Manifest]:
    return [
        {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "resources": [resource],
            "operations": list(operations),
            "scope": "Namespaced",
        }
        for resource, operations in resources.items()
    ]


def _client_config(endpoint: ServiceEndpoint | UrlEndpoint, path: str, ca: bytes) -> Manifest:
    bundle = {"caBundle": base64.b64encode(ca).decode()} if ca else {}
    match endpoint:
        case UrlEndpoint(base=base):
            return {**bundle, "url": base.rstrip("/") + path}
        case ServiceEndpoint():
            service = {"name": endpoint.name, "namespace": endpoint.namespace, "port": endpoint.port, "path": path}
            return {**bundle, "service": service}
