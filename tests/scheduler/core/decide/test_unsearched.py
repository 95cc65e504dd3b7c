"""A pod for which room has not been looked for yet is told nothing before that look, which is near."""

from __future__ import annotations

import msgspec

from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import Explain, Nominate, Plan
from scheduler.core.model.settings import Settings
from scheduler.core.model.verdict import Code
from tests.scheduler.core.decide.test_making import MS, Searches, making, nominations
from tests.scheduler.core.nodes.test_nominated_usage import running
from tests.scheduler.core.objects import feed, node, pod, pod_group


def told(made: Cluster, now_ms: int) -> dict[str, Code]:
    """Decide, and carry out what is decided of room; what pods are told now."""
    return carried_out(made, made.decide(now_ms * MS))


def carried_out(made: Cluster, plan: Plan) -> dict[str, Code]:
    for each in nominations(plan):
        made.commits.nominations.put(each)
    explained = [entry for entry in plan.entries if isinstance(entry, Explain)]
    made.told(explained)
    return {uid: entry.verdict.code for entry in explained for uid in entry.pods}


def looked(search: Searches, preemption: bool = True) -> Cluster:
    """A full node, on which room was looked for just now."""
    made = making(search, node(gpus=4), running("v", 2), running("w", 2))
    if not preemption:
        made = Cluster(Settings(preemption=False))
        feed(made, node(gpus=4), running("v", 2), running("w", 2))
    assert told(made, 0) == {}
    return made


def test_a_pod_that_comes_between_two_looks_is_told_once_that_room_is_made() -> None:
    made = looked(Searches(["v"]))
    feed(made, pod("h", gpus=2))
    plan = made.decide(10 * MS)
    assert carried_out(made, plan) == {}
    assert plan.wake_at_ns == 200 * MS
    assert told(made, 200) == {"uid-h": Code.WAITS_FOR_VICTIMS}


def test_a_pod_that_is_refused_room_is_told_with_the_look_that_refuses_it() -> None:
    made = looked(Searches())
    feed(made, pod("h", gpus=2))
    assert told(made, 10) == {}
    assert told(made, 200) == {"uid-h": Code.NO_NODE_FITS}


def test_the_next_pod_of_a_shape_that_was_refused_is_told_at_once() -> None:
    made = looked(Searches())
    feed(made, pod("h", gpus=2))
    assert told(made, 200) == {"uid-h": Code.NO_NODE_FITS}
    feed(made, pod("i", gpus=2))
    assert told(made, 210) == {"uid-i": Code.NO_NODE_FITS}


def test_the_same_holds_for_a_gang_and_for_one_behind_it_in_its_line() -> None:
    made = looked(Searches())
    feed(made, pod_group("g", 2), pod("g0", gpus=3, group="g"), pod("g1", gpus=3, group="g"))
    assert told(made, 10) == {}
    assert set(told(made, 200)) == {"uid-g0", "uid-g1"}
    feed(made, pod_group("h", 2), pod("h0", gpus=3, group="h"), pod("h1", gpus=3, group="h"))
    assert set(told(made, 210)) == {"uid-h0", "uid-h1"}


def test_a_pod_that_room_can_not_help_is_told_at_once() -> None:
    made = looked(Searches())
    feed(made, pod("h", gpus=2, group="nobody"))
    assert told(made, 10) == {"uid-h": Code.POD_GROUP_NOT_FOUND}


def test_where_nobody_is_evicted_for_others_a_pod_is_told_at_once() -> None:
    made = looked(Searches(), preemption=False)
    feed(made, pod("h", gpus=2))
    assert told(made, 10) == {"uid-h": Code.NO_NODE_FITS}


def test_nobody_is_kept_waiting_for_much_longer_than_a_second_though_no_look_comes() -> None:
    made = looked(Searches())
    feed(made, pod("h", gpus=2))
    told_ms = 0
    for now_ms in range(10, 2_000, 10):
        # Looks are put off again and again, as where others use up what one decision may spend.
        made.scheduling_queue.preemption = msgspec.structs.replace(
            made.scheduling_queue.preemption, looked_ns=now_ms * MS, stamp=("another",)
        )
        if told(made, now_ms):
            told_ms = now_ms
            break
    assert 1_000 <= told_ms <= 1_210


def test_a_decision_that_makes_room_says_so_though_others_are_held_back() -> None:
    made = looked(Searches(["v"]))
    feed(made, pod("h", gpus=2))
    assert told(made, 10) == {}
    plan = made.decide(200 * MS)
    assert any(isinstance(entry, Nominate) for entry in plan.entries)
