"""Timers of any length: what is drawn, what reaches the components, and what the checker makes of it."""

from __future__ import annotations

import random

import msgspec

from binder.settings import BinderSettings
from kube.lead.lease import LeaseSettings
from scheduler.settings import SchedulerSettings
from simulator.world import GANG_GRACE_S
from verification.hostile.scenario import Scenario, Switches, scenario_of
from verification.hostile.variations import Timers, draw

ORDINARY = LeaseSettings(duration_s=60, renew_deadline_s=45.0, retry_s=20.0, poll_s=15.0)


def names_of(settings: msgspec.Struct) -> set[str]:
    return {
        name
        for name, value in msgspec.structs.asdict(settings).items()
        if name.endswith("_s") and not name.endswith("_per_s")
    }


def test_every_time_that_scheduler_and_binder_can_be_given_is_drawn() -> None:
    timers = draw(random.Random(1))
    assert timers.scheduler.keys() == names_of(SchedulerSettings())
    assert timers.binder.keys() == names_of(BinderSettings())
    assert "sandbox_s" in timers.kubelet
    assert "stop_s" not in timers.kubelet


def test_what_is_drawn_is_what_the_cluster_is_made_with() -> None:
    timers = Timers(scheduler={"orphan_s": 3.5}, binder={"sweep_s": 0.5}, kubelet={"sandbox_s": 2.0}, lease=0.5)
    switches = Switches(timers=timers, election=True, schedulers=2)
    world = Scenario(seed=1, shapes=("1x1x24GiB",), settings=switches, calm_s=1.0).world
    assert world.scheduler.orphan_s == 3.5
    assert world.binder.sweep_s == 0.5
    assert world.kubelet.sandbox_s == 2.0
    assert world.election == LeaseSettings(duration_s=30, renew_deadline_s=22.5, retry_s=10.0, poll_s=7.5)


def test_times_of_a_lease_hold_each_other_whatever_is_drawn() -> None:
    assert {draw(random.Random(seed)).leases(ORDINARY).duration_s for seed in range(50)} == {30, 60, 120}


def test_a_gang_may_be_in_part_for_longer_where_timers_or_ends_are_longer() -> None:
    def grace_s(**switches: object) -> float:
        settings = msgspec.convert(switches, Switches)
        return Scenario(seed=1, shapes=("1x1x24GiB",), settings=settings, calm_s=1.0).world.gang_grace_s

    assert grace_s() == grace_s(timers=Timers(scheduler={"broken_gang_s": 6.0})) == GANG_GRACE_S
    assert grace_s(timers=Timers(scheduler={"broken_gang_s": 120.0})) == 2 * GANG_GRACE_S
    assert grace_s(stop_s=30.0) == GANG_GRACE_S + 25.0


def test_a_fifth_of_the_runs_have_other_timers_and_a_tenth_have_many_nodes() -> None:
    scenarios = [scenario_of(seed, ()) for seed in range(1, 301)]
    assert 40 < sum(scenario.settings.timers != Timers() for scenario in scenarios) < 80
    many = [scenario for scenario in scenarios if len(scenario.nodes) >= 20]
    assert 15 < len(many) < 50
    assert max(len(scenario.nodes) for scenario in scenarios if scenario not in many) < 20
