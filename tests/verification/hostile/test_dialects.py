"""Pods of hostile runs in the words of other systems."""

from __future__ import annotations

import random

import msgspec

from gpu.dialects.settings import DialectSettings
from gpu.translate import combine
from gpu.translation import Refusal
from simulator.nodes import shape
from verification.hostile import workload
from verification.hostile.actions import Action, CreatePod
from wire.core import Pod

SHAPES = shape.parse(["2x4x80GiB", "1x1x24GiB"])
MANY = range(300)


def drawn(seed: int) -> tuple[Action, ...]:
    return workload.draw(random.Random(seed), shapes=SHAPES, duration_s=20.0)


def respoken(seed: int) -> tuple[Action, ...]:
    return workload.respoken(random.Random(seed), drawn(seed), shapes=SHAPES)


def changed(seed: int) -> list[CreatePod]:
    pairs = zip(drawn(seed), respoken(seed), strict=True)
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
