"""Random mixes of what users do."""

from __future__ import annotations

import random

import pytest

from simulator.nodes import shape
from verification.hostile import device_actions, queue_actions, tenant_actions, workload
from verification.hostile import queue_actions as pool_actions
from verification.hostile import workload as mischief
from verification.hostile.actions import Action, CreatePod, CreatePodGroup
from wire import names

SHAPES = shape.parse(["2x4x80GiB", "1x1x24GiB"])
MANY = range(300)


def drawn(seed: int, *, size: int = 12) -> tuple[Action, ...]:
    return workload.draw(random.Random(seed), shapes=SHAPES, duration_s=20.0, size=size)


def created(actions: tuple[Action, ...]) -> list[CreatePod]:
    return [action for action in actions if isinstance(action, CreatePod)]


@pytest.mark.parametrize("seed", range(30))
def test_a_mix_is_in_the_order_of_time_and_about_as_large_as_wanted(seed: int) -> None:
    actions = drawn(seed)
    times = [action.at_s for action in actions]
    assert times == sorted(times)
    assert min(times) >= 0.0
    assert 12 <= len(created(actions)) <= 12 + 6 + 12 // 4 + 3


def test_every_kind_of_action_and_every_form_of_pod_comes_up() -> None:
    actions = [action for seed in MANY for action in drawn(seed)]
    kinds = {type(action) for action in actions}
    others = (
        device_actions,
        device_actions,
        device_actions,
        pool_actions,
        queue_actions,
        queue_actions,
        tenant_actions,
    )
    of_other_workloads = {module.__name__ for module in others}
    assert kinds == {kind for kind in Action.__args__ if kind.__module__ not in of_other_workloads}
    pods = [pod for pod in actions if isinstance(pod, CreatePod)]
    asked = {key for pod in pods for key in pod.annotations}
    wanted = {names.GPU_FRACTION, names.GPU_MEMORY, names.GPU_FRACTION_NUM_DEVICES, names.GPU_FRACTION_CONTAINER_NAME}
    assert wanted | set(mischief.FORGED_ANNOTATIONS) <= asked
    values = {(key, value) for pod in pods for key, value in pod.annotations.items()}
    assert set(mischief.MALFORMED) <= values
    for form in ("gpus", "cpu_milli", "group", "run_s", "grace_s", "node", "gated", "insist_s", "init_containers"):
        assert any(getattr(pod, form) for pod in pods), form


def test_gangs_have_members_as_many_as_they_need_more_and_fewer() -> None:
    differences = set()
    for actions in map(drawn, MANY):
        for group in actions:
            if isinstance(group, CreatePodGroup):
                members = {pod.name for pod in created(actions) if pod.group == group.name}
                differences.add(len(members) - group.minimum)
    assert {-1, 0, 1, 2} <= differences
