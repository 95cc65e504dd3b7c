"""Starts of large gangs that fail are tried seldom, and every gang has its turn."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace

from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import Explain, Gang, Plan
from scheduler.core.model.verdict import Code
from scheduler.core.scheduling_queue.unschedulable import LARGE, GangPace
from tests.scheduler.core.objects import cluster, feed, node, pod, pod_group
from wire.crds.podgroup import PodGroup

_MS = 1_000_000


def _with_gang(members: int, *, cpu: int) -> Cluster:
    pods = [pod(f"m{i:03}", group="g", cpu="1") for i in range(members)]
    return cluster(node(cpu=str(cpu), pods=1000), pod_group("g", members), *pods)


def _group_in(namespace: str, *, minimum: int) -> PodGroup:
    made = pod_group("g", minimum)
    return replace(made, metadata=replace(made.metadata, namespace=namespace, uid=namespace))


def _kinds(plan: Plan) -> list[type]:
    return [type(entry) for entry in plan.entries]


def test_a_large_gang_that_failed_is_tried_again_after_ten_times_what_its_start_cost() -> None:
    made = _with_gang(150, cpu=120)
    plan = made.decide(0)
    assert [entry.verdict.code for entry in plan.entries if isinstance(entry, Explain)] == [Code.GANG_INCOMPLETE]
    feed(made, node(cpu="200", pods=1000))
    again = made.decide(1)
    assert again.entries == plan.entries, "it goes on to say what it said"
    assert again.wake_at_ns is not None
    assert again.wake_at_ns >= 10 * LARGE * 1_000
    assert _kinds(made.decide(again.wake_at_ns - 1)) == [Explain]
    assert _kinds(made.decide(again.wake_at_ns)) == [Gang]


def test_a_start_costs_for_all_members_that_were_passed_over_though_few_found_a_place() -> None:
    pods = [pod(f"m{i:04}", group="g", cpu="1") for i in range(1_000)]
    made = cluster(node(cpu="1", pods=1000), pod_group("g", 150), *pods)
    assert _kinds(made.decide(0)) == [Explain]
    feed(made, node(cpu="200", pods=1000))
    again = made.decide(1)
    assert _kinds(again) == [Explain]
    assert again.wake_at_ns is not None
    assert Gang in _kinds(made.decide(again.wake_at_ns))


def test_a_gang_that_needs_less_than_when_it_was_told_is_looked_at_in_its_pause() -> None:
    made = _with_gang(150, cpu=120)
    made.decide(0)
    feed(made, pod_group("g", 2))
    assert Gang in _kinds(made.decide(1))


def test_a_gang_that_lost_members_says_in_its_pause_that_it_waits_for_them() -> None:
    made = _with_gang(150, cpu=120)
    made.decide(0)
    for number in range(100):
        made.remove_pod(f"uid-m{number:03}")
    (told,) = [entry.verdict for entry in made.decide(1).entries if isinstance(entry, Explain)]
    assert (told.code, told.present) == (Code.GANG_NOT_READY, 50)


def test_a_gang_that_is_not_large_is_tried_whenever_something_changes() -> None:
    made = _with_gang(15, cpu=12)
    assert _kinds(made.decide(0)) == [Explain]
    feed(made, node(cpu="200", pods=1000))
    assert _kinds(made.decide(1)) == [Gang]


def test_a_pod_of_another_namespace_is_decided_on_while_a_large_gang_has_its_pause() -> None:
    made = _with_gang(150, cpu=120)
    made.decide(0)
    feed(made, pod("other", namespace="elsewhere", cpu="1"))
    assert any(not isinstance(entry, Explain) for entry in made.decide(1).entries)


def test_only_one_large_start_fails_in_a_decision_however_many_namespaces_have_one() -> None:
    pods = [pod(f"m{n}-{i:03}", group="g", cpu="1", namespace=f"ns{n}") for n in range(4) for i in range(150)]
    groups = [_group_in(f"ns{n}", minimum=150) for n in range(4)]
    made = cluster(node(cpu="120", pods=1000), *groups, *pods)
    waiting: list[int] = []
    now_ns: int | None = 0
    while now_ns is not None and len(waiting) < 4:
        plan = made.decide(now_ns)
        told = [entry.verdict.code for entry in plan.entries if isinstance(entry, Explain)]
        assert len(told) == 4, "each says why it waits"
        waiting.append(told.count(Code.WAITS_FOR_TURN))
        now_ns = plan.wake_at_ns
    assert waiting == [3, 2, 1, 0]


@pytest.mark.parametrize("namespaces", [1, 3, 20])
def test_every_gang_has_its_turn_however_many_others_fail_before_it(namespaces: int) -> None:
    """The first gang in order is always tried first if it may be."""
    pace, now_ns = GangPace(), 0
    gangs = [(f"ns{number % namespaces}", f"g{number:02}") for number in range(40)]
    tried: Counter[tuple[str, str]] = Counter()
    for _ in range(800):
        key = next((key for key in gangs if pace.next_ns(key) <= now_ns), None)
        if key is None:
            now_ns = min(map(pace.next_ns, gangs))
            continue
        pace.failed(key, 100_000, now_ns)
        tried[key] += 1
    assert min(tried[key] for key in gangs) >= 8
    assert max(tried.values()) <= 14
    assert tried.total() * 100 * _MS <= 0.2 * now_ns


def test_what_gangs_of_another_namespace_cost_does_not_lengthen_a_pause_by_their_number() -> None:
    few, many = GangPace(), GangPace()
    few.failed(("busy", "g"), 100_000, 0)
    for number in range(500):
        many.failed(("busy", f"g{number}"), 100_000, 0)
    for pace in (few, many):
        pace.failed(("own", "g"), 100_000, 0)
    assert few.next_ns(("own", "g")) == many.next_ns(("own", "g")) == 1_600 * _MS


def test_a_start_that_costs_little_ends_the_pause_of_its_gang() -> None:
    pace = GangPace()
    pace.failed(("ns", "g"), LARGE + 1, 0)
    assert pace.is_large(("ns", "g"))
    pace.failed(("ns", "g"), LARGE, 1)
    assert not pace.is_large(("ns", "g"))


def test_gangs_that_are_gone_are_forgotten_and_their_namespace_keeps_its_pause() -> None:
    pace = GangPace()
    pace.failed(("ns", "g"), 100_000, 0)
    pace.keep_only(set(), 499 * _MS)
    assert pace.next_ns(("ns", "another")) == 500 * _MS
    pace.keep_only(set(), 500 * _MS)
    assert pace.next_ns(("ns", "another")) == 200 * _MS
    assert not pace.is_kept
