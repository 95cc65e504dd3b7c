"""Runs with claims for extended resources and shares, and with devices that draw on counters or have to get ready."""

from __future__ import annotations

from simulator.nodes.device_manager import make_devices
from verification.hostile import made_devices
from verification.hostile.actions import MAIN, CreatePod, EditPod
from verification.hostile.device_actions import (
    COUNTED,
    CreateExtendedClass,
    DeleteClaimsOf,
    DeleteClass,
    ForgeClaim,
    PublishDevices,
    RunDriver,
    slices,
)
from verification.hostile.faults.kinds import OF_CLAIMS, OF_PREEMPTION
from verification.hostile.queue_actions import CreateQueue
from verification.hostile.scenario import scenario_of
from wire import names


def test_pods_ask_for_shares_memory_whole_gpus_and_accelerators_on_nodes_of_both_kinds() -> None:
    made = [made_devices.claims_scenario(seed) for seed in range(30)]
    pods = [action for each in made for action in each.actions if isinstance(action, CreatePod)]
    assert any(names.GPU_FRACTION in pod.annotations and not pod.limits for pod in pods)
    assert any(names.GPU_FRACTION in pod.annotations and pod.limits for pod in pods)
    assert any(names.GPU_MEMORY in pod.annotations for pod in pods)
    assert any(pod.gpus for pod in pods)
    assert any(made_devices.ACCELERATOR in pod.limits.get(MAIN, {}) for pod in pods)
    assert any(pod.group for pod in pods)
    kinds = [{bool(node.cards_mib) for node in each.nodes} for each in made]
    assert all(kind in kinds for kind in ({True}, {False}, {True, False}))
    assert all(each.world.admission.shares_by_claims for each in made)


def test_gpus_are_published_with_uuids_in_a_part_of_the_runs_also_those_of_device_plugins() -> None:
    runs = 0
    for seed in range(30):
        made = made_devices.claims_scenario(seed)
        cards = {node.name: {card.uuid for card in make_devices(node, seed=made.world.seed)} for node in made.nodes}
        offered = [
            (cards[each.node], device)
            for each in made.actions
            if isinstance(each, PublishDevices)
            for device in each.devices
        ]
        assert all(bool(device.uuid) is not device.is_big for _, device in offered)
        assert all(device.uuid in had for had, device in offered if had and device.uuid)
        runs += any(device.uuid for had, device in offered if had)
    assert 3 < runs < 20


def test_pods_and_gangs_are_in_queues_in_a_part_of_the_runs() -> None:
    made = [made_devices.claims_scenario(seed) for seed in range(30)]
    queued = [each for each in made if any(isinstance(action, CreateQueue) for action in each.actions)]
    assert 10 < len(queued) < 28
    labels = [a.labels for each in queued for a in each.actions if isinstance(a, CreatePod)]
    assert any(names.QUEUE_LABEL in each for each in labels)


def test_claims_are_deleted_and_forged_classes_go_and_come_and_drivers_are_late() -> None:
    made = [made_devices.claims_scenario(seed) for seed in range(30)]
    kinds = {type(action) for each in made for action in each.actions}
    assert kinds >= {CreateExtendedClass, DeleteClass, DeleteClaimsOf, ForgeClaim, EditPod, RunDriver}
    assert {fault.kind for each in made for fault in each.faults} & OF_CLAIMS


def test_runs_strike_evictions_and_ask_an_autoscaler_for_nodes() -> None:
    made = [made_devices.claims_scenario(seed) for seed in range(40)]
    assert all({fault.kind for fault in each.faults} & OF_PREEMPTION for each in made if each.settings.preemption)
    assert {each.settings.autoscaling for each in made} == {True, False}
    assert any(fault.kind == "slow-starts" for each in made for fault in each.faults)


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
