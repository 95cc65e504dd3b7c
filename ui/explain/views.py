"""Questions about a pod or PodGroup, and the answers as JSON and YAML. Amounts are in the smallest unit of each.

A reader who may not list the pods of all namespaces gets no names of others' pods. Numbers stay, as they do in
conditions of pods; so do names of nodes and queues.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from runtime.options.selection import GROUP, POD
from scheduler.core.what_if.edits import Edit
from scheduler.core.what_if.explanation import Stands
from scheduler.core.what_if.known_ends import Wait
from scheduler.core.what_if.node_changes import Ended
from scheduler.core.what_if.suggestions import Suggestion

#: What is explained by a scheduler; nodes and queues are explained by the command itself.
KINDS = (POD, GROUP)


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A pod or PodGroup, and changes that are supposed, as ``--what-if`` takes them.

    ``sees_others``: whether pods of other namespaces are named in the answer.
    """

    kind: str
    namespace: str
    name: str
    supposed: tuple[str, ...] = ()
    sees_others: bool = False


class Unanswered(Exception):
    """Raised where there is no answer, with the HTTP status that says so."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


class ReasonView(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """Nodes, or pods, by one reason. ``reason`` and ``resource``: stable names; ``help``: where the docs explain it."""

    reason: str
    message: str
    resource: str = ""
    nodes: int = 0
    pods: int = 0
    help: str = ""


class KeptView(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """Pods that are not evicted for the group, and what protects them. ``until``: when that ends, "": not by time."""

    reason: str
    message: str
    pods: int
    gpu_nano: int
    until: str = ""


class VictimView(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """A pod that is evicted, or could be. ``is_gone``: it has ended."""

    namespace: str
    name: str
    node: str
    is_gone: bool = False


class NominationView(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """A decision to evict pods for others, as the scheduler recorded it. ``rule``: reclaim, preempt or consolidation.

    ``is_for_this``: the group is who it is for; else pods of it are evicted.
    """

    rule: str
    message: str
    is_for_this: bool
    for_group: str
    victims: tuple[VictimView, ...]


class PreemptionView(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """Who could be evicted for the group. ``is_possible``: these would be enough; else ``kept`` says what protects."""

    is_possible: bool
    message: str
    rule: str = ""
    victims: tuple[VictimView, ...] = ()
    kept: tuple[KeptView, ...] = ()


class BelowView(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """A gang below its minimum. ``until``: its pods are evicted then, "": never. ``is_going``: that has begun."""

    message: str
    bound: int
    minimum: int
    since: str
    until: str = ""
    seconds_left: int = 0
    is_going: bool = False


class EditView(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """One change. ``what_if``: as ``--what-if`` takes it, "" for time that passes."""

    family: str
    message: str
    what_if: str = ""


class HelpView(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """Changes that together let the group start, as a try has shown."""

    message: str
    edits: tuple[EditView, ...]


class IdleShareView(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """A pod that holds a share and uses next to none of it, as the agent of its node reports it."""

    namespace: str
    name: str
    node: str
    gpu_nano: int
    idle_since: str
    message: str


class GroupView(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """A pod or a PodGroup. ``starts``: it would be placed now. ``supposed``: edits that were asked for."""

    kind: str
    namespace: str
    name: str
    queue: str
    verdict: str
    message: str
    starts: bool
    waiting_since: str = ""
    waiting: int = 0
    bound: int = 0
    required: int = 1
    supposed: tuple[EditView, ...] = ()
    nodes: int = 0
    node_reasons: tuple[ReasonView, ...] = ()
    queues: tuple[Stands, ...] = ()
    preemption: PreemptionView | None = None
    #: How it stands if it runs below its minimum.
    below_minimum: BelowView | None = None
    evictions: tuple[NominationView, ...] = ()
    #: Changes that let it start.
    helps: tuple[HelpView, ...] = ()
    #: When it starts at the latest, if all ends are known: "" if not.
    starts_at_the_latest: str = ""
    #: Idle shares, where agents report them. Nothing is evicted for it.
    idle: tuple[IdleShareView, ...] = ()
    tried: int = 0


class NodeExplanation(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """A node. ``fits``: of ``waiting`` pods those that would fit here alone."""

    name: str
    message: str
    is_ready: bool
    is_cordoned: bool
    waiting: int
    fits: int
    taints: tuple[str, ...] = ()
    reasons: tuple[ReasonView, ...] = ()
    not_looked_at: int = 0


_ANOTHER = "another group"


def suggested_to(namespace: str, helps: Iterable[Suggestion]) -> Sequence[Suggestion]:
    """Leave out changes that end others' pods, and names of those that end."""
    return [
        Suggestion(tuple(map(_without_names, each.edits)))
        for each in helps
        if not any(isinstance(edit, Ended) and edit.namespace not in {"", namespace} for edit in each.edits)
    ]


def _without_names(edit: Edit) -> Edit:
    return msgspec.structs.replace(edit, ends=(), uids=()) if isinstance(edit, Wait) else edit


def without_others(view: GroupView) -> GroupView:
    """Return the view with others' pods counted, not named."""
    room = None if view.preemption is None else _preemption(view.preemption, view.namespace)
    return msgspec.structs.replace(
        view, preemption=room, evictions=tuple(_nomination(each, view) for each in view.evictions)
    )


def _preemption(room: PreemptionView, namespace: str) -> PreemptionView:
    return msgspec.structs.replace(room, victims=_own(room.victims, namespace))


def _nomination(nomination: NominationView, view: GroupView) -> NominationView:
    victims = _own(nomination.victims, view.namespace)
    if nomination.for_group.partition("/")[0] == view.namespace:
        return msgspec.structs.replace(nomination, victims=victims)
    message = nomination.message.replace(nomination.for_group, _ANOTHER)
    return msgspec.structs.replace(nomination, victims=victims, for_group=_ANOTHER, message=message)


def _own(victims: Iterable[VictimView], namespace: str) -> tuple[VictimView, ...]:
    return tuple(each for each in victims if each.namespace == namespace)
