"""Allocating and reserving claims: safe in every state, comes to rest, and each rule is for something (model.md)."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from tests.verification.model.left_out import RULES, SECOND_LINES, LeftOut
from tests.whole import IS_WHOLE
from verification.model.claims.exploring import CLAIMING, GANG, ONE, RIVALS, SHARED, NamedClaiming, explore_claiming
from verification.model.claims.schedulers import BUILT, Config, Left, Rules
from verification.model.config import QUICK, Named
from verification.model.explorer import explore
from verification.model.preemption.exploring import explore_preemption
from verification.model.preemption.state import PREEMPTION, NamedPlace

pytestmark = pytest.mark.thorough
#: They take most of the time of all, and each thing in them happens in others as well.
LONG = {
    "three pods, two leaders, an impatient collector, an edit, a late write",
    "an edited pod",
    "a scheduler that crashes, a late write",
    "told early, two halves, a slow process",
}


@pytest.mark.parametrize("config", [one for one in QUICK if IS_WHOLE or one.name not in LONG], ids=lambda one: one.name)
def test_the_protocol_is_safe_and_comes_to_rest(config: Named) -> None:
    found = explore(config.config)
    print(f"\n{config.name}: {found.summary()}")
    assert found.is_complete
    assert found.violation == "", "\n  ".join([found.violation, *found.trace])
    assert found.resting > 0


_TWO_LEADERS = replace(ONE, schedulers=2)
#: A device for each of two pods, on a node that takes one of them.
_ONE_PLACE = Config(places=(1,), devices=(0, 0), uses=(0, 1), groups=((0,), (1,)))

#: It takes two fifths of the time of all, and each thing in it happens in others as well.
_LONG = "claims: devices that have to get ready, one pod, all that can go wrong"

#: What is left out, where it shows, and how the counter-example begins.
_MISTAKES: list[tuple[Rules, Config, str]] = [
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


@pytest.mark.parametrize("config", [one for one in CLAIMING if IS_WHOLE or one.name != _LONG], ids=lambda one: one.name)
def test_allocating_claims_is_safe_and_comes_to_rest(config: NamedClaiming) -> None:
    found = explore_claiming(config.config)
    print(f"\n{config.name}: {found.summary()}")
    assert found.is_complete
    assert found.violation == "", "\n  ".join([found.violation, *found.trace])
    assert found.resting > 0


@pytest.mark.parametrize(("rules", "config", "violates"), _MISTAKES)
def test_a_rule_left_out_gives_a_counter_example(rules: Rules, config: Config, violates: str) -> None:
    found = explore_claiming(config, rules, limit=50_000)
    print(f"\n{found.states} states, {found.violation}; {'; '.join(found.trace)}")
    assert found.violation.startswith(violates), found.summary()
    assert explore_claiming(config).violation == ""


@pytest.mark.parametrize("rule", [one.name for one in fields(Rules)])
def test_every_rule_is_left_out_once(rule: str) -> None:
    assert [rules for rules, _, _ in _MISTAKES if not getattr(rules, rule)]


# Preemption: safe in every state, and every nomination comes to its end.


@pytest.mark.parametrize("config", PREEMPTION, ids=lambda one: one.name)
def test_preemption_is_safe_and_every_nomination_comes_to_its_end(config: NamedPlace) -> None:
    found = explore_preemption(config.config)
    print(f"\n{config.name}: {found.summary()}")
    assert found.is_complete
    assert found.violation == "", "\n  ".join([found.violation, *found.trace])
    assert found.resting > 0


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
