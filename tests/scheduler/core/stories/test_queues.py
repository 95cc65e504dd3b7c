"""Teams that share a cluster: who is placed of those that wait, and what the others say."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from gpu.request import FractionAsk
from gpu.translation import Place
from scheduler.core.cluster import Cluster
from scheduler.core.decide.allowance import Limits
from scheduler.core.model.plan import Explain, Retire, placements
from scheduler.core.model.verdict import Code, QueueCause, Verdict
from tests.scheduler.core.model.test_records import request, said
from tests.scheduler.core.objects import (
    NANO,
    Fed,
    bound,
    cluster,
    commit,
    feed,
    node,
    pod,
    pod_group,
    queue,
    recorded,
    reservation,
)
from wire import names
from wire.core import Pod


def of(team: str, name: str, gpus: int = 1, **asked: Any) -> Pod:
    """A pod of a team."""
    labels = {names.QUEUE_LABEL: team, **asked.pop("labels", {})}
    return pod(name, gpus=gpus, labels=labels, **asked)


def several(team: str, count: int, **asked: Any) -> list[Pod]:
    """So many pods of a team, the first the oldest."""
    return [of(team, f"{team}{i:03}", created=f"2026-01-01T00:00:{i:02}Z", **asked) for i in range(count)]


def placed(made: Cluster, now_ns: int = 0) -> list[str]:
    """Names of the pods that are placed by decisions until nothing more happens, in their order."""
    found: list[str] = []
    for _ in range(100):
        plan = made.decide(now_ns)
        now = [placement.name for placement in placements(plan.entries)]
        for placement in placements(plan.entries):
            made.commits.assume(placement)
        made.told([entry for entry in plan.entries if isinstance(entry, Explain)])
        if not now and plan.wake_at_ns != now_ns:
            return found
        found += now
    raise AssertionError("decisions go on and on")


def verdicts(made: Cluster) -> dict[str, Verdict]:
    """What each pod would say that was not told yet, by UID."""
    return {uid: entry.verdict for entry in made.decide(0).entries if isinstance(entry, Explain) for uid in entry.pods}


def teams(names_: list[str]) -> Counter[str]:
    """How many of each team."""
    return Counter(name[0] for name in names_)


def test_departments_divide_the_cluster_before_their_teams_do() -> None:
    made = cluster(
        node("n1", 8),
        queue("left", gpu=(0, 1, -1)),
        queue("right", gpu=(0, 1, -1)),
        *(queue(team, "left") for team in "abc"),
        queue("z", "right"),
        *(each for team in "abcz" for each in several(team, 8)),
    )
    assert teams(placed(made)) == {"a": 2, "b": 1, "c": 1, "z": 4}


def test_nobody_passes_the_limit_of_its_queue_and_it_says_the_arithmetic() -> None:
    made = cluster(node("n1", 8), queue("a", gpu=(0, 1, 2.5)), *several("a", 4))
    commit(made, made.decide(0))
    said = verdicts(made)
    assert set(said) == {"uid-a002", "uid-a003"}
    cause = QueueCause(at="a", resource="gpu", most=2_500_000_000, held=2 * NANO, asked=NANO)
    assert set(said.values()) == {Verdict(code=Code.OVER_LIMIT, detail="a", queue=cause)}


def test_tenths_fill_a_limit_of_three_tenths_exactly() -> None:
    made = cluster(node("n1", 8), queue("a", gpu=(0, 1, 0.3)))
    feed(made, *several("a", 4, gpus=0, fraction="0.1"))
    assert len(placed(made)) == 3


def test_what_must_not_be_preempted_stays_within_the_quota() -> None:
    made = cluster(node("n1", 8), queue("a", gpu=(1, 1, -1)), *several("a", 3, priority=100))
    assert placed(made) == ["a000"]
    said = verdicts(made)
    assert said == {}
    feed(made, of("a", "a9"))
    assert placed(made) == ["a9"]


def test_a_terminating_pod_counts_against_the_limit_until_it_is_gone() -> None:
    runs = bound(of("a", "old", deleting=True), "n1")
    made = cluster(node("n1", 8), queue("a", gpu=(0, 1, 1)), runs, of("a", "new"))
    assert placed(made) == []
    made.remove_pod("uid-old", has_ended=True)
    assert placed(made) == ["new"]


def test_a_gang_at_the_limit_waits_whole_and_starts_when_there_is_room_for_all() -> None:
    runs = bound(of("a", "old", gpus=2), "n1")
    made = cluster(node("n1", 8), queue("a", gpu=(0, 1, 4)), runs, pod_group("g", 3, queue="a"))
    feed(made, *(pod(f"m{i}", gpus=1, group="g") for i in range(3)))
    assert placed(made) == []
    made.remove_pod("uid-old", has_ended=True)
    assert len(placed(made)) == 3


def test_what_a_gang_would_have_used_that_found_no_room_is_left_to_the_next_of_its_queue() -> None:
    made = cluster(node("n1", 2), queue("a", gpu=(0, 1, 3)), pod_group("g", 3, queue="a"))
    feed(made, *(pod(f"m{i}", gpus=1, group="g", priority=1) for i in range(3)), of("a", "next", gpus=2))
    plan = made.decide(0)
    assert [placement.name for placement in placements(plan.entries)] == ["next"]
    (told,) = [entry.verdict.code for entry in plan.entries if isinstance(entry, Explain)]
    assert told is Code.GANG_INCOMPLETE


def test_one_gpu_that_comes_free_wakes_few_of_many_gangs() -> None:
    made = cluster(node("n1", 8), queue("a", gpu=(0, 1, 1)), bound(of("a", "old"), "n1"))
    for i in range(200):
        feed(made, pod_group(f"g{i:03}", 1, queue="a"), pod(f"m{i:03}", gpus=1, group=f"g{i:03}"))
    assert placed(made) == []
    made.remove_pod("uid-old", has_ended=True)
    made.prepared(0)
    assert len(made.scheduling_queue.awake_gangs()) == 32
    assert placed(made) == ["m000"]
    assert len(made.scheduling_queue.over_quota) == 199


def test_a_limit_that_is_raised_wakes_all_who_waited_for_it() -> None:
    made = cluster(node("n1", 8), queue("a", gpu=(0, 1, 0)), *several("a", 3))
    assert placed(made) == []
    feed(made, queue("a", gpu=(0, 1, 2)))
    assert placed(made) == ["a000", "a001"]


@pytest.mark.parametrize(
    ("queues", "label", "code", "at"),
    [
        ([queue("a")], "b", Code.QUEUE_NOT_FOUND, None),
        ([queue("a")], "", Code.QUEUE_NOT_FOUND, None),
        ([queue("a"), queue("b", "a")], "a", Code.QUEUE_NOT_LEAF, None),
        ([queue("b", "a")], "b", Code.QUEUE_PARENT_NOT_FOUND, "a"),
        ([queue("c", "b"), queue("b", "a")], "c", Code.QUEUE_PARENT_NOT_FOUND, "a"),
        ([queue("a", "b"), queue("b", "a")], "a", Code.QUEUE_CYCLE, "a"),
        ([queue("a", "a")], "a", Code.QUEUE_CYCLE, "a"),
        ([queue("a", gpu=(-2, 1, -1))], "a", Code.QUEUE_CLOSED, "a"),
        ([queue("a", gpu=(0, 1, 1e30)), queue("b", "a")], "b", Code.QUEUE_CLOSED, "a"),
    ],
    ids=[
        "unknown",
        "no default queue",
        "has children",
        "no parent",
        "no grandparent",
        "cycle",
        "own parent",
        "negative",
        "absurd",
    ],
)
def test_pods_of_a_queue_that_cannot_be_used_wait_and_say_why(
    queues: list[Fed], label: str, code: Code, at: str | None
) -> None:
    made = cluster(node("n1", 8), *queues, pod("p", gpus=1, labels={names.QUEUE_LABEL: label} if label else {}))
    said = verdicts(made)["uid-p"]
    assert (said.code, said.queue.at if said.queue else None) == (code, at)
    assert placed(made) == []


def test_pods_of_a_queue_that_is_made_later_start_then() -> None:
    made = cluster(node("n1", 8), queue("other"), of("a", "a1"))
    assert placed(made) == []
    feed(made, queue("a"))
    assert placed(made) == ["a1"]


def test_as_long_as_queues_were_never_read_nobody_starts() -> None:
    made = cluster(node("n1", 8), pod("p", gpus=1))
    made.queues.records.expect()
    assert verdicts(made)["uid-p"] == Verdict(code=Code.NOT_READ, detail="queues.scheduling.run.ai")
    assert placed(made) == []
    made.queues.records.note_in_step(True)
    assert placed(made) == ["p"]


def test_a_gang_that_is_moved_to_another_queue_counts_there() -> None:
    made = cluster(node("n1", 8), queue("a"), queue("b"), pod_group("g", 1, queue="a"))
    feed(made, bound(pod("m", gpus=1, group="g"), "n1"))
    assert placed(made) == []
    feed(made, pod_group("g", 1, queue="b"))
    made.decide(0)
    assert set(made.queues.sums.sums) == {"b"}
    assert made.validate() == []


def test_memory_of_a_gpu_counts_by_the_card_and_a_larger_one_is_taken_for_the_limit() -> None:
    small, large = node("small", 1, mem_mib=40_000), node("zlarge", 1, mem_mib=80_000)
    made = cluster(small, large, queue("a", gpu=(0, 1, 0.3)), of("a", "a1", gpus=0, mem=20_000))
    plan = made.decide(0)
    assert [placement.node for placement in placements(plan.entries)] == ["zlarge"]


def test_members_beyond_a_minimum_come_in_turn_with_pods_of_other_teams() -> None:
    runs = bound(pod("m0", gpus=1, group="g"), "n1")
    made = cluster(node("n1", 8), queue("a"), queue("b"), pod_group("g", 1, queue="a"), runs)
    feed(made, *(pod(f"m{i}", gpus=1, group="g") for i in range(1, 8)), *several("b", 7))
    assert teams(placed(made)) == {"m": 3, "b": 4}


def test_an_elastic_gang_grows_up_to_the_limit_and_further_when_it_is_raised() -> None:
    made = cluster(node("n1", 8), queue("a", gpu=(0, 1, 3)), pod_group("g", 1, queue="a"))
    first = bound(pod("m0", gpus=1, group="g"), "n1")
    feed(made, first, *(pod(f"m{i}", gpus=1, group="g") for i in range(1, 6)))
    assert placed(made) == ["m1", "m2"]
    assert len(made.scheduling_queue.over_quota) == 1
    feed(made, queue("a", gpu=(0, 1, 4)))
    assert placed(made) == ["m3"]


def test_a_team_whose_pods_were_found_to_fit_nowhere_keeps_no_other_of_its_department_from_its_turn() -> None:
    made = cluster(node("n1", 2), queue("l", gpu=(-1, 1, -1)), queue("a", "l", priority=200))
    feed(made, queue("b", "l", gpu=(3, 1, -1), cpu=(1000, 1, -1)))
    feed(made, of("a", "a1", 3), of("b", "b1", 3), of("b", "b2", cpu="2", created="2026-01-01T00:00:05Z"))
    assert placed(made) == ["b2"]


def test_a_pod_at_the_limit_that_tolerates_more_than_before_waits_on() -> None:
    made = cluster(node("n1", 2), queue("a", gpu=(0, 1, 0)), of("a", "a1"))
    assert placed(made) == []
    feed(made, of("a", "a1", spec={"tolerations": [{"key": "x", "operator": "Exists"}]}))
    assert placed(made) == []
    feed(made, queue("a", gpu=(0, 1, 1)))
    assert placed(made) == ["a1"]


def half_of_small_quarter_of_large(large_is_free: bool = True) -> Cluster:
    """A pod that asks 20,000 MiB of a team that may use three tenths of a GPU; "zlarge" has the cards that will do."""
    runs = bound(pod("f", gpus=1, labels={names.QUEUE_LABEL: "b"}), "zlarge")
    made = cluster(node("small", 1, mem_mib=40_000), queue("a", gpu=(0, 1, 0.3)), queue("b"))
    feed(made, *(() if large_is_free else (node("zlarge", 1, mem_mib=80_000), runs)))
    return made


@pytest.mark.parametrize("group", ["", "g"], ids=["alone", "in a gang"])
@pytest.mark.parametrize("is_there", [True, False], ids=["that was full", "that is new"])
def test_a_pod_at_the_limit_goes_to_a_node_with_larger_cards(group: str, *, is_there: bool) -> None:
    made = half_of_small_quarter_of_large(large_is_free=not is_there)
    feed(made, pod_group("g", 1, queue="a"), of("a", "a1", 0, mem=20_000, group=group))
    assert placed(made) == []
    assert verdicts(made)["uid-a1"].code is Code.OVER_LIMIT
    if is_there:
        made.remove_pod("uid-f", has_ended=True)
    else:
        feed(made, node("zlarge", 1, mem_mib=80_000))
    assert placed(made) == ["a1"]


def test_a_member_beyond_the_minimum_at_the_limit_goes_to_a_node_with_larger_cards() -> None:
    made = half_of_small_quarter_of_large(large_is_free=False)
    feed(made, pod_group("g", 1, queue="a"), bound(of("a", "a0", 0, cpu="1", group="g"), "small"))
    feed(made, of("a", "a1", 0, mem=20_000, group="g"))
    assert placed(made) == []
    made.remove_pod("uid-f", has_ended=True)
    assert placed(made) == ["a1"]


def test_a_large_gang_at_the_limit_is_tried_on_other_nodes_seldom_and_says_why_it_waits_meanwhile() -> None:
    made = half_of_small_quarter_of_large(large_is_free=False)
    small, large = ("small", 80, 40_000), ("zlarge", 60, 80_000)
    feed(made, *(node(name, gpus, mem_mib=card, pods=500) for name, gpus, card in (small, large)))
    feed(made, queue("a", gpu=(0, 1, 50)))
    feed(made, pod_group("g", 150, queue="a"), *(of("a", f"m{i}", 0, mem=20_000, group="g") for i in range(150)))
    feed(made, bound(pod("f0", gpus=59, labels={names.QUEUE_LABEL: "b"}), "zlarge"))
    assert placed(made) == []
    made.remove_pod("uid-f0", has_ended=True)
    feed(made, node("small", 80, mem_mib=40_000, pods=500, cordoned=True))
    plan = made.decide(1)
    assert [*placements(plan.entries)] == []
    said = made.scheduling_queue.said.verdict("uid-m0")
    assert said is not None
    assert said.code is Code.OVER_LIMIT
    assert plan.wake_at_ns is not None
    assert len(placed(made, plan.wake_at_ns)) == 150


def test_a_pod_at_the_limit_that_nothing_can_help_is_not_looked_at_though_nodes_change() -> None:
    made = half_of_small_quarter_of_large(large_is_free=False)
    feed(made, of("a", "a1", 0, mem=20_000), bound(pod("c", cpu="1"), "small"))
    assert placed(made) == []
    made.remove_pod("uid-c", has_ended=True)  # the small node has more than before, and is looked at again in vain
    assert placed(made) == []
    feed(made, bound(pod("d", cpu="1"), "small"))
    made.prepared(0, Limits(retold=0))
    assert made.scheduling_queue.awake() == []


def test_members_of_one_gang_that_can_and_that_cannot_be_preempted_wake_for_what_the_first_of_them_needs() -> None:
    groups = [{"name": name, "minMember": 1} for name in ("s1", "s2")]
    made = cluster(node("n1", 8), queue("a", gpu=(0, 1, 4)), pod_group("g", 2, queue="a", subGroups=groups))
    feed(made, bound(of("a", "other"), "n1"))
    feed(
        made,
        *(
            bound(pod(f"{sub}-{i}", gpus=1, group="g", subgroup=sub), "n1")
            for sub, i in [("s1", 0), ("s1", 1), ("s2", 0)]
        ),
    )
    feed(
        made, pod("s2-9", gpus=1, group="g", subgroup="s2"), pod("s1-9", gpus=1, group="g", subgroup="s1", priority=100)
    )
    assert placed(made) == []
    made.remove_pod("uid-other", has_ended=True)
    assert placed(made) == ["s2-9"]


def test_of_a_gang_that_can_be_preempted_in_part_the_other_part_stays_within_the_quota() -> None:
    made = cluster(node("n1", 8), queue("a", gpu=(1, 1, -1)), pod_group("g", 3, queue="a"))
    feed(made, *(pod(f"m{i}", gpus=1, group="g", priority=0 if i else 100) for i in range(3)))
    assert len(placed(made)) == 3
    feed(made, pod_group("h", 2, queue="a"), *(pod(f"h{i}", gpus=1, group="h", priority=100) for i in range(2)))
    assert placed(made) == []


def test_a_pod_that_asks_less_on_some_nodes_goes_there_at_the_limit() -> None:
    pool = {"pool": "a"}
    less = said(
        (FractionAsk(NANO // 2),),
        alternatives=(request((FractionAsk(NANO // 4),)),),
        places=(Place(other_than=((("pool", "a"),),)), Place(labels=(("pool", "a"),), unit=2)),
    )
    made = cluster(node("n1", 1), node("n2", 1, labels=pool), queue("a", gpu=(0, 1, 0.3)))
    feed(made, recorded(less, labels={names.QUEUE_LABEL: "a"}))
    plan = made.decide(0)
    assert [(placement.node, placement.alternative) for placement in placements(plan.entries)] == [("n2", 1)]


def test_nothing_is_decided_again_and_again_while_a_device_for_the_first_is_on_its_way_back() -> None:
    made = cluster(node("n1", 1), reservation("idle", book={}), queue("a", gpu=(0, 1, 1)))
    for i in range(40):
        feed(made, pod_group(f"g{i:02}", 1, queue="a"), pod(f"m{i:02}", gpus=1, group=f"g{i:02}"))
    assert Retire("r-idle", "uid-m00") in made.decide(0).entries
    feed(made, bound(pod("other", scheduler="default-scheduler"), "n1"))
    plan = made.decide(0)
    assert (Retire("r-idle", "uid-m00") in plan.entries, plan.wake_at_ns) == (True, None)
    made.remove_pod("r-idle", has_ended=True)
    assert placed(made) == ["m00"]


def test_who_stands_behind_those_that_no_node_takes_has_a_turn_at_once() -> None:
    made = cluster(node("n1", 8), queue("a", gpu=(0, 1, 1)), bound(of("a", "old"), "n1"))
    for i in range(40):
        selects = {"nodeSelector": {"not": "there"}} if i < 36 else {}
        feed(made, pod_group(f"g{i:02}", 1, queue="a"), pod(f"m{i:02}", gpus=1, group=f"g{i:02}", spec=selects))
    assert placed(made) == []
    made.remove_pod("uid-old", has_ended=True)
    assert placed(made) == ["m36"]


@pytest.mark.parametrize("fixed", ["x", "y"])
def test_a_gang_whose_parts_a_queue_holds_back_wakes_for_the_part_that_needs_no_quota(fixed: str) -> None:
    """One part can't be preempted, and there is no quota; the other one waits for the limit only."""
    parts = [{"name": name, "minMember": 1} for name in "xy"]
    group = pod_group("g", None, queue="a", minSubGroup=1, subGroups=parts)
    members = [of("a", name, group="g", subgroup=name, priority=100 if name == fixed else 0) for name in "xy"]
    made = cluster(node("n1", 8), queue("a", gpu=(0, 1, 1)), bound(of("a", "r"), "n1"), group, *members)
    assert placed(made) == []
    made.remove_pod("uid-r", has_ended=True)
    assert placed(made) == [name for name in "xy" if name != fixed]
