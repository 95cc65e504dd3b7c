"""PodGroup of Volcano (scheduling.volcano.sh/v1beta1).

`minResources` has no effect here: a gang is placed whole. A network topology of mode `soft` is a preference, which
keeps no pod waiting.
"""

from __future__ import annotations

from typing import Final

from podgrouper.core import fields
from podgrouper.core.answers import Json, Shape
from podgrouper.core.fields import bounded
from podgrouper.core.rule_input import Case
from wire import gangs
from wire.crds.podgroup import SubGroup

#: The queue that Volcano's CRD fills in where a PodGroup names none.
_DEFAULT_QUEUE: Final = "default"


def shape(group: Json, case: Case) -> Shape:
    """`spec.minMember`, else 1; a part for each task of `minTaskMember`; its queue and priority class."""
    _refuse_structure(group)
    tasks = fields.mapping(group, "spec.minTaskMember")
    bounded(group, (), len(tasks))
    parts = tuple(
        SubGroup(name=name, min_member=fields.checked_count(group, f"spec.minTaskMember.{name}", least) or 0)
        for name, least in sorted(tasks.items())
    )
    written = (*(of(case.pod).get(gangs.VOLCANO_TASK) for of in (fields.annotations_of, fields.labels_of)), "")
    task = next(each for each in written if each is not None)
    queue = fields.text(group, "spec.queue")
    return Shape(
        minimum=fields.count(group, "spec.minMember") or 1,
        parts=parts,
        part=task if task in tasks else "",
        queue="" if queue == _DEFAULT_QUEUE else queue,
        priority=fields.text(group, "spec.priorityClassName"),
    )


def _refuse_structure(group: Json) -> None:
    mode = fields.text(group, "spec.networkTopology.mode")
    if fields.at(group, "spec.networkTopology") is not None and mode != "soft":
        raise fields.not_carried_out(group, "spec.networkTopology.mode", mode or "hard", "soft, or no networkTopology")
    if policies := fields.mappings(group, "spec.subGroupPolicy"):
        named = ", ".join(fields.text(each, "name") for each in policies[:4])
        raise fields.not_carried_out(group, "spec.subGroupPolicy", named, "none; minTaskMember states minimums")
