"""In which order units go, and which of them may: each is judged with what those before it took (batch.md 5.5).

``by_queues`` is KAI's order reversed: the queue that would be served last goes first, with what was taken of it off; in
it the lowest priority, surplus before cores, the newest. ``by_size`` lets most be taken in all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from scheduler.core.model.resources import NOTHING, Resources
from scheduler.core.queues.accounts import Accounts, Use
from scheduler.core.queues.order import Key, key
from scheduler.core.room.budgets import Budgets
from scheduler.core.room.rules import Rules
from scheduler.core.room.units import Resident


def permitted(order: Iterable[Resident], rules: Rules, budgets: Budgets) -> Iterator[Resident]:
    """Those that may be taken, one after the other. A core goes with all its surplus, or not."""
    lost: dict[int, Resources] = {}
    taken, budget = set[Resident](), Counter[int]()
    for victim in order:
        if not rules.may_take(victim, lost) or not taken.issuperset(victim.chain):
            continue
        more = budgets.takes(victim.pods)
        if more is None or not budgets.allow(budget + more):
            continue
        budget += more
        rules.take(victim, lost)
        taken.add(victim)
        yield victim


def by_queues(units: Iterable[Resident], accounts: Accounts) -> Iterator[Resident]:
    """KAI's order. What has been given is taken off the accounts: the caller goes back to its checkpoint."""
    order = _Order(accounts)
    for unit in reversed(in_queue(units)):
        order.put(unit)
    while order.left:
        unit = order.pop()
        accounts.release(Use(unit.leaf.name, unit.amounts))
        yield unit


class _Order:
    """Units by queue, and the keys of queues as they stand."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self._waiting: dict[int, list[Resident]] = {}
        #: How many are left below each queue.
        self._counts = Counter[int]()
        self._keys: dict[int, Key] = {}
        self.left = 0

    def put(self, unit: Resident) -> None:
        """Add one that goes before those that were put before it."""
        self._waiting.setdefault(unit.leaf.number, []).append(unit)
        self._counts.update(unit.leaf.path)
        self.left += 1

    def pop(self) -> Resident:
        """Give the next one of the queue that would be served last, at each level."""
        tree = self._accounts.tree
        number = self._last(tree.top)
        while tree.queues[number].children:
            number = self._last(tree.queues[number].children)
        unit = self._waiting[number].pop()
        self._counts.subtract(unit.leaf.path)
        self.left -= 1
        for above in unit.leaf.path:
            self._keys.pop(above, None)
        return unit

    def _last(self, numbers: Sequence[int]) -> int:
        there = [number for number in numbers if self._counts[number] > 0]
        return there[0] if len(there) == 1 else max(there, key=self._key)

    def _key(self, number: int) -> Key:
        known = self._keys.get(number)
        if known is None:
            known = self._keys[number] = key(self._accounts, self._accounts.tree.queues[number], NOTHING)
        return known


def in_queue(units: Iterable[Resident]) -> list[Resident]:
    """In one queue: the lowest priority first, surplus before cores, the newest, pods of one group in their order."""
    newest = sorted(units, key=lambda unit: (unit.created, unit.uid), reverse=True)
    return sorted(newest, key=lambda unit: (unit.unit.priority, unit.is_core))


def by_size(units: Iterable[Resident]) -> list[Resident]:
    """The smallest first: by GPUs, then CPU, then memory; cores that have surplus after it."""
    return sorted(in_queue(units), key=lambda unit: (bool(unit.chain), *reversed(unit.amounts)))
