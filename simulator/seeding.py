"""What an installation of Moorage finds or makes in a cluster before the first pod: namespaces, accounts, classes."""

from __future__ import annotations

from collections.abc import Iterable
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


def named(name: str) -> dict[str, Any]:
    """Return an object that is nothing but its name."""
    return {"metadata": {"name": name}}
