"""A gang's plan as it is written on its PodGroup, before the first member joins a book or is bound.

One annotation, written with the PodGroup's resourceVersion and only where there is none or a spent one, so that two
schedulers can't start two halves of one gang (docs/design/protocol.md, Gangs).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gpu.handover import PlannedDevice
from gpu.share import NANO_PER_DEVICE
from gpu.slices import is_device_resource
from scheduler.core.model.plan import Placement
from scheduler.core.model.records import PlannedMember


class GangPlan(msgspec.Struct, frozen=True, gc=False):
    """``id`` is fresh for each plan; ``members`` by pod UID."""

    id: str
    members: dict[str, PlannedMember]


_decoder = msgspec.json.Decoder(GangPlan)


def make(plan_id: str, placements: Sequence[Placement]) -> GangPlan:
    """The plan of these placements."""
    return GangPlan(plan_id, {p.pod_uid: PlannedMember(p.node, p.devices) for p in placements})


def render(plan: GangPlan) -> str:
    """Write the annotation."""
    return msgspec.json.encode(plan).decode()


def members(text: str | None) -> dict[str, PlannedMember]:
    """Read who goes where, by pod UID in their order. One that can't be read names nobody: another may be written."""
    if not text:
        return {}
    try:
        plan = _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    if not all(_is_sound(device) for member in plan.members.values() for device in member.devices):
        return {}
    return {uid: plan.members[uid] for uid in sorted(plan.members)}


def _is_sound(device: PlannedDevice) -> bool:
    return 0 < device.nano <= NANO_PER_DEVICE and is_device_resource(device.resource)
