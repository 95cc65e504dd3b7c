"""Queues in a part of the hostile runs: all that may happen to them does."""

from __future__ import annotations

import random
from collections import Counter

from simulator.nodes import shape
from verification.hostile import queueing, workload
from verification.hostile.actions import Action, ChangePodGroup, CreatePod, CreatePodGroup, EditPod
from verification.hostile.queue_actions import CreateQueue, DeleteOwner, DeleteQueue, EditQueue
from verification.hostile.scenario import scenario_of
from wire import names

SHAPES = shape.parse(["2x4x80GiB", "1x1x24GiB"])
MANY = range(300)


def drawn(seed: int) -> tuple[Action, ...]:
    return workload.draw(random.Random(seed), shapes=SHAPES, duration_s=20.0)


def queued(seed: int) -> tuple[Action, ...]:
    return queueing.queued(random.Random(seed), drawn(seed), shapes=SHAPES, duration_s=20.0)


def has_queues(actions: tuple[Action, ...]) -> bool:
    return any(isinstance(action, CreateQueue) for action in actions)


def test_no_pod_is_lost_and_most_are_in_a_queue_that_can_be_used() -> None:
    known = missing = 0
    for seed in filter(lambda seed: has_queues(queued(seed)), MANY):
        made = queued(seed)
        pods = [action for action in made if isinstance(action, CreatePod)]
        assert len(pods) == sum(isinstance(action, CreatePod) for action in drawn(seed))
        queues = {action.name for action in made if isinstance(action, CreateQueue)}
        known += sum(pod.labels.get(names.QUEUE_LABEL) in queues for pod in pods)
        missing += sum(pod.labels.get(names.QUEUE_LABEL) not in queues for pod in pods)
    assert missing < known // 5
    assert missing > 20


def _told_of_queue(action: CreateQueue | EditQueue, parents: dict[str, str]) -> dict[str, bool]:
    if isinstance(action, CreateQueue):
        return {"late": action.at_s > 0, "below a leaf": action.name.startswith("late-")}
    amounts = {(field, each) for one in action.resources.values() for field, each in one.items()}
    return {
        "without meaning": any(each > 10**11 or (each < 0 and each != -1) for _, each in amounts),
        "cycle": action.name in {action.parent, parents.get(action.parent or "")},
        "missing parent": bool(action.parent) and action.parent not in parents,
        "priority": action.priority is not None,
        **{field: any(field == each for each, _ in amounts) for field in ("limit", "quota", "overQuotaWeight")},
    }


def _told_of(action: Action, parents: dict[str, str]) -> dict[str, bool]:
    match action:
        case CreateQueue() | EditQueue():
            return _told_of_queue(action, parents)
        case DeleteQueue() | DeleteOwner():
            return {type(action).__name__: True}
        case EditPod(labels=labels):
            keys = (names.QUEUE_LABEL, names.PREEMPTIBILITY_LABEL)
            return {f"edited {key}": key in labels for key in keys}
        case CreatePodGroup() | ChangePodGroup():
            return {f"{type(action).__name__} of a queue": action.queue in parents}
        case _:
            return {}


def test_all_that_may_happen_to_queues_does() -> None:
    told: Counter[str] = Counter()
    for made in map(queued, MANY):
        parents = {action.name: action.parent for action in made if isinstance(action, CreateQueue)}
        for action in made if parents else ():
            told.update({what: int(is_so) for what, is_so in _told_of(action, parents).items()})
    assert min(told.values()) >= 5, told
    assert len(told) == 15


def test_a_scenario_asks_admission_about_its_queues_or_not() -> None:
    runs = [scenario_of(seed, ()) for seed in range(200)]
    with_queues = [each for each in runs if has_queues(each.actions)]
    asked = [each.settings.checks_queues for each in with_queues]
    assert min(asked.count(True), asked.count(False)) > len(asked) // 3
    assert not any(each.settings.checks_queues for each in runs if each not in with_queues)
