"""PodGroups, their sub-groups and pods: how many run and wait, and why, as data and as tables. Pure.

They are counted by the scheduler's own quorum.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from gpu.grant import has_ended
from scheduler.conditions.status_fields import GENERIC, shown_condition
from scheduler.core.convert.pod_groups import pod_group_record
from scheduler.core.convert.pods import pod_record
from scheduler.core.groups.quorum import Quorum, quorum
from scheduler.core.model.records import PodGroupRecord
from scheduler.core.model.settings import Settings
from ui.inspect.survey import Found, Surroundings, group_of, orders, pod_view
from ui.inspect.tables import asked, reasons
from ui.inspect.values import MemberView, PodGroupView, PodView, SubGroupView
from ui.tables import Cell, Sheet
from wire import names
from wire.core import Pod
from wire.crds.podgroup import DEFAULT_NODE_POOL, PodGroup, SubGroup

_SETTINGS: Final = Settings()
#: Reasons of its pods that a PodGroup without a reason of its own shows.
_MOST_REASONS: Final = 3


class Phase(enum.Enum):
    """How a PodGroup stands."""

    NO_PODS = "NoPods"
    #: No pod of it has a node.
    WAITING = "Waiting"
    #: Its minimum has nodes, or is on its way, and does not run yet.
    STARTING = "Starting"
    #: At least its minimum runs, or some of its pods have succeeded and others run.
    RUNNING = "Running"
    #: Some of its pods have nodes, and too few.
    BELOW_MINIMUM = "BelowMinimum"
    #: All its pods have ended.
    ENDED = "Ended"


def group_views(found: Found) -> list[PodGroupView]:
    """Return all PodGroups in the order of their names."""
    members: dict[tuple[str, str], list[Pod]] = {}
    for pod in found.pods:
        if (key := group_of(pod)) is not None:
            members.setdefault(key, []).append(pod)
    around = Surroundings(reservations={}, cards_mib={}, orders=orders(found.requests))
    made = []
    for group in sorted(found.groups, key=lambda each: (each.metadata.namespace, each.metadata.name)):
        here = sorted(
            members.get((group.metadata.namespace, group.metadata.name), ()), key=lambda pod: pod.metadata.name
        )
        made.append(_view(group, here, around, has_members=group.metadata.name in found.asked_for))
    return made


def _view(group: PodGroup, pods: Sequence[Pod], around: Surroundings, *, has_members: bool) -> PodGroupView:
    meta, spec = group.metadata, group.spec
    living = [pod for pod in pods if not has_ended(pod.status)]
    waiting = [pod for pod in living if not pod.spec.node_name and pod.metadata.deletion_timestamp is None]
    running = sum(_runs(pod) for pod in living)
    record = pod_group_record(group)
    state = _state(record, pods, around.orders)
    has_succeeded = any(pod.status.phase == names.SUCCEEDED for pod in pods)
    phase = _phase(record, state, living, running=running, has_succeeded=has_succeeded) if pods else Phase.NO_PODS
    pool = (meta.labels or {}).get(names.NODE_POOL_LABEL, "")
    reason, message = _why(group, phase, [pod_view(pod, around) for pod in waiting], pool or DEFAULT_NODE_POOL)
    return PodGroupView(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        queue=record.queue,
        node_pool=pool,
        created=meta.creation_timestamp or "",
        minimum=state.minimum,
        pods=len(living),
        running=running,
        waiting=len(waiting),
        ended=len(pods) - len(living),
        phase=phase.value,
        reason=reason,
        message=message,
        sub_groups=tuple(_sub_groups(spec.sub_groups or (), living)),
        members=tuple(MemberView(sub_group=_sub_group(pod), pod=pod_view(pod, around)) for pod in pods)
        if has_members
        else (),
    )


def _state(record: PodGroupRecord, pods: Sequence[Pod], under_way: Mapping[str, str]) -> Quorum:
    """How far it is from its minimum."""
    records = (pod_record(pod, _SETTINGS) for pod in pods)
    return quorum(record, [each for each in records if each is not None], under_way.__contains__)


def _phase(record: PodGroupRecord, state: Quorum, living: Sequence[Pod], *, running: int, has_succeeded: bool) -> Phase:
    if not living:
        return Phase.ENDED
    if not any(pod.spec.node_name for pod in living):
        return Phase.STARTING if state.is_starting else Phase.WAITING
    if has_succeeded and running:
        return Phase.RUNNING  # it is at its end, and left alone (background/stale_gangs.py)
    # Of one that contradicts itself nobody knows what its minimum means.
    if record.blocker is None and state.is_broken and not (has_succeeded or state.is_starting):
        return Phase.BELOW_MINIMUM
    return Phase.RUNNING if running >= state.minimum else Phase.STARTING


def _why(group: PodGroup, phase: Phase, waiting: Sequence[PodView], pool: str) -> tuple[str, str]:
    """Reason and message, "" for none."""
    if phase is Phase.BELOW_MINIMUM:
        since = (group.metadata.annotations or {}).get(names.STALE_SINCE, "")
        return phase.value, f"below its minimum{since and f' since {since}'}"
    said = shown_condition(group.status, pool)
    if phase is Phase.WAITING and said is not None:
        reasons = said.reasons or ()
        messages = " ".join(each.message for each in reasons) or said.message
        reason = next((each.reason for each in reasons if each.reason != GENERIC), "")
        return reason, " ".join(messages.split())
    return "", "; ".join(_counted(waiting))


def _counted(waiting: Sequence[PodView]) -> Iterator[str]:
    """Why its pods wait, the most frequent reasons first."""
    counts = Counter(_text(pod) for pod in waiting)
    for text, count in counts.most_common(_MOST_REASONS):
        yield text if len(counts) == 1 else f"{count} of {len(waiting)}: {text}"


def _text(pod: PodView) -> str:
    if pod.refused:
        return f"refused: {pod.refused}"
    waits = pod.waits
    if waits is not None and waits.on_its_way_to:
        return "on the way to a node"
    said = [] if waits is None else [waits.reason, " ".join(waits.message.split())]
    return ": ".join(filter(None, said)) or "nobody has looked at it yet"


def _sub_groups(listed: Sequence[SubGroup], living: Sequence[Pod]) -> Iterator[SubGroupView]:
    pods = Counter(map(_sub_group, living))
    running = Counter(_sub_group(pod) for pod in living if _runs(pod))
    for each in listed:
        is_of_sub_groups = each.min_sub_group is not None
        yield SubGroupView(
            name=each.name,
            parent=each.parent or "",
            minimum=(each.min_sub_group if is_of_sub_groups else each.min_member) or 0,
            is_of_sub_groups=is_of_sub_groups,
            pods=pods[each.name],
            running=running[each.name],
        )


def _sub_group(pod: Pod) -> str:
    return (pod.metadata.labels or {}).get(names.SUBGROUP_LABEL, "")


def _runs(pod: Pod) -> bool:
    return pod.status.phase == names.RUNNING and pod.metadata.deletion_timestamp is None


_NONE: Final = "-"
_STYLES: Final = {
    Phase.RUNNING.value: "green",
    Phase.WAITING.value: "yellow",
    Phase.STARTING.value: "yellow",
    Phase.BELOW_MINIMUM.value: "red",
}


def group_sheets(groups: Sequence[PodGroupView], *, wide: bool = False) -> list[Sheet]:
    """A row for each PodGroup, then the sub-groups and pods of those that have their members."""
    return [_groups(groups, wide=wide), *(sheet for group in groups if group.members for sheet in _details(group))]


def _groups(groups: Sequence[PodGroupView], *, wide: bool) -> Sheet:
    columns = ["PODGROUP", "QUEUE", "MINIMUM", "RUNNING", "WAITING", "PHASE", "WHY"]
    columns += ["PODS", "ENDED", "NODE POOL", "CREATED"] if wide else []
    rows = [_group(group, wide=wide) for group in groups]
    spare, folds = ("QUEUE", "WAITING", "MINIMUM"), ("PODGROUP",)
    return Sheet(columns=columns, rows=rows, spare=spare, prose=("WHY",), folds=folds)


def _group(group: PodGroupView, *, wide: bool) -> list[Cell]:
    said = ": ".join(filter(None, (group.reason, group.message))) if group.reason != group.phase else group.message
    cells = [
        Cell(f"{group.namespace}/{group.name}"),
        Cell(group.queue or _NONE),
        Cell(str(group.minimum)),
        Cell(str(group.running)),
        Cell(str(group.waiting)),
        Cell(group.phase, _STYLES.get(group.phase, "")),
        Cell(said or _NONE, "yellow" if said else ""),
    ]
    further = (str(group.pods), str(group.ended), group.node_pool or DEFAULT_NODE_POOL, group.created or _NONE)
    return [*cells, *map(Cell, further)] if wide else cells


def _details(group: PodGroupView) -> Iterator[Sheet]:
    name = f"{group.namespace}/{group.name}"
    if group.sub_groups:
        rows = [
            [
                Cell(each.name),
                Cell(each.parent or _NONE),
                Cell(f"{each.minimum} {'sub-groups' if each.is_of_sub_groups else 'pods'}"),
                Cell(str(each.pods)),
                Cell(str(each.running)),
            ]
            for each in group.sub_groups
        ]
        columns = ("SUB-GROUP", "PARENT", "MINIMUM", "PODS", "RUNNING")
        yield Sheet(title=f"Sub-groups of {name}:", columns=columns, rows=rows, of=("PODGROUP", name))
    rows = [
        [
            Cell(each.pod.name),
            Cell(each.sub_group or _NONE),
            Cell(each.pod.phase or "Pending"),
            Cell(each.pod.node or _NONE),
            asked(each.pod)[1],
            reason,
        ]
        for each, reason in zip(group.members, reasons([each.pod for each in group.members]), strict=True)
    ]
    yield Sheet(
        title=f"Pods of {name}:",
        columns=("POD", "SUB-GROUP", "PHASE", "NODE", "ASKS", "WHY"),
        rows=rows,
        spare=("SUB-GROUP", "ASKS", "PHASE"),
        prose=("ASKS", "WHY"),
        folds=("POD",),
        of=("PODGROUP", name),
    )
