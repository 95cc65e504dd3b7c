"""Runs in which agents make MIG slices: what is drawn, and that all of it comes up."""

from __future__ import annotations

import random

import pytest

from simulator.mig.hardware import PROFILES, size, spot
from verification.hostile import made_devices
from verification.hostile.actions import CreatePod, CreatePodGroup
from verification.hostile.device_actions import AskLayout, OfferGpus, WithdrawLayouts
from verification.hostile.faults.kinds import OF_PARTITIONING, OF_PREEMPTION
from wire import names

pytestmark = pytest.mark.thorough

MANY = range(150)


def test_layouts_are_such_that_a_gpu_can_have_them() -> None:
    rng = random.Random(1)
    for _ in range(300):
        taken: set[int] = set()
        for at in map(spot, made_devices.layout(rng)):
            row = set(range(at.start, at.start + size(at)))
            assert not row & taken
            taken |= row


def test_pods_ask_for_all_profiles_for_parts_and_in_gangs_and_administrators_do_all_that_they_may() -> None:
    actions = [action for seed in MANY for action in made_devices.slices_scenario(seed).actions]
    pods = [action for action in actions if isinstance(action, CreatePod)]
    asked = {name for pod in pods for limits in pod.limits.values() for name in limits}
    assert asked >= {names.MIG_RESOURCE_PREFIX + profile for profile in PROFILES}
    assert asked >= {"nvidia.com/half", "nvidia.com/quarter"}
    assert any(pod.group for pod in pods)
    assert {type(action) for action in actions} >= {CreatePodGroup, AskLayout, OfferGpus, WithdrawLayouts}


def test_each_run_has_nodes_whose_gpus_are_offered_and_a_fault_of_their_agents() -> None:
    for seed in MANY:
        made = made_devices.slices_scenario(seed)
        assert made.sliced
        assert {fault.kind for fault in made.faults} & OF_PARTITIONING
        offered = {node.name for node in made.nodes if node.labels.get(names.NODE_MIG) == names.MIG_DYNAMIC}
        assert offered == {each.node for each in made.sliced}
        assert made.world.scheduler.partitioning is not None
    nodes = [each for seed in MANY for each in made_devices.slices_scenario(seed).sliced]
    assert {each.is_idle for each in nodes} == {each.keeps_uuids for each in nodes} == {True, False}


def test_runs_reach_what_is_beside_slices_evictions_that_are_struck_and_shares_that_ask_for_nodes() -> None:
    made = [made_devices.slices_scenario(seed) for seed in MANY]
    assert all({fault.kind for fault in each.faults} & OF_PREEMPTION for each in made if each.settings.preemption)
    with_shares = [each for each in made if any(node.cards_mib for node in each.nodes) and each.settings.autoscaling]
    pods = [action for each in with_shares for action in each.actions if isinstance(action, CreatePod)]
    assert {names.GPU_FRACTION} <= {key for pod in pods for key in pod.annotations}
    assert any(fault.kind == "slow-starts" for each in made for fault in each.faults)
