"""Jobs, and all kinds without a rule of their own: one pod, or as many as the annotation says.

A gang of more pods than its controller makes would wait for ever: a Job with few completions left, a StatefulSet that
was scaled down.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from podgrouper.core import fields
from podgrouper.core.answers import Json, Shape
from podgrouper.core.rule_input import Case
from wire import names

#: Kind -> fields of its spec that say how many pods there are at a time. The first one is 1 where it is left out.
COUNTED: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("batch/v1", "Job"): ("parallelism", "completions", "suspend"),
    ("apps/v1", "ReplicaSet"): ("replicas",),
    ("apps/v1", "StatefulSet"): ("replicas",),
}


def shape(case: Case) -> Shape:
    """1, or `kai.scheduler/batch-min-member` of the owner, at most the pods that it makes."""
    least = fields.annotated_count(case.top, names.BATCH_MIN_MEMBER) or 1
    made = _made(case.top)
    return Shape(minimum=least if made is None else max(1, min(least, made)))


def _made(owner: Json) -> int | None:
    """Return how many pods an owner has at a time; None if that is not known. A suspended Job makes none itself."""
    kind = fields.text(owner, "apiVersion"), fields.text(owner, "kind")
    if kind not in COUNTED or fields.at(owner, "spec.suspend") is True:
        return None
    at_once = fields.count(owner, f"spec.{COUNTED[kind][0]}", 1) or 0
    if (completions := fields.count(owner, "spec.completions")) is None:
        return at_once
    return min(at_once, max(0, completions - (fields.count(owner, "status.succeeded", 0) or 0)))
