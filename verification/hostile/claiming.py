"""ResourceClaims and unbound volumes in a part of the runs: devices, templates, claims, and pods and gangs with them.

Drawn behind the workload and from a source of its own, so that runs without them stay what they were. Devices are few
beside the pods, so that some wait, and claims are shared, deleted and made again while they are in use.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from simulator.nodes.shape import NodeShape
from verification.hostile.actions import Action, CreatePod
from verification.hostile.device_actions import (
    ANY_CLASS,
    BIG_CLASS,
    FAST_CLASS,
    SLOW_CLASS,
    CreateClaimTemplate,
    CreateDeviceClasses,
    CreateResourceClaim,
    CreateStorageClasses,
    CreateVolume,
    CreateVolumeClaim,
    DeleteResourceClaim,
    DeleteVolumeClaim,
    Offered,
    PublishDevices,
    Want,
    WithdrawDevices,
)
from wire import names

#: The percentage of runs with claims.
_RUNS: Final = 10
#: Of a thousand pods that may have claims, and the largest share of pods with volumes.
_CLAIMING: Final = (0.3, 0.6, 0.9)
_MOUNTING: Final = (0.0, 0.2, 0.5)
#: Of gangs with claims from templates.
_SHARING: Final = 0.3
_WANTS: Final[tuple[tuple[Want, ...], ...]] = (
    *((Want(),) for _ in range(4)),
    (Want(count=2),),
    (Want(count=0),),
    (Want(cls=BIG_CLASS),),
    (Want(cls=BIG_CLASS), Want()),
    (Want(cls=BIG_CLASS, otherwise=ANY_CLASS),),
    (Want(tolerates=True),),
    *((Want(part_gib=gib),) for gib in (4, 10, 16)),
)


@dataclass(frozen=True, slots=True)
class _Names:
    """What pods may name."""

    templates: Sequence[str]
    claims: Sequence[str]


def claimed(
    rng: random.Random, actions: Sequence[Action], *, shapes: Sequence[NodeShape], duration_s: float, always: bool
) -> tuple[Action, ...]:
    """Give some of the pods claims; in most runs there are none, and all stays as it is. ``always``: in this one."""
    if rng.randrange(100) >= _RUNS and not always:
        return tuple(actions)
    nodes = [shape.name for shape in shapes]
    made: list[Action] = [CreateDeviceClasses(at_s=0.0), CreateStorageClasses(at_s=0.0)]
    made += _devices(rng, nodes, duration_s)
    named = _Names([f"t-{number}" for number in range(4)], [f"c-{number}" for number in range(rng.randrange(1, 5))])
    made += [CreateClaimTemplate(at_s=0.0, name=name, wants=rng.choice(_WANTS)) for name in named.templates]
    for name in named.claims:
        at_s = 0.0 if rng.random() < 0.7 else _moment(rng, duration_s)
        made.append(CreateResourceClaim(at_s=at_s, name=name, wants=rng.choice(_WANTS)))
    made += _pods(rng, actions, named, nodes)
    made += _mischief(rng, named.claims, duration_s)
    made = [*_sharing(rng, made)]
    return tuple(sorted(made, key=lambda action: action.at_s))


def has_claims(actions: Collection[Action]) -> bool:
    """Whether users have claims."""
    return any(isinstance(action, CreateDeviceClasses) for action in actions)


def _moment(rng: random.Random, duration_s: float) -> float:
    return round(rng.uniform(0.0, duration_s), 3)


def _devices(rng: random.Random, nodes: Sequence[str], duration_s: float) -> Iterator[Action]:
    """Devices of most nodes, some of which their drivers publish again, withdraw, or publish late."""
    few = rng.sample(list(nodes), min(len(nodes), 4))
    for node in few:
        if rng.random() < 0.15:
            continue
        offered = tuple(_offered(rng, number) for number in range(rng.choice((1, 2, 2, 3, 5))))
        at_s = 0.0 if rng.random() < 0.8 else _moment(rng, duration_s)
        yield PublishDevices(at_s=at_s, node=node, devices=offered, slices=rng.choice((1, 1, 2)))
        if rng.random() < 0.3:
            again = tuple(_offered(rng, number) for number in range(rng.choice((0, 1, 2, 3))))
            later_s = at_s + _moment(rng, duration_s)
            yield PublishDevices(at_s=later_s, node=node, devices=again, generation=2)
        elif rng.random() < 0.15:
            yield WithdrawDevices(at_s=at_s + _moment(rng, duration_s), node=node)


def _offered(rng: random.Random, number: int) -> Offered:
    return Offered(
        name=f"d{number}",
        is_big=rng.random() < 0.4,
        is_tainted=rng.random() < 0.1,
        shared_gib=rng.choice((0, 0, 0, 16, 24)),
    )


def _pods(rng: random.Random, actions: Sequence[Action], named: _Names, nodes: Sequence[str]) -> Iterator[Action]:
    """The same pods, some with claims. All members of a gang have the same, or each draws its own."""
    claiming, mounting = rng.choice(_CLAIMING), rng.choice(_MOUNTING)
    of_gang: dict[str, CreatePod] = {}
    for action in actions:
        if not isinstance(action, CreatePod) or action.node or action.scheduler != names.SCHEDULER_NAME:
            yield action
            continue
        if action.group in of_gang and rng.random() < 0.8:
            pattern = of_gang[action.group]
            pod = msgspec.structs.replace(action, claims=pattern.claims, templates=pattern.templates)
        else:
            pod = _with_claims(rng, action, named) if rng.random() < claiming else action
        if action.group:
            of_gang[action.group] = pod
        if rng.random() < mounting:
            volumes = [*_volumes(rng, pod, nodes)]
            yield from volumes
            mounted = tuple(each.name for each in volumes if isinstance(each, CreateVolumeClaim))
            pod = msgspec.structs.replace(pod, volumes=mounted or pod.volumes)
            if rng.random() < 0.1:
                yield DeleteVolumeClaim(at_s=round(pod.at_s + rng.choice((0.1, 2.0, 30.0)), 3), name=mounted[0])
        yield pod


def _with_claims(rng: random.Random, pod: CreatePod, named: _Names) -> CreatePod:
    """One or two claims, by name or from templates; mostly without GPUs of the device plugin."""
    if pod.gpus and rng.random() < 0.5:
        pod = msgspec.structs.replace(pod, gpus=0)
    if rng.random() < 0.35:
        return msgspec.structs.replace(pod, claims=(rng.choice(named.claims),))
    count = rng.choice((1, 1, 1, 2))
    return msgspec.structs.replace(pod, templates=tuple(rng.choice(named.templates) for _ in range(count)))


def _volumes(rng: random.Random, pod: CreatePod, nodes: Sequence[str]) -> Iterator[Action]:
    """A claim of a volume, and where none is provisioned a volume or two that it may have."""
    name, cls = f"v-{pod.name}-{round(pod.at_s * 1000)}", rng.choice((FAST_CLASS, FAST_CLASS, SLOW_CLASS))
    yield CreateVolumeClaim(at_s=pod.at_s, name=name, cls=cls)
    for number in range(rng.choice((1, 1, 2)) if cls == SLOW_CLASS else 0):
        yield CreateVolume(at_s=pod.at_s, name=f"{name}-{number}", node=rng.choice(nodes))


def _sharing(rng: random.Random, actions: Sequence[Action]) -> Iterator[Action]:
    """The same, but that pods of some gangs share one claim, which is made for their PodGroup of Kubernetes."""
    first: dict[str, float] = {}
    for each in actions:
        if isinstance(each, CreatePod) and each.group and each.templates and not each.claims:
            first[each.group] = min(each.at_s, first.get(each.group, each.at_s))
    chosen = {group: at_s for group, at_s in first.items() if rng.random() < _SHARING}
    for group, at_s in chosen.items():
        wants = rng.choice(_WANTS)
        yield CreateResourceClaim(at_s=at_s, name=f"of-{group}", wants=wants, pod_group=group)
    for each in actions:
        if isinstance(each, CreatePod) and each.group in chosen:
            yield msgspec.structs.replace(each, workload_group=each.group)
        else:
            yield each


def _mischief(rng: random.Random, claims: Sequence[str], duration_s: float) -> Iterator[Action]:
    """Claims that are deleted while pods use them, and most of the time made again under their names."""
    for _ in range(rng.choice((0, 0, 1, 2))):
        name, at_s = rng.choice(claims), _moment(rng, duration_s)
        yield DeleteResourceClaim(at_s=at_s, name=name)
        if rng.random() < 0.7:
            later_s = round(at_s + rng.choice((0.0, 0.5, 10.0)), 3)
            yield CreateResourceClaim(at_s=later_s, name=name, wants=rng.choice(_WANTS))
