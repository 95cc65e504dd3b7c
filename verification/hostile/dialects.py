"""Pods in the words of other systems, in a part of the runs: some of what users ask as KAI's is asked in other words.

Drawn behind the workload and from a source of its own, so that runs without any stay what they were. Only forms are
used that every cluster understands without settings; what they mean is docs/reference/dialects.md's.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from simulator.nodes.shape import NodeShape
from verification.hostile.actions import MAIN, Action, CreatePod
from wire import names

#: The percentage of runs whose pods use other systems' words.
_RUNS: Final = 35
#: Of a pod's words, what another system's words stand in for.
_KAIS: Final = (
    names.GPU_FRACTION,
    names.GPU_MEMORY,
    names.GPU_FRACTION_NUM_DEVICES,
    names.GPU_FRACTION_CONTAINER_NAME,
)
_ASIDE: Final = "aside"
_ALIYUN: Final = "aliyun.com/gpu-mem"
_METAGPU: Final = "cnvrg.io/metagpu"
_CLEARML: Final = "clearml-injector/fraction"

Limits = Mapping[str, str]
Words = tuple[Limits, Mapping[str, str], Mapping[str, str]]
"""Limits of one container; labels and annotations of the pod."""
Form = Callable[[random.Random, int], Words]
"""Draws the words of one system, given the memory of a card."""


def respoken(rng: random.Random, actions: Sequence[Action], *, shapes: Sequence[NodeShape]) -> tuple[Action, ...]:
    """Say some of the pods in other words; in most runs none."""
    if rng.randrange(100) >= _RUNS:
        return tuple(actions)
    return said_otherwise(rng, actions, shapes=shapes, share=rng.choice((0.3, 0.6, 0.9)), forms=FORMS)


def said_otherwise(
    rng: random.Random,
    actions: Sequence[Action],
    *,
    shapes: Sequence[NodeShape],
    share: float,
    forms: Sequence[Form],
) -> tuple[Action, ...]:
    """Say this share of the pods that can be in one of the forms; amounts are for the smallest of all cards."""
    smallest_mib = min((card for shape in shapes for card in shape.cards_mib), default=1024)
    return tuple(
        _said(rng, action, smallest_mib, forms) if _may_be(action) and rng.random() < share else action
        for action in actions
    )


def _may_be(action: Action) -> bool:
    """Whether this is a pod that asks for parts of devices, rightly or not; gangs stay as they are."""
    return (
        isinstance(action, CreatePod)
        and bool(action.annotations.keys() & set(_KAIS))
        and not action.group
        and not action.node
        and not action.gpus
    )


def _said(rng: random.Random, action: Action, card_mib: int, forms: Sequence[Form]) -> Action:
    """The same pod, asking something in other words: in one container, or as many as it has, or a second one."""
    if not isinstance(action, CreatePod):
        return action
    form = rng.choice(forms)
    limits, labels, annotations = form(rng, card_mib)
    kept = {key: value for key, value in action.annotations.items() if key not in _KAIS}
    containers = action.containers if not limits or rng.random() < 0.5 else (MAIN, _ASIDE)
    asking = [*containers, *action.init_containers] if limits and rng.random() < 0.6 else [MAIN]
    return msgspec.structs.replace(
        action,
        containers=containers,
        limits={name: dict(limits) for name in asking} if limits else {},
        labels={**action.labels, **labels},
        annotations={**kept, **annotations},
    )


def _mib(rng: random.Random, card_mib: int) -> int:
    return max(1, rng.choice((card_mib // 2, card_mib // 3, card_mib // 5, card_mib // 7 + 1, card_mib // 10)))


def _aliyun(rng: random.Random, card_mib: int) -> Words:
    return {_ALIYUN: str(max(1, _mib(rng, card_mib) // 1024))}, {}, {}


def _metagpu(rng: random.Random, _card_mib: int) -> Words:
    return {_METAGPU: str(rng.choice((10, 25, 30, 50, 70, 120, 150)))}, {}, {}


def _clearml(rng: random.Random, _card_mib: int) -> Words:
    return {}, {_CLEARML: rng.choice(("0.5", "0.25", "0.125", "0.0625", "0.750"))}, {}


def _hami(rng: random.Random, card_mib: int) -> Words:
    limits = {names.HAMI_MEMORY: str(_mib(rng, card_mib))}
    if rng.random() < 0.3:
        limits[names.GPU_RESOURCE] = "2"
    if rng.random() < 0.4:
        limits[names.HAMI_CORES] = rng.choice(("10", "50", "90"))
    policy = {names.HAMI_GPU_POLICY: "spread"} if rng.random() < 0.3 else {}
    return limits, {}, policy


def _volcano(rng: random.Random, card_mib: int) -> Words:
    if rng.random() < 0.3:
        return {names.VOLCANO_SHARE_MEMORY: str(_mib(rng, card_mib))}, {}, {}
    by_memory = {names.VOLCANO_MEMORY: str(_mib(rng, card_mib))}
    by_percent = {names.VOLCANO_NUMBER: "1", names.VOLCANO_MEMORY_PERCENTAGE: rng.choice(("10", "33", "50"))}
    return rng.choice((by_memory, by_percent)), {}, {}


def _koordinator(rng: random.Random, _card_mib: int) -> Words:
    isolated = {names.KOORDINATOR_ISOLATION: "HAMi-core"} if rng.random() < 0.5 else {}
    return {names.KOORDINATOR_GPU: rng.choice(("10", "25", "33"))}, isolated, {}


def _nvfractions(rng: random.Random, card_mib: int) -> Words:
    prefix = names.NVFRACTIONS_PREFIX + MAIN
    mib = _mib(rng, card_mib)
    annotations = {prefix + names.NVFRACTIONS_REQUEST: f"{mib}Mi"}
    if rng.random() < 0.4:
        annotations[prefix + names.NVFRACTIONS_LIMIT] = f"{mib + 100}Mi"
    if rng.random() < 0.5:
        annotations[prefix + names.NVFRACTIONS_MODE] = rng.choice(("time-slicing", "sm-sharing"))
    return {}, {}, annotations


#: Those that every cluster understands without settings.
FORMS: Final[tuple[Form, ...]] = (
    _aliyun, _metagpu, _clearml, _hami, _volcano, _koordinator, _nvfractions,
)  # fmt: skip
