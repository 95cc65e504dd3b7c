"""What an installation of Moorage finds or makes in a cluster before the first pod: namespaces, accounts, classes."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from kube.client.api import Api
from kube.client.resources import NAMESPACES, Resource
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


async def seed(api: Api) -> None:
    """Create them on a fresh API server. Raises kube.client.errors.ApiError."""
    for namespace in (names.SYSTEM_NAMESPACE, names.RESERVATION_NAMESPACE, names.SCALE_ADJUST_NAMESPACE):
        await api.create(NAMESPACES, named(namespace))
    account = named(names.RESERVATION_SERVICE_ACCOUNT)
    await api.create(SERVICE_ACCOUNTS, account, namespace=names.RESERVATION_NAMESPACE)
    await api.create(RUNTIME_CLASSES, {**named(NVIDIA_RUNTIME), "handler": NVIDIA_RUNTIME})


def named(name: str) -> dict[str, Any]:
    """Return an object that is nothing but its name."""
    return {"metadata": {"name": name}}
