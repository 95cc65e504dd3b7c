"""Timers of any length: what is drawn, what reaches the components, and what the checker makes of it."""

from __future__ import annotations

import random

import msgspec

from binder.settings import BinderSettings
from kube.lead.lease import LeaseSettings
from scheduler.settings import SchedulerSettings
from simulator.world import GANG_GRACE_S
from verification.hostile.scenario import Scenario, Switches
from verification.hostile.variations import Timers, draw


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


def test_a_gang_may_be_in_part_for_longer_where_timers_or_ends_are_longer() -> None:
    def grace_s(**switches: object) -> float:
        settings = msgspec.convert(switches, Switches)
        return Scenario(seed=1, shapes=("1x1x24GiB",), settings=settings, calm_s=1.0).world.gang_grace_s

    assert grace_s() == grace_s(timers=Timers(scheduler={"staleness_grace_s": 6.0})) == GANG_GRACE_S
    assert grace_s(timers=Timers(scheduler={"staleness_grace_s": 120.0})) == 2 * GANG_GRACE_S
    assert grace_s(stop_s=30.0) == GANG_GRACE_S + 25.0
