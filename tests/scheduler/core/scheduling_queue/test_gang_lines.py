"""Gangs that ask the same stand in lines: the first speaks for all, and one verdict is kept for all of them."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace

from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import Explain, Gang, Plan, placements
from scheduler.core.model.verdict import Code
from scheduler.core.scheduling_queue.gang_signatures import Lined
from scheduler.core.scheduling_queue.signatures import Turns
from scheduler.core.scheduling_queue.unschedulable import LARGE, GangPace
from tests.scheduler.core.objects import bound, cluster, feed, node, pod, pod_group
from wire.core import Pod
from wire.crds.podgroup import PodGroup


def gang(name: str, *, size: int = 2, gpus: int = 1, queue: str = "a") -> list[Pod | PodGroup]:
    """A gang of so many equal pods."""
    return [pod_group(name, size, queue=queue), *(pod(f"{name}-{i}", gpus=gpus, group=name) for i in range(size))]


def full(*gangs: list[Pod | PodGroup]) -> Cluster:
    """A node of two GPUs, both in use, and gangs that wait and have had their turn."""
    running = (bound(pod(f"old{i}", gpus=1), "n1") for i in range(2))
    made = cluster(node("n1", 2), *running, *(each for one in gangs for each in one))
    made.decide(0)
    made.scheduling_queue.recount_ns = 10**9  # before that nobody is looked at for counts alone
    return made


def awake(made: Cluster) -> list[tuple[str, int]]:
    """Queue and minimum of each line that the next decision looks at."""
    made.prepared(0)
    return sorted((line.key.queue, line.key.alike.minimum) for line in made.scheduling_queue.lines.awake())


def free(made: Cluster) -> None:
    """Both GPUs come free."""
    made.remove_pod("uid-old0")
    made.remove_pod("uid-old1")


def test_nobody_in_a_line_is_awake_until_a_node_has_room() -> None:
    made = full(gang("g1"), gang("g2"), gang("g3", queue="b"), gang("large", size=3))
    assert awake(made) == []
    assert made.scheduling_queue.awake_gangs() == []
    free(made)
    assert awake(made) == [("a", 2), ("b", 2)]


def test_a_gpu_wakes_those_for_whom_it_is_enough_and_no_others() -> None:
    made = full(gang("g1"), gang("single", size=1), gang("wide", gpus=2))
    made.remove_pod("uid-old0")
    assert awake(made) == [("a", 1)]
    made.remove_pod("uid-old1")
    assert awake(made) == [("a", 1), ("a", 2)]


def test_the_first_of_all_lines_starts_and_the_others_sleep_on() -> None:
    made = full(*(gang(f"g{i:03}") for i in range(200)))
    free(made)
    made.prepared(0)
    assert made.scheduling_queue.awake_gangs() == []
    plan = made.decide(0)
    assert [each.name for each in placements(plan.entries)] == ["g000-0", "g000-1"]
    for placement in placements(plan.entries):
        made.commits.assume(placement)
    assert [*placements(made.decide(0).entries)] == []
    assert ("ns", "g000") not in made.scheduling_queue.lines
    assert ("ns", "g199") in made.scheduling_queue.lines


@pytest.mark.parametrize("gone", ["pod", "pod_group"])
def test_a_gang_that_changes_leaves_its_line(gone: str) -> None:
    made = full(gang("g1"), gang("g2"))
    if gone == "pod":
        made.remove_pod("uid-g1-0")
    else:
        feed(made, pod_group("g1", 1))
    made.prepared(0)
    assert [each.key for each in made.scheduling_queue.awake_gangs()] == [("ns", "g1")]
    assert ("ns", "g2") in made.scheduling_queue.lines


def test_gangs_of_which_one_has_been_started_before_stand_alone() -> None:
    made = full([pod_group("g", 3), bound(pod("g-0", group="g"), "n1"), *gang("x")[1:]])
    feed(made, pod("g-1", gpus=1, group="g"), pod("g-2", gpus=1, group="g"))
    made.decide(0)
    assert ("ns", "g") not in made.scheduling_queue.lines


def test_what_one_of_them_finds_out_is_said_by_all() -> None:
    made = full(gang("g1"), gang("g2"), gang("g3", queue="b"))
    before = {each.verdict.reasons for each in made.scheduling_queue.said.all()}
    feed(made, node("n1", 2, cordoned=True))
    made.scheduling_queue.recount_ns = 0
    made.decide(0)
    after = {each.verdict.reasons for each in made.scheduling_queue.said.all()}
    assert len(before) == len(after) == 1
    assert before != after


def test_what_nobody_asks_any_more_is_forgotten() -> None:
    made = full(gang("g1"))
    for uid in ("uid-g1-0", "uid-g1-1"):
        made.remove_pod(uid)
    made.decide(0)
    assert made.scheduling_queue.lines.alikes() == set()
    assert made.scheduling_queue.lines.stale(8) == []


def test_a_line_with_others_has_them_in_order_and_leaves_the_line_itself_as_it_is() -> None:
    made = full(gang("g2"), gang("g3"))
    (line,) = made.scheduling_queue.lines.all()
    (first, *_) = sorted(line.ranks())
    new = Lined(("ns", "g1"), first._replace(uid="pg-g1"), line.key, line.needed, ("uid-g1-0", "uid-g1-1"))
    longer = line.with_all([new])
    assert [longer.gang(rank) for rank in sorted(longer.ranks())] == [("ns", "g1"), ("ns", "g2"), ("ns", "g3")]
    assert (len(line), Turns(longer).first()) == (2, new.rank)
    assert line.with_all([]) is line


# Starts of large gangs that fail are tried seldom, and every gang has its turn.

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
