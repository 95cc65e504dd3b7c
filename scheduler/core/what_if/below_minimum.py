"""A gang that runs below its minimum: since when, and how much of its grace time is left (decide/stale_gangs.py).

The scheduler that decides knows that itself. A command that has read the cluster once goes by what the scheduler wrote
on the PodGroup (kai-contract 4.7), and takes its grace time for the usual one where the PodGroup names none.
"""

from __future__ import annotations

from typing import Final

import msgspec

from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.model.records import PodGroupRecord
from scheduler.core.model.stale import Stale
from scheduler.core.model.verdict import SubgroupShort
from wire.rfc3339 import parse_ns

_S: Final = 1_000_000_000


class BelowMinimum(msgspec.Struct, frozen=True, kw_only=True):
    """Times are in seconds since the epoch. ``until_s`` None: it may run so for ever.

    ``left_s``: until then, rounded up; 0: its time is over. ``bound``: members with a node. ``short``: the subgroup
    that lacks members, if one does. ``is_going``: its pods are being evicted. ``assumed_grace_s``: the grace time that
    was taken for the scheduler's; 0: it is known.
    """

    bound: int
    minimum: int
    since_s: int
    left_s: int
    until_s: int | None
    short: SubgroupShort | None = None
    is_going: bool = False
    assumed_grace_s: int = 0


def below_minimum(snapshot: Snapshot, group: PodGroupRecord | None, *, now_ns: int, wall_s: int) -> BelowMinimum | None:
    """Return how a gang stands that is below its minimum; None for another one, and where nobody knows since when."""
    if group is None or group.blocker is not None:
        return None
    facts, state = snapshot.stale, snapshot.quorum(group)
    known = facts.gangs.get((group.namespace, group.name))
    if known is None:
        since_ns = parse_ns(group.stale_since)
        # By the wall clock, so that now is that, too.
        gang, now_ns = Stale(since_ns=since_ns or 0), wall_s * _S
    else:
        gang, since_ns = known, known.since_ns
    if not state.is_broken or since_ns is None:
        return None
    over_ns = facts.over_ns(gang, group.stale_ns)
    left_s = 0 if over_ns is None else max(0, -((now_ns - over_ns) // _S))
    is_assumed = known is None and group.stale_ns is None
    return BelowMinimum(
        bound=state.bound,
        minimum=state.minimum,
        since_s=wall_s - max(0, now_ns - since_ns) // _S,
        left_s=left_s,
        until_s=None if over_ns is None else wall_s - (now_ns - over_ns) // _S,
        short=state.short(),
        is_going=gang.is_going,
        assumed_grace_s=facts.grace_ns // _S if is_assumed else 0,
    )
