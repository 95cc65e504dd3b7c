"""PodGroups as tables: a row for each, and for those that were named their sub-groups and pods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from cli.inspection.groupviews import Phase
from cli.inspection.sheets import Cell, Sheet
from cli.inspection.telling import asked, why
from cli.inspection.values import PodGroupView
from wire.crds.podgroup import DEFAULT_NODE_POOL

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
            why(each.pod),
        ]
        for each in group.members
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
