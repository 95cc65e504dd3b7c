"""How each queue stands: what it holds and asks for, what it is due, and whether it can be used.

Queues in the tree show their accounts, so the numbers are those that limits and shares are judged by. Those that can't
be used show the sums of their own pods and of all queues below them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from scheduler.core.model.quota import DIMENSIONS, NOTHING, QueueRecord, Resources
from scheduler.core.model.verdict import Verdict
from scheduler.core.queues.accounts import Accounts
from scheduler.core.queues.sums import Sum

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
