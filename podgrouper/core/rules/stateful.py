"""StatefulSets: as many pods as the annotation says, where they are made at once."""

from __future__ import annotations

from podgrouper.core import fields
from podgrouper.core.answers import Shape
from podgrouper.core.rule_input import Case
from podgrouper.core.rules import alone
from wire import gangs, names


def shape(case: Case) -> Shape:
    """1, or annotation `kai.scheduler/batch-min-member` of the owner with `podManagementPolicy: Parallel`."""
    written = fields.annotations_of(case.top)
    if gangs.waits_for_itself(written, fields.at(case.top, "spec.podManagementPolicy")):
        field = f"metadata.annotations[{names.BATCH_MIN_MEMBER}]"
        raise fields.not_carried_out(case.top, field, written[names.BATCH_MIN_MEMBER], gangs.IN_ORDER)
    return alone.shape(case)
