"""Scenarios of seeds: how many of them keep nodes for groups that have waited too long."""

from __future__ import annotations

from verification.hostile.faults.kinds import OF_AGENTS
from verification.hostile.scenario import Switches, scenario_of


def test_most_runs_keep_nodes_for_groups_that_have_waited_for_a_minute_at_most() -> None:
    made = [scenario_of(seed, ()) for seed in range(100)]
    keeping = [each for each in made if each.settings.berths_percent]
    assert 45 <= len(keeping) <= 75
    assert {each.settings.berths_percent for each in keeping} == {10, 30, 50, 100}
    assert all(1 <= each.settings.patience_s <= 60 for each in keeping)
    decisions = keeping[0].world.scheduler.decisions
    assert decisions.berths_percent == keeping[0].settings.berths_percent
    assert decisions.patience_ns == round(keeping[0].settings.patience_s * 10**9)


def test_scripts_of_before_keep_none() -> None:
    assert Switches().berths_percent == 0


def test_some_runs_have_agents_on_some_or_all_of_their_nodes() -> None:
    made = [scenario_of(seed) for seed in range(200)]
    having = [each for each in made if each.settings.agents]
    assert 50 <= len(having) <= 110
    assert any(len(each.settings.agents) == len(each.nodes) for each in having)
    assert any(len(each.settings.agents) < len(each.nodes) for each in having)
    assert all(each.world.agents == set(each.settings.agents) for each in having)
    of_agents = {fault.kind for each in made for fault in each.faults} & OF_AGENTS
    assert of_agents == OF_AGENTS


def test_scripts_of_before_have_no_agents() -> None:
    assert Switches().agents == ()
