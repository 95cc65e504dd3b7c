"""The webhook configurations, under names of our own: KAI's operator takes over objects with its names (erratum 12)."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from admission.server import MUTATE_PATH, VALIDATE_PATH
from wire import names

Manifest = dict[str, Any]

_API: Final = "admissionregistration.k8s.io/v1"
_NAME: Final = "moorage-pods"
WEBHOOK: Final = "pods.admission.moorage.dev"

#: Resource -> operations that each webhook is asked about.
RULES_OF_MUTATION: Final = {"pods": ("CREATE",), "pods/ephemeralcontainers": ("UPDATE",)}
RULES_OF_VALIDATION: Final = {"pods": ("CREATE", "UPDATE"), "pods/ephemeralcontainers": ("UPDATE",)}


class ServiceEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The webhooks behind a Service, whose DNS name ``<name>.<namespace>.svc`` the certificate must bear."""

    name: str = "moorage-admission"
    namespace: str = names.SYSTEM_NAMESPACE
    port: int = 443


class UrlEndpoint(msgspec.Struct, frozen=True):
    """The webhooks at an address outside the cluster: ``https://host:port``."""

    base: str


def webhook_manifests(
    endpoint: ServiceEndpoint | UrlEndpoint,
    *,
    ca: bytes,
    scheduler_name: str = names.SCHEDULER_NAME,
    exempt: tuple[str, ...] = ("kube-system", names.SYSTEM_NAMESPACE),
    timeout_s: int = 5,
) -> list[Manifest]:
    """Return both configurations. ``ca`` is the PEM of the CA to trust; ``exempt`` names namespaces never asked about.

    A share of a pod in an exempt namespace is not handed over, so such a pod is never bound.
    """
    shared = {
        "name": WEBHOOK,
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "timeoutSeconds": timeout_s,
        "namespaceSelector": {
            "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": list(exempt)}]
        },
        "matchConditions": [
            {"name": "scheduler-name", "expression": f"object.spec.schedulerName == '{scheduler_name}'"}
        ],
    }
    mutating = {
        **shared,
        "reinvocationPolicy": "IfNeeded",
        "rules": _rules(RULES_OF_MUTATION),
        "clientConfig": _client_config(endpoint, MUTATE_PATH, ca),
    }
    validating = {
        **shared,
        "rules": _rules(RULES_OF_VALIDATION),
        "clientConfig": _client_config(endpoint, VALIDATE_PATH, ca),
    }
    return [
        _configuration("MutatingWebhookConfiguration", mutating),
        _configuration("ValidatingWebhookConfiguration", validating),
    ]


def _configuration(kind: str, webhook: Manifest) -> Manifest:
    return {"apiVersion": _API, "kind": kind, "metadata": {"name": _NAME}, "webhooks": [webhook]}


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
    bundle = {"caBundle": base64.b64encode(ca).decode()}
    match endpoint:
        case UrlEndpoint(base=base):
            return {**bundle, "url": base.rstrip("/") + path}
        case ServiceEndpoint():
            service = {"name": endpoint.name, "namespace": endpoint.namespace, "port": endpoint.port, "path": path}
            return {**bundle, "service": service}
