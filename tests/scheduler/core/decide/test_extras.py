"""Members beyond the minimum of their gangs: whose turn it is (as in KAI)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.decide.allowance import Limits
from scheduler.core.model.plan import Alone, Bind, Gang, Placement
from scheduler.core.model.verdict import Code
from tests.scheduler.core.objects import bound, cluster, feed, node, pod, pod_group
from tests.values import there
from wire.core import Pod


def members(group: str, count: int, *, running: int = 0, subgroup: str = "", **asked: Any) -> list[Pod]:
    """Members of a gang, of which the first ones run."""
    made = [pod(f"{group}{subgroup}{i}", group=group, subgroup=subgroup, gpus=1, **asked) for i in range(count)]
    return [bound(one, "n1") if i < running else one for i, one in enumerate(made)]


def placed(made: Cluster) -> list[str]:
    """Names of pods in the order in which they are placed, one at a time."""
    return [entry.placement.name for entry in made.decide(0).entries if isinstance(entry, Alone)]


def of_gangs(names: list[str]) -> dict[str, int]:
    return dict(Counter(name[0] for name in names))


@pytest.mark.parametrize(
    ("gpus", "a", "b"),
    [
        pytest.param(5, 2, 1, id="one each, then the older one"),
        pytest.param(4, 1, 1, id="one each"),
        pytest.param(3, 1, 0, id="the older one"),
        pytest.param(8, 3, 3, id="all"),
    ],
)
def test_of_two_gangs_at_their_minimum_each_gets_one_before_the_older_one_gets_two(gpus: int, a: int, b: int) -> None:
    gangs: list[Any] = [pod_group("a", 1), pod_group("b", 1), *members("a", 4, running=1), *members("b", 4, running=1)]
    got = of_gangs(placed(cluster(node(gpus=gpus), *gangs)))
    assert (got.get("a", 0), got.get("b", 0)) == (a, b)


def test_a_gang_above_its_minimum_comes_after_one_at_it_however_old_it_is() -> None:
    gangs: list[Any] = [pod_group("a", 1), pod_group("b", 1), *members("a", 4, running=2), *members("b", 4, running=1)]
    assert placed(cluster(node(gpus=4), *gangs)) == ["b1"]


def test_a_member_beyond_the_minimum_that_is_on_its_way_counts() -> None:
    gangs: list[Any] = [pod_group("a", 1), pod_group("b", 1), *members("a", 4, running=1), *members("b", 4, running=1)]
    made = cluster(node(gpus=4), *gangs)
    first, second = (entry for entry in made.decide(0).entries if isinstance(entry, Bind))
    assert (first.placement.name, second.placement.name) == ("a1", "b1")
    made.commits.assume(first.placement)
    assert placed(made) == ["b1"]


def test_a_gang_whose_minimum_is_on_its_way_keeps_its_place_among_those_that_run() -> None:
    gangs: list[Any] = [pod_group("a", 1), pod_group("b", 1), *members("a", 4), *members("b", 4)]
    made = cluster(node(gpus=5), *gangs)
    for entry in made.decide(0).entries:
        if isinstance(entry, Bind):
            made.commits.assume(entry.placement)
    made.upsert_pod(bound(gangs[2], "n1"))
    assert placed(made) == ["a1", "a2"]
    made.commits.assume(_bind(made, "a1"))
    made.commits.assume(_bind(made, "a2"))
    made.upsert_pod(bound(gangs[6], "n1"))
    assert placed(made) == ["b1"]
    assert made.validate() == []


def _bind(made: Cluster, name: str) -> Placement:
    (found,) = (e.placement for e in made.decide(0).entries if isinstance(e, Bind) and e.placement.name == name)
    return found


def test_the_room_that_is_kept_for_a_gang_is_none_of_the_next_minimum() -> None:
    late: list[Any] = [pod_group("c", 2), *members("c", 2)]
    gangs: list[Any] = [pod_group("b", 1), *members("b", 4)]
    made = cluster(node(gpus=3), *gangs)
    (entry,) = (entry for entry in made.decide(0).entries if isinstance(entry, Bind))
    made.commits.assume(entry.placement)
    for one in late:
        feed(made, one)
    (start,) = (entry for entry in made.decide(0).entries if isinstance(entry, Gang))
    assert {placement.name for placement in start.placements} == {"c0", "c1"}


def test_within_a_gang_the_subgroup_with_the_least_of_its_minimum_comes_first() -> None:
    group = pod_group("g", subGroups=[{"name": "a", "minMember": 1}, {"name": "b", "minMember": 2}])
    pods = [*members("g", 5, running=1, subgroup="a"), *members("g", 6, running=2, subgroup="b")]
    assert placed(cluster(node(gpus=9), group, *pods)) == ["ga1", "gb2", "gb3", "ga2", "gb4", "gb5"]


def test_a_member_that_fits_nowhere_says_so_and_others_of_its_gang_come() -> None:
    group, large = pod_group("a", 1), pod("large", group="a", gpus=9, created="2025-12-31T00:00:00Z")
    made = cluster(node(gpus=3), group, large, *members("a", 3, running=1))
    assert placed(made) == ["a1", "a2"]
    assert made.scheduling_queue.said.verdict("uid-large") is not None


def test_a_member_that_nothing_but_its_own_obstacle_holds_up_says_that_and_the_others_come() -> None:
    late = pod("late", group="a", gpus=1, spec={"resourceClaims": [{"name": "c"}]}, created="2025-12-31T00:00:00Z")
    gated = pod("gated", group="a", gpus=1, gated=True, created="2025-12-31T00:00:00Z")
    made = cluster(node(gpus=3), pod_group("a", 1), late, gated, *members("a", 3, running=1))
    assert placed(made) == ["a1", "a2"]
    verdict = there(made.scheduling_queue.said.verdict("uid-late"))
    assert verdict.code is Code.UNSUPPORTED_CONSTRAINT
    assert made.scheduling_queue.said.verdict("uid-gated") is None


def test_a_gang_whose_members_are_all_gated_keeps_no_room() -> None:
    started = members("a", 2)
    made = cluster(node(gpus=3), pod_group("a", 2), *started)
    (entry,) = made.decide(0).entries
    assert isinstance(entry, Gang)
    for placement in entry.placements:
        made.commits.assume(placement)
    feed(made, pod("gated", group="a", gpus=1, gated=True), pod("z", gpus=1, created="2026-01-02T00:00:00Z"))
    assert placed(made) == ["z"]


@pytest.mark.parametrize("cpu", ["1", "100"], ids=["that fit", "that fit nowhere"])
def test_members_for_whom_room_is_kept_leave_others_of_their_namespace_their_turn(cpu: str) -> None:
    made = cluster(node(cpu="64"), pod_group("a", 1), pod("a", group="a", priority=9))
    (start,) = made.decide(0).entries
    assert isinstance(start, Bind)
    made.commits.assume(start.placement)
    feed(made, *(pod(f"a{i}", group="a", cpu=f"{cpu}{i:03}m", priority=9) for i in range(30)), pod("late", cpu="1"))
    limits = Limits(most=1_000)
    rounds = 0
    while (plan := made.decide(0, limits)).wake_at_ns == 0:
        rounds += 1
        assert rounds < 30
    assert [entry.placement.name for entry in plan.entries if isinstance(entry, Bind)] == ["late"]


def test_room_is_kept_for_members_whose_constraints_were_never_judged_before() -> None:
    made = cluster(node("n1", 2, labels={"zone": "z"}), pod_group("a", 1), pod("a", group="a", priority=9, gpus=1))
    (start,) = made.decide(0).entries
    assert isinstance(start, Bind)
    made.commits.assume(start.placement)
    spec = {"nodeSelector": {"zone": "z"}}
    feed(made, pod("a2", group="a", gpus=1, priority=9, spec=spec), pod("late", gpus=1))
    assert placed(made) == []
