"""Random mixes of faults: most runs have a few kinds, some have everything at once.

A run with one kind of trouble shows what that kind does; a run with all of them shows what nobody thought of. Troubles
are to meet the work, so most begin early, while pods arrive. A fault is drawn field by field: ``_OWN`` says how for a
field of one kind, ``_COMMON`` for all others of that name.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from simulator.nodes.shape import NodeShape
from simulator.policies import AGENT
from verification.hostile.faults.kinds import KINDS, OF_AGENTS, OF_CLAIMS, OF_PARTITIONING, OF_PREEMPTION, Fault

#: Users on the API server other than the components that may be struck (simulator/world.py, replicas.py).
_BYSTANDERS: Final = ("", "system:nodes", "reservation", "admission")
#: Kinds of faults that only some runs can have.
_OF_PARTS: Final = (OF_PREEMPTION, OF_AGENTS, OF_CLAIMS, OF_PARTITIONING)
#: In how many runs of a hundred, where all kinds may occur, those do that excuse an invariant.
_EXCUSING_PERCENT: Final = 30


@dataclass(frozen=True, slots=True)
class Scene:
    """What faults may strike: machines and components by name, in the first ``duration_s`` seconds."""

    machines: Sequence[str]
    schedulers: Sequence[str]
    binders: Sequence[str]
    duration_s: float

    @property
    def components(self) -> tuple[str, ...]:
        """Names of all components."""
        return (*self.schedulers, *self.binders)


#: Draws the value of a field; it sees those that were drawn before it, ``at_s`` and ``for_s`` first.
Draw = Callable[[random.Random, Scene, Mapping[str, Any]], Any]


def draw(
    rng: random.Random,
    machines: Sequence[NodeShape],
    *,
    kinds: Collection[str] | None = None,
    schedulers: int = 1,
    binders: int = 1,
    duration_s: float = 120.0,
    about: Collection[Collection[str]] = (),
    surely: Collection[Collection[str]] = (OF_CLAIMS, OF_PARTITIONING),
) -> tuple[Fault, ...]:
    """Draw the faults of a run, by time. ``kinds``: those that may occur (None: all; empty: none).

    ``about``: which of OF_PREEMPTION, OF_AGENTS, OF_CLAIMS and OF_PARTITIONING "all" has as well, as the run has what
    they are about. Of those that are ``surely`` among them one kind at least is drawn.

    Raises ValueError for a kind that is not known.
    """
    allowed = _allowed(rng, kinds, {kind for of in _OF_PARTS if of not in about for kind in of})
    if not allowed:
        return ()
    scene = Scene(
        machines=[machine.name for machine in machines],
        schedulers=_replicas("scheduler", schedulers),
        binders=_replicas("binder", binders),
        duration_s=duration_s,
    )
    chosen = _chosen(rng, allowed)
    for of in surely:
        if of in about and kinds is None:
            few = _chosen(rng, sorted(of))[:2]
            chosen += [each for each in few if each[0] not in {kind for kind, _ in chosen}]
    drawn = [fault for kind, dice in chosen for fault in _faults(dice, scene, kind)]
    return tuple(sorted(drawn, key=lambda fault: fault.at_s))


def _allowed(rng: random.Random, kinds: Collection[str] | None, left_out: Collection[str]) -> list[str]:
    """``left_out``: kinds that are about what is not there."""
    if kinds is None:
        excusing = rng.randrange(100) < _EXCUSING_PERCENT
        return sorted(
            name for name, kind in KINDS.items() if name not in left_out and (excusing or not kind.unpromised)
        )
    unknown = sorted(set(kinds) - set(KINDS))
    if unknown:
        raise ValueError(f"faults {', '.join(unknown)}: not known; allowed: {', '.join(sorted(KINDS))}")
    return sorted(kinds)


def _chosen(rng: random.Random, allowed: Sequence[str]) -> list[tuple[str, random.Random]]:
    """Of ten runs eight have one to three kinds, one has a third of all, and one has all; each kind has its own dice.

    Those whose dice show the lowest numbers are chosen. So a kind that is added later takes the place of another one in
    a few runs, and all else stays as it is.
    """
    few, size = rng.randrange(1, 4), rng.randrange(10)
    count = few if size < 8 else len(allowed) // 3 + 1 if size == 8 else len(allowed)
    origin = rng.getrandbits(64)
    dice = {kind: random.Random(f"{origin}/{kind}") for kind in allowed}
    ranks = {kind: own.random() for kind, own in dice.items()}
    return [(kind, dice[kind]) for kind in sorted(sorted(allowed, key=ranks.__getitem__)[:count])]


def _faults(dice: random.Random, scene: Scene, kind: str) -> list[Fault]:
    return [_fault(dice, scene, kind) for _ in range(dice.choice((1, 1, 1, 2, 3)))]


def _replicas(role: str, count: int) -> tuple[str, ...]:
    """Names as simulator/replicas.py gives them."""
    return (role, *(f"{role}-{number}" for number in range(2, count + 1)))[:count]


def _fault(rng: random.Random, scene: Scene, kind: str) -> Fault:
    drawn: dict[str, Any] = {}
    for field in KINDS[kind].__struct_fields__:
        value = (_OWN.get((kind, field)) or _COMMON[field])(rng, scene, drawn)
        drawn[field] = round(value, 3) if isinstance(value, float) else value
    fault: Fault = msgspec.convert({"kind": kind, **drawn}, type=Fault)
    return fault


# --- ways to draw a value --------------------------------------------------------------------------------------------


def _one_of(*values: Any) -> Draw:
    return lambda rng, _scene, _drawn: rng.choice(values)


def _between(*spans: tuple[float, float]) -> Draw:
    """A number from one of the spans."""
    return lambda rng, _scene, _drawn: rng.uniform(*rng.choice(spans))


def _below(most: int) -> Draw:
    return lambda rng, _scene, _drawn: rng.randrange(most)


def _within(*, percent: int) -> Draw:
    """A time before the fault is over, in this percentage of faults; else None."""
    return lambda rng, _scene, drawn: drawn["for_s"] * rng.random() if rng.randrange(100) < percent else None


def _at_s(rng: random.Random, scene: Scene, _drawn: Mapping[str, Any]) -> float:
    return rng.uniform(0.0, scene.duration_s) * rng.choice((0.1, 0.5, 1.0))


def _component(rng: random.Random, scene: Scene, _drawn: Mapping[str, Any]) -> str:
    return rng.choice(scene.components)


def _role(rng: random.Random, scene: Scene, _drawn: Mapping[str, Any]) -> str:
    return rng.choice((scene.schedulers, scene.binders))[0]


def _node(rng: random.Random, scene: Scene, _drawn: Mapping[str, Any]) -> str:
    return rng.choice(scene.machines)


def _user(rng: random.Random, scene: Scene, _drawn: Mapping[str, Any]) -> str:
    return rng.choice((*scene.components, *scene.components, *_BYSTANDERS))


def _plural(rng: random.Random, _scene: Scene, drawn: Mapping[str, Any]) -> str:
    """What bystanders read and write is of one kind anyway."""
    return "" if drawn["user"] in _BYSTANDERS else rng.choice(("", "", "pods", "pods", "bindrequests", "nodes"))


def _nth(rng: random.Random, _scene: Scene, _drawn: Mapping[str, Any]) -> int:
    return rng.choice((0, 1, 1, 2, 3, rng.randrange(4, 30)))


def _plugin_s(rng: random.Random, _scene: Scene, drawn: Mapping[str, Any]) -> float:
    return rng.choice((0.0, 0.0, min(10.0, drawn["for_s"] / 2)))


def _cards_mib(rng: random.Random, _scene: Scene, _drawn: Mapping[str, Any]) -> tuple[int, ...]:
    """The cards of another machine: mostly equal ones, fewer or more, larger or smaller than those before."""
    sizes = (16 * 1024, 24 * 1024, 40 * 1024, 80 * 1024)
    size, count = rng.choice(sizes), rng.choice((1, 2, 2, 4))
    return (size,) * count if rng.random() < 0.7 else tuple(rng.choice(sizes) for _ in range(count))


def _undone_s(rng: random.Random, _scene: Scene, drawn: Mapping[str, Any]) -> float:
    """Seconds or minutes that a restore undoes; the rest of the fault is for the machines to catch up."""
    return rng.choice((rng.uniform(0.1, 2.0), rng.uniform(2.0, 15.0), drawn["for_s"] / 2))


def _scheduler(rng: random.Random, scene: Scene, _drawn: Mapping[str, Any]) -> str:
    return rng.choice(scene.schedulers)


def _scheduler_or_agent(rng: random.Random, scene: Scene, _drawn: Mapping[str, Any]) -> str:
    return rng.choice((*scene.schedulers, AGENT))


_SOON: Final = _between((0.5, 60))
_STANDSTILL: Final = _between((0.1, 2), (2, 20), (20, 90))

_COMMON: Final[Mapping[str, Draw]] = {
    "at_s": _at_s,
    "for_s": _SOON,
    "component": _component,
    "role": _role,
    "node": _node,
    "of_node": _node,
    "user": _user,
    "plural": _plural,
    "per_mille": _one_of(20, 100, 300, 1000),
    "seed": _below(1_000_000),
    "outcome": _one_of("done", "not-done", "later", "later"),
    "later_s": _one_of(0.2, 3.0, 15.0),
    "slow_s": _one_of(2.0, 20.0, 90.0),
    "stage": _one_of("made", "running", "told", "used"),
    "pick": _below(8),
    "card": _below(8),
    "page": _one_of(1, 2, 2, 5),
    "cards_mib": _cards_mib,
    "undone_s": _undone_s,
}

_OWN: Final[Mapping[tuple[str, str], Draw]] = {
    ("admission-slow", "slow_s"): _one_of(1.0, 4.0, 9.0),
    ("agent-down", "for_s"): _between((1, 90)),
    ("agent-slow", "slow_s"): _one_of(0.3, 1.0, 5.0, 30.0),
    ("book-lost", "is_empty"): _one_of(False, True),
    ("book-lost", "stage"): _one_of("told", "used", "used"),
    ("partitioner-crashes", "for_s"): _between((30, 120)),
    ("partitioner-crashes", "nth"): _one_of(0, 1, 1, 2, 2, 3, 4),
    ("partitioner-crashes", "moment"): _one_of("before", "after"),
    ("partitioner-crashes", "pause_s"): _one_of(0.0, 0.5, 3.0, 20.0),
    ("partitioner-down", "for_s"): _between((1, 30), (30, 120)),
    ("cache-old", "for_s"): _between((120, 400)),
    ("cache-old", "user"): _component,
    ("cache-old", "plural"): _one_of(""),
    ("claim-writes", "blow"): _one_of("conflict", "forbidden", "error", "error-done", "answer-lost", "lost", "late"),
    ("claim-writes", "plural"): _one_of(""),
    ("claim-writes", "user"): _scheduler,
    ("claims-remade", "every_s"): _one_of(2.0, 10.0, 40.0),
    ("claims-unheard", "for_s"): _between((0.5, 20), (20, 150)),
    ("claims-unheard", "plural"): _one_of(
        "resourceclaims", "resourceclaims", "resourceslices", "persistentvolumeclaims", "persistentvolumes"
    ),
    ("claims-unheard", "user"): _scheduler,
    ("clock-jump", "for_s"): _between((10, 300)),
    ("clock-jump", "by_s"): _one_of(-86_400.0, -90.0, -5.0, 5.0, 90.0, 86_400.0),
    ("crash", "for_s"): _between((30, 120)),
    ("crash", "nth"): _nth,
    ("crash", "moment"): _one_of("before", "after", "in-flight"),
    ("crash", "writes_only"): _one_of(True, True, False),
    ("crash", "pause_s"): _one_of(0.0, 0.1, 2.0, 20.0),
    ("crash", "lands_after_s"): _one_of(0.1, 1.0, 10.0),
    ("crash-at-claims", "component"): _scheduler,
    ("crash-at-claims", "for_s"): _between((30, 120)),
    ("crash-at-claims", "lands_after_s"): _one_of(0.1, 1.0, 10.0),
    ("crash-at-claims", "moment"): _one_of("before", "after", "in-flight"),
    ("crash-at-claims", "nth"): _one_of(1, 1, 2, 3, 4, 5, 8),
    ("crash-at-claims", "pause_s"): _one_of(0.0, 0.1, 2.0, 20.0),
    ("crash-at-claims", "writes_only"): _one_of(True),
    ("cut-off", "for_s"): _STANDSTILL,
    ("etcd-restored", "for_s"): _between((40, 90), (60, 200)),
    ("etcd-restored-live", "for_s"): _between((20, 90), (60, 200)),
    ("evictions-fail", "done_per_mille"): _one_of(0, 0, 500),
    ("evictions-fail", "plural"): _one_of(""),
    ("evictions-fail", "user"): _one_of(""),
    ("evictions-refused", "for_s"): _between((0.5, 60), (60, 400)),
    ("evictions-refused", "plural"): _one_of(""),
    ("evictions-refused", "user"): _one_of(""),
    ("evictions-slow", "back_s"): _one_of(0.0, 2.0, 9.0),
    ("evictions-slow", "plural"): _one_of(""),
    ("evictions-slow", "there_s"): _one_of(0.5, 2.0, 9.0),
    ("evictions-slow", "user"): _one_of(""),
    ("evictions-two-budgets", "for_s"): _between((5, 60), (60, 200)),
    ("gpu-ill", "for_s"): _between((5, 60), (60, 200)),
    ("gpu-nodes-late", "there_s"): _one_of(0.5, 3.0, 9.0, 30.0),
    ("gpu-nodes-meddled", "every_s"): _one_of(2.0, 7.0, 20.0),
    ("gpu-nodes-meddled", "how"): _one_of("withdrawn", "deleted"),
    ("gpu-nodes-unheard", "for_s"): _between((0.5, 20), (20, 150)),
    ("gpu-nodes-unheard", "plural"): _one_of("gpunodes"),
    ("gpu-nodes-unheard", "user"): _scheduler_or_agent,
    ("nominee-goes", "for_s"): _between((5, 60), (60, 200)),
    ("kubelet-restarts", "blind_s"): _one_of(0.0, 1.0, 4.0, 9.0),
    ("kubelet-restarts", "every_s"): _one_of(5.0, 12.0, 30.0),
    ("kubelet-restarts", "for_s"): _between((1, 60)),
    ("kubelet-refuses", "count"): _one_of(1, 1, 2, 5),
    ("mig-driver-fails", "end"): _one_of("refused", "half", "done-and-failed"),
    ("mig-driver-fails", "for_s"): _between((5, 60), (60, 200)),
    ("mig-driver-slow", "for_s"): _between((5, 60), (60, 200)),
    ("mig-driver-slow", "slow_s"): _one_of(1.0, 5.0, 20.0, 70.0, 100.0),
    ("node-cut-off", "for_s"): _between((1, 30), (45, 120), (350, 400)),
    ("node-drained", "again_s"): _one_of(1.0, 5.0, 30.0),
    ("lease-deleted", "every_s"): _one_of(1.0, 20.0, 100.0),
    ("list-expired", "per_mille"): _one_of(300, 1000),
    ("node-forgotten", "for_s"): _between((10, 200)),
    ("node-forgotten", "forget_s"): _within(percent=100),
    ("node-lost", "for_s"): _between((5, 60), (60, 200)),
    ("node-lost", "forget_s"): _within(percent=40),
    ("node-rebooted", "for_s"): _between((1, 90)),
    ("node-reinstalled", "for_s"): _between((1, 90)),
    ("node-reinstalled", "plugin_s"): _plugin_s,
    ("node-replaced", "for_s"): _between((5, 90)),
    ("node-replaced", "forget_s"): _within(percent=60),
    ("older-version", "for_s"): _between((5, 60), (60, 200)),
    ("older-version", "lacks"): _one_of(3, 4, 5),
    ("pause", "for_s"): _STANDSTILL,
    ("plugin-lags", "for_s"): _between((10, 120)),
    ("plugin-lags", "lag_s"): _one_of(0.5, 5.0, 30.0),
    ("reservation-deleted", "force"): _one_of(False, True),
    ("reservation-killed", "every_s"): _one_of(5.0, 20.0, 60.0),
    ("provisioning-slow", "for_s"): _between((5, 60), (60, 300)),
    ("provisioning-slow", "slow_s"): _one_of(5.0, 40.0, 150.0),
    ("queue-vanishes", "for_s"): _between((5, 60), (60, 200)),
    ("rival-allocates", "count"): _one_of(1, 2, 4, 8),
    ("rival-allocates", "for_s"): _between((2, 20), (20, 120)),
    ("rival-allocates", "late_s"): _one_of(0.0, 0.2, 2.0),
    ("nomination-conflict", "for_s"): _between((5, 60), (60, 200)),
    ("nomination-conflict", "plural"): _one_of(""),
    ("nomination-conflict", "user"): _one_of(""),
    ("nominations-deleted", "every_s"): _one_of(0.5, 5.0, 20.0),
    ("nominations-deleted", "for_s"): _between((5, 60)),
    ("server-error", "done_per_mille"): _one_of(0, 500, 1000),
    ("slow", "there_s"): _one_of(0.0, 0.5, 2.0, 9.0),
    ("slow", "back_s"): _one_of(0.0, 0.0, 2.0, 9.0),
    ("slices-grabbed", "for_s"): _between((30, 120)),
    ("slices-grabbed", "late_s"): _one_of(0.0, 0.5, 2.0, 5.0),
    ("throttled", "for_s"): _between((0.5, 30)),
    ("throttled", "retry_after_s"): _one_of(1, 1, 5),
    ("two-leaders", "for_s"): _between((10, 60)),
    ("victim-stays", "for_s"): _between((5, 60), (60, 400)),
    ("watch-cut", "every_s"): _one_of(0.5, 5.0, 30.0),
    ("watch-cut", "late_s"): _one_of(0.0, 0.1, 1.0),
    ("watch-delayed", "for_s"): _between((5, 120)),
    ("watch-delayed", "most_s"): _one_of(0.2, 2.0, 20.0),
    ("watch-expired", "for_s"): _between((0.1, 30)),
    ("watch-repeated", "for_s"): _between((5, 120)),
    ("watch-repeated", "lines"): _one_of(1, 1, 2, 3),
}
