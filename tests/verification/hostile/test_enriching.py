"""Runs with claims of devices that draw on counters, or have to get ready."""

from __future__ import annotations

from verification.hostile import made_devices
from verification.hostile.device_actions import COUNTED, PublishDevices, RunDriver, slices
from verification.hostile.scenario import scenario_of


def test_all_else_is_what_it_is_with_claims_alone() -> None:
    for seed in range(10):
        made, plain = made_devices.enriched_scenario(seed), scenario_of(seed, with_claims=True)
        kept = [each for each in made.actions if not isinstance(each, PublishDevices | RunDriver)]
        assert kept == [each for each in plain.actions if not isinstance(each, PublishDevices)]
        assert (made.faults, made.settings, made.shapes) == (plain.faults, plain.settings, plain.shapes)


def test_devices_draw_on_counters_and_have_to_get_ready_and_some_fail() -> None:
    actions = [action for seed in range(40) for action in made_devices.enriched_scenario(seed).actions]
    devices = [each for action in actions if isinstance(action, PublishDevices) for each in action.devices]
    assert {each.has_to_get_ready for each in devices} == {True, False}
    assert {each.draws for each in devices} >= {0, 1, COUNTED}
    drivers = [action for action in actions if isinstance(action, RunDriver)]
    assert len(drivers) == 40
    assert any(each.fails_per_mille for each in drivers)
    assert any(each.silent_per_mille for each in drivers)


def test_counters_are_published_in_a_slice_of_their_own() -> None:
    action = next(
        action
        for seed in range(40)
        for action in made_devices.enriched_scenario(seed).actions
        if isinstance(action, PublishDevices) and any(each.draws for each in action.devices)
    )
    made = [each["spec"] for each in slices("node-0", action.devices, generation=1, count=2)]
    assert [("sharedCounters" in spec, "devices" in spec) for spec in made] == [(True, False)] + [(False, True)] * 2
    assert {spec["pool"]["resourceSliceCount"] for spec in made} == {3}
