"""What an installation of Moorage finds or makes in a cluster before the first pod: namespaces, accounts, classes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from kube.client.api import Api
from kube.client.resources import LEASES, NAMESPACES, Resource
from wire import names
from wire.core import ObjectMeta

NVIDIA_RUNTIME: Final = "nvidia"


class Bare(msgspec.Struct, frozen=True):
    """An object of which only the name matters."""

    metadata: ObjectMeta = ObjectMeta()


SERVICE_ACCOUNTS: Final = Resource(
    version="v1", plural="serviceaccounts", kind="ServiceAccount", namespaced=True, type=Bare
)
RUNTIME_CLASSES: Final = Resource(
    group="node.k8s.io", version="v1", plural="runtimeclasses", kind="RuntimeClass", namespaced=False, type=Bare
)


async def seed(api: Api, *, leases: Iterable[str] = ()) -> None:
    """Create them on a fresh API server. Raises kube.client.errors.ApiError.

    ``leases``: of components that elect a leader. An empty lease says that nobody has led yet, so the first one need
    not wait for a leader whose lease was deleted.
    """
    for namespace in (names.SYSTEM_NAMESPACE, names.RESERVATION_NAMESPACE, names.SCALE_ADJUST_NAMESPACE):
        await api.create(NAMESPACES, named(namespace))
    for lease in leases:
        await api.create(LEASES, named(lease), namespace=names.SYSTEM_NAMESPACE)
    account = named(names.RESERVATION_SERVICE_ACCOUNT)
    await api.create(SERVICE_ACCOUNTS, account, namespace=names.RESERVATION_NAMESPACE)
    await api.create(RUNTIME_CLASSES, {**named(NVIDIA_RUNTIME), "handler": NVIDIA_RUNTIME})


#: Where its objects are read, for messages.
ORIGIN: Final = "chart"


def priority_classes() -> list[dict[str, Any]]:
    """Return the PriorityClasses of the chart."""
    head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    return [{**head, **named(name), "value": value} for name, value in names.PRIORITY_CLASSES.items()]


def queues() -> list[dict[str, Any]]:
    """Return the two Queues of the chart, the parent first: nothing is theirs, and nothing is limited."""
    unlimited = {name: {"quota": 0, "limit": -1, "overQuotaWeight": 1} for name in ("cpu", "gpu", "memory")}
    head = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue"}
    below = {"parentQueue": names.DEFAULT_PARENT_QUEUE, "resources": unlimited}
    return [
        {**head, **named(names.DEFAULT_PARENT_QUEUE), "spec": {"resources": unlimited}},
        {**head, **named(names.DEFAULT_QUEUE), "spec": below},
    ]


def named(name: str) -> dict[str, Any]:
    """Return an object that is nothing but its name."""
    return {"metadata": {"name": name}}


#: The account that each namespace has.
_DEFAULT: Final = "default"


def missing(pods: Iterable[tuple[str, Mapping[str, Any]]], present: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the accounts (namespace, name) that pods name and the manifests lack, each once, in order of the pods.

    The API server refuses a pod whose account is missing. ``pods``: namespace and object. Accounts of Moorage's own
    installation exist.
    """
    known = {*present, (names.RESERVATION_NAMESPACE, names.RESERVATION_SERVICE_ACCOUNT)}
    wanted = dict.fromkeys((namespace, account_of(pod)) for namespace, pod in pods)
    return [each for each in wanted if each[1] not in {"", _DEFAULT} and each not in known]


def account_of(pod: Mapping[str, Any]) -> str:
    """Return the account that a pod names, by the current field or the old one; "" for none."""
    spec = pod.get("spec") or {}
    name = spec.get("serviceAccountName") or spec.get("serviceAccount") or ""
    return name if isinstance(name, str) else ""


def account(name: str) -> dict[str, Any]:
    """Return a ServiceAccount."""
    return {"apiVersion": "v1", "kind": "ServiceAccount", **named(name)}
