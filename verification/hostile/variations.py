"""What a part of the runs has beside its users: random timers, pods that keep apart, and long grace periods.

Drawn behind the workload and from a source of its own, so that runs without any stay what they were.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

import msgspec

from binder.settings import BinderSettings
from kube.lead.lease import LeaseSettings
from scheduler.settings import SchedulerSettings
from simulator.nodes.shape import KubeletSettings
from verification.hostile.actions import APART, Action, CreatePod, DeletePod

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
