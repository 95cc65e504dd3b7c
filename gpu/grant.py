"""What a bound pod holds: the exact record of its Binding, what it counts for in its queue, and until when.

An admission policy guards both annotations after placement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from sys import intern
from typing import Annotated, Final, TypeAlias

import msgspec

from gpu import container_devices as cdi_names
from gpu.node_resources import is_device_resource
from gpu.request import ContainerRef, GpuRequest, MemoryAsk, MigAsk, SharedAsk
from gpu.share import NANO_PER_DEVICE, PERCENT_PER_DEVICE, portion_text
from wire import names
from wire.core import ContainerStatus, PodStatus

#: Texts and values that are kept: pods of one queue have the same.
_KEPT: Final = 1024
#: The longest text that one of ours can have: a queue and a node pool, each with the longest name of an object.
_LONGEST: Final = 1024


#: As of the API server: no larger number fits into the tables of a decision.
_Priority: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class Charged(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The queue, whether the pod may be preempted, and the node pool whose queue it is, "" for the one without a name.

    ``pool`` None: the cluster was not divided, so labels say of which one the pod is if it is divided later.
    ``priority``: of its PodGroup's class; None: its own, which the API server lets nobody change. ``minimum``: pods
    that its gang needed then, ``part``: of them those of its subgroup; 0: it was placed in no gang.

    The Binding writes it, as it was when the pod was placed, in one annotation (``moorage.dev/charged``;
    docs/design/queues.md). Labels of the pod and its PodGroup are a tenant's to change: they change what is placed
    later, and nothing that runs.
    """

    queue: str
    is_preemptible: bool = msgspec.field(name="preemptible")
    pool: str | None = None
    priority: _Priority | None = None
    minimum: int = 0
    part: int = 0


_charge_decoder: Final = msgspec.json.Decoder(Charged)


def charged(
    queue: str,
    pool: str | None,
    *,
    is_preemptible: bool,
    priority: int | None = None,
    minimum: int = 0,
    part: int = 0,
) -> Charged:
    """Return the one value of these fields."""
    return _one(Charged(intern(queue), is_preemptible, pool, priority, minimum, part))


@lru_cache(maxsize=_KEPT)
def _one(what: Charged) -> Charged:
    return what


def render_charged(what: Charged | None) -> dict[str, str]:
    """Return the annotation of a pod that was placed for this."""
    return {} if what is None else {names.CHARGED: msgspec.json.encode(what).decode()}


def read_charged(annotations: Mapping[str, str] | None) -> Charged | None:
    """Read what a bound pod was placed for; None without it, or if it can't be read: then the pod's labels count."""
    text = annotations.get(names.CHARGED) if annotations else None
    return _parsed(text) if text and len(text) <= _LONGEST else None


@lru_cache(maxsize=_KEPT)
def _parsed(text: str) -> Charged | None:
    try:
        found = _charge_decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    if not found.queue:
        return None
    minimum, part = max(0, found.minimum), max(0, found.part)
    return _one(msgspec.structs.replace(found, queue=intern(found.queue), minimum=minimum, part=part))


#: Pod garbage collection marks pods of machines that are gone so, before it deletes them by force (KEP-3329).
_COLLECTED: Final = ("DisruptionTarget", "True", "DeletionByPodGC")


def has_ended(status: PodStatus) -> bool:
    """Whether none of its containers runs or will run again (protocol.md, step 5: *ended*).

    Only a terminal phase says so, unless a container status contradicts it (one is marked Failed while it still ends).
    That all containers have terminated does not, be the pod deleted or not: kubelet goes on saying so of a container
    that it is just restarting, and a pod that is deleted in that moment runs for its whole grace period.
    Nor does Failed as pod garbage collection writes it: nobody asked the kubelet, and the machine may come back.
    """
    if status.phase not in names.ENDED_PHASES or _is_collected(status):
        return False
    statuses = (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
    return not any(_is_running(each) for each in statuses)


def _is_collected(status: PodStatus) -> bool:
    return any((each.type, each.status, each.reason) == _COLLECTED for each in status.conditions or ())


def _is_running(status: ContainerStatus) -> bool:
    return status.state is not None and status.state.running is not None


class DeviceGrant(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A share of one device. ``reservation`` is the UID of the reservation pod through which it was bound.

    ``resource``: what that pod holds, for when it has to be created again. ``compute_percent``: asked of its compute.
    """

    group: str
    reservation: str
    uuid: str
    nano: int
    resource: str = names.GPU_RESOURCE
    compute_percent: int = 0


class Grant(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """All devices of one pod in the order of its asks, and the attempt that bound it.

    One annotation holds it all (``moorage.dev/grant``), written in the one Binding together with node, group labels and
    the values that the container's env reads. So no part of it can be there without the rest (invariants.md, R2). The
    ledger, the collector and a rebuilt book all read it.
    """

    attempt: str
    devices: tuple[DeviceGrant, ...]


class BoundMetadata(msgspec.Struct, frozen=True, gc=False):
    """Labels and annotations for the Binding."""

    labels: dict[str, str]
    annotations: dict[str, str]


_decoder = msgspec.json.Decoder(Grant)


def shared_metadata(
    grant: Grant, request: GpuRequest, *, cdi: bool = False, beside: Sequence[str] = ()
) -> BoundMetadata:
    """What the Binding of a pod with shares of devices carries (kai-contract 1.1, 1.16; protocol.md, Hand-over).

    ``cdi``: what containers read names devices as CDI does. The grant has their UUIDs: it is what is read back.
    ``beside``: CDI names of what its containers with shares are given beside their devices, which only CDI can do.
    """
    annotations = {
        names.RECEIVED_RESOURCE_TYPE: names.RECEIVED_FRACTION,
        names.GRANT: msgspec.json.encode(grant).decode(),
        names.GPU_PORTION_ANNOTATION: portion(grant.devices[0], request.shared[0]),
    }
    for container, devices in dealt(grant, request):
        uuids = (device.uuid for device in devices)
        annotations[names.VISIBLE_DEVICES_PREFIX + container.key] = cdi_names.listed(uuids, cdi=cdi, beside=beside)
    return BoundMetadata(group_labels([device.group for device in grant.devices]), annotations)


def portion(device: DeviceGrant, ask: SharedAsk) -> str:
    """A share as KAI's variables say it."""
    return portion_text(device.nano, of_memory=isinstance(ask, MemoryAsk))


def dealt(grant: Grant, request: GpuRequest) -> list[tuple[ContainerRef, tuple[DeviceGrant, ...]]]:
    """Which container gets which devices: those that ask for shares, in the order of their asks."""
    return [(ref, tuple(grant.devices[number] for number in its)) for ref, its in request.devices().items()]


def whole_metadata(request: GpuRequest) -> BoundMetadata:
    """What the Binding of a pod without shares carries: whole GPUs, MIG slices or none."""
    is_mig = any(isinstance(ask, MigAsk) for c in request.containers for ask in c.asks)
    kind = names.RECEIVED_MIG if is_mig else names.RECEIVED_REGULAR
    return BoundMetadata({}, {names.RECEIVED_RESOURCE_TYPE: kind})


def group_labels(groups: list[str]) -> dict[str, str]:
    """KAI's group labels: the plain one for a single device, one prefixed label per group for several."""
    if len(groups) == 1:
        return {names.GPU_GROUP_LABEL: groups[0]}
    return {names.MULTI_GPU_GROUP_LABEL_PREFIX + group: group for group in groups}


def labelled_groups(labels: Mapping[str, str] | None) -> tuple[str, ...]:
    """Group ids that a pod's labels name, plain or prefixed, sorted. KAI's pods have nothing else."""
    labels = labels or {}
    groups = {value for key, value in labels.items() if key.startswith(names.MULTI_GPU_GROUP_LABEL_PREFIX)}
    if plain := labels.get(names.GPU_GROUP_LABEL):
        groups.add(plain)
    return tuple(sorted(groups))


def read(annotations: Mapping[str, str] | None) -> Grant | None:
    """Read the grant of a bound pod; None when there is none or it is not one (then the labels are all there is)."""
    text = (annotations or {}).get(names.GRANT)
    if not text:
        return None
    try:
        grant = _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return grant if all(_is_sane(device) for device in grant.devices) else None


def _is_sane(device: DeviceGrant) -> bool:
    is_some = 0 < device.nano <= NANO_PER_DEVICE and 0 <= device.compute_percent <= PERCENT_PER_DEVICE
    return is_some and is_device_resource(device.resource)
