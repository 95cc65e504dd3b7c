"""Runs in which devices are made on demand: claims of the scheduler, devices with counters or conditions, MIG slices.

Each has all faults beside. Of MIG (docs/mig.md) pods ask for whole slices of all profiles, for parts of them, alone and
in gangs, on nodes whose GPUs are cut at first in any way; administrators ask for layouts of their own, and offer nodes
or not; S18 is judged beside all else.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

import msgspec

from gpu.dialects.settings import DialectSettings, ReplicasSettings
from gpu.mig import Place
from simulator.mig.hardware import PROFILES, SlicedNode
from simulator.nodes import shape
from simulator.nodes.device_manager import make_devices
from simulator.nodes.shape import NodeShape
from verification.hostile import queueing, variations
from verification.hostile.actions import MAIN, Action, CreatePod, CreatePodGroup, DeletePod, EditPod
from verification.hostile.device_actions import (
    COUNTED,
    AskLayout,
    CreateExtendedClass,
    DeleteClaimsOf,
    DeleteClass,
    ForgeClaim,
    Offered,
    OfferGpus,
    PublishDevices,
    RunDriver,
    WithdrawDevices,
    WithdrawLayouts,
)
from verification.hostile.faults import drawing
from verification.hostile.faults.kinds import OF_AGENTS, OF_CLAIMS, OF_PARTITIONING, OF_PREEMPTION, Fault
from verification.hostile.scenario import Scenario, Switches, is_scaled, lagging, scenario_made, scenario_of
from verification.hostile.variations import Timers
from wire import names

#: Parts of the publications that draw on counters, and of the devices that have to get ready.
_DRAWING: Final = 0.6
_PARTS_GETTING_READY: Final = (0.0, 0.5, 1.0)
_DRAWS: Final = (1, 2, 3, 4, COUNTED)


def enriched_scenario(seed: int, *, kinds: Collection[str] | None = None) -> Scenario:
    """Make a run from a seed in which devices draw on counters of their pool, or have to get ready first.

    Devices of a part of the nodes take from one counter, as slices of one GPU do. Of another part they have to get
    ready: a driver reports that late, that some failed, and of some nothing. After all faults it reports of each that
    it is ready.

    ``kinds``: the faults that may occur (None: all, (): none). Raises ValueError for a kind that is not known.
    """
    made = scenario_of(seed, kinds, with_claims=True)
    rng = random.Random(f"{seed}/enriched")
    actions = [*_enriched(rng, made.actions), _driver(rng, made)]
    return msgspec.structs.replace(made, actions=tuple(sorted(actions, key=lambda action: action.at_s)))


def _driver(rng: random.Random, made: Scenario) -> RunDriver:
    return RunDriver(
        at_s=0.0,
        until_s=made.calm_s,
        takes_s=rng.choice((0.0, 2.0, 20.0)),
        fails_per_mille=rng.choice((0, 100, 400)),
        silent_per_mille=rng.choice((0, 0, 100)),
        seed=rng.randrange(1_000_000),
    )


def _enriched(rng: random.Random, actions: Collection[Action]) -> Iterator[Action]:
    part = rng.choice(_PARTS_GETTING_READY)
    for action in actions:
        if not isinstance(action, PublishDevices):
            yield action
            continue
        draws = rng.random() < _DRAWING
        devices = tuple(_device(rng, each, draws=draws, part=part) for each in action.devices)
        yield msgspec.structs.replace(action, devices=devices)


def _device(rng: random.Random, device: Offered, *, draws: bool, part: float) -> Offered:
    return msgspec.structs.replace(
        device,
        draws=rng.choice(_DRAWS) if draws and not device.shared_gib else 0,
        has_to_get_ready=rng.random() < part,
    )


ACCELERATOR: Final = "example.com/accelerator"
#: Classes, by the resource that each stands for; accelerators are the devices that are big.
_CLASSES: Final = {"gpus": names.GPU_RESOURCE, "accelerators": ACCELERATOR}
_CLAIMS_SHAPES: Final = (
    ("1x0",),
    ("2x0",),
    ("1x0", "1x2x80GiB"),
    ("1x0", "1x1x24GiB"),
    ("2x0", "2x2x80GiB"),
    ("1x2x80GiB",),
)
_CLAIMS_DURATIONS_S: Final = (10.0, 30.0, 60.0)
#: Parts of the runs in which classes come late or go, and in which devices have to get ready.
_CLASSES_CHANGE: Final = 0.3
_GETTING_READY: Final = 0.3
#: Parts of the runs in which drivers publish GPUs of device plugins, and in which pods are in queues.
_PLUGINS_GPUS: Final = 0.4
_QUEUES: Final = 0.3
#: Part of the runs in which pods have priorities, and urgent ones evict others.
_PRESSED: Final = 0.7
_FRACTIONS: Final = ("0.5", "0.5", "0.25", "0.3", "0.333", "0.7", "0.999")


def claims_scenario(seed: int, *, kinds: Collection[str] | None = None) -> Scenario:
    """Make a run from a seed with claims for extended resources and for shares of GPUs (docs/design/claims.md).

    Some nodes have a device plugin, on some a driver publishes GPUs, shared or whole; in a part of the runs a driver
    publishes the device plugin's GPUs, too. Accelerators have a driver on all nodes, so that claims and books are on
    one. Pods ask for either, alone and in gangs, in a part of the runs in queues. Their claims are deleted and forged
    by others, their classes come late, go and come again, and slices change.

    ``kinds``: the faults that may occur (None: all, (): none). Raises ValueError for a kind that is not known.
    """
    rng = random.Random(f"{seed}/extended")
    shapes = rng.choice(_CLAIMS_SHAPES)
    machines = shape.parse(shapes)
    duration_s = rng.choice(_CLAIMS_DURATIONS_S)
    with_plugin = tuple(each.name for each in machines if each.cards_mib)
    settings = msgspec.structs.replace(_switches(rng, with_plugin, 0.3), shares_by_claims=True)
    actions = [
        *_classes(rng, duration_s),
        *_devices(rng, machines, duration_s),
        *_claiming_pods(rng, duration_s),
        *_gangs(rng, duration_s),
    ]
    others = random.Random(f"{seed}/extended/others")
    if others.random() < _PLUGINS_GPUS:
        actions = [_with_plugins_gpus(others, action, machines, seed) for action in actions]
    if others.random() < _QUEUES:
        actions = [*queueing.with_queues(others, actions, shapes=machines, duration_s=duration_s)]
    of_run = f"{seed}/extended"
    settings, actions = _pressed(of_run, settings, actions, machines, duration_s=duration_s)
    faults = _struck(of_run, settings, machines, kinds=kinds, duration_s=2 * duration_s, beside=OF_CLAIMS)
    with_cards = [each for each in machines if each.cards_mib]
    late, coming = lagging(of_run, with_cards, kinds=kinds, duration_s=duration_s, part=0.5)
    made = scenario_made(seed, shapes, settings, actions=[*actions, *coming], faults=[*faults, *late])
    devices = [each for action in actions if isinstance(action, PublishDevices) for each in action.devices]
    if not any(each.has_to_get_ready for each in devices):
        return made
    takes_s = rng.choice((0.0, 2.0, 20.0))
    driver = RunDriver(at_s=0.0, until_s=made.calm_s, takes_s=takes_s, fails_per_mille=100, seed=seed)
    return msgspec.structs.replace(made, actions=tuple(sorted((*made.actions, driver), key=lambda each: each.at_s)))


def _pressed(
    of_run: str, settings: Switches, actions: Sequence[Action], machines: Sequence[NodeShape], *, duration_s: float
) -> tuple[Switches, list[Action]]:
    """In a part of the runs pods have priorities, and urgent ones evict others. Some runs ask an autoscaler."""
    rng, made = random.Random(f"{of_run}/priorities"), [*actions]
    if rng.random() < _PRESSED:
        settings = msgspec.structs.replace(settings, preemption=True)
        made = [*queueing.pressed(rng, made, shapes=machines, duration_s=duration_s)]
    return msgspec.structs.replace(settings, autoscaling=is_scaled(of_run)), made


def _struck(
    of_run: str,
    settings: Switches,
    machines: Sequence[NodeShape],
    *,
    kinds: Collection[str] | None,
    duration_s: float,
    beside: frozenset[str],
) -> tuple[Fault, ...]:
    about = [of for of, is_there in ((OF_AGENTS, settings.agents), (OF_PREEMPTION, settings.preemption)) if is_there]
    return drawing.draw(
        random.Random(f"{of_run}/faults"),
        machines,
        kinds=kinds,
        schedulers=settings.schedulers,
        binders=settings.binders,
        duration_s=duration_s,
        about=[*about, beside],
        surely=(beside, OF_PREEMPTION),
    )


def _switches(rng: random.Random, agents: tuple[str, ...], part: float) -> Switches:
    """Draw how a cluster is set up. ``agents``: the nodes that have one in this part of the runs."""
    schedulers, binders = rng.choice((1, 1, 2)), rng.choice((1, 1, 1, 2))
    return Switches(
        schedulers=schedulers,
        binders=binders,
        election=max(schedulers, binders) > 1 and rng.random() < 0.8,
        event_delay_s=rng.choice((0.0, 0.0, 0.1, 0.5)),
        stop_s=rng.choice((0.0, 0.2, 0.2, 5.0)),
        preemption=rng.random() < 0.3,
        agents=agents if rng.random() < part else (),
        timers=variations.draw(rng) if rng.random() < 0.2 else Timers(),
    )


def _moment(rng: random.Random, duration_s: float) -> float:
    return round(rng.uniform(0.0, duration_s), 3)


def _classes(rng: random.Random, duration_s: float) -> Iterator[Action]:
    for name, resource in _CLASSES.items():
        made = CreateExtendedClass(at_s=0.0, name=name, resource=resource, is_big=resource == ACCELERATOR)
        if rng.random() >= _CLASSES_CHANGE:
            yield made
            continue
        first_s, gone_s, again_s = sorted(_moment(rng, duration_s) for _ in range(3))
        for at_s in (first_s, again_s):
            yield CreateExtendedClass(at_s=at_s, name=name, resource=resource, is_big=made.is_big)
        yield DeleteClass(at_s=gone_s, name=name)


def _devices(rng: random.Random, machines: Sequence[NodeShape], duration_s: float) -> Iterator[Action]:
    """A pool for each node, which its driver may publish again with other devices, or withdraw."""
    gets_ready = rng.random() < _GETTING_READY
    for machine in machines:
        offered = tuple(_offered(rng, machine, gets_ready=gets_ready))
        at_s = 0.0 if rng.random() < 0.8 else _moment(rng, duration_s)
        yield PublishDevices(at_s=at_s, node=machine.name, devices=offered, slices=rng.choice((1, 1, 2)))
        later_s = round(at_s + _moment(rng, duration_s), 3)
        if rng.random() < 0.3:
            again = tuple(_offered(rng, machine, gets_ready=gets_ready))
            yield PublishDevices(at_s=later_s, node=machine.name, devices=again, generation=2)
        elif rng.random() < 0.15:
            yield WithdrawDevices(at_s=later_s, node=machine.name)


def _offered(rng: random.Random, machine: NodeShape, *, gets_ready: bool) -> Iterator[Offered]:
    """GPUs where no device plugin has any, and accelerators."""
    is_shared = rng.random() < 0.7
    for number in range(0 if machine.cards_mib else rng.choice((1, 1, 2, 3))):
        yield Offered(
            name=f"d{number}",
            shared_gib=rng.choice((24, 80)) if is_shared else 0,
            has_to_get_ready=gets_ready and rng.random() < 0.5,
            uuid=f"GPU-{machine.name}-{number}",
        )
    for number in range(rng.choice((0, 1, 1, 2))):
        yield Offered(name=f"a{number}", is_big=True, has_to_get_ready=gets_ready and rng.random() < 0.5)


def _with_plugins_gpus(rng: random.Random, action: Action, machines: Sequence[NodeShape], seed: int) -> Action:
    """The same, or a pool that has GPUs of its node's device plugin as well, under the UUIDs that the plugin gives."""
    if not isinstance(action, PublishDevices):
        return action
    (machine,) = (each for each in machines if each.name == action.node)
    is_shared = rng.random() < 0.7
    offered = tuple(
        Offered(name=f"g{card.index}", shared_gib=card.mem_mib // 1024 if is_shared else 0, uuid=card.uuid)
        for card in make_devices(machine, seed=seed)
        if rng.random() < 0.8
    )
    return msgspec.structs.replace(action, devices=(*action.devices, *offered))


def _form(rng: random.Random) -> dict[str, Any]:
    """What a pod asks: a part of a GPU, its memory, whole ones, accelerators, or a part of a GPU beside one."""
    share: dict[str, Any] = {"annotations": {names.GPU_FRACTION: rng.choice(_FRACTIONS)}}
    accelerators: dict[str, Any] = {"limits": {MAIN: {ACCELERATOR: rng.choice(("1", "1", "2"))}}}
    memory: dict[str, Any] = {"annotations": {names.GPU_MEMORY: str(rng.choice((1024, 8192, 12_288, 24_576)))}}
    forms = (share, memory, {"gpus": rng.choice((1, 1, 2))}, accelerators, {**share, **accelerators})
    (form,) = rng.choices(forms, (8, 3, 4, 4, 1))
    return form


def _claiming_pods(rng: random.Random, duration_s: float) -> Iterator[Action]:
    for number in range(rng.choice((6, 12, 18))):
        name, at_s = f"p-{number}", 0.0 if rng.random() < 0.3 else _moment(rng, duration_s)
        pod = CreatePod(
            at_s=at_s,
            name=name,
            run_s=rng.choice((None, 2.0, 10.0, 30.0)),
            grace_s=rng.choice((None, None, None, 0, 5)),
            **_form(rng),
        )
        yield pod
        yield from _later(rng, pod)


def _later(rng: random.Random, pod: CreatePod) -> Iterator[Action]:
    """What becomes of it: it is deleted, made again, edited, its claim is deleted, or somebody forges one."""
    soon_s = round(pod.at_s + rng.choice((0.05, 0.5, 3.0, 12.0)) * rng.random(), 3)
    lot = rng.random()
    if lot < 0.3:
        yield DeletePod(at_s=soon_s, name=pod.name, grace_s=rng.choice((None, None, 0)))
        if rng.random() < 0.4:
            again = CreatePod(at_s=soon_s, name=pod.name, insist_s=60.0, run_s=pod.run_s, **_form(rng))
            yield again
    elif lot < 0.45:
        yield EditPod(at_s=soon_s, name=pod.name, labels={"edited": str(rng.randrange(10))})
    elif lot < 0.6:
        yield DeleteClaimsOf(at_s=soon_s, pod=pod.name)
    elif lot < 0.7:
        yield ForgeClaim(at_s=soon_s, name=f"forged-{pod.name}", pod=pod.name, cls=rng.choice([*_CLASSES]))


def _gangs(rng: random.Random, duration_s: float) -> Iterator[Action]:
    for number in range(rng.choice((0, 1, 1, 2))):
        name, at_s, form = f"g-{number}", _moment(rng, duration_s), _form(rng)
        yield CreatePodGroup(at_s=at_s, name=name, minimum=2)
        for member in range(rng.choice((2, 2, 3))):
            pod = CreatePod(at_s=at_s, name=f"{name}-{member}", group=name, run_s=rng.choice((None, 20.0)), **form)
            yield pod
            if rng.random() < 0.3:
                yield from _later(rng, pod)


_SLICED_SHAPES: Final = (("1x0",), ("1x0",), ("2x0",), ("3x0",), ("2x0", "1x1x80GiB"))
_SLICED_DURATIONS_S: Final = (20.0, 60.0, 120.0)
#: Parts of the runs in which programs never use their slices, and in which slices that are made again have new UUIDs.
_IDLE: Final = 0.4
_NEW_UUIDS: Final = 0.3
_HEARS_S: Final = (0.0, 0.5, 3.0)
_TELLS_S: Final = (0.0, 2.0, 10.0)
#: Part of the runs in which others share whole GPUs, on nodes beside.
_HAVE_SHARES: Final = 0.4
#: How slices are shared where they are: halves of large ones, quarters of small ones.
_ENTRIES: Final = ("mig-3g.40gb:half:2", "mig-1g.10gb:quarter:4")
_PARTS: Final = ("half", "quarter", "quarter")
#: Small slices are asked for more often, so that several fit.
_WANTED: Final = ("1g.10gb", "1g.10gb", "1g.10gb", "1g.20gb", "2g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")


def slices_scenario(seed: int, *, kinds: Collection[str] | None = None) -> Scenario:
    """Make a run from a seed. ``kinds``: the faults that may occur (None: all, (): none).

    Raises ValueError for a kind that is not known.
    """
    rng = random.Random(f"{seed}/mig")
    shapes = rng.choice(_SLICED_SHAPES)
    shares = random.Random(f"{seed}/mig/shares")
    has_shares = shares.random() < _HAVE_SHARES
    shapes = (*shapes, "2x1x80GiB") if has_shares else shapes
    machines = shape.parse(shapes)
    sliced = tuple(_node(rng, machine.name) for machine in machines if not machine.cards_mib)
    duration_s = rng.choice(_SLICED_DURATIONS_S)
    settings = msgspec.structs.replace(
        _switches(rng, tuple(each.node for each in sliced), 0.5),
        sliced=sliced,
        dialects=DialectSettings(replicas=ReplicasSettings(entries=_ENTRIES)),
    )
    actions = [*_slicing_pods(rng, duration_s), *_administration(rng, [each.node for each in sliced], duration_s)]
    if has_shares:
        actions += _shares(shares, duration_s)
    of_run = f"{seed}/mig"
    settings, actions = _pressed(of_run, settings, actions, machines, duration_s=duration_s)
    faults = _struck(of_run, settings, machines, kinds=kinds, duration_s=2 * duration_s, beside=OF_PARTITIONING)
    if has_shares:
        whole = [each for each in machines if each.cards_mib]
        late, coming = lagging(of_run, whole, kinds=kinds, duration_s=duration_s, part=0.5)
        actions, faults = [*actions, *coming], (*faults, *late)
    return scenario_made(seed, shapes, settings, actions=actions, faults=faults)


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


def _limits(rng: random.Random) -> dict[str, dict[str, str]]:
    if rng.random() < 0.25:
        return {MAIN: {f"nvidia.com/{rng.choice(_PARTS)}": "1"}}
    count = "2" if rng.random() < 0.1 else "1"
    return {MAIN: {names.MIG_RESOURCE_PREFIX + rng.choice(_WANTED): count}}


def _slicing_pods(rng: random.Random, duration_s: float) -> Iterator[Action]:
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
