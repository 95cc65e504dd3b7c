"""Random mixes of what users do: arrivals of every form, ends, the same once more, and mischief (mischief.py).

Small by default: hostile schedules find mistakes in few pods on few cards, and a thousand of them have to be cheap.
A mix has a *mood*, drawn once: how full the cluster gets, which forms of pods there are, how much mischief. So that
some runs are all of one kind, as the clusters of the field are.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from simulator.nodes.shape import NodeShape
from verification.hostile import mischief, nesting
from verification.hostile.actions import MAIN, Action, CreatePod, CreatePodGroup, DeletePod, UngatePod
from wire import names

#: Beside decimals that add up to one: a third, digits below a nano-GPU, both ends of what is allowed.
FRACTIONS: Final = (
    "0.5",
    "0.5",
    "0.25",
    "0.3",
    "0.333",
    "0.6",
    "0.7",
    "0.9",
    "0.1",
    "0.3333333333333",
    "1e-3",
    "0.999",
)
#: About how many pods are in a mix.
PODS: Final = 12
Annotations = dict[str, str]


@dataclass(slots=True)
class _Mood:
    """What this mix is like. ``forms`` are weighted; ``mischief`` is how many in ten pods meet some."""

    forms: Sequence[Callable[[_Draw], CreatePod]]
    weights: Sequence[int]
    mischief: int
    ends: float
    same_names: bool


@dataclass(slots=True)
class _Draw:
    """A mix in the making."""

    rng: random.Random
    cards_mib: tuple[int, ...]
    nodes: tuple[str, ...]
    most_cards: int
    duration_s: float
    actions: list[Action] = field(default_factory=list)
    gangs: int = 0

    def moment(self) -> float:
        """A time of the run, to the millisecond."""
        return round(self.rng.uniform(0.0, self.duration_s), 3)

    def soon(self, at_s: float) -> float:
        """A little after another time: while what happened there is still under way, as often as not."""
        return round(at_s + self.rng.choice((0.0, 0.01, 0.1, 0.5, 1.0, 3.0)) * self.rng.random(), 3)

    def later(self, at_s: float) -> float:
        """Some time after another, within the run or shortly after it."""
        return round(at_s + self.rng.uniform(0.5, max(1.0, self.duration_s - at_s)), 3)


def while_one_lags(rng: random.Random, machines: Sequence[NodeShape], *, at_s: float) -> Iterator[CreatePod]:
    """Yield shares that open a device each, on all machines at once, of which some elsewhere end soon.

    Then there is room for what waits on a machine that lags, and its hand-over is taken back.
    """
    cards = sum(len(machine.cards_mib) for machine in machines)
    for number in range(min(cards, 12)):
        yield CreatePod(
            at_s=round(at_s + rng.uniform(0.05, 2.0), 3),
            name=f"lag-{number}",
            annotations={names.GPU_FRACTION: "0.7"},
            run_s=rng.choice((None, 3.0, 8.0, 15.0)),
        )


def draw(rng: random.Random, *, shapes: Sequence[NodeShape], duration_s: float, size: int = PODS) -> tuple[Action, ...]:
    """Draw what users do in ``duration_s`` on such nodes, with about ``size`` pods; in the order of time."""
    mix = _Draw(
        rng=rng,
        cards_mib=tuple(sorted({card for shape in shapes for card in shape.cards_mib})),
        nodes=tuple(shape.name for shape in shapes),
        most_cards=max((len(shape.cards_mib) for shape in shapes), default=0),
        duration_s=duration_s,
    )
    mood = _mood(rng)
    pods: list[CreatePod] = []
    while len(pods) < size:
        pods += _arrivals(mix, mood, number=len(pods))
    if mood.same_names:
        pods += _again(mix, pods)
        pods += _gangs_again(mix, pods)
    mix.actions += pods
    for pod in pods:
        _go_on(mix, mood, pod)
    mix.actions += mischief.meddling(rng, mix.moment, nodes=mix.nodes, tenths=mood.mischief)
    return tuple(sorted(mix.actions, key=lambda action: action.at_s))


def _mood(rng: random.Random) -> _Mood:
    forms: dict[Callable[[_Draw], CreatePod], int] = {
        _fraction: rng.choice((2, 6, 6, 12)),
        _memory: rng.choice((0, 2, 2, 6)),
        _several: rng.choice((0, 1, 2)),
        _whole: rng.choice((0, 2, 2, 6)),
        _cpu: 1,
        _placed_by_hand: rng.choice((0, 0, 1)),
        _malformed: rng.choice((0, 1, 1)),
    }
    return _Mood(
        forms=tuple(forms),
        weights=tuple(forms.values()),
        mischief=rng.choice((0, 1, 3, 6)),
        ends=rng.choice((0.2, 0.6, 0.9)),
        same_names=rng.random() < 0.4,
    )


# --- arrivals ------------------------------------------------------------------------------------------------------


def _arrivals(mix: _Draw, mood: _Mood, *, number: int) -> Iterator[CreatePod]:
    """One pod, or a gang with all its members."""
    rng = mix.rng
    if rng.random() < 0.12:
        yield from _gang(mix, mood, number=number)
        return
    (form,) = rng.choices(mood.forms, mood.weights)
    at_s = 0.0 if rng.random() < 0.3 else mix.moment()
    yield _changed(_dressed(mix, mood, form(mix)), at_s=at_s, name=f"p-{number}")


def _gang(mix: _Draw, mood: _Mood, *, number: int) -> Iterator[CreatePod]:
    """A gang: mostly of equal members, at times with fewer or more than its minimum."""
    rng = mix.rng
    minimum = rng.randrange(2, 5)
    members = max(1, minimum + rng.choice((-1, 0, 0, 0, 0, 1, 2)))
    name, at_s = f"g-{mix.gangs}", mix.moment()
    mix.gangs += 1
    tree = nesting.draw(f"{name} {at_s}", minimum)
    mix.actions.append(
        CreatePodGroup(at_s=mix.soon(at_s), name=name, minimum=minimum, parts=tree.parts, least=tree.least)
    )
    (form,) = rng.choices((_fraction, _whole, _several, _cpu), (5, 3, 1, 1))
    pattern = form(mix)
    for member in range(members):
        pod = pattern if rng.random() < 0.8 else rng.choice((_fraction, _whole))(mix)
        pod = _changed(pod, at_s=mix.soon(at_s), name=f"p-{number + member}", group=name)
        yield _changed(pod, labels={**pod.labels, **tree.labels(member)})
    if rng.random() < 0.1 * mood.mischief:
        mix.actions.append(mischief.with_gang(rng, name, minimum, at_s=mix.soon(at_s)))


def _fraction(mix: _Draw) -> CreatePod:
    return _asking({names.GPU_FRACTION: mix.rng.choice(FRACTIONS)})


def _memory(mix: _Draw) -> CreatePod:
    """A part of a card's memory: up to all of it, and now and then more than any has."""
    card = mix.rng.choice(mix.cards_mib or (1024,))
    part = mix.rng.choice((card, card // 2, card // 3, card // 2 + 1, card * 2, 1))
    return _asking({names.GPU_MEMORY: str(max(1, part))})


def _several(mix: _Draw) -> CreatePod:
    pod = mix.rng.choice((_fraction, _fraction, _memory))(mix)
    count = mix.rng.randrange(2, max(3, mix.most_cards + 1))
    return _changed(pod, annotations={**pod.annotations, names.GPU_FRACTION_NUM_DEVICES: str(count)})


def _whole(mix: _Draw) -> CreatePod:
    return CreatePod(at_s=0.0, name="", gpus=mix.rng.choice((1, 1, 1, 2, max(1, mix.most_cards))))


def _cpu(mix: _Draw) -> CreatePod:
    return CreatePod(at_s=0.0, name="", cpu_milli=mix.rng.choice((0, 500, 90_000)))


def _placed_by_hand(mix: _Draw) -> CreatePod:
    """A pod whose maker names the node: nobody asked us, and the device manager alone decides."""
    pod = mix.rng.choice((_fraction, _whole, _cpu))(mix)
    scheduler = mix.rng.choice((names.SCHEDULER_NAME, "default-scheduler"))
    return _changed(pod, node=mix.rng.choice(mix.nodes), scheduler=scheduler)


def _malformed(mix: _Draw) -> CreatePod:
    key, value = mix.rng.choice(mischief.MALFORMED)
    base = {} if key in {names.GPU_FRACTION, names.GPU_MEMORY} else {names.GPU_FRACTION: "0.5"}
    return _asking({**base, key: value})


def _asking(annotations: Annotations) -> CreatePod:
    return CreatePod(at_s=0.0, name="", annotations=annotations)


def _changed(pod: CreatePod, **fields: Any) -> CreatePod:
    return msgspec.structs.replace(pod, **fields)


def _dressed(mix: _Draw, mood: _Mood, pod: CreatePod) -> CreatePod:
    """Give a pod a lifetime, more containers, a gate, or forged keys."""
    rng = mix.rng
    if rng.random() < mood.ends:
        pod = _changed(pod, run_s=round(rng.uniform(0.0, mix.duration_s), 2))
    if pod.annotations and rng.random() < 0.3:
        pod = _with_containers(mix, pod)
    if rng.random() < 0.15:
        pod = _changed(pod, grace_s=rng.choice((0, 1, 5)))
    if rng.random() < 0.05 and not pod.node:
        pod = _changed(pod, gated=True)
    if rng.random() < 0.03 * mood.mischief:
        pod = mischief.forged(rng, pod)
    return pod


def _with_containers(mix: _Draw, pod: CreatePod) -> CreatePod:
    """A container beside the first, and one before it; at times one of them is the one that asks."""
    pod = _changed(pod, containers=(MAIN, "aside"), init_containers=mix.rng.choice(((), ("prepare",))))
    named = mix.rng.choice(("", "", "aside", *pod.init_containers))
    if named and names.GPU_FRACTION_CONTAINER_NAME not in pod.annotations:
        pod = _changed(pod, annotations={**pod.annotations, names.GPU_FRACTION_CONTAINER_NAME: named})
    return pod


# --- what becomes of them ------------------------------------------------------------------------------------------


def _again(mix: _Draw, pods: Sequence[CreatePod]) -> Iterator[CreatePod]:
    """The same names once more, as a controller makes them: as soon as the pod before is gone, perhaps changed."""
    rng = mix.rng
    for pod in rng.sample(list(pods), len(pods) // 4):
        at_s = mix.later(pod.at_s)
        mix.actions.append(DeletePod(at_s=at_s, name=pod.name, grace_s=rng.choice((None, None, 0))))
        form = rng.choice((lambda _, same=pod: same, _fraction, _whole))
        insist_s = rng.choice((0.0, 5.0, 60.0))
        yield _changed(form(mix), at_s=at_s, name=pod.name, group=pod.group, insist_s=insist_s)


def _gangs_again(mix: _Draw, pods: Sequence[CreatePod]) -> Iterator[CreatePod]:
    """Whole gangs once more, as a controller makes them that restarts a job; not all members come in time."""
    rng = mix.rng
    for name in dict.fromkeys(pod.group for pod in pods if pod.group):
        members = {pod.name: pod for pod in pods if pod.group == name}
        at_s = mix.later(max(pod.at_s for pod in members.values()))
        for member in members.values():
            mix.actions.append(DeletePod(at_s=at_s, name=member.name))
            if rng.random() < 0.7:
                yield _changed(member, at_s=mix.soon(at_s), insist_s=60.0)


def _go_on(mix: _Draw, mood: _Mood, pod: CreatePod) -> None:
    """A pod's end, and mischief with it."""
    rng = mix.rng
    if pod.gated and rng.random() < 0.9:
        mix.actions.append(UngatePod(at_s=mix.later(pod.at_s), name=pod.name))
    if rng.random() < 0.35 * mood.ends:
        at_s = mix.soon(pod.at_s) if rng.random() < 0.4 else mix.later(pod.at_s)
        mix.actions.append(DeletePod(at_s=at_s, name=pod.name, grace_s=rng.choice((None, None, None, 0, 1))))
    if rng.randrange(10) < mood.mischief:
        mix.actions.append(mischief.with_pod(rng, pod, at_s=mix.soon(pod.at_s)))
