"""Decides on a cluster, and carries out what is decided, until nothing changes any more.

Decisions are the live scheduler's: the same ``Cluster`` and ``decide``. The clock stands until nothing is left to do.
Then it is put forward to when the scheduler would decide again: for a gang below its minimum, say, whose grace time is
over. It is not put forward by more than five minutes in all, and no pod ends in these. So a pod that begins to wait
does not get nodes of its own, which the scheduler keeps for pods after ten minutes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from scheduler.core.decide.allowance import Limits
from scheduler.core.model.stale import Stale
from simulator.settling.shell import Shell

#: The clock is put forward by so much at most.
LONGEST_S: Final = 300
#: Decisions that are made at most: enough for some 100,000 pods.
MOST_ROUNDS: Final = 20_000
_S: Final = 1_000_000_000
#: Nothing that began before this matters: a clock that starts at 0 would have no past.
_BEGIN_NS: Final = 86_400 * _S
#: Counts in reasons are not renewed: nobody reads them while it goes on.
_LIMITS: Final = Limits(retold=0)


class Rest(msgspec.Struct, frozen=True, kw_only=True):
    """How it ended. ``is_at_rest``: nothing more was to be done; else ``rounds`` were as many as are made.

    ``passed_s``: by how much the clock was put forward.
    """

    is_at_rest: bool
    rounds: int
    passed_s: int


def settle(shell: Shell, *, most_rounds: int = MOST_ROUNDS, told: Callable[[int], None] = lambda _rounds: None) -> Rest:
    """Decide until nothing changes any more. ``told``: of each round."""
    cluster, begin_wall_s = shell.cluster, shell.wall_s
    now_ns, until_ns = _BEGIN_NS, _BEGIN_NS + LONGEST_S * _S
    for number in range(1, most_rounds + 1):
        told(number)
        shell.wall_s = begin_wall_s + (now_ns - _BEGIN_NS) // _S
        plan = cluster.decide(now_ns, _LIMITS, wall_s=shell.wall_s)
        if shell.carry_out(plan) or (plan.wake_at_ns is not None and plan.wake_at_ns <= now_ns):
            continue
        if _note_broken_gangs(shell, now_ns):
            continue
        if plan.wake_at_ns is None or plan.wake_at_ns > until_ns:
            return Rest(is_at_rest=True, rounds=number, passed_s=(now_ns - _BEGIN_NS) // _S)
        now_ns = plan.wake_at_ns
    return Rest(is_at_rest=False, rounds=most_rounds, passed_s=(now_ns - _BEGIN_NS) // _S)


def _note_broken_gangs(shell: Shell, now_ns: int) -> bool:
    """Tell the cluster which gangs are below their minimum, as the scheduler does; return whether that is news."""
    cluster = shell.cluster
    broken = {(group.namespace, group.name) for group in cluster.broken_gangs()}
    known = dict(cluster.stale.gangs)
    news = [cluster.note_stale(key, None) for key in known if key not in broken]
    news += [cluster.note_stale(key, Stale(since_ns=now_ns)) for key in sorted(broken) if key not in known]
    return any(news)
