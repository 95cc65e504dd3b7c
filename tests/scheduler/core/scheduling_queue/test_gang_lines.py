"""Gangs that ask the same stand in lines: the first speaks for all, and one verdict is kept for all of them."""

from __future__ import annotations

import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import placements
from scheduler.core.scheduling_queue.gang_signatures import Lined
from scheduler.core.scheduling_queue.signatures import Turns
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
    made.backlog.recount_ns = 10**9  # before that nobody is looked at for counts alone
    return made


def awake(made: Cluster) -> list[tuple[str, int]]:
    """Queue and minimum of each line that the next decision looks at."""
    made.prepared(0)
    return sorted((line.key.queue, line.key.alike.minimum) for line in made.backlog.lines.awake())


def free(made: Cluster) -> None:
    """Both GPUs come free."""
    made.remove_pod("uid-old0")
    made.remove_pod("uid-old1")


def test_nobody_in_a_line_is_awake_until_a_node_has_room() -> None:
    made = full(gang("g1"), gang("g2"), gang("g3", queue="b"), gang("large", size=3))
    assert awake(made) == []
    assert made.backlog.awake_gangs() == []
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
    assert made.backlog.awake_gangs() == []
    plan = made.decide(0)
    assert [each.name for each in placements(plan.entries)] == ["g000-0", "g000-1"]
    for placement in placements(plan.entries):
        made.commits.assume(placement)
    assert [*placements(made.decide(0).entries)] == []
    assert ("ns", "g000") not in made.backlog.lines
    assert ("ns", "g199") in made.backlog.lines


@pytest.mark.parametrize("gone", ["pod", "pod_group"])
def test_a_gang_that_changes_leaves_its_line(gone: str) -> None:
    made = full(gang("g1"), gang("g2"))
    if gone == "pod":
        made.remove_pod("uid-g1-0")
    else:
        feed(made, pod_group("g1", 1))
    made.prepared(0)
    assert [each.key for each in made.backlog.awake_gangs()] == [("ns", "g1")]
    assert ("ns", "g2") in made.backlog.lines


def test_gangs_of_which_one_has_been_started_before_stand_alone() -> None:
    made = full([pod_group("g", 3), bound(pod("g-0", group="g"), "n1"), *gang("x")[1:]])
    feed(made, pod("g-1", gpus=1, group="g"), pod("g-2", gpus=1, group="g"))
    made.decide(0)
    assert ("ns", "g") not in made.backlog.lines


def test_what_one_of_them_finds_out_is_said_by_all() -> None:
    made = full(gang("g1"), gang("g2"), gang("g3", queue="b"))
    before = {each.verdict.reasons for each in made.backlog.said.all()}
    feed(made, node("n1", 2, cordoned=True))
    made.backlog.recount_ns = 0
    made.decide(0)
    after = {each.verdict.reasons for each in made.backlog.said.all()}
    assert len(before) == len(after) == 1
    assert before != after


def test_what_nobody_asks_any_more_is_forgotten() -> None:
    made = full(gang("g1"))
    for uid in ("uid-g1-0", "uid-g1-1"):
        made.remove_pod(uid)
    made.decide(0)
    assert made.backlog.lines.alikes() == set()
    assert made.backlog.lines.stale(8) == []


def test_a_line_with_others_has_them_in_order_and_leaves_the_line_itself_as_it_is() -> None:
    made = full(gang("g2"), gang("g3"))
    (line,) = made.backlog.lines.all()
    (first, *_) = sorted(line.ranks())
    new = Lined(("ns", "g1"), first._replace(uid="pg-g1"), line.key, line.needed, ("uid-g1-0", "uid-g1-1"))
    longer = line.with_all([new])
    assert [longer.gang(rank) for rank in sorted(longer.ranks())] == [("ns", "g1"), ("ns", "g2"), ("ns", "g3")]
    assert (len(line), Turns(longer).first()) == (2, new.rank)
    assert line.with_all([]) is line
