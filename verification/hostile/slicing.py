"""Runs in which agents make MIG slices for pods that wait (docs/mig.md), under all faults.

Pods ask for whole slices of all profiles, for parts of them, alone and in gangs, on nodes whose GPUs are cut at first
in any way. Administrators ask for layouts of their own, and offer nodes or not. S18 is judged beside all else.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from typing import Final

import msgspec

from gpu.dialects.settings import DialectSettings, ReplicasSettings
from gpu.mig import Place
from simulator.mig.hardware import PROFILES, SlicedNode
from simulator.nodes import shape
from verification.hostile import contending, variations
from verification.hostile.actions import MAIN, Action, CreatePod, CreatePodGroup, DeletePod
from verification.hostile.device_actions import AskLayout, OfferGpus, WithdrawLayouts
from verification.hostile.faults import drawing
from verification.hostile.faults.kinds import OF_AGENTS, OF_PARTITIONING, OF_PREEMPTION
from verification.hostile.scenario import Scenario, Switches, is_scaled, lagging
from verification.hostile.variations import Timers
from wire import names

_SHAPES: Final = (("1x0",), ("1x0",), ("2x0",), ("3x0",), ("2x0", "1x1x80GiB"))
_DURATIONS_S: Final = (20.0, 60.0, 120.0)
#: Parts of the runs in which programs never use their slices, and in which slices that are made again have new UUIDs.
_IDLE: Final = 0.4
_NEW_UUIDS: Final = 0.3
_HEARS_S: Final = (0.0, 0.5, 3.0)
_TELLS_S: Final = (0.0, 2.0, 10.0)
#: Part of the runs in which pods have priorities, and urgent ones evict others.
_PRESSED: Final = 0.7
#: Part of the runs in which others share whole GPUs, on nodes beside.
_HAVE_SHARES: Final = 0.4
#: How slices are shared where they are: halves of large ones, quarters of small ones.
_ENTRIES: Final = ("mig-3g.40gb:half:2", "mig-1g.10gb:quarter:4")
_PARTS: Final = ("half", "quarter", "quarter")
#: Small slices are asked for more often, so that several fit.
_WANTED: Final = ("1g.10gb", "1g.10gb", "1g.10gb", "1g.20gb", "2g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")


def scenario(seed: int, *, kinds: Collection[str] | None = None) -> Scenario:
    """Make a run from a seed. ``kinds``: the faults that may occur (None: all, (): none).

    Raises ValueError for a kind that is not known.
    """
    rng = random.Random(f"{seed}/mig")
    shapes = rng.choice(_SHAPES)
    shares = random.Random(f"{seed}/mig/shares")
    has_shares = shares.random() < _HAVE_SHARES
    shapes = (*shapes, "2x1x80GiB") if has_shares else shapes
    machines = shape.parse(shapes)
    sliced = tuple(_node(rng, machine.name) for machine in machines if not machine.cards_mib)
    duration_s = rng.choice(_DURATIONS_S)
    settings = _switches(rng, sliced)
    actions = [*_pods(rng, duration_s), *_administration(rng, [each.node for each in sliced], duration_s)]
    if has_shares:
        actions += _shares(shares, duration_s)
    pressing = random.Random(f"{seed}/mig/priorities")
    if pressing.random() < _PRESSED:
        settings = msgspec.structs.replace(settings, preemption=True)
        actions = [*contending.pressed(pressing, actions, shapes=machines, duration_s=duration_s)]
    settings = msgspec.structs.replace(settings, autoscaling=is_scaled(f"{seed}/mig"))
    about = [of for of, is_there in ((OF_AGENTS, settings.agents), (OF_PREEMPTION, settings.preemption)) if is_there]
    faults = drawing.draw(
        random.Random(f"{seed}/mig/faults"),
        machines,
        kinds=kinds,
        schedulers=settings.schedulers,
        binders=settings.binders,
        duration_s=2 * duration_s,
        about=[*about, OF_PARTITIONING],
        surely=(OF_PARTITIONING, OF_PREEMPTION),
    )
    if has_shares:
        whole = [each for each in machines if each.cards_mib]
        late, coming = lagging(f"{seed}/mig", whole, kinds=kinds, duration_s=duration_s, part=0.5)
        actions, faults = [*actions, *coming], tuple(sorted((*faults, *late), key=lambda fault: fault.at_s))
    ends_s = (*(action.at_s for action in actions), *(fault.end_s for fault in faults))
    return Scenario(
        seed=seed,
        shapes=shapes,
        settings=settings,
        actions=tuple(sorted(actions, key=lambda action: action.at_s)),
        faults=faults,
        calm_s=max(ends_s),
    )


def _switches(rng: random.Random, sliced: Sequence[SlicedNode]) -> Switches:
    schedulers, binders = rng.choice((1, 1, 2)), rng.choice((1, 1, 1, 2))
    return Switches(
        schedulers=schedulers,
        binders=binders,
        election=max(schedulers, binders) > 1 and rng.random() < 0.8,
        event_delay_s=rng.choice((0.0, 0.0, 0.1, 0.5)),
        stop_s=rng.choice((0.0, 0.2, 0.2, 5.0)),
        preemption=rng.random() < 0.3,
        agents=tuple(each.node for each in sliced) if rng.random() < 0.5 else (),
        timers=variations.draw(rng) if rng.random() < 0.2 else Timers(),
        sliced=tuple(sliced),
        dialects=DialectSettings(replicas=ReplicasSettings(entries=_ENTRIES)),
    )


def _node(rng: random.Random, name: str) -> SlicedNode:
    return SlicedNode(
        node=name,
        cards=tuple(tuple(layout(rng)) for _ in range(rng.choice((1, 1, 2)))),
        is_idle=rng.random() < _IDLE,
        keeps_uuids=rng.random() >= _NEW_UUIDS,
        hears_s=rng.choice(_HEARS_S),
        tells_s=rng.choice(_TELLS_S),
    )


def layout(rng: random.Random) -> Iterator[str]:
    """Draw the slices of a GPU: none, few, or as many as fit."""
    taken, tries = 0, rng.choice((0, 2, 6, 20))
    for _ in range(tries):
        profile = rng.choice(list(PROFILES))
        place: Place = rng.choice(PROFILES[profile].places)
        if not place.bits & taken:
            taken |= place.bits
            yield f"{profile}@{place.start}"


def _moment(rng: random.Random, duration_s: float) -> float:
    return round(rng.uniform(0.0, duration_s), 3)


def _limits(rng: random.Random) -> dict[str, dict[str, str]]:
    if rng.random() < 0.25:
        return {MAIN: {f"nvidia.com/{rng.choice(_PARTS)}": "1"}}
    count = "2" if rng.random() < 0.1 else "1"
    return {MAIN: {names.MIG_RESOURCE_PREFIX + rng.choice(_WANTED): count}}


def _pods(rng: random.Random, duration_s: float) -> Iterator[Action]:
    """Pods alone and gangs, most of which end while others wait for their room."""
    for number in range(rng.choice((6, 12, 20))):
        name, at_s = f"p-{number}", 0.0 if rng.random() < 0.2 else _moment(rng, duration_s)
        run_s = rng.choice((None, 5.0, 20.0, 40.0))
        grace_s = rng.choice((None, None, None, 0, 5))
        yield CreatePod(at_s=at_s, name=name, limits=_limits(rng), run_s=run_s, grace_s=grace_s)
        if rng.random() < 0.4:
            later_s = round(at_s + rng.choice((0.5, 3.0, 12.0, 40.0)) * rng.random(), 3)
            yield DeletePod(at_s=later_s, name=name, grace_s=rng.choice((None, None, 0)))
    for number in range(rng.choice((0, 1, 2))):
        name, at_s, limits = f"g-{number}", _moment(rng, duration_s), _limits(rng)
        yield CreatePodGroup(at_s=at_s, name=name, minimum=2)
        for member in range(rng.choice((2, 3))):
            yield CreatePod(
                at_s=at_s, name=f"{name}-{member}", group=name, limits=limits, run_s=rng.choice((None, 20.0))
            )


def _shares(rng: random.Random, duration_s: float) -> Iterator[CreatePod]:
    """More parts of whole GPUs than fit on the nodes that have some."""
    for number in range(rng.choice((3, 5))):
        yield CreatePod(
            at_s=_moment(rng, duration_s),
            name=f"s-{number}",
            annotations={names.GPU_FRACTION: rng.choice(("0.5", "0.7", "0.9"))},
            run_s=rng.choice((None, 20.0, 60.0)),
        )


def _administration(rng: random.Random, nodes: Sequence[str], duration_s: float) -> Iterator[Action]:
    for number in range(rng.choice((0, 0, 1, 3))):
        slices = tuple(layout(rng))
        yield AskLayout(
            at_s=_moment(rng, duration_s),
            node=rng.choice(nodes),
            attempt=f"by-hand-{number}",
            slices=slices,
            card=rng.randrange(2),
        )
    for _ in range(rng.choice((0, 0, 0, 1))):
        at_s, node = _moment(rng, duration_s), rng.choice(nodes)
        yield WithdrawLayouts(at_s=at_s, node=node)
    for _ in range(rng.choice((0, 0, 0, 1))):
        at_s, node = _moment(rng, duration_s), rng.choice(nodes)
        yield OfferGpus(at_s=at_s, node=node, is_offered=False)
        yield OfferGpus(at_s=round(at_s + rng.uniform(1.0, 60.0), 3), node=node)
