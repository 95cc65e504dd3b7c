"""Which BindRequests are orders of ours, and what they order.

One rule for both sides: what the scheduler counts as under way is what the binder carries out. One that only the
scheduler counted would keep its pod waiting for ever.
"""

from __future__ import annotations

import msgspec

from gpu import handover
from gpu.handover import Handover
from wire import names
from wire.crds.bindrequest import BindRequest


class Order(msgspec.Struct, frozen=True, gc=False):
    """Bind the pod of this UID to ``spec.selectedNode`` as it was handed over."""

    pod_uid: str
    handover: Handover


class Foreign(msgspec.Struct, frozen=True, gc=False):
    """A BindRequest that is not carried out: made by another scheduler, or by hand. ``why`` says what is missing."""

    why: str


def read(request: BindRequest) -> Order | Foreign:
    """Read a BindRequest; what is not complete and consistent is Foreign and is left alone."""
    owners = request.metadata.owner_references or ()
    if not owners or owners[0].kind != "Pod" or not owners[0].uid:
        return Foreign("it names no pod by UID in ownerReferences[0]")
    try:
        handed = handover.parse((request.metadata.annotations or {}).get(names.HANDOVER))
    except handover.MalformedHandover as error:
        return Foreign(f"annotation {names.HANDOVER}: {error}")
    if [device.group for device in handed.devices] != list(request.spec.selected_gpu_groups or ()):
        return Foreign(f"spec.selectedGPUGroups and annotation {names.HANDOVER} name different groups")
    if not request.spec.selected_node:
        return Foreign("spec.selectedNode is empty")
    if request.spec.pod_name != request.metadata.name:
        return Foreign(f"its name is not spec.podName, {request.spec.pod_name!r}")
    return Order(owners[0].uid, handed)
