"""What a bound pod was given: the exact record that its Binding writes, and its reading back.

One annotation holds it all (``moorage.dev/grant``), written in the one Binding together with node, group labels and
the values that the container's env reads. So no part of it can be there without the rest (invariants.md, R2). It is
guarded by an admission policy after placement, and the ledger, the collector and a rebuilt book all read it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from gpu import cdi as cdi_names
from gpu.request import ContainerRef, GpuRequest, MemoryAsk, MigAsk, SharedAsk
from gpu.share import NANO_PER_DEVICE, PERCENT_PER_DEVICE, portion_text
from gpu.slices import is_device_resource
from wire import names


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
    """All devices of one pod in the order of its asks, and the attempt that bound it."""

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
