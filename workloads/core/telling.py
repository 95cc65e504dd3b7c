"""The words of refusals, and of pods without a PodGroup."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from workloads.core.values import Code, Nothing, Refusal, Why

_REFUSED: Final[Mapping[Code, str]] = {
    Code.SEVERAL_OWNERS: "{about} has several owners",
    Code.CYCLE: "the owners of {about} form a cycle, or have too many levels",
    Code.NOT_READ: "{about} was not read yet",
    Code.NOT_FOUND: "{about} does not exist",
    Code.MALFORMED: "{about} has a value that is not allowed",
    Code.NOT_CARRIED_OUT: "{about} asks for what is not carried out",
    Code.GANG_DIFFERS: "{about} differs from the other pods of its gang",
    Code.TOO_MANY_PARTS: "{about} has too many parts",
}
_NOTHING: Final[Mapping[Why, str]] = {
    Why.SKIPPED: "no PodGroup: annotation kai.scheduler/skip-podgrouper is true",
    Why.GROUPED_BY_HAND: "no PodGroup is made: the pod names its PodGroup itself",
    Why.ALONE: "no PodGroup is needed: each pod is scheduled alone",
}


def told(answer: Refusal | Nothing) -> str:
    """Return an answer other than a PodGroup in words."""
    if isinstance(answer, Nothing):
        return _NOTHING[answer.why]
    text = _REFUSED[answer.code].format(about=answer.about)
    if not answer.field:
        return text
    return f"{text}: {answer.field} is {answer.value or 'absent'}; allowed: {answer.allowed}"
