"""Random mixes of faults: most runs have a few kinds, some have everything at once.

A run with one kind of trouble shows what that kind does; a run with all of them shows what nobody thought of. Times are
such that troubles meet the work: most begin within the first minute, while pods arrive.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from simulator.hostile.faults import clocks, requests, watches
from simulator.hostile.faults.kinds import KINDS, Fault
from simulator.shape import NodeShape

#: Users on the API server other than the components that may be struck (simulator/world.py).
_BYSTANDERS: Final = ("", "system:nodes", "reservation", "admission")
_PLURALS: Final = ("", "pods", "nodes", "bindrequests", "podgroups")


@dataclass(frozen=True, slots=True)
class Scene:
    """What faults may strike, and when: the first ``duration_s`` seconds."""

    nodes: Sequence[NodeShape]
    schedulers: Sequence[str]
    binders: Sequence[str]
    duration_s: float

    @property
    def components(self) -> tuple[str, ...]:
        """Names of all components."""
        return (*self.schedulers, *self.binders)


Maker = Callable[[random.Random, Scene], Fault]


def draw(
    rng: random.Random,
    nodes: Sequence[NodeShape],
    *,
    kinds: Collection[str] | None = None,
    schedulers: int = 1,
    binders: int = 1,
    duration_s: float = 120.0,
) -> tuple[Fault, ...]:
    """Draw the faults of a run, by time. ``kinds``: those that may occur (None: all; empty: none).

    Raises ValueError for a kind that is not known.
    """
    allowed = _allowed(kinds)
    if not allowed:
        return ()
    scene = Scene(nodes, _names("scheduler", schedulers), _names("binder", binders), duration_s)
    chosen = _chosen(rng, allowed)
    drawn = [MAKERS[kind](rng, scene) for kind in chosen for _ in range(rng.choice((1, 1, 1, 2, 3)))]
    return tuple(sorted(drawn, key=lambda fault: fault.at_s))


def _allowed(kinds: Collection[str] | None) -> list[str]:
    unknown = sorted(set(kinds or ()) - set(KINDS))
    if unknown:
        raise ValueError(f"faults {', '.join(unknown)}: not known; allowed: {', '.join(sorted(KINDS))}")
    return sorted(KINDS if kinds is None else kinds)


def _chosen(rng: random.Random, allowed: list[str]) -> list[str]:
    """Four runs in five have one to three kinds; the others a third of all, or all."""
    few = rng.randrange(1, 4)
    count = rng.choice((few, few, few, few, few, few, few, few, len(allowed) // 3 + 1, len(allowed)))
    return sorted(rng.sample(allowed, min(count, len(allowed))))


def _names(role: str, count: int) -> tuple[str, ...]:
    return (role, *(f"{role}-{number}" for number in range(1, count)))


# --- one kind each ---------------------------------------------------------------------------------------------------


def _at_s(rng: random.Random, scene: Scene) -> float:
    """Mostly early: most of the work arrives then."""
    return round(rng.uniform(0.0, scene.duration_s) * rng.choice((0.1, 0.5, 1.0)), 3)


def _for_s(rng: random.Random, least_s: float, most_s: float) -> float:
    return round(rng.uniform(least_s, most_s), 3)


def _user(rng: random.Random, scene: Scene) -> str:
    return rng.choice((*scene.components, *scene.components, *_BYSTANDERS))


def _seed(rng: random.Random) -> int:
    return rng.randrange(1_000_000)


def _per_mille(rng: random.Random) -> int:
    return rng.choice((20, 100, 300, 1000))


def _watch_delayed(rng: random.Random, scene: Scene) -> Fault:
    return watches.WatchDelayed(
        at_s=_at_s(rng, scene),
        for_s=_for_s(rng, 5, 120),
        user=_user(rng, scene),
        plural=rng.choice(_PLURALS),
        most_s=rng.choice((0.2, 2.0, 20.0)),
        seed=_seed(rng),
    )


def _watch_held(rng: random.Random, scene: Scene) -> Fault:
    return watches.WatchHeld(
        at_s=_at_s(rng, scene),
        for_s=_for_s(rng, 1, 60),
        user=_user(rng, scene),
        plural=rng.choice(_PLURALS[1:]),
    )


def _cache_old(rng: random.Random, scene: Scene) -> Fault:
    return watches.CacheOld(at_s=_at_s(rng, scene), for_s=_for_s(rng, 120, 400), user=rng.choice(scene.components))


def _watch_repeated(rng: random.Random, scene: Scene) -> Fault:
    return watches.WatchRepeated(
        at_s=_at_s(rng, scene),
        for_s=_for_s(rng, 5, 120),
        user=_user(rng, scene),
        plural=rng.choice(_PLURALS),
        per_mille=_per_mille(rng),
        seed=_seed(rng),
        lines=rng.choice((1, 1, 2, 3)),
    )


def _watch_cut(rng: random.Random, scene: Scene) -> Fault:
    return watches.WatchCut(
        at_s=_at_s(rng, scene),
        for_s=_for_s(rng, 1, 60),
        user=_user(rng, scene),
        plural=rng.choice(_PLURALS),
        every_s=rng.choice((0.5, 5.0, 30.0)),
        late_s=rng.choice((0.0, 0.1, 1.0)),
    )


def _watch_expired(rng: random.Random, scene: Scene) -> Fault:
    return watches.WatchExpired(
        at_s=_at_s(rng, scene),
        for_s=_for_s(rng, 0.1, 30),
        user=_user(rng, scene),
        plural=rng.choice(_PLURALS),
    )


def _conflict(rng: random.Random, scene: Scene) -> Fault:
    return requests.Conflicts(**_request(rng, scene, 60))


def _expired(rng: random.Random, scene: Scene) -> Fault:
    return requests.Expired(**_request(rng, scene, 60))


def _throttled(rng: random.Random, scene: Scene) -> Fault:
    return requests.Throttled(**_request(rng, scene, 30), retry_after_s=rng.choice((1, 1, 5)))


def _server_error(rng: random.Random, scene: Scene) -> Fault:
    return requests.ServerErrors(**_request(rng, scene, 30), done_per_mille=rng.choice((0, 500, 1000)))


def _time_out(rng: random.Random, scene: Scene) -> Fault:
    return requests.TimeOuts(**_request(rng, scene, 60), **_outcome(rng))


def _reset(rng: random.Random, scene: Scene) -> Fault:
    return requests.Resets(**_request(rng, scene, 60), **_outcome(rng))


def _slow(rng: random.Random, scene: Scene) -> Fault:
    there_s, back_s = rng.choice(((0.5, 0.0), (2.0, 2.0), (0.0, 9.0), (9.0, 0.0)))
    return requests.Slow(**_request(rng, scene, 60), there_s=there_s, back_s=back_s)


def _clock_jump(rng: random.Random, scene: Scene) -> Fault:
    return clocks.ClockJump(
        at_s=_at_s(rng, scene),
        for_s=_for_s(rng, 10, 300),
        component=rng.choice(scene.components),
        by_s=rng.choice((-86_400.0, -90.0, -5.0, 5.0, 90.0, 86_400.0)),
    )


def _request(rng: random.Random, scene: Scene, most_s: float) -> dict[str, object]:
    """What all faults of requests have."""
    return {
        "at_s": _at_s(rng, scene),
        "for_s": _for_s(rng, 0.5, most_s),
        "user": _user(rng, scene),
        "plural": rng.choice(("", "", *_PLURALS[1:])),
        "per_mille": _per_mille(rng),
        "seed": _seed(rng),
    }


def _outcome(rng: random.Random) -> dict[str, object]:
    """What became of a request that was not answered."""
    outcome = rng.choice(("done", "not-done", "later", "later"))
    return {"outcome": outcome, "later_s": rng.choice((0.2, 3.0, 15.0)) if outcome == "later" else 0.0}


MAKERS: Final[Mapping[str, Maker]] = {
    "cache-old": _cache_old,
    "clock-jump": _clock_jump,
    "conflict": _conflict,
    "expired": _expired,
    "reset": _reset,
    "server-error": _server_error,
    "slow": _slow,
    "throttled": _throttled,
    "time-out": _time_out,
    "watch-cut": _watch_cut,
    "watch-delayed": _watch_delayed,
    "watch-expired": _watch_expired,
    "watch-held": _watch_held,
    "watch-repeated": _watch_repeated,
}
