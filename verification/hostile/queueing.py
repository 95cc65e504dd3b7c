"""Queues in a part of the runs: a tree, pods and gangs in it, what administrators do to it, and teams that contend.

Drawn behind the workload and from a source of its own, so that runs without queues stay what they were. Limits are
small beside the cluster, so that they hold pods back; amounts have tenths and thirds. Nothing here asks whether a
change makes sense: queues are put below themselves, below missing ones, below leaves in use, and are deleted with all
in them.

Teams take from each other on a full cluster. First some queues fill all devices with pods alone, parts of devices,
gangs and elastic gangs; then others come that are owed a part of it, or are more urgent: alone, as gangs, for a part of
a device or for a whole one that is shared. What was evicted is made again by its controller as often as not. Meanwhile
budgets come and go, nominated pods are deleted, and administrators change queues.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from simulator.nodes.shape import NodeShape
from verification.hostile.actions import Action, ChangePodGroup, CreatePod, CreatePodGroup, DeletePod, EditPod
from verification.hostile.queue_actions import (
    Amounts,
    CreateBudget,
    CreateOwner,
    CreatePriorityClass,
    CreateQueue,
    DeleteBudget,
    DeleteOwner,
    DeleteQueue,
    EditBudget,
    EditQueue,
)
from wire import names

#: The percentage of runs with queues.
_RUNS: Final = 40
_GPU_AMOUNTS: Final = (-1, -1, 0, 0.3, 0.5, 1, 1, 1.5, 2, 0.3333333333, 3)
_CPU_AMOUNTS: Final = (-1, -1, -1, -1, -1, 0, 500, 1000, 100_000)
_MEMORY_AMOUNTS: Final = (-1, -1, -1, -1, -1, -1, 1000)
_WEIGHTS: Final = (0, 1, 1, 2, 0.5, 3)
_WITHOUT_MEANING: Final = (-2, -0.5, 1e300, 1e12)
#: Name -> value.
_PRIORITIES: Final = {"train": 50, "build": 100, "inference": 125}
_PREEMPTIBILITY: Final = ("", "", "preemptible", "non-preemptible")
_NOBODYS: Final = "nobodys"


@dataclass(slots=True)
class _Tree:
    """The queues of a run as they were drawn: name -> parent. ``used``: where pods are put."""

    parents: dict[str, str] = field(default_factory=dict)

    @property
    def leaves(self) -> list[str]:
        return [name for name in self.parents if name not in self.parents.values()]

    def any(self, rng: random.Random) -> str:
        """A queue for a pod: mostly one that can be used."""
        others = [_NOBODYS, "", *self.parents]
        return rng.choice(self.leaves if rng.random() < 0.9 else others)


def queued(
    rng: random.Random, actions: Sequence[Action], *, shapes: Sequence[NodeShape], duration_s: float
) -> tuple[Action, ...]:
    """Put what users do into queues; in most runs there are none, and all stays as it is."""
    if rng.randrange(100) >= _RUNS:
        return tuple(actions)
    return with_queues(rng, actions, shapes=shapes, duration_s=duration_s)


def with_queues(
    rng: random.Random, actions: Sequence[Action], *, shapes: Sequence[NodeShape], duration_s: float
) -> tuple[Action, ...]:
    """Put what users do into queues."""
    tree = _tree(rng)
    devices = sum(len(shape.cards_mib) for shape in shapes)
    made: list[Action] = [CreatePriorityClass(at_s=0.0, name=name, value=value) for name, value in _PRIORITIES.items()]
    for name, parent in tree.parents.items():
        at_s = 0.0 if rng.random() < 0.8 else _moment(rng, duration_s)
        made.append(_created(rng, name, parent, devices, at_s=at_s))
    owners = [f"owner-{number}" for number in range(rng.randrange(3))]
    made += [CreateOwner(at_s=0.0, name=name) for name in owners]
    made += [DeleteOwner(at_s=_moment(rng, duration_s), name=name) for name in owners]
    made += [_placed(rng, tree, owners, action) for action in actions]
    made += _moved(rng, tree, actions)
    for _ in range(rng.choice((0, 1, 3, 6))):
        made += rng.choice(_DRAWS)(rng, tree, devices, _moment(rng, duration_s))
    return tuple(sorted(made, key=lambda action: action.at_s))


def _moment(rng: random.Random, duration_s: float) -> float:
    return round(rng.uniform(0.0, duration_s), 3)


def _later(rng: random.Random, at_s: float) -> float:
    return round(at_s + rng.choice((0.01, 0.3, 2.0, 10.0)) * (1 + rng.random()), 3)


# --- the tree and who is in it ---------------------------------------------------------------------------------------


def _tree(rng: random.Random) -> _Tree:
    """One to three levels of up to three queues each; mostly with the queue of pods that name none."""
    tree = _Tree()
    levels = rng.choice((1, 1, 2, 2, 3))
    above = [""]
    for level in range(levels):
        below = [f"q{level}-{number}" for number in range(rng.randrange(1, 4))]
        for name in below:
            tree.parents[name] = rng.choice(above)
        above = below
    for name in (names.DEFAULT_QUEUE, "default"):
        if rng.random() < 0.6:
            tree.parents[name] = rng.choice(["", next(iter(tree.parents))])
    return tree


def _created(rng: random.Random, name: str, parent: str, devices: int, *, at_s: float) -> CreateQueue:
    resources = {
        "gpu": _amounts(rng, (*_GPU_AMOUNTS, devices, devices / 2)),
        "cpu": _amounts(rng, _CPU_AMOUNTS),
        "memory": _amounts(rng, _MEMORY_AMOUNTS),
    }
    return CreateQueue(at_s=at_s, name=name, parent=parent, priority=_priority(rng), resources=resources)


def _amounts(rng: random.Random, choices: Sequence[float]) -> dict[str, float]:
    drawn = {"quota": rng.choice(choices), "limit": rng.choice(choices), "overQuotaWeight": rng.choice(_WEIGHTS)}
    if rng.random() < 0.05:
        del drawn[rng.choice(sorted(drawn))]
    return drawn


def _priority(rng: random.Random) -> int | None:
    return rng.choice((None, None, 100, 50, 200))


def _placed(rng: random.Random, tree: _Tree, owners: Sequence[str], action: Action) -> Action:
    """The same pod or gang, in a queue."""
    if isinstance(action, CreatePodGroup):
        queue, preemptibility = tree.any(rng), rng.choice(_PREEMPTIBILITY)
        return msgspec.structs.replace(action, queue=queue, preemptibility=preemptibility)
    if not isinstance(action, CreatePod) or action.namespace == names.RESERVATION_NAMESPACE:
        return action
    labels = {names.QUEUE_LABEL: tree.any(rng), names.PREEMPTIBILITY_LABEL: rng.choice(_PREEMPTIBILITY)}
    labels = {key: value for key, value in labels.items() if value}
    changes: dict[str, Any] = {"labels": {**action.labels, **labels}}
    if rng.random() < 0.5:
        changes["priority_class"] = rng.choice(sorted(_PRIORITIES))
    if owners and rng.random() < 0.3:
        changes["owner"] = rng.choice(owners)
    return msgspec.structs.replace(action, **changes)


def _moved(rng: random.Random, tree: _Tree, actions: Sequence[Action]) -> Iterator[Action]:
    """Pods and gangs that are put into another queue, or made preemptible or not, waiting or bound."""
    share = rng.choice((0.0, 0.1, 0.4))
    for action in actions:
        if rng.random() >= share:
            continue
        at_s, queue, preemptibility = _later(rng, action.at_s), tree.any(rng), rng.choice(_PREEMPTIBILITY)
        if isinstance(action, CreatePodGroup):
            yield ChangePodGroup(at_s=at_s, name=action.name, queue=queue, preemptibility=preemptibility or None)
        elif isinstance(action, CreatePod):
            key, value = rng.choice(
                ((names.QUEUE_LABEL, queue), (names.QUEUE_LABEL, queue), (names.PREEMPTIBILITY_LABEL, preemptibility))
            )
            when_bound_s = rng.choice((0.0, 5.0))
            yield EditPod(at_s=at_s, name=action.name, labels={key: value or None}, when_bound_s=when_bound_s)


# --- what is done to queues ------------------------------------------------------------------------------------------

Draw = Callable[[random.Random, _Tree, int, float], Iterator[Action]]


def _edited(rng: random.Random, tree: _Tree, devices: int, at_s: float) -> Iterator[Action]:
    """Other amounts, another priority."""
    resource, choices = rng.choice((("gpu", (*_GPU_AMOUNTS, devices)), ("gpu", _GPU_AMOUNTS), ("cpu", _CPU_AMOUNTS)))
    which, value = rng.choice(
        (("limit", choices), ("limit", choices), ("quota", choices), ("overQuotaWeight", _WEIGHTS))
    )
    resources: Amounts = {resource: {which: rng.choice(value)}}
    yield EditQueue(at_s=at_s, name=rng.choice(list(tree.parents)), resources=resources, priority=_priority(rng))


def _broken(rng: random.Random, tree: _Tree, devices: int, at_s: float) -> Iterator[Action]:
    """A cycle, a missing parent, or an amount without meaning; mended later as often as not."""
    name = rng.choice(list(tree.parents))
    bad: Amounts = {rng.choice(("gpu", "cpu")): {rng.choice(("limit", "quota")): rng.choice(_WITHOUT_MEANING)}}
    below = [each for each, parent in tree.parents.items() if parent == name] or [name]
    yield rng.choice((
        EditQueue(at_s=at_s, name=name, parent=rng.choice(below)),
        EditQueue(at_s=at_s, name=name, parent=_NOBODYS),
        EditQueue(at_s=at_s, name=name, resources=bad),
    ))  # fmt: skip
    if rng.random() < 0.6:
        resources = {
            resource: {field: rng.choice(_GPU_AMOUNTS)} for resource, values in bad.items() for field in values
        }
        yield EditQueue(at_s=_later(rng, at_s), name=name, parent=tree.parents[name], resources=resources)


def _put_elsewhere(rng: random.Random, tree: _Tree, devices: int, at_s: float) -> Iterator[Action]:
    """Another parent: any queue at all."""
    yield EditQueue(at_s=at_s, name=rng.choice(list(tree.parents)), parent=rng.choice(["", *tree.parents]))


def _put_below(rng: random.Random, tree: _Tree, devices: int, at_s: float) -> Iterator[Action]:
    """A new queue below a leaf that pods use."""
    name = f"late-{rng.randrange(1000)}"
    yield _created(rng, name, rng.choice(tree.leaves), devices, at_s=at_s)
    if rng.random() < 0.6:
        yield DeleteQueue(at_s=_later(rng, at_s), name=name)


def _deleted(rng: random.Random, tree: _Tree, devices: int, at_s: float) -> Iterator[Action]:
    """A queue that goes, and comes again as often as not."""
    name = rng.choice(list(tree.parents))
    yield DeleteQueue(at_s=at_s, name=name)
    if rng.random() < 0.6:
        yield _created(rng, name, tree.parents[name], devices, at_s=_later(rng, at_s))


_DRAWS: Final[tuple[Draw, ...]] = (_edited, _edited, _edited, _broken, _put_elsewhere, _put_below, _deleted)


#: Nodes of such a run.
SHAPES: Final = (
    ("2x2x80GiB",),
    ("1x4x80GiB", "1x1x24GiB"),
    ("3x2x80GiB",),
    ("1x8x80GiB",),
    ("2x4x40GiB",),
    ("1x1x24GiB+1x80GiB", "2x2x40GiB"),
    ("6x1x40GiB", "1x0"),
)
#: How long users of such a run go on.
DURATIONS_S: Final = (30.0, 60.0, 120.0)
#: Name -> value; those from 100 on can't be preempted unless they say so.
_PRIORITY_CLASSES: Final = {"spare": 10, "train": 50, "urgent": 90, "build": 100, "inference": 125}
_LOW: Final = ("spare", "train", "train", "train", "urgent")
_HIGH: Final = ("train", "urgent", "urgent", "build", "inference")
_FRACTIONS: Final = ("0.5", "0.5", "0.25", "0.3", "0.333", "0.7")
_MINIMUMS: Final = ("", "", "", "5s", "30s", "1m30s")
_DELAYS: Final = ("", "", "", "5s", "20s")
_GRACES_S: Final = (None, None, 0, 1, 5, 60)
_TEAM: Final = "team"
#: The part of a node's CPU that one pod asks where pods press for it.
_CPU_OF_A_NODE: Final = 0.6
#: The queue of those.
_PRESSED: Final = "pressed"
#: So often a controller makes a pod again that is gone, and for so long it looks for that.
_INSIST_S: Final = 60.0


class _Whose(NamedTuple):
    """What a pod says of its queue, its priority class and its gang."""

    queue: str
    priority: str
    group: str = ""


@dataclass(slots=True)
class _Field:
    """A mix in the making. ``leaves``: queue -> its quota of GPUs."""

    rng: random.Random
    cards: int
    duration_s: float
    leaves: dict[str, float] = field(default_factory=dict)
    actions: list[Action] = field(default_factory=list)
    pods: int = 0
    gangs: int = 0

    def moment(self, first: float, last: float) -> float:
        """A time between two parts of the run, to the millisecond."""
        return round(self.rng.uniform(first, last) * self.duration_s, 3)

    def name(self) -> str:
        """Of the next pod."""
        self.pods += 1
        return f"p-{self.pods - 1}"


def contended(rng: random.Random, *, shapes: Sequence[NodeShape], duration_s: float) -> tuple[Action, ...]:
    """Draw what users do in ``duration_s`` on such nodes; in the order of time."""
    mix = _Field(rng, max(1, sum(len(shape.cards_mib) for shape in shapes)), duration_s)
    for name, value in _PRIORITY_CLASSES.items():
        mix.actions.append(CreatePriorityClass(at_s=0.0, name=name, value=value))
    _queues(mix)
    owners = rng.sample(list(mix.leaves), rng.choice((1, 1, 1, 2)))
    _wave(mix, owners, 1.3 * mix.cards, between=(0.0, 0.1), priorities=_LOW)
    others = [name for name in mix.leaves if name not in owners] or owners
    for _ in range(rng.choice((2, 2, 3, 4))):
        at = rng.uniform(0.15, 0.9)
        taker = rng.choice(others if rng.random() < 0.7 else owners)
        amount = rng.choice((1, 2, mix.cards / 2, mix.cards))
        _wave(mix, [taker], amount, between=(at, min(1.0, at + 0.1)), priorities=_HIGH)
    _budgets(mix)
    _queue_edits(mix)
    return tuple(sorted(mix.actions, key=lambda action: action.at_s))


def pressed(
    rng: random.Random, actions: Sequence[Action], *, shapes: Sequence[NodeShape], duration_s: float
) -> tuple[Action, ...]:
    """Return the same with priorities: what comes early is of low ones and stays, and what comes late is urgent.

    For runs with mixes of their own, of whose devices nobody is evicted. So most of the CPU of each node is in use by
    pods of low priority, and urgent ones come for it, in a queue that has no limit. Others are in the queues that they
    name; where nobody has made any, in the default queue.
    """
    made: list[Action] = [
        CreatePriorityClass(at_s=0.0, name=name, value=value) for name, value in _PRIORITY_CLASSES.items()
    ]
    free = {"quota": -1.0, "limit": -1.0, "overQuotaWeight": 1.0}
    has_queues = any(isinstance(action, CreateQueue) for action in actions)
    amounts = {"gpu": free, "cpu": free, "memory": free}
    made += [
        CreateQueue(at_s=0.0, name=name, resources=amounts)
        for name in ((_PRESSED,) if has_queues else (_PRESSED, names.DEFAULT_QUEUE))
    ]
    labels = {names.QUEUE_LABEL: _PRESSED}
    half_s, urgent = 0.5 * duration_s, rng.choice(("urgent", "inference"))
    for action in actions:
        if isinstance(action, CreatePod | CreatePodGroup) and not action.priority_class:
            made.append(msgspec.structs.replace(action, priority_class=urgent if action.at_s > half_s else "spare"))
        else:
            made.append(action)
    most = int(_CPU_OF_A_NODE * min(shape.cpu_milli for shape in shapes))
    for number in range(len(shapes)):
        early_s = round(rng.uniform(0.0, 0.2) * duration_s, 3)
        made.append(
            CreatePod(at_s=early_s, name=f"fills-{number}", labels=labels, cpu_milli=most, priority_class="spare")
        )
    for number in range(rng.choice((1, 2, 3))):
        late_s = round(rng.uniform(0.5, 1.0) * duration_s, 3)
        pod = CreatePod(at_s=late_s, name=f"presses-{number}", labels=labels, cpu_milli=most, priority_class=urgent)
        made.append(msgspec.structs.replace(pod, grace_s=rng.choice(_GRACES_S)))
    return tuple(made)


# --- queues ----------------------------------------------------------------------------------------------------------


def _queues(mix: _Field) -> None:
    """Two to four leaves, below one department, two, or none."""
    rng = mix.rng
    leaves = [f"q-{number}" for number in range(rng.choice((2, 2, 3, 4)))]
    departments = [f"d-{number}" for number in range(rng.choice((0, 0, 1, 2)))]
    for name in departments:
        mix.actions.append(_queue(mix, name, "", mix.cards / len(departments)))
    for name in leaves:
        part = mix.cards // len(leaves) or 1
        quota = rng.choice((part, part, part, part / 2, 0, 1, mix.cards))
        mix.leaves[name] = quota
        mix.actions.append(_queue(mix, name, rng.choice(departments) if departments else "", quota))


def _queue(mix: _Field, name: str, parent: str, quota: float) -> CreateQueue:
    rng = mix.rng
    limit = rng.choice((-1, -1, -1, -1, quota, mix.cards / 2)) if not name.startswith("d-") else -1
    free = {"quota": -1.0, "limit": -1.0, "overQuotaWeight": 1.0}
    gpu = {"quota": quota, "limit": limit, "overQuotaWeight": rng.choice((0, 1, 1, 1, 2))}
    return CreateQueue(
        at_s=0.0,
        name=name,
        parent=parent,
        priority=rng.choice((None, None, None, 100, 200)),
        resources={"gpu": gpu, "cpu": free, "memory": free},
        preempt_min=rng.choice(_MINIMUMS),
        reclaim_min=rng.choice(_MINIMUMS),
    )


# --- waves -----------------------------------------------------------------------------------------------------------


def _wave(
    mix: _Field, queues: Sequence[str], amount: float, *, between: tuple[float, float], priorities: Sequence[str]
) -> None:
    """Pods and gangs that ask for this number of GPUs in all."""
    rng, left = mix.rng, amount
    while left > 0:
        whose = _Whose(rng.choice(list(queues)), rng.choice(list(priorities)))
        make = rng.choices((_alone, _gang), (3, 1))[0]
        pods = list(make(mix, whose, mix.moment(*between), left))
        left -= sum(_amount(pod) for pod in pods)
        for pod in pods:
            mix.actions.append(pod)
            mix.actions += _edited_later(mix, pod)


def _amount(pod: CreatePod) -> float:
    return pod.gpus + float(pod.annotations.get(names.GPU_FRACTION, "0"))


def _alone(mix: _Field, whose: _Whose, at_s: float, left: float) -> Iterator[CreatePod]:
    yield _pod(mix, _form(mix, left), whose, at_s)


def _gang(mix: _Field, whose: _Whose, at_s: float, left: float) -> Iterator[CreatePod]:
    """A gang of equal members; a third of all have more than their minimum."""
    rng = mix.rng
    minimum = rng.randrange(1, 4)
    members = minimum + rng.choice((0, 0, 0, 1, 2, 3))
    name = f"g-{mix.gangs}"
    mix.gangs += 1
    mix.actions.append(
        CreatePodGroup(
            at_s=at_s,
            name=name,
            minimum=minimum,
            queue=whose.queue,
            priority_class=whose.priority,
            preemptibility=rng.choice(("", "", "", "", "preemptible", "non-preemptible")),
            delay=rng.choice(_DELAYS),
        )
    )
    form, whose = _form(mix, left / members), whose._replace(group=name)
    for _ in range(members):
        yield _pod(mix, form, whose, round(at_s + rng.choice((0.0, 0.01, 0.3)), 3))


def _form(mix: _Field, left: float) -> dict[str, Any]:
    rng = mix.rng
    if left < 1 or rng.random() < 0.4:
        return {"annotations": {names.GPU_FRACTION: rng.choice(_FRACTIONS)}}
    return {"gpus": rng.choice((1, 1, 1, 2))}


def _pod(mix: _Field, form: dict[str, Any], whose: _Whose, at_s: float) -> CreatePod:
    rng = mix.rng
    labels = {names.QUEUE_LABEL: whose.queue, _TEAM: whose.queue}
    if rng.random() < 0.1 and not whose.group:
        labels[names.PREEMPTIBILITY_LABEL] = rng.choice(("preemptible", "non-preemptible"))
    return CreatePod(
        at_s=at_s,
        name=mix.name(),
        labels=labels,
        priority_class=whose.priority,
        group=whose.group,
        grace_s=rng.choice(_GRACES_S),
        run_s=round(rng.uniform(0.2, 1.0) * mix.duration_s, 2) if rng.random() < 0.2 else None,
        **form,
    )


def _edited_later(mix: _Field, pod: CreatePod) -> Iterator[Action]:
    """It is deleted while it waits or runs, or its controller makes it again when it is gone."""
    rng = mix.rng
    if rng.random() < 0.1:
        after_s = rng.choice((0.05, 0.3, 1.0, 5.0, 30.0)) * (0.5 + rng.random())
        yield DeletePod(at_s=round(pod.at_s + after_s, 3), name=pod.name, grace_s=rng.choice((None, None, 0)))
    elif rng.random() < 0.4:
        # While the first one is there its name is taken, so this one follows it.
        again_s = round(pod.at_s + rng.uniform(1.0, mix.duration_s), 3)
        yield msgspec.structs.replace(pod, at_s=again_s, insist_s=_INSIST_S)


# --- what else happens -----------------------------------------------------------------------------------------------


def _budgets(mix: _Field) -> None:
    """Budgets of a team's pods, or of all: made before there are pods, or among them, changed, and deleted."""
    rng = mix.rng
    for number in range(rng.choice((0, 0, 1, 1, 2))):
        name = f"b-{number}"
        labels = {} if rng.random() < 0.2 else {_TEAM: rng.choice(list(mix.leaves))}
        least = rng.choice((0, 1, 1, 2, mix.cards))
        at_s = rng.choice((0.0, mix.moment(0.0, 0.5)))
        mix.actions.append(CreateBudget(at_s=at_s, name=name, least=least, labels=labels))
        if rng.random() < 0.5:
            mix.actions.append(EditBudget(at_s=mix.moment(0.2, 1.0), name=name, least=rng.choice((0, 1, mix.cards))))
        if rng.random() < 0.4:
            mix.actions.append(DeleteBudget(at_s=mix.moment(0.3, 1.0), name=name))


def _queue_edits(mix: _Field) -> None:
    """Administrators change what queues may have, and how long their pods are left alone."""
    rng = mix.rng
    for _ in range(rng.choice((0, 0, 1, 2))):
        name, at_s = rng.choice(list(mix.leaves)), mix.moment(0.1, 1.0)
        amount = rng.choice((0, 1, mix.cards / 2, mix.cards))
        kind = rng.randrange(4)
        if kind == 0:
            mix.actions.append(EditQueue(at_s=at_s, name=name, preempt_min=rng.choice(("0s", "20s", "10m"))))
        elif kind == 1:
            mix.actions.append(EditQueue(at_s=at_s, name=name, reclaim_min=rng.choice(("0s", "20s", "10m"))))
        elif kind == 2:
            quota = {"gpu": {"quota": amount}}
            mix.actions.append(EditQueue(at_s=at_s, name=name, resources=quota))
        else:
            mix.actions.append(DeleteQueue(at_s=at_s, name=name))
            again = next(a for a in mix.actions if isinstance(a, CreateQueue) and a.name == name)
            mix.actions.append(msgspec.structs.replace(again, at_s=round(at_s + rng.choice((0.1, 3.0, 30.0)), 3)))
