from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from scheduler.core.model.priority_order import Rank
from scheduler.core.model.quota import WITHOUT_END, QueueRecord, Resources
from scheduler.core.queues.accounts import Accounts, Use, accounts
from scheduler.core.queues.order import Criterion, QueueOrder
from scheduler.core.queues.tree import Sum, Tree, TreeQueue
from tests.values import of_kind, there

GPU = 10**9
EVEN = Resources(10**6, 10**6, 10**6)


def gpus(count: float) -> Resources:
    return Resources(gpu_nano=round(count * GPU))


@dataclass
class Waits:
    """One group of a team."""

    team: str
    use: Resources
    settled: bool = False

    def is_settled(self) -> bool:
        return self.settled


def record(name: str, parent: str = "", quota: float = 0, **more: object) -> QueueRecord:
    return QueueRecord(
        name=name,
        parent=parent,
        quota=gpus(quota),
        limit=more.pop("limit", WITHOUT_END),  # type: ignore[arg-type]
        weight=EVEN,
        **more,  # type: ignore[arg-type]
    )


def made(total: float, *records: QueueRecord, **sums: Sum) -> Accounts:
    return accounts(Tree(records), sums, gpus(total))


def held(count: float, asks: float = 0) -> Sum:
    return Sum(held=gpus(count), kept=gpus(count), asked=gpus(count + asks), pods=1)


def waiting(asks: float) -> Sum:
    return Sum(asked=gpus(asks), pods=1)


def turns(found: Accounts, *groups: Waits, charge: bool = True) -> str:
    """Teams in the order of their turns, each group of which is placed."""
    order: QueueOrder[Waits] = QueueOrder(found)
    for at, group in enumerate(groups):
        queue = of_kind(TreeQueue, found.tree.leaf(group.team))
        order.put(queue, Rank(0, 0, "", f"{at:03}"), group)
    taken = ""
    while (group_ := order.pop()) is not None:
        taken += group_.team
        if charge:
            found.charge(Use(group_.team, group_.use))
    return taken


def several(team: str, count: int, each: float = 1) -> list[Waits]:
    return [Waits(team, gpus(each))] * count


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (made(8, record("a"), record("b"), a=waiting(2), b=waiting(2)), "abab"),
        (made(8, record("a"), record("b"), a=held(2, 2), b=waiting(4)), "bbaa"),
        (made(8, record("a", quota=2), record("b"), a=waiting(2), b=waiting(2)), "aabb"),
        (made(8, record("a"), record("b", priority=200), a=waiting(2), b=waiting(2)), "bbaa"),
        (made(8, record("a", created="2"), record("b", created="1"), a=waiting(2), b=waiting(2)), "baba"),
        (made(4, record("a"), record("b"), a=held(4, 2), b=waiting(2)), "bbaa"),
    ],
    ids=[
        "in turns",
        "who has less",
        "within its quota first",
        "higher priority",
        "the older first",
        "above its share last",
    ],
)
def test_queues_take_turns(found: Accounts, expected: str) -> None:
    assert turns(found, *several("a", 2), *several("b", 2)) == expected


def test_departments_take_turns_and_in_each_its_teams() -> None:
    queues = [record("l"), record("r"), record("a", "l"), record("b", "l"), record("c", "r")]
    found = made(12, *queues, a=waiting(2), b=waiting(2), c=waiting(3))
    assert turns(found, *several("a", 2), *several("b", 2), *several("c", 3)) == "acbcacb"


def test_who_asks_for_what_nobody_can_have_comes_last() -> None:
    found = made(8, record("a", limit=gpus(0)), record("b"), a=waiting(1), b=held(6, 1))
    assert turns(found, *several("a", 1), *several("b", 1)) == "ba"


def test_in_a_queue_the_rank_decides() -> None:
    found = made(8, record("a"), a=waiting(3))
    order: QueueOrder[Waits] = QueueOrder(found)
    queue = of_kind(TreeQueue, found.tree.leaf("a"))
    for priority, uid in ((1, "low"), (9, "high"), (5, "mid")):
        order.put(queue, Rank(-priority, 0, "", uid), Waits(uid, gpus(1)))
    assert [each.team for each in iter(order.pop, None)] == ["high", "mid", "low"]


def test_every_group_has_its_turn_whatever_the_order_in_which_they_come() -> None:
    queues = [record("l"), record("r"), record("a", "l", quota=2), record("b", "l"), record("c", "r")]
    groups = [*several("a", 5), *several("b", 4, 0.5), *several("c", 6, 2)]
    results = set()
    for seed in range(20):
        shuffled = list(groups)
        random.Random(seed).shuffle(shuffled)
        results.add(turns(made(10, *queues, a=waiting(5), b=waiting(2), c=waiting(12)), *shuffled))
    assert len(results) == 1
    assert sorted(results.pop()) == sorted(group.team for group in groups)


def test_what_is_settled_has_no_turn_and_its_queue_gives_what_comes_behind() -> None:
    found = made(8, record("a"), record("b"), a=waiting(4), b=waiting(4))
    done = Waits("a", gpus(1), settled=True)
    assert turns(found, done, *several("b", 2), done, *several("a", 1)) == "abb"


def test_a_queue_whose_last_group_is_settled_meanwhile_keeps_no_sibling_from_its_turn() -> None:
    found = made(8, record("l"), record("a", "l"), record("b", "l", quota=1), a=waiting(1), b=waiting(4))
    order: QueueOrder[Waits] = QueueOrder(found)
    meanwhile = Waits("a", gpus(1))
    for at, group in enumerate([meanwhile, Waits("b", gpus(1)), Waits("b", gpus(3))]):
        queue = of_kind(TreeQueue, found.tree.leaf(group.team))
        order.put(queue, Rank(0, 0, "", str(at)), group)
    first = there(order.pop())
    found.charge(Use("b", first.use))
    meanwhile.settled = True
    assert [each.use for each in iter(order.pop, None)] == [gpus(3)]


def test_a_queue_whose_first_group_is_settled_meanwhile_comes_by_what_it_gives_next() -> None:
    queues = [record("l"), *(record(team, "l", quota=1, priority=200 if team == "c" else 100) for team in "abc")]
    found = made(9, *queues, a=waiting(4), b=waiting(1), c=waiting(2))
    order: QueueOrder[Waits] = QueueOrder(found)
    meanwhile = Waits("a", gpus(1))
    for at, group in enumerate([meanwhile, Waits("a", gpus(3)), Waits("b", gpus(1)), Waits("c", gpus(1))]):
        queue = of_kind(TreeQueue, found.tree.leaf(group.team))
        order.put(queue, Rank(0, 0, "", str(at)), group)
    first = order.pop()
    meanwhile.settled = True
    assert [first, *iter(order.pop, None)] == [Waits("c", gpus(1)), Waits("b", gpus(1)), Waits("a", gpus(3))]


def above(count: float) -> Sum:
    """In every dimension more than there is to divide."""
    holds = Resources(1, 1, gpus(count).gpu_nano)
    return Sum(held=holds, kept=holds, asked=holds, pods=1)


def ranking(found: Accounts, *groups: Waits) -> list[tuple[str, Criterion | None]]:
    """Teams at the top in order, each with what puts it behind the one before."""
    order: QueueOrder[Waits] = QueueOrder(found)
    for at, group in enumerate(groups):
        queue = of_kind(TreeQueue, found.tree.leaf(group.team))
        order.put(queue, Rank(0, 0, "", f"{at:03}"), group)
    told = order.ranking(-1)
    assert order.pop() == (told[0].first if told else None)
    return [
        (each.queue.name, None if before is None else each.after(before))
        for before, each in zip([None, *told], told, strict=False)
    ]


@pytest.mark.parametrize(
    ("found", "last", "by"),
    [
        (made(4, record("a"), record("b"), a=above(4), b=waiting(2)), "a", Criterion.SHARE),
        (made(8, record("a", quota=2), record("b"), a=waiting(2), b=waiting(2)), "b", Criterion.QUOTA),
        (made(8, record("a"), record("b", priority=200), a=waiting(2), b=waiting(2)), "a", Criterion.PRIORITY),
        (made(8, record("a", limit=gpus(0)), record("b"), a=waiting(1), b=held(6, 1)), "a", Criterion.VOID),
        (made(8, record("a"), record("b"), a=held(2, 2), b=waiting(4)), "a", Criterion.SHARE_USED_WITH),
        (made(8, record("a", created="2"), record("b", created="1"), a=waiting(2), b=waiting(2)), "a", Criterion.AGE),
        (made(8, record("a"), record("b"), a=waiting(2), b=waiting(2)), "b", Criterion.NAME),
    ],
    ids=lambda value: value.value if isinstance(value, Criterion) else "",
)
def test_what_puts_a_queue_behind_another_is_told(found: Accounts, last: str, by: Criterion) -> None:
    assert ranking(found, *several("a", 1), *several("b", 1))[-1] == (last, by)


def test_a_queue_that_has_nothing_to_give_stands_nowhere() -> None:
    found = made(8, record("a"), record("b"), a=waiting(1))
    assert ranking(found, *several("a", 1)) == [("a", None)]
    assert ranking(found) == []
