"""Queues in a part of the runs: a tree, pods and gangs in it, and what administrators do to it meanwhile.

Drawn behind the workload and from a source of its own, so that runs without queues stay what they were. Limits are
small beside the cluster, so that they hold pods back; amounts have tenths and thirds. Nothing here asks whether a
change makes sense: queues are put below themselves, below missing ones, below leaves in use, and are deleted with all
in them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from simulator.nodes.shape import NodeShape
from verification.hostile.actions import Action, ChangePodGroup, CreatePod, CreatePodGroup, EditPod
from verification.hostile.queue_actions import (
    Amounts,
    CreateOwner,
    CreatePriorityClass,
    CreateQueue,
    DeleteOwner,
    DeleteQueue,
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
