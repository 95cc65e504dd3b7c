"""Family 5: a queue has another limit, quota or weight, or the group counts in another queue.

The amount is what the queue holds and the group adds, so it is the least that helps. Where others of the queue come
first and take that, it is what they add as well. No weight is suggested: what it gives depends on all other queues.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import accumulate, islice
from typing import Final

import msgspec

from scheduler.core.decide.attempts import asked_use
from scheduler.core.decide.changes import AnotherQueue, Change, InQueue
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.model.priority_order import order_members
from scheduler.core.model.quota import DIMENSIONS, UNLIMITED, QueueRecord, Resources
from scheduler.core.model.verdict import Verdict
from scheduler.core.queues.accounts import Account, Use
from scheduler.core.queues.tree import TreeQueue
from scheduler.core.what_if.edits import Family, NotPossible, Subject, smallest, some
from scheduler.core.what_if.trials import Finding, Form, Question, Trying, about

LIMIT: Final = "limit"
QUOTA: Final = "quota"
WEIGHT: Final = "weight"
#: Other queues that are tried, those with the most room first.
_MOST_QUEUES: Final = 8
#: Others that wait and count against a queue, of which as many as come before the group are counted in.
_MOST_BEFORE: Final = 64
#: What one of an amount is in its smallest unit, as people write it: cores, bytes, GPUs.
_ONES: Final = (1000, 1, 10**9)
#: Likewise of a weight.
_ONE_WEIGHT: Final = 10**6


class QueueAmount(msgspec.Struct, frozen=True):
    """A queue's limit or quota of one resource is this, in its smallest unit (quota.py); a weight in millionths."""

    queue: str
    field: str
    resource: str
    amount: int

    @property
    def family(self) -> Family:
        """Family 5."""
        return Family.QUEUE

    @property
    def is_own(self) -> bool:
        """Others of the queue may take it."""
        return False

    def spelled(self) -> str:
        """``limit team-a gpu=16``."""
        return f"{self.field} {self.queue} {self.resource}={self.amount_text()}"

    def amount_text(self) -> str:
        """The amount as people write it."""
        if self.field == WEIGHT:
            return _in_ones(self.amount, _ONE_WEIGHT)
        return amount_text(self.resource, self.amount)

    def changes(self, snapshot: Snapshot, subject: Subject) -> tuple[Change, ...]:
        """Put the queue. Raises NotPossible if there is none of that name."""
        del subject
        record = snapshot.queues.records.get(self.queue)
        if record is None:
            raise NotPossible(f"{self.field} {self.queue}: {_no_queue(snapshot, self.queue)}")
        amounts = getattr(record, self.field)
        at = DIMENSIONS.index(self.resource)
        changed = Resources(*(self.amount if each == at else amount for each, amount in enumerate(amounts)))
        return (AnotherQueue(msgspec.structs.replace(record, **{self.field: changed})),)


class OtherQueue(msgspec.Struct, frozen=True):
    """The group counts in this queue."""

    queue: str

    @property
    def family(self) -> Family:
        """Family 5."""
        return Family.QUEUE

    @property
    def is_own(self) -> bool:
        """It concerns the group alone."""
        return True

    def spelled(self) -> str:
        """``queue=team-b``."""
        return f"queue={self.queue}"

    def changes(self, snapshot: Snapshot, subject: Subject) -> tuple[Change, ...]:
        """Put the group there. Raises NotPossible for a queue that takes no pods."""
        if isinstance(snapshot.queues.tree.leaf(self.queue), Verdict):
            raise NotPossible(f"queue={self.queue}: {_no_queue(snapshot, self.queue)}")
        if subject.group is not None:
            return (InQueue(self.queue, pod_group=(subject.namespace, subject.name)),)
        return (InQueue(self.queue, uids=tuple(sorted(subject.uids))),)


def amount_text(resource: str, amount: int) -> str:
    """An amount as people write it: cores, bytes, GPUs; -1 without end."""
    if amount >= UNLIMITED:
        return "-1"
    return _in_ones(amount, _ONES[DIMENSIONS.index(resource)])


def _in_ones(amount: int, one: int) -> str:
    whole, rest = divmod(amount, one)
    return f"{whole}.{rest:0{len(str(one)) - 1}d}".rstrip("0").rstrip(".") if rest else str(whole)


def _no_queue(snapshot: Snapshot, name: str) -> str:
    """What is allowed in place of a queue, and where it is if it belongs to another node pool."""
    tree = snapshot.queues.tree
    leaves = sorted(each.name for each in tree.queues if each.name and not each.children)
    allowed = f"allowed are queues that take pods: {some(leaves)}" if leaves else "there is no Queue"
    elsewhere = snapshot.queues.elsewhere.get(name)
    return allowed if elsewhere is None else f"it belongs to node pool {elsewhere.pool}; {allowed}"


# --- candidates ------------------------------------------------------------------------------------------------------
def candidates(trying: Trying) -> Finding:
    """Find edits that help: amounts first."""
    for amount in tuple(amounts_needed(trying)):
        if (yield about(trying, amount)):
            yield amount
        elif (larger := (yield from _beside_others(trying, amount))) is not None:
            yield larger
    for other in map(OtherQueue, _others(trying)):
        if (yield about(trying, other)):
            yield other


def amounts_needed(trying: Trying) -> Iterator[QueueAmount]:
    """For each limit or quota on the way up that the group would pass: what it would have to be."""
    snapshot = trying.snapshot
    use, accounts = needed(trying), snapshot.queues.accounts()
    queue = None if use is None else accounts.tree.leaf(use.queue)
    if use is None or not isinstance(queue, TreeQueue):
        return
    for number in queue.path:
        yield from _needed_at(accounts.tree.queues[number].record, accounts.of[number], use, trying)


def _needed_at(record: QueueRecord, account: Account, use: Use, trying: Trying) -> Iterator[QueueAmount]:
    preemption = trying.snapshot.settings.preemption
    for at, resource in enumerate(DIMENSIONS):
        if not use.amounts[at]:
            continue
        if account.held[at] + use.amounts[at] > record.limit[at]:
            yield QueueAmount(record.name, LIMIT, resource, account.held[at] + use.amounts[at])
        if use.is_fixed and account.fixed[at] + use.amounts[at] > record.quota[at]:
            yield QueueAmount(record.name, QUOTA, resource, account.fixed[at] + use.amounts[at])
        elif preemption and account.kept[at] + use.amounts[at] > record.quota[at]:
            yield QueueAmount(record.name, QUOTA, resource, account.kept[at] + use.amounts[at])


def _beside_others(trying: Trying, needed: QueueAmount) -> Generator[Question, bool, QueueAmount | None]:
    """Return the least amount, in whole GPUs or cores, that helps although others take some of it first; None: none."""
    one = _ONES[DIMENSIONS.index(needed.resource)]
    sums = accumulate(islice(_added_by_others(trying, needed), _MOST_BEFORE), initial=needed.amount)
    larger = [*dict.fromkeys(-(-each // one) * one for each in islice(sums, 1, None))]
    edits = [msgspec.structs.replace(needed, amount=amount) for amount in larger]
    number = yield from smallest(1, len(edits), lambda number: about(trying, edits[number - 1]))
    return None if number is None else edits[number - 1]


def _added_by_others(trying: Trying, needed: QueueAmount) -> Iterator[int]:
    """What each of the others that wait adds to this queue when it starts, smallest first."""
    snapshot, at = trying.snapshot, DIMENSIONS.index(needed.resource)
    tree, found = snapshot.queues.tree, list[int]()
    for form in trying.rivals.forms:
        use = asked_use(snapshot, form.needed(snapshot))
        leaf = tree.leaf(use.queue)
        if isinstance(leaf, TreeQueue) and any(tree.queues[number].name == needed.queue for number in leaf.path):
            found += [use.amounts[at]] * _groups(form)
    return iter(sorted(each for each in found if each))


def _groups(form: Form) -> int:
    """How many groups of a form are tried."""
    return len(form.uids) // len(form.first)


def needed(trying: Trying) -> Use | None:
    """What the group adds to its queue when it starts; None if nothing waits."""
    snapshot, subject = trying.snapshot, trying.subject
    waiting = list(subject.waiting)
    if subject.group is not None:
        ordered = order_members([pod for pod in waiting if not pod.gated])
        waiting = snapshot.quorum(subject.group).needed(ordered) or list(ordered[:1])
    return asked_use(snapshot, waiting) if waiting else None


def _others(trying: Trying) -> list[str]:
    """Other queues that take pods, by what they have left up to their limits, most GPUs first."""
    accounts, own = trying.snapshot.queues.accounts(), trying.subject.queue
    tree = accounts.tree
    leaves = [each for each in tree.queues if not each.children and each.name != own]

    def left(queue: TreeQueue) -> int:
        return min(
            tree.queues[number].record.limit.gpu_nano - accounts.of[number].held.gpu_nano for number in queue.path
        )

    return [each.name for each in sorted(leaves, key=lambda each: (-left(each), each.name))[:_MOST_QUEUES]]
