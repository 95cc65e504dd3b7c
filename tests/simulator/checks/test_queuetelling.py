"""L3 of queues: pods say what their queue has, and which link of the tree is broken; anything else is found."""

from __future__ import annotations

from fractions import Fraction

import pytest

from scheduler.conditions.messages import told
from scheduler.core.model.verdict import Code, QueueCause, Verdict
from simulator.checks import queues
from simulator.checks.queues import QueueTree
from tests.simulator.checks.test_limits import queue

TREE = QueueTree({
    each["metadata"]["name"]: each["spec"]
    for each in (queue("dept", limit=0.3333333333), queue("a", "dept", quota=1), queue("b", "gone"))
})  # fmt: skip
#: What pods of each queue and those below it use; half of it can't be preempted.
USED = {"dept": Fraction("0.3"), "a": Fraction(1)}
NANO = 10**9


def _used(at: str, _: str, of_fixed: bool) -> tuple[Fraction, Fraction]:
    used = USED[at] / (2 if of_fixed else 1)
    return used, used


def untrue(code: Code, team: str = "a", *, name: str = "a", cause: QueueCause | None = None) -> list[str]:
    """What is found of the product's own words."""
    text = told(Verdict(code=code, detail=name, queue=cause)).message
    found = queues.untrue(text, team, TREE, _used)
    return list(found)


def amounts(at: str, most: int, held: int, asked: int, resource: str = "gpu") -> QueueCause:
    return QueueCause(at=at, resource=resource, most=most, held=held, asked=asked)


@pytest.mark.parametrize(
    ("code", "cause", "is_found"),
    [
        (Code.OVER_LIMIT, amounts("dept", 333_333_333, 3 * NANO // 10, NANO), False),
        (Code.OVER_LIMIT, amounts("dept", 333_333_334, 3 * NANO // 10, NANO), True),
        (Code.OVER_LIMIT, amounts("dept", 333_333_333, 2 * NANO // 10, NANO), True),
        (Code.OVER_LIMIT, amounts("dept", 333_333_333, 3 * NANO // 10, 33_333_333), True),
        (Code.OVER_LIMIT, amounts("a", NANO, NANO, NANO), True),
        (Code.OVER_LIMIT, amounts("b", NANO, NANO, NANO), True),
        (Code.OVER_QUOTA, amounts("a", NANO, NANO // 2, NANO), False),
        (Code.OVER_QUOTA, amounts("a", NANO, NANO, NANO), True),
        (Code.OVER_QUOTA, amounts("a", NANO, NANO // 2, NANO // 2), True),
    ],
)
def test_amounts_are_those_of_the_queue(code: Code, cause: QueueCause, is_found: bool) -> None:
    assert bool(untrue(code, cause=cause)) == is_found


@pytest.mark.parametrize(
    ("code", "team", "name", "is_found"),
    [
        (Code.QUEUE_NOT_FOUND, "nobodys", "nobodys", False),
        (Code.QUEUE_NOT_FOUND, "a", "a", True),
        (Code.QUEUE_NOT_FOUND, "b", "nobodys", True),
        (Code.QUEUE_NOT_LEAF, "dept", "dept", False),
        (Code.QUEUE_NOT_LEAF, "a", "a", True),
        (Code.QUEUE_PARENT_NOT_FOUND, "b", "b", False),
        (Code.QUEUE_CYCLE, "a", "a", True),
        (Code.QUEUE_CLOSED, "a", "a", True),
        (Code.NO_NODE_FITS, "a", "a", False),
    ],
)
def test_a_queue_that_can_not_be_used_is_one(code: Code, team: str, name: str, is_found: bool) -> None:
    assert bool(untrue(code, team, name=name, cause=QueueCause(at="gone"))) == is_found


@pytest.mark.parametrize(("held", "is_found"), [(9, True), (10, False), (15, False), (20, False), (21, True)])
def test_pods_that_vanished_may_be_counted(held: int, is_found: bool) -> None:
    text = told(Verdict(code=Code.OVER_LIMIT, detail="top", queue=amounts("top", 20 * NANO, held * NANO, 15 * NANO)))
    tree = QueueTree({"top": queue("top", limit=20)["spec"]})
    said = queues.untrue(text.message, "top", tree, lambda *_: (Fraction(10), Fraction(20)))
    assert bool(list(said)) == is_found
