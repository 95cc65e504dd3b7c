"""Random mixes of what users do: arrivals of every form, ends, the same once more, and mischief.

Small by default: hostile schedules find mistakes in few pods on few cards, and a thousand of them have to be cheap. A
mix has a *mood*, drawn once: how full the cluster gets, which forms of pods there are, how much mischief. So that some
runs are all of one kind, as the clusters of the field are. Mischief is what users may do that helps nobody, what they
forge, and what administrators do with things not theirs.

In a part of the runs some of what users ask as KAI's is asked in the words of other systems, drawn from a source of its
own. Only forms are used that every cluster understands without settings; what they mean is docs/reference/dialects.md.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from simulator.nodes.shape import NodeShape
from verification.hostile.actions import (
    MAIN,
    Action,
    ChangePodGroup,
    CreatePod,
    CreatePodGroup,
    DeleteBindRequest,
    DeletePod,
    DeletePodGroup,
    DeleteReservation,
    EditPod,
    EvictPod,
    Part,
    UngatePod,
)
from wire import names

#: (annotation, value): asks that nobody can grant, or even read.
MALFORMED: Final = (
    (names.GPU_FRACTION, "abc"),
    (names.GPU_FRACTION, "1.5"),
    (names.GPU_FRACTION, "0"),
    (names.GPU_FRACTION, "-0.5"),
    (names.GPU_FRACTION, "NaN"),
    (names.GPU_FRACTION, "0,5"),
    (names.GPU_FRACTION, ""),
    (names.GPU_MEMORY, "0"),
    (names.GPU_MEMORY, "-1"),
    (names.GPU_MEMORY, "10Gi"),
    (names.GPU_MEMORY, "1e3"),
    (names.GPU_FRACTION_NUM_DEVICES, "0"),
    (names.GPU_FRACTION_NUM_DEVICES, "two"),
    (names.GPU_FRACTION_NUM_DEVICES, "99999999999999999999"),
    (names.GPU_FRACTION_CONTAINER_NAME, "nobody"),
)
#: Keys that only the scheduler and the binder write, with values that would help who forged them.
FORGED_ANNOTATIONS: Final = {
    names.GRANT: '{"attempt":"x","devices":[]}',
    names.GPU_PORTION_ANNOTATION: "0.01",
    f"{names.VISIBLE_DEVICES_PREFIX}c0": "all",
    names.RECEIVED_RESOURCE_TYPE: names.RECEIVED_FRACTION,
    names.FENCED: "x",
    names.TENANTS: "{}",
}
FORGED_LABELS: Final = {names.GPU_GROUP_LABEL: "mine", f"{names.MULTI_GPU_GROUP_LABEL_PREFIX}mine": "mine"}
#: Edits after placement that would free on paper what is still used.
SHRINKING: Final = ((names.GPU_FRACTION, "0.01"), (names.GPU_MEMORY, "1"), (names.GPU_FRACTION, None))


def forged(rng: random.Random, pod: CreatePod) -> CreatePod:
    """The same pod with keys that are not its maker's to write."""
    annotations = {**pod.annotations, **_some(rng, FORGED_ANNOTATIONS)}
    return msgspec.structs.replace(pod, annotations=annotations, labels=_some(rng, FORGED_LABELS))


def _some(rng: random.Random, keys: dict[str, str]) -> dict[str, str]:
    return dict(rng.sample(sorted(keys.items()), rng.randrange(1, len(keys) + 1)))


def with_pod(rng: random.Random, pod: CreatePod, *, at_s: float) -> Action:
    """Something that is done with a pod while it is placed, or when it has just been."""
    shrunk, value = rng.choice(SHRINKING)
    key, forged_value = rng.choice(sorted(FORGED_ANNOTATIONS.items()))
    label, labelled = rng.choice(sorted(FORGED_LABELS.items()))
    malformed, text = rng.choice(MALFORMED)
    return rng.choice((
        EditPod(at_s=at_s, name=pod.name, annotations={"example.com/note": str(rng.randrange(100))}),
        EditPod(at_s=at_s, name=pod.name, annotations={shrunk: value}),
        EditPod(at_s=at_s, name=pod.name, annotations={shrunk: value}, when_bound_s=5.0),
        EditPod(at_s=at_s, name=pod.name, annotations={malformed: text}),
        EditPod(at_s=at_s, name=pod.name, annotations={key: forged_value}, when_bound_s=rng.choice((0.0, 5.0))),
        EditPod(at_s=at_s, name=pod.name, annotations={names.GRANT: None}, when_bound_s=5.0),
        EditPod(at_s=at_s, name=pod.name, labels={label: labelled}, when_bound_s=rng.choice((0.0, 5.0))),
        EditPod(at_s=at_s, name=pod.name, labels={names.GPU_GROUP_LABEL: None}, when_bound_s=5.0),
        EvictPod(at_s=at_s, name=pod.name),
        DeleteBindRequest(at_s=pod.at_s, pod=pod.name),
    ))  # fmt: skip


def with_gang(rng: random.Random, name: str, minimum: int, *, at_s: float) -> Action:
    """Something that is done with a PodGroup while its members come."""
    return rng.choice((
        ChangePodGroup(at_s=at_s, name=name, minimum=minimum + rng.choice((-1, 1, 100))),
        ChangePodGroup(at_s=at_s, name=name, annotations={names.PLAN: '{"members":{}}'}),
        DeletePodGroup(at_s=at_s, name=name),
    ))  # fmt: skip


def meddling(rng: random.Random, moment: Callable[[], float], *, nodes: Sequence[str], tenths: int) -> Iterator[Action]:
    """What an administrator does by hand; ``moment`` draws a time, ``tenths`` is how much of it there is."""
    while rng.randrange(10) < tenths:
        at_s, grace_s = moment(), rng.choice((None, None, 0))
        yield DeleteReservation(at_s=at_s, number=rng.randrange(8), grace_s=grace_s)
    if rng.randrange(20) < tenths:
        yield _forged_reservation(moment(), rng.choice(nodes))


def _forged_reservation(at_s: float, node: str) -> CreatePod:
    """A pod that says it is a reservation, with a book that says it is empty."""
    return CreatePod(
        at_s=at_s,
        name=f"{names.RESERVATION_NAME_PREFIX}-forged",
        namespace=names.RESERVATION_NAMESPACE,
        labels={names.APP_LABEL: names.RESERVATION_APP, names.GPU_GROUP_LABEL: "mine"},
        annotations={names.TENANTS: "{}"},
        scheduler="default-scheduler",
        node=node,
    )


#: The part of all gangs that has sub-groups.
_SHARE: Final = 0.4


class Tree(NamedTuple):
    """Sub-groups of a gang, and the sub-group of each member by number; further members are of the last one."""

    parts: tuple[Part, ...] = ()
    least: int | None = None
    members: tuple[str, ...] = ()

    def labels(self, member: int) -> dict[str, str]:
        """What a member says of its sub-group."""
        return {names.SUBGROUP_LABEL: self.members[min(member, len(self.members) - 1)]} if self.members else {}


def nested(about: str, minimum: int) -> Tree:
    """Draw the sub-groups of a gang of which ``minimum`` members are to start together.

    They may have sub-groups of their own. Drawn from what a gang is called and not from the scenario's own luck: so
    seeds mean the same with and without them.
    """
    rng = random.Random(about)
    if rng.random() >= _SHARE:
        return Tree()
    return rng.choice((_leader, _either, _elastic, _deep, _contradicting))(rng, minimum)


def _leader(rng: random.Random, minimum: int) -> Tree:
    """A leader and one of two segments, or both."""
    parts = (
        Part(name="leader", pods=1),
        Part(name="workers", parts=rng.choice((None, 1, 1))),
        Part(name="s-0", parent="workers", pods=minimum - 1),
        Part(name="s-1", parent="workers", pods=1),
    )
    return Tree(parts, None, ("leader", *("s-0",) * (minimum - 1), "s-1"))


def _either(rng: random.Random, minimum: int) -> Tree:
    """One of two, and members of both."""
    parts = (Part(name="b", pods=minimum), Part(name="a", pods=rng.randrange(1, minimum + 1)))
    return Tree(parts, 1, tuple(rng.choice("aab") for _ in range(minimum + 2)))


def _elastic(rng: random.Random, minimum: int) -> Tree:
    """Segments of which the last ones need nobody."""
    parts = (
        Part(name="w", parts=rng.choice((1, 2, 2, 3))),
        Part(name="w-0", parent="w", pods=minimum - 1),
        Part(name="w-1", parent="w", pods=1),
        Part(name="w-2", parent="w", pods=0),
    )
    return Tree(parts, None, (*("w-0",) * (minimum - 1), "w-1", "w-2"))


def _deep(rng: random.Random, minimum: int) -> Tree:
    """Levels below levels, with a choice at the bottom."""
    chain = tuple(Part(name=f"l-{i}", parent=f"l-{i - 1}" if i else "") for i in range(rng.randrange(1, 5)))
    last = chain[-1].name
    chain = (*chain[:-1], Part(name=last, parent=chain[-1].parent, parts=1))
    parts = (Part(name="x", parent=last, pods=minimum), Part(name="y", parent=last, pods=minimum + 1))
    return Tree((*parts, *chain), rng.choice((None, 1)), ("x",) * minimum + ("y",))


def _contradicting(rng: random.Random, minimum: int) -> Tree:
    """What admission refuses while it answers, or what can't be satisfied."""
    parts = rng.choice((
        (Part(name="a", parent="b", pods=minimum), Part(name="b", parent="a")),
        (Part(name="a", parent="b", pods=minimum),),
        (Part(name="a", pods=minimum, parts=1),),
        (Part(name="a", pods=minimum), Part(name="b", parts=7), Part(name="c", parent="b", pods=1)),
    ))  # fmt: skip
    return Tree(parts, None, ("a",))


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
    mix.actions += meddling(rng, mix.moment, nodes=mix.nodes, tenths=mood.mischief)
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
    tree = nested(f"{name} {at_s}", minimum)
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
        mix.actions.append(with_gang(rng, name, minimum, at_s=mix.soon(at_s)))


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
    key, value = mix.rng.choice(MALFORMED)
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
        pod = forged(rng, pod)
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
        mix.actions.append(with_pod(rng, pod, at_s=mix.soon(pod.at_s)))


#: The percentage of runs whose pods use other systems' words.
_RUNS: Final = 35
#: Of a pod's words, what another system's words stand in for.
_KAIS: Final = (
    names.GPU_FRACTION,
    names.GPU_MEMORY,
    names.GPU_FRACTION_NUM_DEVICES,
    names.GPU_FRACTION_CONTAINER_NAME,
)
_ASIDE: Final = "aside"
_ALIYUN: Final = "aliyun.com/gpu-mem"
_METAGPU: Final = "cnvrg.io/metagpu"
_CLEARML: Final = "clearml-injector/fraction"

Limits = Mapping[str, str]
Words = tuple[Limits, Mapping[str, str], Mapping[str, str]]
"""Limits of one container; labels and annotations of the pod."""
Form = Callable[[random.Random, int], Words]
"""Draws the words of one system, given the memory of a card."""


def respoken(rng: random.Random, actions: Sequence[Action], *, shapes: Sequence[NodeShape]) -> tuple[Action, ...]:
    """Say some of the pods in other words; in most runs none."""
    if rng.randrange(100) >= _RUNS:
        return tuple(actions)
    return said_otherwise(rng, actions, shapes=shapes, share=rng.choice((0.3, 0.6, 0.9)), forms=FORMS)


def said_otherwise(
    rng: random.Random,
    actions: Sequence[Action],
    *,
    shapes: Sequence[NodeShape],
    share: float,
    forms: Sequence[Form],
) -> tuple[Action, ...]:
    """Say this share of the pods that can be in one of the forms; amounts are for the smallest of all cards."""
    smallest_mib = min((card for shape in shapes for card in shape.cards_mib), default=1024)
    return tuple(
        _said(rng, action, smallest_mib, forms) if _may_be(action) and rng.random() < share else action
        for action in actions
    )


def _may_be(action: Action) -> bool:
    """Whether this is a pod that asks for parts of devices, rightly or not; gangs stay as they are."""
    return (
        isinstance(action, CreatePod)
        and bool(action.annotations.keys() & set(_KAIS))
        and not action.group
        and not action.node
        and not action.gpus
    )


def _said(rng: random.Random, action: Action, card_mib: int, forms: Sequence[Form]) -> Action:
    """The same pod, asking something in other words: in one container, or as many as it has, or a second one."""
    if not isinstance(action, CreatePod):
        return action
    form = rng.choice(forms)
    limits, labels, annotations = form(rng, card_mib)
    kept = {key: value for key, value in action.annotations.items() if key not in _KAIS}
    containers = action.containers if not limits or rng.random() < 0.5 else (MAIN, _ASIDE)
    asking = [*containers, *action.init_containers] if limits and rng.random() < 0.6 else [MAIN]
    return msgspec.structs.replace(
        action,
        containers=containers,
        limits={name: dict(limits) for name in asking} if limits else {},
        labels={**action.labels, **labels},
        annotations={**kept, **annotations},
    )


def _mib(rng: random.Random, card_mib: int) -> int:
    return max(1, rng.choice((card_mib // 2, card_mib // 3, card_mib // 5, card_mib // 7 + 1, card_mib // 10)))


def _aliyun(rng: random.Random, card_mib: int) -> Words:
    return {_ALIYUN: str(max(1, _mib(rng, card_mib) // 1024))}, {}, {}


def _metagpu(rng: random.Random, _card_mib: int) -> Words:
    return {_METAGPU: str(rng.choice((10, 25, 30, 50, 70, 120, 150)))}, {}, {}


def _clearml(rng: random.Random, _card_mib: int) -> Words:
    return {}, {_CLEARML: rng.choice(("0.5", "0.25", "0.125", "0.0625", "0.750"))}, {}


def _hami(rng: random.Random, card_mib: int) -> Words:
    limits = {names.HAMI_MEMORY: str(_mib(rng, card_mib))}
    if rng.random() < 0.3:
        limits[names.GPU_RESOURCE] = "2"
    if rng.random() < 0.4:
        limits[names.HAMI_CORES] = rng.choice(("10", "50", "90"))
    policy = {names.HAMI_GPU_POLICY: "spread"} if rng.random() < 0.3 else {}
    return limits, {}, policy


def _volcano(rng: random.Random, card_mib: int) -> Words:
    if rng.random() < 0.3:
        return {names.VOLCANO_SHARE_MEMORY: str(_mib(rng, card_mib))}, {}, {}
    by_memory = {names.VOLCANO_MEMORY: str(_mib(rng, card_mib))}
    by_percent = {names.VOLCANO_NUMBER: "1", names.VOLCANO_MEMORY_PERCENTAGE: rng.choice(("10", "33", "50"))}
    return rng.choice((by_memory, by_percent)), {}, {}


def _koordinator(rng: random.Random, _card_mib: int) -> Words:
    isolated = {names.KOORDINATOR_ISOLATION: "HAMi-core"} if rng.random() < 0.5 else {}
    return {names.KOORDINATOR_GPU: rng.choice(("10", "25", "33"))}, isolated, {}


def _nvfractions(rng: random.Random, card_mib: int) -> Words:
    prefix = names.NVFRACTIONS_PREFIX + MAIN
    mib = _mib(rng, card_mib)
    annotations = {prefix + names.NVFRACTIONS_REQUEST: f"{mib}Mi"}
    if rng.random() < 0.4:
        annotations[prefix + names.NVFRACTIONS_LIMIT] = f"{mib + 100}Mi"
    if rng.random() < 0.5:
        annotations[prefix + names.NVFRACTIONS_MODE] = rng.choice(("time-slicing", "sm-sharing"))
    return {}, {}, annotations


#: Those that every cluster understands without settings.
FORMS: Final[tuple[Form, ...]] = (
    _aliyun, _metagpu, _clearml, _hami, _volcano, _koordinator, _nvfractions,
)  # fmt: skip
