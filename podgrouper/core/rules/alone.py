"""Jobs, and all kinds without a rule of their own: one pod, or as many as the annotation says."""

from __future__ import annotations

from podgrouper.core import fields
from podgrouper.core.answers import Shape
from podgrouper.core.case import Case
from wire import names


def shape(case: Case) -> Shape:
    """1, or annotation `kai.scheduler/batch-min-member` of the owner."""
    return Shape(minimum=fields.annotated_count(case.top, names.BATCH_MIN_MEMBER) or 1)
