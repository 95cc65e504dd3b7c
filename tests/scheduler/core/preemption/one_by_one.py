"""The order of units one after the other, with the queue that would be served last made out again each time: slow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from scheduler.core.model.quota import NOTHING, Resources
from scheduler.core.preemption.protection import Budgets
from scheduler.core.preemption.reclaim import Rules
from scheduler.core.preemption.victim_units import Resident
from scheduler.core.queues.accounts import Accounts, Use
from scheduler.core.queues.order import key


def permitted(order: Iterable[Resident], rules: Rules, budgets: Budgets) -> Iterator[Resident]:
    """Those that may be taken, each judged with what those before it took. A core goes with all its surplus, or not."""
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
    left = in_queue(units)
    tree = accounts.tree
    while left:
        numbers = tree.top
        while True:
            there = [number for number in numbers if any(number in unit.leaf.path for unit in left)]
            last = max(there, key=lambda number: key(accounts, tree.queues[number], NOTHING))
            if not tree.queues[last].children:
                break
            numbers = tree.queues[last].children
        unit = next(unit for unit in left if unit.leaf.number == last)
        left.remove(unit)
        accounts.release(Use(unit.leaf.name, unit.amounts))
        yield unit


def in_queue(units: Iterable[Resident]) -> list[Resident]:
    """In one queue: the lowest priority first, surplus before cores, the newest, pods of one group in their order."""
    newest = sorted(units, key=lambda unit: (unit.created, unit.uid), reverse=True)
    return sorted(newest, key=lambda unit: (unit.priority, unit.is_core))
