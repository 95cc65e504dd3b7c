"""Knative: a PodGroup for each Revision."""

from __future__ import annotations

from typing import Final

from podgrouper.core import fields
from podgrouper.core.answers import Shape
from podgrouper.core.rule_input import Case
from wire.go import parse_int

_MIN_SCALE: Final = "autoscaling.knative.dev/min-scale"


def shape(case: Case) -> Shape:
    """A PodGroup a Revision: its annotation `autoscaling.knative.dev/min-scale`, else 1."""
    revision = next((each for each in case.chain if each.get("kind") == "Revision"), case.top)
    text = fields.annotations_of(revision).get(_MIN_SCALE, "1")
    number = parse_int(text)
    if number is None or number < 0:
        raise fields.malformed(revision, f"metadata.annotations[{_MIN_SCALE}]", text, "a number of 0 or more")
    # Scaled to zero, each pod that comes is one alone.
    return Shape(minimum=max(1, number), owner=revision)
