"""Runs with a tenant that means harm: every invariant holds, and one that is broken on purpose is found."""

from __future__ import annotations

import pytest

from tests.simulation.planted.bugs import BUGS
from tests.whole import IS_WHOLE
from verification.hostile import tenant
from verification.hostile.run import run
from verification.hostile.scenario import Script, encode

pytestmark = pytest.mark.thorough

SEEDS = range(1, 41) if IS_WHOLE else (1, 2, 6)
#: One in which it moves PodGroups under their pods to other queues, in queues with limits.
_MOVES_GROUPS = 46


@pytest.mark.parametrize("seed", SEEDS)
def test_every_invariant_holds_beside_a_tenant_that_means_harm(seed: int) -> None:
    scenario = tenant.scenario(seed)
    outcome = run(scenario, limit_cpu_s=60.0)
    violations = [f"{each.invariant} at {each.at_s:.3f} s: {each.text}" for each in outcome.violations[:5]]
    script = Script(violates=outcome.violations[0].invariant if violations else "", scenario=scenario)
    assert not violations, "\n".join([*violations, *outcome.events, encode(script).decode()])


def test_what_it_gets_by_moving_groups_is_found() -> None:
    """With a scheduler that counts pods by their current labels and PodGroups, as KAI does."""
    outcome = run(tenant.scenario(_MOVES_GROUPS), parts=BUGS["Q-relabelled"].parts, limit_cpu_s=60.0)
    assert outcome.broken & {"S6", "L3"}
