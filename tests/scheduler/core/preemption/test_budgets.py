"""PodDisruptionBudgets, counted before anybody is evicted."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from typing_extensions import override

from scheduler.core.model.pod_class import PodClass, Requirement
from scheduler.core.model.preemption import Budget
from scheduler.core.model.records import PodRecord
from scheduler.core.preemption.budgets import Budgets

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


def test_pods_that_go_for_others_have_taken_theirs() -> None:
    budgets, pods = Budgets([_budget(allowed=2)], _LABELS), _pods(3)
    budgets.spend(pods[:1])
    assert budgets.takes(pods[1:2]) == Counter({0: 1})
    assert budgets.takes(pods[1:]) is None
    budgets.spend([])
    assert budgets.takes(pods[1:]) == Counter({0: 2})


@pytest.mark.parametrize(
    "selector",
    [
        (Requirement("app", "In", ("db", "web")), Requirement("tier", "In", ("x",))),
        (Requirement("app", "Exists", ()),),
        (Requirement("none", "DoesNotExist", ()),),
        (Requirement("app", "NotIn", ("db",)), Requirement("tier", "Exists", ())),
    ],
    ids=["one of several", "any value", "without a label", "not"],
)
def test_a_budget_is_found_whatever_it_asks_beside_many_others(selector: tuple[Requirement, ...]) -> None:
    others = [_budget((Requirement("app", "In", ("web",)), Requirement("n", "In", (str(at),)))) for at in range(500)]
    assert Budgets([*others, _budget(selector)], _LABELS).takes(_pods(1)) == Counter({500: 1})


@pytest.mark.parametrize(
    "selector",
    [
        *[[(Requirement(f"k{at}", op, ("v",)), *_WEB)] * 1000 for at, op in enumerate(["In", "Exists"])],
        [(Requirement("none", "Exists", ()),)] * 1000,
        [(Requirement("app", "NotIn", ("web",)),)] * 1000,
        [tuple(Requirement(f"k{at}", "NotIn", ("v",)) for at in range(10_000))],
        [(*_WEB, Requirement("tier", "In", tuple(map(str, range(10_000)))))],
    ],
    ids=["labels", "any values", "one label", "none of a label", "many requirements", "many values"],
)
def test_a_pod_is_held_against_few_budgets_however_many_there_are(
    selector: list[tuple[Requirement, ...]],
) -> None:
    labels = _Looked(_LABELS["u0"])
    budgets = Budgets([_budget(each, allowed=9) for each in selector], {"u0": labels})
    for _ in range(3):
        budgets.takes(_pods(1))
    assert labels.looks <= 128


class _Looked(dict[str, str]):
    """Labels that count how often one is looked for."""

    looks = 0

    @override
    def get(self, key: str, default: Any = None) -> Any:
        self.looks += 1
        return super().get(key, default)
