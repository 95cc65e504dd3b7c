"""Who is asked about, and edits: what is supposed to differ, as values that people can write and ``decide`` can try.

A subject is a group that waits: a pod alone, or all members of a PodGroup that have no node.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Generator, Sequence
from typing import Final, Protocol, TypeVar

import msgspec

from scheduler.core.decide.changes import AnotherAsk, Change, Draft, InQueue
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.records import PodGroupRecord, PodRecord
from wire.rfc3339 import rfc3339
from wire.units import SECOND_NS


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """``waiting``: pods without a node that are not being deleted, by UID. ``bound``: members that have a node.

    ``group`` None: it is a pod alone.
    """

    namespace: str
    name: str
    waiting: tuple[PodRecord, ...]
    bound: tuple[PodRecord, ...] = ()
    group: PodGroupRecord | None = None

    @property
    def uids(self) -> frozenset[str]:
        """UIDs of those that wait."""
        return frozenset(pod.uid for pod in self.waiting)

    @property
    def queue(self) -> str:
        """The queue that it counts in."""
        return self.group.queue if self.group is not None else self.waiting[0].queue if self.waiting else ""

    @property
    def is_gang(self) -> bool:
        """Whether it starts with more than one pod."""
        return self.group is not None and max(self.group.minimum, self.group.tree.fewest) > 1

    def classes(self) -> dict[PodClass, tuple[str, ...]]:
        """What its pods request, with the UIDs of those that request it."""
        found: dict[PodClass, list[str]] = {}
        for pod in self.waiting:
            found.setdefault(pod.cls, []).append(pod.uid)
        return {cls: tuple(uids) for cls, uids in found.items()}

    def claiming(self, snapshot: Snapshot) -> tuple[PodClass, ...]:
        """Return the classes of its waiting pods that need devices: for their claims, or for claims made for them.

        They have what the snapshot adds to pods that wait.
        """
        classes = (snapshot.judge(pod).cls for pod in self.waiting)
        return tuple(dict.fromkeys(cls for cls in classes if cls.devices or cls.backed))

    def needs_devices(self, snapshot: Snapshot) -> bool:
        """Whether devices have to be allocated to claims of its pods, or may be to claims that are made for them."""
        return bool(self.claiming(snapshot))


def subject_of_pod(snapshot: Snapshot, namespace: str, name: str) -> Subject | None:
    """Return what a pod is part of: its PodGroup, or itself alone; None if it is not known."""
    records = snapshot.pods.records.values()
    pod = next((each for each in records if each.name == name and each.namespace == namespace), None)
    if pod is None:
        return None
    if pod.pod_group and (found := subject_of_group(snapshot, namespace, pod.pod_group)) is not None:
        return found
    return _alone(pod)


def _alone(pod: PodRecord) -> Subject:
    there = (pod,)
    return Subject(
        namespace=pod.namespace,
        name=pod.name,
        waiting=there if _waits(pod) else (),
        bound=there if pod.node else (),
    )


def subject_of_uid(snapshot: Snapshot, uid: str) -> Subject | None:
    """Return a pod alone; None if it is not known, and for a member of a PodGroup."""
    pod = snapshot.pod(uid)
    if pod is None or pod.pod_group:
        return None
    return _alone(pod)


def subject_of_group(snapshot: Snapshot, namespace: str, name: str) -> Subject | None:
    """Return a PodGroup's members; None if there is no such PodGroup."""
    group = snapshot.pod_group(namespace, name)
    if group is None:
        return None
    members = sorted(snapshot.pods.members(namespace, name), key=lambda pod: pod.uid)
    return Subject(
        namespace=namespace,
        name=name,
        waiting=tuple(filter(_waits, members)),
        bound=tuple(pod for pod in members if pod.node),
        group=group,
    )


def _waits(pod: PodRecord) -> bool:
    return not (pod.node or pod.deleting or pod.is_elsewhere)


T = TypeVar("T")

#: Names in a message.
_NAMED: Final = 8


class Family(enum.Enum):
    """Kinds of edits, in the order of what they cost who asks. The values are stable names for machines."""

    WAIT = "wait"
    ASK_LESS = "ask-less"
    FEWER_MEMBERS = "fewer-members"
    WITHOUT_CONSTRAINT = "without-constraint"
    QUEUE = "queue"
    ENDED = "ended"
    MORE_NODES = "more-nodes"


class Edit(Protocol):
    """One edit; a value."""

    @property
    def family(self) -> Family:
        """Its family."""
        ...

    @property
    def is_own(self) -> bool:
        """Whether it concerns nothing but the group itself."""
        ...

    def spelled(self) -> str:
        """The edit as ``--what-if`` takes it."""
        ...

    def changes(self, snapshot: Snapshot, subject: Subject) -> tuple[Change, ...]:
        """Return the changes of the snapshot. Raises NotPossible."""
        ...


class CreatedAgain(msgspec.Struct, frozen=True):
    """Pods alone (UIDs) that wait were created at this time: of equals the older ones have their turn first."""

    uids: tuple[str, ...]
    created: str

    def apply(self, draft: Draft) -> None:
        """Put the pods with another age."""
        for uid in self.uids:
            draft.put_waiting(msgspec.structs.replace(draft.pods.records[uid], created=self.created))


def with_new_pods(changes: tuple[Change, ...], subject: Subject, wall_s: int) -> tuple[Change, ...]:
    """Add to changes of a group that a pod alone which requests something else is a new pod; a PodGroup keeps its age.

    Requests of a pod can't be edited.
    """
    is_new = subject.group is None and any(isinstance(each, AnotherAsk | InQueue) for each in changes)
    uids = tuple(sorted(subject.uids))
    return (*changes, CreatedAgain(uids, rfc3339(wall_s * SECOND_NS))) if is_new and uids else changes


class NotPossible(ValueError):
    """Raised when an edit makes no sense for a group or a cluster. The message says what is allowed."""


def some(names: Sequence[str]) -> str:
    """Names for a message: the first ones, and the number of the others."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def largest(low: int, high: int, question: Callable[[int], T]) -> Generator[T, bool, int | None]:
    """Return the largest number from ``low`` to ``high`` that helps, if each below one that helps does; None: none.

    It yields one question at a time, and takes whether that number helps: a caller may do something else in between.
    The least is asked about first: where not even that helps nothing else is tried.
    """
    if low > high or not (yield question(low)):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        if (yield question(middle)):
            low = middle
        else:
            high = middle - 1
    return low


def smallest(low: int, high: int, question: Callable[[int], T]) -> Generator[T, bool, int | None]:
    """Return the smallest number from ``low`` to ``high`` that helps, likewise; the largest is asked about first."""
    found = yield from largest(-high, -low, lambda number: question(-number))
    return None if found is None else -found
