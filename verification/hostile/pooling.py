"""Runs of two schedulers of two node pools: nodes, pods, gangs and queues change pools in the midst, under all faults.

There are three mixes of users: without Queues, with the trees of other runs (queueing.py), and with teams that take
from each other (queueing.py), so that room is made on both sides. A queue is of one pool, like all below it but a
few; most pods name a queue of their own pool.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

import msgspec

from simulator.nodes import shape
from simulator.nodes.shape import NodeShape
from verification.hostile import queueing
from verification.hostile.actions import Action, ChangePodGroup, CreatePod, CreatePodGroup, DeletePod, EditPod
from verification.hostile.faults import drawing
from verification.hostile.faults.kinds import OF_AGENTS, OF_PREEMPTION, Fault
from verification.hostile.queue_actions import CreateQueue, MoveGroup, MoveNode, MovePod, MoveQueue
from verification.hostile.scenario import Scenario, Switches, scenario_made
from wire import names

SHAPES: Final = ("3x2x80GiB", "1x4x40GiB")
#: The pool that has the label, its scheduler, and that of all other objects.
POOL, _SCHEDULER, _OTHER = "a", "scheduler", "scheduler-a"
PODS: Final = 36
_ASKS: Final[tuple[dict[str, str] | int, ...]] = (
    *({names.GPU_FRACTION: part} for part in ("0.5", "0.25", "0.7")),
    {names.GPU_MEMORY: "20000"},
    *(1, 1, 2),
)
_GANGS, _MOVES, _QUEUE_MOVES = 6, 14, 3
_DURATION_S: Final = 120.0
#: Parts of the queues and pods that are of another pool than what they belong to.
_STRAY_QUEUES, _STRAY_PODS = 0.1, 0.15
#: Part of the runs in which schedulers keep nodes for groups that have waited this long.
_KEEPS_NODES: Final = 0.6
_PATIENCES_S: Final = (10.0, 30.0)
#: Parts of the runs in which nodes have agents, and in which each pool has two replicas of its scheduler.
_HAS_AGENTS: Final = 0.4
_HAS_REPLICAS: Final = 0.3


class Mix(enum.Enum):
    """What users do."""

    FREE = "no Queues"
    QUEUED = "Queues, and what administrators do to them"
    CONTENDED = "teams that take from each other"


def scenario(
    seed: int, mix: Mix = Mix.FREE, *, kinds: Collection[str] | None = None, is_calm: bool = False
) -> Scenario:
    """Pods and gangs of both pools, which come, go and move, and any faults of either scheduler.

    ``kinds``: the faults that may occur (None: all). ``is_calm``: there are none, and no node moves.
    """
    rng, machines = random.Random(f"{seed}/pools"), shape.parse(SHAPES)
    actions: list[Action] = [MoveNode(at_s=0.0, node=machine.name, pool=POOL) for machine in machines[::2]]
    actions += [each for number in range(PODS) for each in _pod(rng, number)]
    actions += [each for number in range(_GANGS) for each in _gang(rng, number)]
    actions += _moves(rng, [machine.name for machine in machines], 0 if is_calm else _MOVES)
    settings = _surroundings(seed, machines) if not is_calm else Switches(pools=(POOL,))
    faults = drawing.draw(
        rng,
        machines,
        kinds=() if is_calm else kinds,
        schedulers=settings.schedulers,
        duration_s=_DURATION_S,
        about=_about(settings, mix),
    )
    faults = tuple(_of_either(rng, faults))
    if not is_calm:
        settings = msgspec.structs.replace(settings, event_delay_s=rng.choice([0.0, 0.0, 0.5]))
    if mix is not Mix.FREE:
        teams = random.Random(f"{seed}/pools/{mix.name}")
        actions = _in_queues(teams, mix, actions)
        settings = msgspec.structs.replace(settings, preemption=mix is Mix.CONTENDED or teams.random() < 0.5)
    kept = random.Random(f"{seed}/pools/berths")
    if kept.random() < _KEEPS_NODES:
        settings = msgspec.structs.replace(settings, reserved_nodes_percent=50, patience_s=kept.choice(_PATIENCES_S))
    return scenario_made(seed, SHAPES, settings, actions=actions, faults=faults)


def _surroundings(seed: int, machines: Sequence[NodeShape]) -> Switches:
    """Replicas that elect a leader for each pool, and nodes that have agents."""
    rng = random.Random(f"{seed}/pools/surroundings")
    schedulers = 2 if rng.random() < _HAS_REPLICAS else 1
    part = rng.choice((0.5, 1.0)) if rng.random() < _HAS_AGENTS else 0.0
    agents = tuple(machine.name for machine in machines if rng.random() < part)
    return Switches(pools=(POOL,), schedulers=schedulers, election=schedulers > 1, agents=agents)


def _about(settings: Switches, mix: Mix) -> list[frozenset[str]]:
    """Kinds of faults that only some runs can have. Where teams take from each other room is made."""
    are_there = {OF_PREEMPTION: mix is Mix.CONTENDED, OF_AGENTS: settings.agents}
    return [kinds for kinds, is_there in are_there.items() if is_there]


def _labels(rng: random.Random) -> dict[str, str]:
    return rng.choice(({}, {names.NODE_POOL_LABEL: POOL}))


def _pod(rng: random.Random, number: int) -> Sequence[Action]:
    name, at_s, asks = f"p-{number}", round(rng.uniform(0, _DURATION_S), 3), rng.choice(_ASKS)
    annotations, gpus = (asks, 0) if isinstance(asks, dict) else ({}, asks)
    run_s = rng.choice([None, 10.0, 30.0, 30.0])
    labels = _labels(rng)
    actions: list[Action] = [
        CreatePod(at_s=at_s, name=name, annotations=annotations, gpus=gpus, labels=labels, run_s=run_s)
    ]
    if rng.random() < 0.3:
        later_s = at_s + round(rng.choice([rng.uniform(0, 1), rng.uniform(0, 40)]), 3)
        actions.append(MovePod(at_s=later_s, pod=name, pool="" if labels else POOL))
    if rng.random() < 0.3:
        actions.append(DeletePod(at_s=at_s + round(rng.uniform(0, 40), 3), name=name))
    return actions


def _gang(rng: random.Random, number: int) -> Sequence[Action]:
    name, at_s, asks = f"g-{number}", round(rng.uniform(0, _DURATION_S), 3), rng.choice(_ASKS)
    annotations, gpus = (dict(asks), 0) if isinstance(asks, dict) else ({}, 1)
    annotations[names.POD_GROUP_NAME] = name
    labels, run_s = _labels(rng), rng.choice([None, 20.0])
    actions: list[Action] = [CreatePodGroup(at_s=at_s, name=name, minimum=2, labels=labels)]
    for member in range(rng.choice((2, 3))):
        made = CreatePod(at_s=at_s, name=f"{name}-{member}", annotations=annotations, gpus=gpus, run_s=run_s)
        actions.append(made)
    if rng.random() < 0.5:
        later_s = at_s + round(rng.choice([rng.uniform(0, 1), rng.uniform(0, 30)]), 3)
        actions.append(MoveGroup(at_s=later_s, group=name, pool="" if labels else POOL))
    return actions


def _moves(rng: random.Random, nodes: Sequence[str], count: int) -> Iterator[Action]:
    for _ in range(count):
        at_s, pool = round(rng.uniform(5, _DURATION_S), 3), rng.choice(("", POOL))
        yield MoveNode(at_s=at_s, node=rng.choice(nodes), pool=pool)


def _of_either(rng: random.Random, faults: Sequence[Fault]) -> Sequence[Fault]:
    """Half of the faults of a scheduler, or of its role, are the other one's."""
    fields = ("component", "user", "role")
    moved: list[Fault] = []
    for fault in faults:
        field = next((each for each in fields if getattr(fault, each, "").startswith(_SCHEDULER)), "")
        is_others = bool(field) and rng.random() < 0.5
        name = _OTHER + getattr(fault, field, "").removeprefix(_SCHEDULER)
        moved.append(msgspec.structs.replace(fault, **{field: name}) if is_others else fault)
    return moved


# --- queues ----------------------------------------------------------------------------------------------------------


def _in_queues(rng: random.Random, mix: Mix, actions: Sequence[Action]) -> list[Action]:
    """What users do in queues, each of one pool. Of teams the nodes' moves stay, and all else is theirs."""
    machines = shape.parse(SHAPES)
    if mix is Mix.QUEUED:
        made = queueing.with_queues(rng, actions, shapes=machines, duration_s=_DURATION_S)
    else:
        moves = (action for action in actions if isinstance(action, MoveNode))
        made = (*moves, *queueing.contended(rng, shapes=machines, duration_s=_DURATION_S))
    pools = _pools_of(rng, made)
    placed = [_placed(rng, mix, pools, action) for action in made]
    return [*placed, *_moved(rng, mix, pools, placed)]


def _pools_of(rng: random.Random, actions: Sequence[Action]) -> dict[str, str]:
    """Queue -> its pool: mostly that of the queue above it."""
    parents = {action.name: action.parent for action in actions if isinstance(action, CreateQueue)}
    drawn = {name: rng.choice(("", POOL)) for name in parents}
    return {name: drawn[name if rng.random() < _STRAY_QUEUES else _top(name, parents)] for name in parents}


def _top(name: str, parents: dict[str, str]) -> str:
    for _ in parents:
        if parents.get(name, "") not in parents:
            break
        name = parents[name]
    return name


def _placed(rng: random.Random, mix: Mix, pools: dict[str, str], action: Action) -> Action:
    """The same action in pools. Pods of a team get their queue's pool, all others a queue of their own pool."""
    if isinstance(action, CreateQueue):
        return msgspec.structs.replace(action, pool=pools[action.name])
    if not isinstance(action, CreatePod | CreatePodGroup) or rng.random() < _STRAY_PODS:
        return action
    queue = action.queue if isinstance(action, CreatePodGroup) else action.labels.get(names.QUEUE_LABEL, "")
    if mix is Mix.CONTENDED:
        pool = {names.NODE_POOL_LABEL: POOL} if pools.get(queue) else {}
        return msgspec.structs.replace(action, labels={**action.labels, **pool})
    own = [name for name, pool in pools.items() if pool == action.labels.get(names.NODE_POOL_LABEL, "")]
    if not own or queue in own:
        return action
    changes: dict[str, Any] = {"queue": rng.choice(own)}
    if isinstance(action, CreatePod):
        changes = {"labels": {**action.labels, names.QUEUE_LABEL: rng.choice(own)}}
    return msgspec.structs.replace(action, **changes)


def _moved(rng: random.Random, mix: Mix, pools: dict[str, str], actions: Sequence[Action]) -> Iterator[Action]:
    """Queues that change pools, and of teams some of the pods and gangs, waiting or bound."""
    for _ in range(rng.randrange(_QUEUE_MOVES)):
        at_s = round(rng.uniform(5, _DURATION_S), 3)
        yield MoveQueue(at_s=at_s, queue=rng.choice(list(pools)), pool=rng.choice(("", POOL)))
    for action in actions if mix is Mix.CONTENDED else ():
        is_one = isinstance(action, CreatePodGroup) or (isinstance(action, CreatePod) and not action.group)
        if not isinstance(action, CreatePod | CreatePodGroup) or not is_one or rng.random() >= 0.15:
            continue
        at_s = round(action.at_s + rng.choice((rng.uniform(0, 1), rng.uniform(0, 40))), 3)
        queue = rng.choice(
            [name for name in pools if pools[name] != action.labels.get(names.NODE_POOL_LABEL, "")] or [""]
        )
        pool = "" if names.NODE_POOL_LABEL in action.labels else POOL
        if isinstance(action, CreatePodGroup):
            yield MoveGroup(at_s=at_s, group=action.name, pool=pool)
            yield ChangePodGroup(at_s=at_s, name=action.name, queue=queue or None)
        else:
            yield MovePod(at_s=at_s, pod=action.name, pool=pool)
            yield EditPod(at_s=at_s, name=action.name, labels={names.QUEUE_LABEL: queue or None})
