"""Our part of a BindRequest: what the scheduler hands to the binder, and which BindRequests are orders of ours.

KAI's spec holds the portion as "0.50" and no pod UID. The exact charges, the resourceVersion at which the pod was read
and the gang's plan are in one annotation. The pod is named by ``ownerReferences[0].uid``, the attempt is the
BindRequest's own UID (docs/design/protocol.md, Objects).
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from gpu.grant import Charged
from gpu.node_resources import is_device_resource
from gpu.share import NANO_PER_DEVICE, PERCENT_PER_DEVICE
from wire import names
from wire.crds.bindrequest import BindRequest

_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


class PlannedDevice(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A charge of ``nano`` on the device of ``group``; the group may have no reservation pod yet.

    ``mem_mib`` is what a memory ask asks (0 for a fraction): the card is checked against it once it is known.
    ``mode``: how the pod runs there, "" for any (gpu/book.py). ``resource``: what the group's reservation asks of the
    vendor's device plugin, a GPU or a MIG slice (gpu/node_resources.py). ``compute_percent``: asked of its compute.
    """

    group: str
    nano: int
    mem_mib: int = 0
    mode: str = ""
    resource: str = names.GPU_RESOURCE
    compute_percent: int = 0


class Handover(msgspec.Struct, frozen=True, gc=False):
    """``devices`` in the order of the pod's asks; empty for a gang member without shares.

    ``plan`` is the id of the gang's plan and ``members`` the number of BindRequests that carry it: none of them is
    bound before all of them have joined. A pod alone has plan "" and members 1. ``alternative`` is the number of the
    pod's requests that the devices are for: 0 is the first (gpu/translate/asked.py). ``charged``: what the pod counts
    for in its queue from the Binding on.
    """

    rv: str
    devices: tuple[PlannedDevice, ...] = ()
    plan: str = ""
    members: int = 1
    alternative: int = 0
    charged: Charged | None = None


class MalformedHandover(ValueError):
    """Raised when a BindRequest carries no readable hand-over: not ours, or forged; it is not carried out."""


_decoder = msgspec.json.Decoder(Handover)
_FIELDS: Final = frozenset(Handover.__struct_fields__)
_DEVICE_FIELDS: Final = frozenset(PlannedDevice.__struct_fields__)


def parse(text: str | None) -> Handover:
    """Read the annotation. Raises MalformedHandover, also for what a newer version says and this one can't hold to."""
    if not text:
        raise MalformedHandover("the annotation is missing")
    try:
        handover = _decoder.decode(text)
        unknown = _unknown(msgspec.json.decode(text))
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise MalformedHandover(str(error)) from error
    if unknown:
        raise MalformedHandover(f"{unknown} is not known here: a newer version has to carry it out")
    if not (handover.rv.isascii() and handover.rv.isdigit()):
        # An empty one would be no precondition at all.
        raise MalformedHandover(f"rv is {handover.rv!r}, a resourceVersion is a decimal number")
    if handover.members < 1:
        raise MalformedHandover(f"members is {handover.members}, at least 1 is allowed")
    if handover.alternative < 0:
        raise MalformedHandover(f"alternative is {handover.alternative}, at least 0 is allowed")
    for device in handover.devices:
        check_device(device)
    if len({device.group for device in handover.devices}) != len(handover.devices):
        raise MalformedHandover("the groups must be distinct")
    return handover


def _unknown(said: dict[str, Any]) -> str:
    """A field that this version does not know; "" if there is none. It may be what a pod must not be bound without."""
    further = {key for device in said.get("devices", ()) for key in device} - _DEVICE_FIELDS
    return min(said.keys() - _FIELDS | further, default="")


def check_device(device: PlannedDevice) -> None:
    """Check a charge. Raises MalformedHandover.

    The group becomes a label of the pod, which a Binding's server does not validate, the resource a pod's request.
    """
    if not _LABEL_VALUE.fullmatch(device.group):
        raise MalformedHandover(f"group {device.group!r} can't be the value of a label")
    if not 0 < device.nano <= NANO_PER_DEVICE:
        raise MalformedHandover(f"nano is {device.nano}, 1 to {NANO_PER_DEVICE} are allowed")
    if not is_device_resource(device.resource):
        raise MalformedHandover(f"resource {device.resource!r} is not one of NVIDIA's device plugin")
    if not 0 <= device.compute_percent <= PERCENT_PER_DEVICE:
        raise MalformedHandover(f"compute_percent is {device.compute_percent}, 0 to {PERCENT_PER_DEVICE} are allowed")
    if device.mem_mib < 0:
        raise MalformedHandover(f"mem_mib is {device.mem_mib}, at least 0 is allowed")


def render(handover: Handover) -> str:
    """Write the annotation."""
    return msgspec.json.encode(handover).decode()


class Order(msgspec.Struct, frozen=True, gc=False):
    """Bind the pod of this UID to ``spec.selectedNode`` as it was handed over."""

    pod_uid: str
    handover: Handover


class Foreign(msgspec.Struct, frozen=True, gc=False):
    """A BindRequest that is not carried out: made by another scheduler, or by hand. ``why`` says what is missing."""

    why: str


def read(request: BindRequest) -> Order | Foreign:
    """Read a BindRequest; what is not complete and consistent is Foreign and is left alone.

    So is one that is being deleted: finalizers may keep it for as long as anybody likes. Scheduler and binder both read
    it so: an order that only the scheduler counted would keep its pod waiting for ever.
    """
    if request.metadata.deletion_timestamp is not None:
        return Foreign("it is being deleted")
    return _read(request)


def _read(request: BindRequest) -> Order | Foreign:
    owners = request.metadata.owner_references or ()
    if not owners or owners[0].kind != "Pod" or not owners[0].uid:
        return Foreign("it names no pod by UID in ownerReferences[0]")
    try:
        handed = parse((request.metadata.annotations or {}).get(names.HANDOVER))
    except MalformedHandover as error:
        return Foreign(f"annotation {names.HANDOVER}: {error}")
    if [device.group for device in handed.devices] != list(request.spec.selected_gpu_groups or ()):
        return Foreign(f"spec.selectedGPUGroups and annotation {names.HANDOVER} name different groups")
    if not request.spec.selected_node:
        return Foreign("spec.selectedNode is empty")
    if request.spec.pod_name != request.metadata.name:
        return Foreign(f"its name is not spec.podName, {request.spec.pod_name!r}")
    return Order(owners[0].uid, handed)
