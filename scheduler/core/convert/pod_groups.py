"""PodGroups as records: minimums, topology constraints, and what is asked for and not carried out.

And a gang's plan as it is written on its PodGroup, before the first member joins a book or is bound: one annotation,
written with the PodGroup's resourceVersion and only where there is none or a spent one, so that two schedulers can't
start two halves of one gang (docs/design/protocol.md, Gangs). Topology objects are read here too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from gpu.bind_request import PlannedDevice
from gpu.node_resources import is_device_resource
from gpu.share import NANO_PER_DEVICE
from gpu.translation import shown
from scheduler.core.convert import bounds, gang_kinds, queues
from scheduler.core.convert.owners import controller_of
from scheduler.core.model.minimum_tree import Contradiction, MinimumTree, Part, minimum_tree
from scheduler.core.model.plan import Placement
from scheduler.core.model.records import LevelConstraint, PlannedMember, PodGroupRecord, TopologyLevel, TopologyRecord
from scheduler.core.model.settings import NodePool
from scheduler.core.model.verdict import Code
from wire import go, names, rfc3339
from wire.crds.podgroup import PodGroup, PodGroupSpec, TopologyConstraint
from wire.crds.topology import Topology

#: More levels than KAI's CRD admits are not looked at: each costs a look at all nodes.
MOST_LEVELS: Final = 16


def topology_record(topology: Topology) -> TopologyRecord:
    """Read a Topology."""
    levels = tuple(TopologyLevel(level.node_label, level.alias or "") for level in topology.spec.levels[:MOST_LEVELS])
    return TopologyRecord(topology.metadata.name, levels)


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


def pod_group_record(group: PodGroup, pool: NodePool | None = None) -> PodGroupRecord:
    """Read a PodGroup as the scheduler of a node pool does (None: of all nodes).

    Without ``minMember`` the minimums of its subgroups hold, or one pod if there are none.
    """
    spec = group.spec
    tree, contradiction = _tree(spec)
    default = tree.fewest if spec.sub_groups else 1
    meta = group.metadata
    stale_ns, unread_stale = _stale(spec.staleness_grace_period)
    minimum = max(spec.min_member if spec.min_member is not None else default, 0)
    return PodGroupRecord(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        rv=meta.resource_version,
        minimum=minimum,
        created=meta.creation_timestamp or "",
        tree=tree,
        contradiction=contradiction,
        unsupported=_unsupported_in(group, minimum),
        stale_ns=stale_ns,
        unread_stale=unread_stale,
        delay_ns=_delay_ns(spec.preemption_delay),
        stale_since=(meta.annotations or {}).get(names.STALE_SINCE, "")[: rfc3339.LONGEST + 1],
        levels=tuple(_levels(spec)),
        controller=controller_of(meta),
        planned=members((meta.annotations or {}).get(names.PLAN)),
        queue=bounds.name(spec.queue or names.DEFAULT_QUEUE),
        is_preemptible=queues.is_preemptible(spec.preemptibility),
        is_elsewhere=pool is not None and not pool.takes(meta.labels),
    )


def _tree(spec: PodGroupSpec) -> tuple[MinimumTree, Contradiction | None]:
    """The minimums; as in KAI, pods are counted in leaves, and ``minMember`` of a subgroup above others is not read."""
    if spec.min_member is not None and spec.min_sub_group is not None:
        return MinimumTree(), Contradiction(Code.GROUP_TWO_MINIMUMS, "")
    if _has_too_many(spec):
        return MinimumTree(), None
    parts = [
        Part(bounds.name(s.name), bounds.name(s.parent or ""), s.min_member, s.min_sub_group)
        for s in spec.sub_groups or ()
    ]
    found = minimum_tree(parts, spec.min_sub_group)
    return (MinimumTree(), found) if isinstance(found, Contradiction) else (found, None)


def _levels(spec: PodGroupSpec) -> Iterator[tuple[str, LevelConstraint]]:
    """What the group, and then each of its subgroups, asks of the places of its pods."""
    yield from _level("", spec.topology_constraint)
    for subgroup in () if _has_too_many(spec) else spec.sub_groups or ():
        yield from _level(subgroup.name, subgroup.topology_constraint)


def _level(name: str, asked: TopologyConstraint | None) -> Iterator[tuple[str, LevelConstraint]]:
    # A level that is preferred in no Topology prefers nothing.
    if asked is not None and (asked.required_topology_level or (asked.topology and asked.preferred_topology_level)):
        levels = asked.topology, asked.required_topology_level, asked.preferred_topology_level
        yield bounds.name(name), LevelConstraint(*map(bounds.name, levels))


def _has_too_many(spec: PodGroupSpec) -> bool:
    """Whether there are more subgroups than are kept: the gang waits then."""
    return len(spec.sub_groups or ()) > bounds.MOST_SUBGROUPS


def _unsupported_in(group: PodGroup, minimum: int) -> str:
    spec = group.spec
    if _has_too_many(spec):
        return f"more than {bounds.MOST_SUBGROUPS} subgroups"
    found: dict[str, bool] = {}
    annotations = group.metadata.annotations
    # Where subgroups are counted, KAI's annotation says how many of them.
    if gang_kinds.asks_more_than(annotations, max(minimum, spec.min_sub_group or 0)):
        found[f"annotation {names.BATCH_MIN_MEMBER} above minMember"] = True
    if not spec.sub_groups:
        found |= dict.fromkeys(gang_kinds.kais_segments(annotations), True)
    return ", ".join(name for name, is_there in found.items() if is_there)


def _stale(text: str | None) -> tuple[int | None, str | None]:
    """``stalenessGracePeriod`` (kai-contract 3.2), or what stands there and can't be read: as if it were not said."""
    if text is None:
        return None, None
    try:
        return go.parse_ns(text), None
    except go.MalformedDuration:
        return None, shown(text)


def _delay_ns(text: str | None) -> int:
    """``preemptionDelay``; what can't be read, or is below zero, delays nothing. The webhook refuses what can't be."""
    try:
        return max(0, go.parse_ns(text)) if text is not None else 0
    except go.MalformedDuration:
        return 0
