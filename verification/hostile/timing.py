"""How long everybody waits: random values of the timers of scheduler, binder, leases and kubelets.

The invariants may not rest on any of them, and an administrator may set each. What can't be set is not
drawn: time-outs of requests, back-offs of retries and watches.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import Any, Final

import msgspec

from binder.settings import BinderSettings
from kube.lead.lease import LeaseSettings
from scheduler.settings import SchedulerSettings
from simulator.nodes.shape import KubeletSettings

_FACTORS: Final = (0.1, 0.5, 1.0, 1.0, 2.0, 4.0)
#: Of a lease the times hold each other in a certain order, so all of them are scaled by one factor.
_LEASE_FACTORS: Final = (0.5, 1.0, 1.0, 2.0)
#: Drawn elsewhere (scenario.py), or what would be waited for too long.
_KUBELET: Final = ("sandbox_s", "start_s", "init_run_s", "config_retry_s", "write_retry_s")


class Timers(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Seconds by the name of the setting; what is not named is as by default. ``lease``: a factor of its times."""

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
