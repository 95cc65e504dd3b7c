"""PodDisruptionBudgets, counted before anybody is evicted."""

from __future__ import annotations

from collections import Counter

import pytest

from scheduler.core.model.records import PodClass, PodRecord, Requirement
from scheduler.core.model.room import Budget
from scheduler.core.room.budgets import Budgets

_WEB = (Requirement("app", "In", ("web",)),)


def _budget(selector: tuple[Requirement, ...] | None = _WEB, allowed: int = 1, namespace: str = "ns") -> Budget:
    return Budget(namespace=namespace, name="pdb", selector=selector, allowed=allowed)


def _pods(count: int) -> list[PodRecord]:
    return [PodRecord(uid=f"u{at}", namespace="ns", name="p", rv="", node="n", cls=PodClass()) for at in range(count)]


_LABELS = {f"u{at}": {"app": "web", "tier": "x"} for at in range(4)}


@pytest.mark.parametrize(
    ("budgets", "pods", "taken"),
    [
        ([], 3, {}),
        ([_budget(allowed=3)], 3, {0: 3}),
        ([_budget(allowed=2)], 3, None),
        ([_budget(allowed=-1)], 1, None),
        ([_budget(namespace="other", allowed=0)], 3, {}),
        ([_budget(selector=None, allowed=0)], 3, {}),
        ([_budget(selector=(), allowed=3)], 3, {0: 3}),
        ([_budget(selector=(Requirement("app", "In", ("db",)),), allowed=0)], 3, {}),
        ([_budget(allowed=9), _budget(selector=(), allowed=9)], 1, None),
        ([_budget(namespace="other", allowed=0), _budget(allowed=1)], 1, {1: 1}),
    ],
    ids=[
        "none",
        "enough",
        "too few",
        "below zero",
        "elsewhere",
        "selects nothing",
        "selects all",
        "others",
        "two",
        "2nd",
    ],
)
def test_each_pod_takes_one_of_the_budget_that_selects_it(
    budgets: list[Budget], pods: int, taken: dict[int, int] | None
) -> None:
    assert Budgets(budgets, _LABELS).takes(_pods(pods)) == (None if taken is None else Counter(taken))


def test_a_pod_whose_labels_are_not_known_is_nobodys_victim_where_there_is_a_budget() -> None:
    assert Budgets([_budget(allowed=9)], {}).takes(_pods(1)) is None
    assert Budgets([_budget(namespace="other")], {}).takes(_pods(1)) == Counter()


def test_a_pod_that_the_api_server_refused_is_nobodys_victim() -> None:
    assert Budgets([], {}, {"u0"}).takes(_pods(1)) is None
    assert Budgets([], {}, {"u1"}).takes(_pods(1)) == Counter()


def test_several_units_share_a_budget() -> None:
    budgets = Budgets([_budget(allowed=2)], _LABELS)
    assert budgets.allow(Counter({0: 2}))
    assert not budgets.allow(Counter({0: 3}))
