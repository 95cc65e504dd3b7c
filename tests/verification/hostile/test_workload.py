"""Random mixes of what users do, with gangs that have sub-groups, and pods in the words of other systems."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from gpu.dialects.settings import DialectSettings
from gpu.translate import combine
from gpu.translation import Refusal
from simulator.checks.gangs import Minimums
from simulator.nodes import shape
from verification.hostile import device_actions, queue_actions, tenant_actions, workload
from verification.hostile import queue_actions as pool_actions
from verification.hostile import workload as mischief
from verification.hostile.actions import Action, CreatePod, CreatePodGroup, Part
from wire import names
from wire.core import Pod

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


def drawn_in_words(seed: int) -> tuple[Action, ...]:
    return workload.draw(random.Random(seed), shapes=SHAPES, duration_s=20.0)


def respoken(seed: int) -> tuple[Action, ...]:
    return workload.respoken(random.Random(seed), drawn_in_words(seed), shapes=SHAPES)


def changed(seed: int) -> list[CreatePod]:
    pairs = zip(drawn_in_words(seed), respoken(seed), strict=True)
    return [after for before, after in pairs if before != after and isinstance(after, CreatePod)]


def test_every_system_comes_up_and_no_word_is_wrong() -> None:
    """Also with several containers, and with shares that may be placed in more than one way."""
    spoken, alternatives, asking = set(), 0, 0
    for seed in MANY:
        for pod in changed(seed):
            found = combine.translate(msgspec.convert(pod.manifest, Pod), DialectSettings())
            assert not isinstance(found, Refusal), found
            spoken.add(found.dialect)
            alternatives += bool(found.alternatives)
            asking += len(found.request.containers) > 1
    names = {"aliyun", "metagpu", "clearml", "hami", "volcano", "volcano-share", "koordinator", "nvfractions"}
    assert spoken == names
    assert alternatives > 20
    assert asking > 50


def test_gangs_and_pods_that_ask_for_no_share_stay_as_they_are() -> None:
    assert not any(pod.group or pod.node or pod.gpus for seed in MANY for pod in changed(seed))


MANY_TREES = range(400)


def drawn_tree(number: int, minimum: int = 3) -> tuple[workload.Tree, Minimums]:
    tree = workload.nested(f"g-{number}", minimum)
    parts = [part.manifest for part in tree.parts]
    return tree, Minimums({"subGroups": parts, "minSubGroup": tree.least})


def test_most_gangs_have_none_and_of_the_others_most_can_be_whole() -> None:
    trees = [drawn_tree(number) for number in MANY_TREES]
    nested = [(tree, needs) for tree, needs in trees if tree.parts]
    assert 0.2 * len(MANY_TREES) < len(nested) < 0.6 * len(MANY_TREES)
    clear = [needs for _, needs in nested if needs.is_clear]
    assert len(clear) > len(nested) / 2
    assert {True, False} == {needs.is_clear for _, needs in nested}


@pytest.mark.parametrize(
    ("part", "manifest"),
    [
        (Part(name="a", pods=0), {"name": "a", "minMember": 0}),
        (Part(name="a", parent="b", parts=2), {"name": "a", "parent": "b", "minSubGroup": 2}),
        (Part(name="a"), {"name": "a"}),
    ],
)
def test_a_sub_group_is_written_with_what_is_said_of_it(part: Part, manifest: dict[str, Any]) -> None:
    assert part.manifest == manifest
