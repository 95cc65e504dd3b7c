"""Queues and contending teams in a part of the hostile runs: all that may happen to them is drawn.

That pods are evicted for them: tests/simulation/test_seeds.py.
"""

from __future__ import annotations

import random
from collections import Counter

from simulator.nodes import shape
from verification.hostile import queueing, workload
from verification.hostile.actions import Action, ChangePodGroup, CreatePod, CreatePodGroup, DeletePod, EditPod
from verification.hostile.faults.nodes import SlowStarts
from verification.hostile.queue_actions import (
    CreateBudget,
    CreateQueue,
    DeleteBudget,
    DeleteOwner,
    DeleteQueue,
    EditBudget,
    EditQueue,
)
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


FULL_SHAPES = shape.parse(["2x4x80GiB"])
MANY_TEAMS = range(200)


def contended(seed: int) -> tuple[Action, ...]:
    return queueing.contended(random.Random(seed), shapes=FULL_SHAPES, duration_s=60.0)


def test_the_first_wave_asks_for_more_than_there_is() -> None:
    for seed in MANY_TEAMS:
        first = [each for each in contended(seed) if isinstance(each, CreatePod) and each.at_s <= 7]
        asked = sum(each.gpus + float(each.annotations.get(names.GPU_FRACTION, "0")) for each in first)
        assert asked >= 8


def _told(action: Action) -> list[str]:
    match action:
        case CreatePod():
            facts = {
                "a part": bool(action.annotations),
                "several": action.gpus > 1,
                "made again": bool(action.insist_s),
                "long end": action.grace_s == 60,
                f"priority {action.priority_class}": True,
            }
            return [what for what, is_so in facts.items() if is_so]
        case CreatePodGroup():
            return [f"gang {action.preemptibility}", "delay" if action.delay else "gang at once"]
        case CreateQueue() | EditQueue():
            said = {"preempt": action.preempt_min, "reclaim": action.reclaim_min}
            return [f"{type(action).__name__} {what}" for what, value in said.items() if value]
        case CreateBudget():
            return ["budget of a team" if action.labels else "budget of all"]
        case DeletePod() | EditBudget() | DeleteBudget() | DeleteQueue():
            return [type(action).__name__]
        case _:
            return []


def test_all_that_may_happen_does() -> None:
    told = Counter(what for seed in MANY_TEAMS for action in contended(seed) for what in _told(action))
    assert min(told.values()) >= 10, told
    assert len(told) == 24, sorted(told)


def test_elastic_gangs_have_more_members_than_they_need() -> None:
    elastic = 0
    for seed in MANY_TEAMS:
        members = Counter(each.group for each in contended(seed) if isinstance(each, CreatePod) and not each.insist_s)
        groups = [each for each in contended(seed) if isinstance(each, CreatePodGroup)]
        elastic += sum(members[group.name] > group.minimum for group in groups)
    assert elastic > 100


def test_pods_that_press_come_late_and_ask_for_what_others_of_low_priority_have() -> None:
    """Two of them never fit on one node, so one that presses waits, or evicts one that fills."""
    made = queueing.pressed(random.Random(1), (CreatePod(at_s=1, name="p"),), shapes=FULL_SHAPES, duration_s=60.0)
    pods = {each.name: each for each in made if isinstance(each, CreatePod)}
    fills = [each for name, each in pods.items() if name.startswith("fills")]
    presses = [each for name, each in pods.items() if name.startswith("presses")]
    assert len(fills) == len(FULL_SHAPES)
    assert all(2 * each.cpu_milli > FULL_SHAPES[0].cpu_milli for each in (*fills, *presses))
    assert max(each.at_s for each in fills) < 30 <= min(each.at_s for each in presses)
    assert {each.priority_class for each in (*fills, pods["p"])} == {"spare"}
    assert {each.priority_class for each in presses} <= {"urgent", "inference"}
    assert {each.name for each in made if isinstance(each, CreateQueue)} == {"pressed", names.DEFAULT_QUEUE}


def test_where_a_node_lags_shares_are_under_way_to_all() -> None:
    late = [
        each for each in map(scenario_of, range(100)) if any(getattr(a, "name", "") == "lag-0" for a in each.actions)
    ]
    assert len(late) >= 5
    for each in late:
        begins_s = min(fault.at_s for fault in each.faults if isinstance(fault, SlowStarts) and fault.slow_s == 90)
        coming = [a for a in each.actions if isinstance(a, CreatePod) and a.name.startswith("lag-")]
        assert min(a.at_s for a in coming) > begins_s
        assert len({node.name for node in each.nodes if node.cards_mib}) > 1
