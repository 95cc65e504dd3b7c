"""Teams that take from each other: what is drawn. That room is made for them: tests/simulation/test_seeds.py."""

from __future__ import annotations

import random
from collections import Counter

from simulator.nodes import shape
from verification.hostile import queueing
from verification.hostile.actions import Action, CreatePod, CreatePodGroup, DeletePod
from verification.hostile.faults.nodes import SlowStarts
from verification.hostile.queue_actions import (
    CreateBudget,
    CreateQueue,
    DeleteBudget,
    DeleteQueue,
    EditBudget,
    EditQueue,
)
from verification.hostile.scenario import scenario_of
from wire import names

SHAPES = shape.parse(["2x4x80GiB"])
MANY = range(200)


def drawn(seed: int) -> tuple[Action, ...]:
    return queueing.contended(random.Random(seed), shapes=SHAPES, duration_s=60.0)


def test_the_first_wave_asks_for_more_than_there_is() -> None:
    for seed in MANY:
        first = [each for each in drawn(seed) if isinstance(each, CreatePod) and each.at_s <= 7]
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
    told = Counter(what for seed in MANY for action in drawn(seed) for what in _told(action))
    assert min(told.values()) >= 10, told
    assert len(told) == 24, sorted(told)


def test_elastic_gangs_have_more_members_than_they_need() -> None:
    elastic = 0
    for seed in MANY:
        members = Counter(each.group for each in drawn(seed) if isinstance(each, CreatePod) and not each.insist_s)
        groups = [each for each in drawn(seed) if isinstance(each, CreatePodGroup)]
        elastic += sum(members[group.name] > group.minimum for group in groups)
    assert elastic > 100


def test_pods_that_press_come_late_and_ask_for_what_others_of_low_priority_have() -> None:
    """Two of them never fit on one node, so one that presses waits, or evicts one that fills."""
    made = queueing.pressed(random.Random(1), (CreatePod(at_s=1, name="p"),), shapes=SHAPES, duration_s=60.0)
    pods = {each.name: each for each in made if isinstance(each, CreatePod)}
    fills = [each for name, each in pods.items() if name.startswith("fills")]
    presses = [each for name, each in pods.items() if name.startswith("presses")]
    assert len(fills) == len(SHAPES)
    assert all(2 * each.cpu_milli > SHAPES[0].cpu_milli for each in (*fills, *presses))
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
