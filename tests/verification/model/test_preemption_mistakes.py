"""What each rule of preemption is for: with the mistake, the model finds a counter-example (docs/design/model.md)."""

from __future__ import annotations

from dataclasses import fields

import pytest

from tests.verification.model.preemption_mistakes import MISTAKES, Mistake
from verification.model.preemption.exploring import explore_preemption
from verification.model.preemption.state import BUILT, Rules

pytestmark = pytest.mark.thorough


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


@pytest.mark.parametrize("rule", [one.name for one in fields(Rules)])
def test_every_rule_is_left_out_once(rule: str) -> None:
    assert [one for one in MISTAKES if getattr(one.rules, rule) != getattr(BUILT, rule)]
