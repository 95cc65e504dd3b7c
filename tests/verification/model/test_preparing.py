"""Having claims bound: safe in every state, comes to rest, and each rule is for something (docs/design/model.md)."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from verification.model.volumes import (
    BUILT,
    GANG,
    ONE,
    PREPARING,
    Config,
    Left,
    NamedPreparing,
    Rules,
    explore_preparing,
)

pytestmark = pytest.mark.thorough

#: What is left out, where it shows, and how the counter-example begins.
_MISTAKES: list[tuple[Rules, Config, str]] = [
    (replace(BUILT, at_rv=False), Config(left=Left(foreigners=1)), "P4"),
    (replace(BUILT, at_rv=False), Config(left=Left(lates=1, timeouts=1)), "P4"),
    (replace(BUILT, whole=False), GANG, "P3"),
    (replace(BUILT, decides_again=False), Config(left=Left(foreigners=1)), "P1"),
    (replace(BUILT, decides_again=False, waits=False), ONE, "P1"),
    (replace(BUILT, gives_up=False), Config(left=Left(fails=1)), "L1"),
]


@pytest.mark.parametrize("config", PREPARING, ids=lambda one: one.name)
def test_having_claims_bound_is_safe_and_comes_to_rest(config: NamedPreparing) -> None:
    found = explore_preparing(config.config)
    print(f"\n{config.name}: {found.summary()}")
    assert found.is_complete
    assert found.violation == "", "\n  ".join([found.violation, *found.trace])
    assert found.resting > 0


@pytest.mark.parametrize(("rules", "config", "violates"), _MISTAKES)
def test_a_rule_left_out_gives_a_counter_example(rules: Rules, config: Config, violates: str) -> None:
    found = explore_preparing(config, rules, limit=50_000)
    print(f"\n{found.states} states, {'; '.join(found.trace)}")
    assert found.violation.startswith(violates), found.summary()
    assert explore_preparing(config).violation == ""


def test_waiting_for_claims_is_what_keeps_a_pod_alone_safe_where_nothing_is_decided_again() -> None:
    assert explore_preparing(ONE, replace(BUILT, decides_again=False)).violation == ""


@pytest.mark.parametrize("rule", [one.name for one in fields(Rules)])
def test_every_rule_is_left_out_once(rule: str) -> None:
    assert [rules for rules, _, _ in _MISTAKES if not getattr(rules, rule)]
