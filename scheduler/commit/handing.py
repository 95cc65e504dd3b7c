"""BindRequests: how an attempt is handed to the binder, and how it is taken back."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio

from gpu import handover
from gpu.handover import Handover, PlannedDevice
from gpu.request import GpuRequest, MigAsk
from gpu.share import portion_text
from kube.client.api import Api
from kube.client.errors import AlreadyExists, ApiError, NotFound, Refused
from kube.client.patience import until_answered
from kube.client.removal import remove
from kube.client.resources import BIND_REQUESTS
from scheduler.core.model.plan import Placement
from scheduler.core.model.settings import NodePool
from wire import names
from wire.crds.bindrequest import BindRequest


class NotHanded(Exception):
    """Raised when the API server refuses the BindRequest for good."""


def manifest(
    placement: Placement, request: GpuRequest, *, pool: NodePool | None = None, plan: str = "", members: int = 1
) -> dict[str, Any]:
    """The BindRequest in KAI's shape (kai-contract 1.16, 2.3), the exact charges and the node pool beside it."""
    of_node = {names.SELECTED_NODE_LABEL: placement.node} if len(placement.node) < 64 else {}
    handed = Handover(placement.rv, placement.devices, plan, members, placement.alternative, placement.charged)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": placement.name, "uid": placement.pod_uid}
    devices = placement.devices
    spec: dict[str, Any] = {
        "podName": placement.name,
        "selectedNode": placement.node,
        "receivedResourceType": _received(placement, request),
    }
    if devices:
        spec["receivedGPU"] = {"count": len(devices), "portion": _portion(devices[0])}
        spec["selectedGPUGroups"] = [device.group for device in devices]
    elif request.whole:
        spec["receivedGPU"] = {"count": request.whole, "portion": "1.00"}
    return {
        "apiVersion": BIND_REQUESTS.api_version,
        "kind": BIND_REQUESTS.kind,
        "metadata": {
            "name": placement.name,
            "namespace": placement.namespace,
            "labels": {**of_node, **({} if pool is None else pool.labels)},
            "annotations": {names.HANDOVER: handover.render(handed)},
            "ownerReferences": [owner],
        },
        "spec": spec,
    }


def _portion(device: PlannedDevice) -> str:
    return portion_text(device.nano, of_memory=device.mem_mib > 0)


def _received(placement: Placement, request: GpuRequest) -> str:
    if placement.devices:
        return names.RECEIVED_FRACTION
    is_mig = any(isinstance(ask, MigAsk) for c in request.containers for ask in c.asks)
    return names.RECEIVED_MIG if is_mig else names.RECEIVED_REGULAR


async def create(api: Api, wanted: dict[str, Any]) -> BindRequest:
    """Create it, until the server answers. One of that name that says something else is an older one: it goes first.

    Raises NotHanded when the server refuses it for good.
    """
    namespace = wanted["metadata"]["namespace"]
    delay_s = 0.1
    while True:
        try:
            return await api.create(BIND_REQUESTS, wanted, namespace=namespace)
        except AlreadyExists:
            if (found := await _make_room(api, wanted)) is not None:
                return found
        except ApiError as error:
            if isinstance(error, Refused) and not error.outcome_unknown:
                raise NotHanded(str(error)) from error
        await anyio.sleep(delay_s)
        delay_s = min(delay_s * 2, 5.0)


async def _make_room(api: Api, wanted: dict[str, Any]) -> BindRequest | None:
    """Find the BindRequest that has the name: ours, created after all, is returned; any other one is taken back."""
    name, namespace = wanted["metadata"]["name"], wanted["metadata"]["namespace"]
    found = await until_answered(partial(_find, api, name, namespace))
    if found is None or _says(found, wanted):
        return found
    await until_answered(partial(take_back, api, namespace, name, found.metadata.uid))
    return None


async def take_back(api: Api, namespace: str, name: str, uid: str) -> None:
    """Delete exactly this BindRequest. The binder then withdraws the attempt. Raises ApiError: ask again."""
    await remove(api, BIND_REQUESTS, name, namespace=namespace, uid=uid)


async def _find(api: Api, name: str, namespace: str) -> BindRequest | None:
    try:
        return await api.get(BIND_REQUESTS, name, namespace=namespace)
    except NotFound:
        return None


def _says(found: BindRequest, wanted: dict[str, Any]) -> bool:
    """Whether a BindRequest that is there is the one we wanted to create: its creation was answered late."""
    owners = found.metadata.owner_references or []
    meta = wanted["metadata"]
    return (
        bool(owners)
        and owners[0].uid == meta["ownerReferences"][0]["uid"]
        and (found.metadata.annotations or {}).get(names.HANDOVER) == meta["annotations"][names.HANDOVER]
        and found.spec.selected_node == wanted["spec"]["selectedNode"]
    )
