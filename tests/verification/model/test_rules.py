"""What each rule of the protocol is for: left out, the model finds a counter-example (docs/design/model.md)."""

from __future__ import annotations

import pytest

from tests.verification.model.left_out import RULES, SECOND_LINES, LeftOut
from tests.whole import IS_WHOLE
from verification.model.explorer import explore

pytestmark = pytest.mark.thorough
#: Two thirds of the time of all: what has others like it in its table.
LONG = {
    "learn: another device ends what was verified",
    "gang: all books are joined before any member is bound (binder)",
    "told early: the patch names the UID",
    "gang: a plan is written only where there is none",
    "told early: the reservation had not ended before the question",
}


@pytest.mark.parametrize(
    "left_out", [one for one in RULES if IS_WHOLE or one.rule not in LONG], ids=lambda one: one.rule
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
    "left_out", [one for one in SECOND_LINES if IS_WHOLE or one.rule not in LONG], ids=lambda one: one.rule
)
def test_a_second_line_of_defence_is_not_needed_as_long_as_the_first_holds(left_out: LeftOut) -> None:
    found = explore(left_out.config, left_out.rules)
    assert found.is_complete
    assert found.violation == "", "\n  ".join([found.violation, *found.trace])
