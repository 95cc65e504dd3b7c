"""What runs of two node pools are drawn from: pools meet what other runs have, replicas, agents and room included."""

from __future__ import annotations

from functools import cache

import pytest

from verification.hostile.faults.kinds import OF_AGENTS, OF_PREEMPTION
from verification.hostile.faults.objects import LeaseDeleted
from verification.hostile.faults.processes import Crash, TwoLeaders
from verification.hostile.pooling import Mix, scenario
from verification.hostile.scenario import Scenario

SEEDS = range(1, 301)


@cache
def drawn(mix: Mix) -> list[Scenario]:
    """The runs of many seeds."""
    return [scenario(seed, mix) for seed in SEEDS]


def kinds(told: Scenario) -> set[str]:
    """What goes wrong in a run."""
    return {fault.kind for fault in told.faults}


@pytest.mark.parametrize("kind", sorted(OF_PREEMPTION))
def test_where_teams_take_from_each_other_everything_befalls_the_room_that_is_made(kind: str) -> None:
    assert any(kind in kinds(told) for told in drawn(Mix.CONTENDED))


@pytest.mark.parametrize("kind", sorted(OF_AGENTS))
def test_agents_of_nodes_of_pools_fail(kind: str) -> None:
    struck = [told for told in drawn(Mix.FREE) if kind in kinds(told)]
    assert struck
    assert all(told.settings.agents for told in struck)


@pytest.mark.parametrize("name", ["scheduler", "scheduler-2", "scheduler-a", "scheduler-a-2"])
def test_a_replica_of_either_pool_dies_while_another_one_may_lead(name: str) -> None:
    led = [told for told in drawn(Mix.FREE) if told.settings.election]
    assert all(told.settings.schedulers == 2 for told in led)
    crashes = [fault for told in led for fault in told.faults if isinstance(fault, Crash)]
    assert name in {crash.component for crash in crashes}


@pytest.mark.parametrize("role", ["scheduler", "scheduler-a"])
@pytest.mark.parametrize("kind", [LeaseDeleted, TwoLeaders])
def test_the_leader_of_either_pool_is_put_in_doubt(kind: type[LeaseDeleted | TwoLeaders], role: str) -> None:
    led = [told for told in drawn(Mix.FREE) if told.settings.election]
    assert role in {fault.role for told in led for fault in told.faults if isinstance(fault, kind)}
