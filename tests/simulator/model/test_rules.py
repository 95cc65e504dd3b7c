from __future__ import annotations

import pytest

from simulator.model.explorer import explore
from tests.simulator.model.left_out import RULES, LeftOut


@pytest.mark.parametrize("left_out", RULES, ids=lambda one: one.rule)
def test_a_rule_that_is_left_out_gives_a_counter_example(left_out: LeftOut) -> None:
    found = explore(left_out.config, left_out.rules, limit=left_out.limit)
    assert found.violation.startswith(left_out.violates), f"{left_out.rule}: {found.summary()}"
    print(f"\n{left_out.rule}: {found.violation}", *found.trace, sep="\n  ")


@pytest.mark.parametrize("left_out", RULES, ids=lambda one: one.rule)
def test_with_the_rule_the_same_place_has_no_counter_example(left_out: LeftOut) -> None:
    assert explore(left_out.config, limit=left_out.control).violation == ""
