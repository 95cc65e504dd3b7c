"""How each queue and PodGroup stands: what it holds and asks for, what it is due, and what is wrong with it.

Queues in the tree show their accounts, so the numbers are those that limits and shares are judged by. Those that can't
be used show the sums of their own pods and of all queues below them. A queue that for long is owed GPUs that its quota
guarantees is starved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from scheduler.core.model.quota import DIMENSIONS, NOTHING, UNLIMITED, QueueRecord, Resources
from scheduler.core.model.records import PodRecord
from scheduler.core.model.verdict import Reasons, Verdict
from scheduler.core.queues.accounts import Accounts
from scheduler.core.queues.tree import Sum

_NONE = Sum()


class QueueState(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One queue. ``held``, ``fixed`` and ``asked`` as in ``Account``, of all queues below it as well.

    ``children``: names of the queues that name it as their parent, usable or not. ``broken``: why it can't be used;
    such a queue has no fair share.
    """

    record: QueueRecord
    children: tuple[str, ...] = ()
    held: Resources = NOTHING
    fixed: Resources = NOTHING
    asked: Resources = NOTHING
    fair: Resources | None = None
    broken: Verdict | None = None

    @property
    def above_quota(self) -> tuple[str, ...]:
        """Names of the resources of which it holds more than its quota."""
        return tuple(
            name for name, held, quota in zip(DIMENSIONS, self.held, self.record.quota, strict=True) if held > quota
        )


def queue_states(records: Iterable[QueueRecord], accounts: Accounts, sums: Mapping[str, Sum]) -> list[QueueState]:
    """The state of each Queue object, by name. ``accounts`` and ``sums`` are of the same moment. Takes linear time."""
    by_name = {record.name: record for record in sorted(records, key=lambda record: record.name)}
    children: dict[str, list[str]] = {name: [] for name in by_name}
    for record in by_name.values():
        if record.parent in children:
            children[record.parent].append(record.name)
    broken = _below({name: by_name[name] for name in accounts.tree.broken}, children, sums)
    return [_state(record, tuple(children[name]), accounts, broken) for name, record in by_name.items()]


def _state(record: QueueRecord, children: tuple[str, ...], accounts: Accounts, broken: Mapping[str, Sum]) -> QueueState:
    because = accounts.tree.broken.get(record.name)
    if because is not None:
        at = broken[record.name]
        return QueueState(
            record=record, children=children, held=at.held, fixed=at.fixed, asked=at.asked, broken=because
        )
    queue = accounts.tree.find(record.name)
    if queue is None:
        raise ValueError(f"queue {record.name} is not in the tree that these accounts are of")
    account = accounts.of[queue.number]
    return QueueState(
        record=record,
        children=children,
        held=account.held,
        fixed=account.fixed,
        asked=account.asked,
        fair=account.fair,
    )


def _below(
    broken: Mapping[str, QueueRecord], children: Mapping[str, list[str]], sums: Mapping[str, Sum]
) -> dict[str, Sum]:
    """Add up broken queues from below. All below a broken one are broken. Queues of a cycle don't add to each other."""
    totals = {name: msgspec.structs.replace(sums.get(name, _NONE)) for name in broken}
    left = {name: len(children[name]) for name in broken}
    done = [name for name, count in left.items() if not count]
    while done:
        name = done.pop()
        parent = broken[name].parent
        if parent not in totals:
            continue
        above, below = totals[parent], totals[name]
        above.held, above.fixed = above.held.plus(below.held), above.fixed.plus(below.fixed)
        above.asked = above.asked.plus(below.asked)
        left[parent] -= 1
        if not left[parent]:
            done.append(parent)
    return totals


def owed_nano_gpus(accounts: Accounts) -> list[int]:
    """Nano-GPU by number of the queue: what its pods, and those below it, wait for within its quota and all limits.

    Pods that wait in a queue with children can't be placed, so they count for nothing. A quota without end guarantees
    no amount.
    """
    queues, of = accounts.tree.queues, accounts.of
    takes = [account.asked.gpu_nano - account.kept.gpu_nano for account in of]
    for queue in reversed(queues):  # children come after their parents
        if queue.children:
            takes[queue.number] = sum(takes[child] for child in queue.children)
        takes[queue.number] = max(0, min(takes[queue.number], _left(queue.record.limit, of[queue.number].held)))
    room: list[int] = []
    owed: list[int] = []
    for queue in queues:
        held, record = of[queue.number].held, queue.record
        left = _left(record.limit, held)
        room.append(left if queue.parent < 0 else min(left, room[queue.parent]))
        guaranteed = 0 if record.quota.gpu_nano >= UNLIMITED else _left(record.quota, held)
        owed.append(max(0, min(takes[queue.number], guaranteed, room[-1])))
    return owed


def _left(most: Resources, held: Resources) -> int:
    return most.gpu_nano - held.gpu_nano


#: The most different verdicts that are shown of one group; its pods say the rest.
MOST_VERDICTS: Final = 8


class GroupState(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One PodGroup. ``has_pods``: whether any pod of it counts. ``held``, ``fixed`` and ``asked`` as in ``Account``.

    ``verdicts``: why its pods wait, one for each set of reasons; none while one of them has a place. None: pods wait,
    and nothing was decided yet.
    """

    has_pods: bool = False
    held: Resources = NOTHING
    fixed: Resources = NOTHING
    asked: Resources = NOTHING
    verdicts: tuple[Verdict, ...] | None = ()


def group_state(
    total: Sum | None,
    members: Iterable[PodRecord],
    verdict_of: Callable[[str], Verdict | None],
    is_in_flight: Callable[[str], bool],
) -> GroupState:
    """Say how a group stands. ``total``: the sum of its pods. ``verdict_of``: why a pod (UID) waits, if known."""
    verdicts = _verdicts(members, verdict_of, is_in_flight)
    if total is None:
        return GroupState(verdicts=verdicts)
    return GroupState(has_pods=True, held=total.held, fixed=total.fixed, asked=total.asked, verdicts=verdicts)


def _verdicts(
    members: Iterable[PodRecord], verdict_of: Callable[[str], Verdict | None], is_in_flight: Callable[[str], bool]
) -> tuple[Verdict, ...] | None:
    found: dict[Reasons, Verdict] = {}
    waits = False
    for pod in members:
        if pod.node or is_in_flight(pod.uid):
            return ()
        if pod.deleting:
            continue
        waits = True
        verdict = verdict_of(pod.uid)
        if verdict is not None:
            found.setdefault(verdict.reasons, verdict)
    if waits and not found:
        return None
    return tuple(found[reasons] for reasons in sorted(found, key=_place)[:MOST_VERDICTS])


def _place(reasons: Reasons) -> tuple[str, str, tuple[str, str], int, list[tuple[str, str]]]:
    return reasons.code.value, reasons.detail, reasons.queue or ("", ""), reasons.required, sorted(reasons.kinds)
