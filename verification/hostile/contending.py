"""Teams that take from each other on a full cluster: the mixes of users of which room has to be made for some.

First some queues fill all devices with pods alone, parts of devices, gangs and elastic gangs; then others come that are
owed a part of it, or are more urgent: alone, as gangs, for a part of a device or for a whole one that is shared. What
was evicted is made again by its controller as often as not. Meanwhile budgets come and go, nominated pods are deleted,
and administrators change queues as in any other run with queues (queueing.py).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from simulator.nodes.shape import NodeShape
from verification.hostile.actions import Action, CreatePod, CreatePodGroup, DeletePod
from verification.hostile.queue_actions import (
    CreateBudget,
    CreatePriorityClass,
    CreateQueue,
    DeleteBudget,
    DeleteQueue,
    EditBudget,
    EditQueue,
)
from wire import names

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
_PRIORITIES: Final = {"spare": 10, "train": 50, "urgent": 90, "build": 100, "inference": 125}
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
    for name, value in _PRIORITIES.items():
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
    made: list[Action] = [CreatePriorityClass(at_s=0.0, name=name, value=value) for name, value in _PRIORITIES.items()]
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
            mix.actions += _later(mix, pod)


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


def _later(mix: _Field, pod: CreatePod) -> Iterator[Action]:
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
