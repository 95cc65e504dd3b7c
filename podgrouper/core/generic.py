"""What holds for workloads of every kind: queue, priority, preemptibility, annotations (as in KAI).

Labels and annotations of the owner win over those of the pod. A value that can't be read is left out.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from podgrouper.core import fields
from podgrouper.core.answers import Json
from wire import gangs, go, names
from wire.crds.podgroup import NON_PREEMPTIBLE, PREEMPTIBLE, TopologyConstraint


class Default(msgspec.Struct, frozen=True):
    """What an administrator sets for a kind in place of the table's own values."""

    priority: str = ""
    preemptibility: str = ""


class Defaults(msgspec.Struct, frozen=True):
    """Settings of grouping.

    ``priority_classes``: names of those that exist, None if that is not known; ``kinds`` by API group and kind.
    """

    queue: str = names.DEFAULT_QUEUE
    priority_classes: frozenset[str] | None = None
    kinds: Mapping[tuple[str, str], Default] = {}


def queue_of(owner: Json, pod: Json, defaults: Defaults, *, own: str = "") -> str:
    """Return the queue that is charged. ``own``: what the workload names in a place of its own."""
    return queue_said(owner, pod) or own or defaults.queue


def queue_said(owner: Json, pod: Json) -> str:
    """Return the queue that labels name, "" without one; by the label `project` it may be that of a node pool."""
    if queue := _label(names.QUEUE_LABEL, owner, pod):
        return queue
    if project := _label(names.PROJECT_LABEL, owner, pod):
        pool = _label(names.NODE_POOL_LABEL, owner, pod)
        return f"{project}-{pool}" if pool else project
    return ""


def pool_labels(owner: Json, pod: Json) -> dict[str, str]:
    """Return the label that says whose scheduler decides on the group; nothing without one."""
    pool = _label(names.NODE_POOL_LABEL, owner, pod)
    return {names.NODE_POOL_LABEL: pool} if pool else {}


def priority_of(owner: Json, pod: Json, *, own: str, defaults: Defaults, default: str) -> str:
    """Return the priority class. ``own``: what the workload names in a place of its own; ``default``: its kind's."""
    labelled = (fields.labels_of(obj).get(names.PRIORITY_CLASS_LABEL) for obj in (owner, pod))
    for name in (own, *labelled, fields.text(pod, "spec.priorityClassName")):
        if name and (defaults.priority_classes is None or name in defaults.priority_classes):
            return name
    return default


def priority_said(owner: Json, pod: Json) -> str:
    """Return the priority class that labels or the pod's spec name, whether or not it exists; "" without one."""
    return _label(names.PRIORITY_CLASS_LABEL, owner, pod) or fields.text(pod, "spec.priorityClassName")


def preemptibility_of(owner: Json, pod: Json, default: str) -> str | None:
    """Return whether the group may be preempted; None: its priority decides."""
    allowed = (PREEMPTIBLE, NON_PREEMPTIBLE)
    written = (
        fields.labels_of(owner).get(names.PREEMPTIBILITY_LABEL),
        fields.labels_of(pod).get(names.PREEMPTIBILITY_LABEL),
    )
    return next((each for each in (*written, default) if each in allowed), None)


def duration_of(owner: Json, pod: Json, name: str) -> str | None:
    """Return a duration from an annotation; None without one, or if it can't be read."""
    for obj in (owner, pod):
        text = fields.annotations_of(obj).get(name)
        if text is not None:
            try:
                go.parse_ns(text)
            except go.MalformedDuration:
                return None
            return text
    return None


def topology_of(obj: Json) -> TopologyConstraint | None:
    """Return the constraint that annotations of an object ask for; None without one."""
    written = fields.annotations_of(obj)
    found = TopologyConstraint(
        topology=written.get(names.TOPOLOGY, ""),
        required_topology_level=written.get(names.TOPOLOGY_REQUIRED, ""),
        preferred_topology_level=written.get(names.TOPOLOGY_PREFERRED, ""),
    )
    return found if found.topology or found.required_topology_level or found.preferred_topology_level else None


def segment_topology(pod: Json, template: Json, workload: Json) -> TopologyConstraint | None:
    """Return what each segment of a workload's pods asks for; None without a level, or without a Topology, as in KAI.

    Each annotation is that of the pod, then of the template of the workers, then of the workload.
    """
    written = [fields.annotations_of(obj) for obj in (pod, template, workload)]

    def said(name: str) -> str:
        return next((of[name] for of in written if of.get(name)), "")

    topology = said(names.TOPOLOGY)
    required, preferred = said(names.SEGMENT_TOPOLOGY_REQUIRED), said(names.SEGMENT_TOPOLOGY_PREFERRED)
    if not topology or not (required or preferred):
        return None
    return TopologyConstraint(topology=topology, required_topology_level=required, preferred_topology_level=preferred)


def states_more(owner: Json, pod: Json) -> bool:
    """Whether an owner says something about the group that its pod does not say itself."""
    said, own = (gangs.stated(fields.labels_of(obj), fields.annotations_of(obj)) for obj in (owner, pod))
    return bool(said - own)


def _label(name: str, owner: Json, pod: Json) -> str:
    return fields.labels_of(owner).get(name) or fields.labels_of(pod).get(name, "")
