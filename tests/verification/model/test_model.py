"""Each protocol is safe in every state and comes to rest, and each of its rules is for something (model.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest

from tests.verification.model.left_out import RULES, SECOND_LINES, LeftOut
from tests.verification.model.preemption_mistakes import MISTAKES, Mistake
from tests.whole import IS_WHOLE
from verification.model import volumes
from verification.model.__main__ import CONFIGS
from verification.model.claims.exploring import GANG, ONE, RIVALS, SHARED, explore_claiming
from verification.model.claims.schedulers import BUILT, Config, Left, Rules
from verification.model.config import Named
from verification.model.explorer import Result, explore
from verification.model.preemption import state as preemption
from verification.model.preemption.exploring import explore_preemption
from verification.model.volumes import explore_preparing

pytestmark = pytest.mark.thorough
#: They take most of the time of all, and each thing in them happens in others as well.
LONG = {
    "three pods, two leaders, an impatient collector, an edit, a late write",
    "an edited pod",
    "a scheduler that crashes, a late write",
    "told early, two halves, a slow process",
    "claims: devices that have to get ready, one pod, all that can go wrong",
}


@pytest.mark.parametrize(
    ("config", "explores"),
    [
        pytest.param(one, explores, id=one.name)
        for one, explores in CONFIGS["quick"]
        if IS_WHOLE or one.name not in LONG
    ],
)
def test_each_protocol_is_safe_and_comes_to_rest(config: Named[Any], explores: Callable[..., Result]) -> None:
    found = explores(config.config)
    print(f"\n{config.name}: {found.summary()}")
    assert found.is_complete
    assert found.violation == "", "\n  ".join([found.violation, *found.trace])
    assert found.resting > 0


_TWO_LEADERS = replace(ONE, schedulers=2)
#: A device for each of two pods, on a node that takes one of them.
_ONE_PLACE = Config(places=(1,), devices=(0, 0), uses=(0, 1), groups=((0,), (1,)))

#: What is left out, where it shows, and how the counter-example begins.
_OF_CLAIMS: list[tuple[Rules, Config, str]] = [
    (replace(BUILT, at_rv=False), replace(ONE, left=Left(foreigners=1)), "C4"),
    (replace(BUILT, at_rv=False), replace(ONE, left=Left(lates=1)), "C"),
    (replace(BUILT, reserves=False), SHARED, "C1"),
    (replace(BUILT, whole=False), GANG, "C3"),
    (replace(BUILT, decides_again=False), replace(RIVALS, schedulers=2), "C2"),
    (replace(BUILT, gives_back=False), replace(ONE, others=1, left=Left(foreigners=1)), "C2"),
    (replace(BUILT, gives_back=False), replace(RIVALS, schedulers=2), "C2"),
    (replace(BUILT, own_only=False), replace(_ONE_PLACE, left=Left(lates=1, deletions=1)), "C1"),
    (replace(BUILT, fences=False), _TWO_LEADERS, "C1"),
    (replace(BUILT, reads_first=False), _TWO_LEADERS, "C1"),
    (replace(BUILT, clears_alone=False), replace(SHARED, left=Left(foreigners=1, crashes=1)), "C"),
    (replace(BUILT, withdraws=False), Config(
        places=(2, 1), devices=(0, 1), uses=(0, 1, 2), groups=((0, 1), (2,)), left=Left(timeouts=1)), "L1"),
    (replace(BUILT, waits=False), replace(ONE, awaits=True), "C5"),
    (replace(BUILT, whole=False), replace(GANG, awaits=True), "C"),
]  # fmt: skip

_OF_VOLUMES: list[tuple[volumes.Rules, volumes.Config, str]] = [
    (replace(volumes.BUILT, at_rv=False), volumes.Config(left=volumes.Left(foreigners=1)), "P4"),
    (replace(volumes.BUILT, at_rv=False), volumes.Config(left=volumes.Left(lates=1, timeouts=1)), "P4"),
    (replace(volumes.BUILT, whole=False), volumes.GANG, "P3"),
    (replace(volumes.BUILT, decides_again=False), volumes.Config(left=volumes.Left(foreigners=1)), "P1"),
    (replace(volumes.BUILT, decides_again=False, waits=False), volumes.ONE, "P1"),
    (replace(volumes.BUILT, gives_up=False), volumes.Config(left=volumes.Left(fails=1)), "L1"),
]


@pytest.mark.parametrize(
    ("explores", "rules", "config", "violates"),
    [
        *((explore_claiming, *mistake) for mistake in _OF_CLAIMS),
        *((explore_preparing, *mistake) for mistake in _OF_VOLUMES),
    ],
)
def test_a_rule_left_out_gives_a_counter_example(
    explores: Callable[..., Result], rules: Any, config: Any, violates: str
) -> None:
    found = explores(config, rules, limit=50_000)
    print(f"\n{found.states} states, {found.violation}; {'; '.join(found.trace)}")
    assert found.violation.startswith(violates), found.summary()
    assert explores(config).violation == ""


@pytest.mark.parametrize("rule", [one.name for one in fields(Rules)])
def test_every_rule_of_claims_is_left_out_once(rule: str) -> None:
    assert [rules for rules, _, _ in _OF_CLAIMS if not getattr(rules, rule)]


@pytest.mark.parametrize("rule", [one.name for one in fields(volumes.Rules)])
def test_every_rule_of_volumes_is_left_out_once(rule: str) -> None:
    assert [rules for rules, _, _ in _OF_VOLUMES if not getattr(rules, rule)]


def test_waiting_for_claims_is_what_keeps_a_pod_alone_safe_where_nothing_is_decided_again() -> None:
    assert explore_preparing(volumes.ONE, replace(volumes.BUILT, decides_again=False)).violation == ""


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda one: one.what)
def test_a_mistake_gives_a_counter_example(mistake: Mistake) -> None:
    found = explore_preemption(mistake.config, mistake.rules, limit=50_000)
    print(f"\n{mistake.what}: {found.states} states, {'; '.join(found.trace)}")
    assert found.violation.startswith(mistake.violates), found.summary()
    assert len(found.trace) > 2


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda one: one.what)
def test_without_the_mistake_the_same_place_has_no_counter_example(mistake: Mistake) -> None:
    found = explore_preemption(mistake.config)
    assert found.is_complete
    assert found.violation == "", "\n  ".join([found.violation, *found.trace])


@pytest.mark.parametrize("rule", [one.name for one in fields(preemption.Rules)])
def test_every_rule_of_preemption_is_left_out_once(rule: str) -> None:
    assert [one for one in MISTAKES if getattr(one.rules, rule) != getattr(preemption.BUILT, rule)]


# What each rule of the protocol is for: left out, the model finds a counter-example (docs/design/model.md).

#: Two thirds of the time of all: what has others like it in its table.
RULES_LONG = {
    "learn: another device ends what was verified",
    "gang: all books are joined before any member is bound (binder)",
    "told early: the patch names the UID",
    "gang: a plan is written only where there is none",
    "told early: the reservation had not ended before the question",
}


@pytest.mark.parametrize(
    "left_out", [one for one in RULES if IS_WHOLE or one.rule not in RULES_LONG], ids=lambda one: one.rule
)
def test_a_rule_that_is_left_out_gives_a_counter_example(left_out: LeftOut) -> None:
    found = explore(left_out.config, left_out.rules, limit=100_000)
    assert found.violation.startswith(left_out.violates), f"{left_out.rule}: {found.summary()}"
    assert len(found.trace) > 2


@pytest.mark.parametrize(
    "left_out", [one for one in RULES if not one.is_large][:: 1 if IS_WHOLE else 3], ids=lambda one: one.rule
)
def test_with_the_rule_the_same_place_has_no_counter_example(left_out: LeftOut) -> None:
    found = explore(left_out.config, left_out.base)
    assert found.is_complete
    assert found.violation == "", "\n  ".join([found.violation, *found.trace])


@pytest.mark.parametrize(
    "left_out", [one for one in SECOND_LINES if IS_WHOLE or one.rule not in RULES_LONG], ids=lambda one: one.rule
)
def test_a_second_line_of_defence_is_not_needed_as_long_as_the_first_holds(left_out: LeftOut) -> None:
    found = explore(left_out.config, left_out.rules)
    assert found.is_complete
    assert found.violation == "", "\n  ".join([found.violation, *found.trace])
