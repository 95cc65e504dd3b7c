"""PodGroups, Queues and Topologies as records: minimums, constraints, quotas, whose queue a pod counts in, plans.

Of Queues the wire has floats; what they count for is said there (wire/crds/queue.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from sys import intern
from typing import Final

import msgspec

from gpu.bind_request import PlannedDevice
from gpu.node_resources import is_device_resource
from gpu.share import NANO_PER_DEVICE
from gpu.translation import shown
from scheduler.core.convert import bounds, owners
from scheduler.core.convert.owners import controller_of
from scheduler.core.model.minimum_tree import Contradiction, MinimumTree, Part, minimum_tree
from scheduler.core.model.plan import Placement
from scheduler.core.model.quota import DIMENSIONS, BadField, QueueElsewhere, QueueRecord, Resources
from scheduler.core.model.quota import UNLIMITED as WITHOUT_END
from scheduler.core.model.records import (
    LevelConstraint,
    Minimums,
    PlannedMember,
    PodGroupRecord,
    TopologyLevel,
    TopologyRecord,
)
from scheduler.core.model.settings import NodePool
from scheduler.core.model.verdict import Code
from wire import go, names, rfc3339
from wire.crds.podgroup import NON_PREEMPTIBLE, PREEMPTIBLE, PodGroup, PodGroupSpec, SubGroup, TopologyConstraint
from wire.crds.queue import DEFAULT_PRIORITY, UNITS, UNLIMITED, WEIGHT_UNITS, Queue, QueueResource, counted
from wire.crds.topology import Topology

_NOTHING: Final = QueueResource()


def queue_record(queue: Queue) -> QueueRecord:
    """Read a Queue. A value without meaning closes it: it never counts as another one."""
    reader, spec, meta = _Reader(), queue.spec, queue.metadata
    resources = spec.resources
    each = [(name, getattr(resources, name, None) or _NOTHING) for name in DIMENSIONS]
    return QueueRecord(
        name=intern(meta.name),
        uid=meta.uid,
        parent=intern(spec.parent_queue),
        created=meta.creation_timestamp or "",
        priority=DEFAULT_PRIORITY if spec.priority is None else spec.priority,
        quota=Resources(*(reader.amount(name, "quota", one.quota) for name, one in each)),
        limit=Resources(*(reader.amount(name, "limit", one.limit) for name, one in each)),
        weight=Resources(*(reader.weight(name, one.over_quota_weight) for name, one in each)),
        preempt_min_runtime_ns=reader.duration_ns("preemptMinRuntime", spec.preempt_min_runtime),
        reclaim_min_runtime_ns=reader.duration_ns("reclaimMinRuntime", spec.reclaim_min_runtime),
        patience_ns=_patience_ns((meta.annotations or {}).get(names.PATIENCE)),
        bad=reader.bad,
    )


def queue_elsewhere(queue: Queue, key: str = names.NODE_POOL_LABEL) -> QueueElsewhere:
    """Read a Queue of another node pool. ``key``: the label that names pools."""
    meta = queue.metadata
    return QueueElsewhere(intern(meta.name), NodePool(key=key, value=(meta.labels or {}).get(key, "")).name)


class _Reader:
    """Reads numbers, and keeps the first that has no meaning."""

    def __init__(self) -> None:
        self.bad: BadField | None = None

    def amount(self, resource: str, field: str, value: float | None) -> int:
        """In the smallest units of a resource, cut to a whole number; -1 is without end."""
        if value == UNLIMITED:
            return WITHOUT_END
        return self._read(resource, field, value, UNITS[resource])

    def weight(self, resource: str, value: float | None) -> int:
        """In millionths."""
        return self._read(resource, "overQuotaWeight", value, WEIGHT_UNITS)

    def duration_ns(self, field: str, written: str | None) -> int | None:
        """A duration as Go writes it; None if it is absent."""
        try:
            return None if written is None else go.parse_ns(written)
        except go.MalformedDuration:
            self.bad = self.bad or BadField(field, shown(written or ""))
        return None

    def _read(self, resource: str, field: str, value: float | None, scale: int) -> int:
        if value is None:
            return 0
        found = counted(value, scale)
        if found is None:
            self.bad = self.bad or BadField(f"resources.{resource}.{field}", repr(value))
        return found or 0


def _patience_ns(written: str | None) -> int | None:
    """How long a group waits before nodes are kept for it; what can't be read, and admission refuses, is not said."""
    try:
        return None if written is None else go.parse_ns(written)
    except go.MalformedDuration:
        return None


def queue_of(labels: Mapping[str, str], *, is_of_group: bool = False) -> str:
    """The queue that a pod is charged to by its labels, where no PodGroup names another one (as in KAI).

    ``is_of_group``: it waits and names a PodGroup. While that is not there, its label ``project`` charges nobody:
    admission does not judge that label then (admission/policies.py).
    """
    project = "" if is_of_group else labels.get(names.PROJECT_LABEL)
    return intern(labels.get(names.QUEUE_LABEL) or project or names.DEFAULT_QUEUE)


def is_preemptible(written: str | None) -> bool | None:
    """Whether pods may be preempted, as somebody writes; None: nobody says, so priority decides."""
    return {PREEMPTIBLE: True, NON_PREEMPTIBLE: False}.get(written or "")


#: More levels than KAI's CRD admits are not looked at: each costs a look at all nodes.
MOST_LEVELS: Final = 16


def topology_record(topology: Topology) -> TopologyRecord:
    """Read a Topology."""
    levels = tuple(TopologyLevel(level.node_label, level.alias or "") for level in topology.spec.levels[:MOST_LEVELS])
    return TopologyRecord(topology.metadata.name, levels)


class GangPlan(msgspec.Struct, frozen=True, gc=False):
    """A gang's plan as it is written on its PodGroup, before the first member joins a book or is bound.

    It is one annotation, written with the PodGroup's resourceVersion and only where there is none or a spent one, so
    that two schedulers can't start two halves of one gang (docs/design/protocol.md, Gangs). ``id`` is fresh for each
    plan; ``members`` by pod UID.
    """

    id: str
    members: dict[str, PlannedMember]


_decoder = msgspec.json.Decoder(GangPlan)
_kept_decoder: Final = msgspec.json.Decoder(PodGroupSpec)


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


def render_kept(kept: Minimums) -> str | None:
    """Write the annotation of a gang whose minimums rose; None where it would be too long to be read."""
    tree = kept.tree
    parts = [
        SubGroup(
            name=name,
            parent=tree.names[tree.parents[node]] or None,
            min_member=tree.pods[node] if node in tree.leaves else None,
            min_sub_group=None if node in tree.leaves else tree.parts[node],
        )
        for node, name in enumerate(tree.names)
        if node
    ]
    wanted = PodGroupSpec(min_member=kept.pods, min_sub_group=tree.parts[0] or None, sub_groups=parts or None)
    text = msgspec.json.encode(wanted).decode()
    return text if len(text) <= names.LONGEST_KEPT_MINIMUM else None


def read_kept(text: str | None) -> Minimums | None:
    """Read it; None without one, and for one that can't be read."""
    if not text or len(text) > names.LONGEST_KEPT_MINIMUM:
        return None
    try:
        spec = _kept_decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    tree, contradiction = _tree(msgspec.structs.replace(spec, min_member=None))
    return None if contradiction is not None else Minimums(max(0, spec.min_member or 0), tree)


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
    kept = read_kept((meta.annotations or {}).get(names.KEPT_MINIMUM))
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
        kept=kept,
        written_kept=kept,
        levels=tuple(_levels(spec)),
        controller=controller_of(meta),
        planned=members((meta.annotations or {}).get(names.PLAN)),
        queue=bounds.name(spec.queue or names.DEFAULT_QUEUE),
        is_preemptible=is_preemptible(spec.preemptibility),
        priority_class=bounds.name(spec.priority_class_name or ""),
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
    if owners.asks_more_than(annotations, max(minimum, spec.min_sub_group or 0)):
        found[f"annotation {names.BATCH_MIN_MEMBER} above minMember"] = True
    if not spec.sub_groups:
        found |= dict.fromkeys(owners.kais_segments(annotations), True)
    return ", ".join(name for name, is_there in found.items() if is_there)


def _stale(text: str | None) -> tuple[int | None, str | None]:
    """``stalenessGracePeriod`` (as in KAI), or what stands there and can't be read: as if it were not said."""
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
