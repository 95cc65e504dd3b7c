"""What grouping answers about a pod: a PodGroup, nothing, or a refusal, and the words of the last two."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from wire.core import OwnerReference
from wire.crds.podgroup import PodGroup, SubGroup, TopologyConstraint

#: An object as the API server writes it, as JSON.
Json = Mapping[str, Any]
#: Most sub-groups of one PodGroup, as with KAI's segments: a limit before work.
MOST_PARTS = 10_000


class Group(msgspec.Struct, frozen=True):
    """The PodGroup of a pod, and ``part``: the sub-group that the pod belongs to ("" for none).

    ``knows_own_only``: as in ``Shape``.
    """

    pod_group: PodGroup
    part: str = ""
    knows_own_only: bool = False


class Why(enum.Enum):
    """Why a pod gets no PodGroup."""

    #: The pod or one of its owners has the annotation kai.scheduler/skip-podgrouper.
    SKIPPED = "skipped"
    #: The pod names its PodGroup itself, and has no owner or asks for a gang of another scheduler.
    GROUPED_BY_HAND = "grouped-by-hand"
    #: The pod is a group of its own and states everything itself; no object is needed.
    ALONE = "alone"


class Nothing(msgspec.Struct, frozen=True):
    """No PodGroup is made, and none is missing."""

    why: Why


class Code(enum.Enum):
    """Why a pod can't be grouped now."""

    #: An object names more than one owner.
    SEVERAL_OWNERS = "several-owners"
    #: The owners form a cycle, or there are more levels than any controller makes.
    CYCLE = "cycle"
    #: An object that the kind's rule needs was not read yet: read it and ask again.
    NOT_READ = "not-read"
    #: An object that the kind's rule needs does not exist.
    NOT_FOUND = "not-found"
    #: A field holds a value that is not allowed, or lacks one.
    MALFORMED = "malformed"
    #: A pod or a PodGroup of another scheduler asks for what Moorage does not do.
    NOT_CARRIED_OUT = "not-carried-out"
    #: A pod says something else of its gang than the pods that came before it.
    GANG_DIFFERS = "gang-differs"
    #: The PodGroup would have more sub-groups than MOST_PARTS.
    TOO_MANY_PARTS = "too-many-parts"


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why no PodGroup can be told. ``about``: kind and name of the object; ``needed``: what has to be read first."""

    code: Code
    about: str
    field: str = ""
    value: str = ""
    allowed: str = ""
    needed: OwnerReference | None = None


class Refused(Exception):
    """Carries a refusal out of a rule to ``grouping.group``, which returns it."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.code.value)
        self.refusal = refusal


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule says of a workload: its minimum, and its parts.

    ``minimum`` pods or ``min_parts`` direct parts start together; neither: all parts. ``part``: that of the pod.
    ``suffix`` is added to the PodGroup's name where a workload has several.
    """

    minimum: int | None = None
    min_parts: int | None = None
    parts: tuple[SubGroup, ...] = ()
    part: str = ""
    suffix: str = ""
    #: Minimums of other parts than the pod's are the most that these may have: a lower one that is there holds.
    knows_own_only: bool = False
    #: The priority class that the workload names in a place of its own.
    priority: str = ""
    #: The queue that an object of another scheduler names.
    queue: str = ""
    #: What the templates of its pods ask for together, in place of annotations of the owner.
    topology: TopologyConstraint | None = None
    #: The PodGroup's name where it does not follow from its owner.
    name: str = ""
    #: What names and owns the PodGroup, where that is not what stands for the workload.
    owner: Json | None = None


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
