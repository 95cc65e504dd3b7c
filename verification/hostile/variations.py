"""What a part of the runs has beside its users: timers, pods that keep apart, long grace periods, claims and volumes.

Drawn behind the workload and from sources of their own, so that runs without any stay what they were. Devices of claims
are few beside the pods, so that some wait, and claims are shared, deleted and made again while they are in use.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from binder.settings import BinderSettings
from kube.lead.lease import LeaseSettings
from scheduler.settings import SchedulerSettings
from simulator.nodes.shape import KubeletSettings, NodeShape
from verification.hostile.actions import APART, Action, CreatePod, DeletePod
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

#: Parts of the runs that have such pods, of the pods alone that are of a kind, and of these that name the rule.
_RUNS: Final = 0.1
_OF_A_KIND: Final = 0.6
_NAME_IT: Final = 0.5
_KINDS: Final = ("a", "a", "b")


def kept_apart(rng: random.Random, actions: Sequence[Action]) -> tuple[Action, ...]:
    """Have pods keep apart in a tenth of the runs: one of each kind on a node, by required anti-affinity.

    Half of a kind name the rule, and the others only have its label, so that the rules of pods that run keep them off,
    too.
    """
    return spread_out(rng, actions) if rng.random() < _RUNS else tuple(actions)


def spread_out(rng: random.Random, actions: Sequence[Action]) -> tuple[Action, ...]:
    """Give pods alone a kind; pods of one name, that of the first."""
    kinds: dict[str, tuple[str, bool]] = {}
    return tuple(_of_kind(rng, action, kinds) if isinstance(action, CreatePod) else action for action in actions)


def _of_kind(rng: random.Random, pod: CreatePod, kinds: dict[str, tuple[str, bool]]) -> CreatePod:
    if pod.group:
        return pod
    if pod.name not in kinds:
        kinds[pod.name] = (rng.choice(_KINDS) if rng.random() < _OF_A_KIND else "", rng.random() < _NAME_IT)
    kind, names_it = kinds[pod.name]
    if not kind:
        return pod
    return msgspec.structs.replace(pod, labels={**pod.labels, APART: kind}, apart=kind if names_it else "")


#: How long containers take to end in such runs, if their grace period allows.
STOPS_S: Final = (20.0, 30.0, 100.0)
_GRACES_S: Final = (None, 30, 30, 60, 120)
#: Graces of users that do not want to wait any longer.
_SHORT_S: Final = (0, 0, 1, 10)


def stretched(rng: random.Random, actions: Sequence[Action]) -> tuple[Action, ...]:
    """Give pods long graces where they have none of their own, and delete half of those that end a second time.

    A container takes as long as its grace period allows, so what it holds is in use long after its pod was deleted.
    Deleting it again with less grace cuts that short, on the machine too, where that hears of it; doing so by force (0)
    takes the pod off the API server at once.
    """
    changed = [_with_grace(rng, action) for action in actions]
    return tuple(sorted((*changed, *_hurried(rng, actions)), key=lambda action: action.at_s))


def _with_grace(rng: random.Random, action: Action) -> Action:
    if isinstance(action, CreatePod) and action.grace_s is None:
        return msgspec.structs.replace(action, grace_s=rng.choice(_GRACES_S))
    return action


def _hurried(rng: random.Random, actions: Sequence[Action]) -> Iterator[DeletePod]:
    for action in actions:
        if isinstance(action, DeletePod) and action.grace_s is None and rng.random() < 0.5:
            at_s = round(action.at_s + rng.choice((0.1, 1.0, 10.0, 40.0)) * (1 + rng.random()), 3)
            yield msgspec.structs.replace(action, at_s=at_s, grace_s=rng.choice(_SHORT_S))


_FACTORS: Final = (0.1, 0.5, 1.0, 1.0, 2.0, 4.0)
#: Of a lease the times hold each other in a certain order, so all of them are scaled by one factor.
_LEASE_FACTORS: Final = (0.5, 1.0, 1.0, 2.0)
#: Drawn elsewhere (scenario.py), or what would be waited for too long.
_KUBELET: Final = ("sandbox_s", "start_s", "init_run_s", "config_retry_s", "write_retry_s")


class Timers(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How long everybody waits: seconds by the name of the setting; what is not named is as by default.

    The invariants may not rest on any of them, and an administrator may set each. What can't be set is not drawn:
    time-outs of requests, back-offs of retries and watches. ``lease``: a factor of its times.
    """

    scheduler: dict[str, float] = {}
    binder: dict[str, float] = {}
    kubelet: dict[str, float] = {}
    lease: float = 1.0

    def leases(self, ordinary: LeaseSettings) -> LeaseSettings:
        """The times of a lease."""
        return LeaseSettings(
            duration_s=round(ordinary.duration_s * self.lease),
            renew_deadline_s=ordinary.renew_deadline_s * self.lease,
            retry_s=ordinary.retry_s * self.lease,
            poll_s=ordinary.poll_s * self.lease,
        )

    @property
    def longest_factor(self) -> float:
        """By how much the longest wait of the protocol is longer than by default; 1 if none is."""
        ordinary = {**_of(SchedulerSettings()), **_of(BinderSettings())}
        return max((1.0, *(value / ordinary[name] for name, value in {**self.scheduler, **self.binder}.items())))


def draw(rng: random.Random) -> Timers:
    """Draw all timers, each from a tenth to four times its default."""
    return Timers(
        scheduler=_drawn(rng, SchedulerSettings()),
        binder=_drawn(rng, BinderSettings()),
        kubelet=_drawn(rng, KubeletSettings(), only=_KUBELET),
        lease=rng.choice(_LEASE_FACTORS),
    )


def _drawn(rng: random.Random, ordinary: msgspec.Struct, *, only: Collection[str] = ()) -> dict[str, float]:
    chosen = {name: value for name, value in _of(ordinary).items() if not only or name in only}
    return {name: round(value * rng.choice(_FACTORS), 6) for name, value in chosen.items()}


def _of(settings: msgspec.Struct) -> dict[str, float]:
    """The times of a struct of settings, by name."""
    values: dict[str, Any] = msgspec.structs.asdict(settings)
    return {name: value for name, value in values.items() if name.endswith("_s") and isinstance(value, float)}


#: The percentage of runs with claims.
_CLAIMS_PERCENT: Final = 10
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
    if rng.randrange(100) >= _CLAIMS_PERCENT and not always:
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
