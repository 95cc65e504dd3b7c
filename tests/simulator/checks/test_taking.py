"""S7 of nominations, and node reserves by pods' conditions: who may be kept off (L1), what is said (L3), owners (L6).

Cores go whole, urgency and queues are right, and minimum runtimes are over.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from simulator.checks.checker import BIND_REQUESTS, NODES, POD_GROUPS, QUEUES
from simulator.checks.limits import Lateness
from tests.simulator.checks.preemptions import PreemptionStory, holding, nomination
from tests.simulator.made_up import NODE, Story, node, pod_group, reservation, share, version
from wire import names


def started(raw: dict[str, Any]) -> dict[str, Any]:
    """It runs."""
    status = {**raw["status"], "phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
    return {**raw, "status": status}


def urgent(raw: dict[str, Any], priority: int) -> dict[str, Any]:
    return {**raw, "spec": {**raw["spec"], "priority": priority}}


def in_queue(name: str) -> dict[str, Any]:
    return {"labels": {"kai.scheduler/queue": name}}


def queue(name: str, parent: str = "", **says: str) -> dict[str, Any]:
    """A queue without limits, and without a quota."""
    resources = {each: {"quota": 0, "limit": -1, "overQuotaWeight": 1} for each in ("gpu", "cpu", "memory")}
    spec = {"parentQueue": parent, "resources": resources, **says}
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": spec}


# --- cores -----------------------------------------------------------------------------------------------------------
def gang(minimum: int, members: str, *, lateness: Lateness = Lateness()) -> PreemptionStory:  # noqa: B008 - frozen
    """A gang with a number of members that run; a minute later."""
    story = PreemptionStory(lateness=lateness)
    story.sees(pod_group("ring", minimum), kind=POD_GROUPS)
    for name in members.split():
        story.sees(started(holding(name, annotations={"pod-group-name": "ring"})))
    return story.later(60)


@pytest.mark.parametrize(
    ("minimum", "victims", "broken"),
    [(2, "a", set[str]()), (2, "a b c", set[str]()), (2, "a b", {"S7"}), (3, "a", {"S7"}), (1, "a b", set[str]())],
)
def test_a_core_goes_whole_or_stays(minimum: int, victims: str, broken: set[str]) -> None:
    assert gang(minimum, "a b c").records(nomination("h", victims)).broken() == broken


def test_a_core_that_goes_by_two_nominations_goes_whole() -> None:
    assert gang(2, "a b").records(nomination("h", "a"), nomination("g", "b")).broken() == set()


def test_the_rest_of_a_gang_that_was_below_its_minimum_may_go_in_part() -> None:
    story = gang(3, "a b c")
    story.sees(pod_group("ring", 4), kind=POD_GROUPS)
    assert story.later(60).records(nomination("h", "a")).broken() == set()


def test_a_member_that_has_succeeded_stays_in_the_count() -> None:
    story = gang(2, "a b c")
    story.sees(holding("c", annotations={"pod-group-name": "ring"}, phase="Succeeded"))
    assert story.later(60).records(nomination("h", "a")).broken() == set()


def test_who_decides_may_not_have_heard_of_a_member_that_left_or_came_just_now() -> None:
    left = gang(2, "a b c").goes("c", annotations={"pod-group-name": "ring"})
    assert left.later(1).records(nomination("h", "a")).broken() == set()
    assert left.later(60).records(nomination("h", "b")).broken() == {"S7"}
    came = gang(2, "a b")
    came.sees(started(holding("c", annotations={"pod-group-name": "ring"})))
    assert came.later(1).records(nomination("h", "a b")).broken() == set()


def test_a_pod_group_that_was_changed_just_now_is_not_judged() -> None:
    story = gang(2, "a b c")
    story.sees(pod_group("ring", 3), kind=POD_GROUPS)
    assert story.later(1).records(nomination("h", "a")).broken() == set()


# --- who takes from whom ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("of_nominee", "of_victim", "broken"), [(50, 10, set[str]()), (50, 50, {"S7"}), (10, 50, {"S7"})]
)
def test_preemption_takes_from_pods_of_lower_priority(of_nominee: int, of_victim: int, broken: set[str]) -> None:
    story = PreemptionStory()
    story.sees(urgent(holding("low"), of_victim)).sees(urgent(holding("high", node=""), of_nominee))
    assert story.later(60).records(nomination("high", "low", action="preempt")).broken() == broken


@pytest.mark.parametrize(
    ("action", "name", "broken"),
    [("preempt", "a", set[str]()), ("preempt", "b", {"S7"}), ("reclaim", "a", {"S7"}), ("reclaim", "b", set[str]())],
)
def test_preemption_takes_from_the_own_queue_and_reclaim_from_others(action: str, name: str, broken: set[str]) -> None:
    assert taken_from_a(action, name, has_queues=True) == broken


def test_without_queue_objects_all_pods_are_in_one_queue() -> None:
    assert taken_from_a("preempt", "b", has_queues=False) == set()


def taken_from_a(action: str, name: str, *, has_queues: bool) -> set[str]:
    """A pod of queue ``a`` goes for a more urgent one."""
    story = PreemptionStory()
    for each in "ab" if has_queues else "":
        story.sees(queue(each), kind=QUEUES)
    story.sees(holding("low", **in_queue("a"))).sees(urgent(holding("high", node="", **in_queue(name)), 50))
    return story.later(60).records(nomination("high", "low", action=action)).broken()


# --- minimum runtimes ------------------------------------------------------------------------------------------------
def below(action: str, *queues: dict[str, Any], run_s: float, lateness: Lateness = Lateness()) -> set[str]:  # noqa: B008
    """A victim of queue ``d1/v`` goes that has run for some time, for a nominated pod of ``d1/v``, or of ``d1/w``."""
    story = PreemptionStory(lateness=lateness)
    for each in queues:
        story.sees(each, kind=QUEUES)
    story.sees(holding("low", **in_queue("v")))
    story.later(100)
    story.sees(started(holding("low", **in_queue("v"))))
    nominee = "v" if action == "preempt" else "w"
    story.sees(urgent(holding("high", node="", **in_queue(nominee)), 50))
    return story.later(run_s).records(nomination("high", "low", action=action)).broken()


TOP = queue("d1", preemptMinRuntime="40s", reclaimMinRuntime="1m30s")


@pytest.mark.parametrize(
    ("action", "own", "run_s", "broken"),
    [
        ("preempt", {"preemptMinRuntime": "20s"}, 15, {"S7"}),
        ("preempt", {"preemptMinRuntime": "20s"}, 25, set[str]()),
        ("preempt", {"reclaimMinRuntime": "20s"}, 30, {"S7"}),
        ("preempt", {"reclaimMinRuntime": "20s"}, 50, set[str]()),
        ("reclaim", {"reclaimMinRuntime": "20s"}, 15, {"S7"}),
        ("reclaim", {"reclaimMinRuntime": "20s"}, 25, set[str]()),
        ("reclaim", {}, 80, {"S7"}),
        ("consolidation", {"preemptMinRuntime": "5s", "reclaimMinRuntime": "20s"}, 15, {"S7"}),
        ("consolidation", {"preemptMinRuntime": "5s", "reclaimMinRuntime": "20s"}, 25, set[str]()),
        ("preempt", {"preemptMinRuntime": "0s"}, 6, set[str]()),
    ],
)
def test_a_core_is_left_alone_for_as_long_as_its_queue_or_the_next_above_says(
    action: str, own: dict[str, str], run_s: float, broken: set[str]
) -> None:
    assert below(action, TOP, queue("v", "d1", **own), queue("w", "d1"), run_s=run_s) == broken


def test_a_pod_has_run_since_its_node_took_it_up_though_that_is_told_with_its_first_container() -> None:
    story = PreemptionStory()
    story.sees(queue("default-queue", preemptMinRuntime="90s"), kind=QUEUES)
    slow = holding("slow")
    story.sees(slow)
    story.later(80)
    ran = {"name": "main", "state": {"running": {"startedAt": "2026-01-01T00:01:20Z"}}}
    story.sees({**slow, "status": {**started(slow)["status"], "containerStatuses": [ran]}})
    story.sees(urgent(holding("high", node=""), 50))
    assert story.later(20).records(nomination("high", "slow", action="preempt")).broken() == set()


def test_reclaim_from_afar_goes_by_the_queue_below_the_lowest_one_above_both() -> None:
    queues = [TOP, queue("v", "d1", reclaimMinRuntime="0s"), queue("d2"), queue("w", "d2")]
    assert below("reclaim", *queues, run_s=80) == {"S7"}
    assert below("reclaim", *queues, run_s=100) == set()


def test_a_gang_is_as_old_as_its_minimum_and_pods_above_it_are_not_protected() -> None:
    story = PreemptionStory()
    story.sees(queue("default-queue", preemptMinRuntime="30s"), kind=QUEUES)
    story.sees(pod_group("ring", 2), kind=POD_GROUPS)
    for name in "abc":
        story.sees(started(holding(name, annotations={"pod-group-name": "ring"})))
        story.later(20)
    story.sees(urgent(holding("high", node=""), 50))
    assert story.records(nomination("high", "a b c", action="preempt")).broken() == set()
    story = PreemptionStory()
    story.sees(queue("default-queue", preemptMinRuntime="50s"), kind=QUEUES)
    story.sees(pod_group("ring", 2), kind=POD_GROUPS)
    for name in "abc":
        story.sees(started(holding(name, annotations={"pod-group-name": "ring"})))
        story.later(20)
    story.sees(urgent(holding("high", node=""), 50))
    assert story.records(nomination("high", "c", action="preempt")).checker.findings.all_held
    assert story.records(nomination("high", "a b c", action="preempt")).broken() == {"S7"}


def test_a_minimum_that_was_lengthened_just_now_may_not_be_known() -> None:
    longer = [queue("v", preemptMinRuntime="5s"), queue("v", preemptMinRuntime="1h")]
    story = PreemptionStory()
    story.sees(longer[0], kind=QUEUES).sees(started(holding("low", **in_queue("v"))))
    story.later(30)
    story.sees(urgent(holding("high", node="", **in_queue("v")), 50)).sees(longer[1], kind=QUEUES)
    assert story.later(1).records(nomination("high", "low", action="preempt")).broken() == set()


# --- quotas ----------------------------------------------------------------------------------------------------------
def reclaimed(quota: float, *, victims: str = "a", after: str = "") -> set[str]:
    """Queue ``v`` runs three pods of a GPU each; some go for one of queue ``w``, and another one of ``v`` is bound."""
    story = PreemptionStory()
    for name, amount in (("v", quota), ("w", 1)):
        raw = queue(name)
        raw["spec"]["resources"]["gpu"] = {"quota": amount, "limit": -1, "overQuotaWeight": 1}
        story.sees(raw, kind=QUEUES)
    for name in "abc":
        story.sees(started(holding(name, **in_queue("v"))))
    story.sees(holding("high", node="", **in_queue("w"))).sees(holding("late", node="", **in_queue("v")))
    story.later(60).records(nomination("high", victims, action="reclaim"))
    if after:
        story.later(10).sees(holding(after, **in_queue("v")))
    story.later(100)
    return story.broken() & {"S7"}


@pytest.mark.parametrize(
    ("quota", "victims", "broken"),
    [(2, "a", set[str]()), (3, "a", {"S7"}), (2, "a b", {"S7"}), (1, "a b", set[str]()), (-1, "a", {"S7"})],
)
def test_reclaim_takes_from_a_queue_that_is_above_its_quota(quota: float, victims: str, broken: set[str]) -> None:
    assert reclaimed(quota, victims=victims) == broken


def test_pods_that_are_on_their_way_into_a_queue_count_in_it() -> None:
    assert reclaimed(3, after="late") == set()


def test_what_goes_for_an_older_nomination_counts_no_more() -> None:
    story = PreemptionStory()
    for name, amount in (("v", 2), ("w", 2)):
        raw = queue(name)
        raw["spec"]["resources"]["gpu"] = {"quota": amount, "limit": -1, "overQuotaWeight": 1}
        story.sees(raw, kind=QUEUES)
    for name in "abc":
        story.sees(started(holding(name, **in_queue("v"))))
    for name in ("h1", "h2"):
        story.sees(holding(name, node="", **in_queue("w")))
    first, second = (nomination(f"h{at}", name, action="reclaim") for at, name in ((1, "a"), (2, "b")))
    story.later(60).records(first)
    assert story.checker.findings.all_held
    assert story.records(first, second).broken() == {"S7"}


# S14: what was freed for somebody is bound by nobody else of ours.


def freed(*more: dict[str, Any]) -> PreemptionStory:
    """``v`` has gone for ``h``."""
    return PreemptionStory().records(nomination("h", "v"), *more).evicts("v").goes("v")


def test_a_pod_that_is_bound_on_what_was_freed_for_another_breaks_s14() -> None:
    story = freed().binds("x")
    assert story.broken() == {"S14"}
    assert [each.text for each in story.checker.findings.found.values()] == [
        "pod team/x was bound on node-0 on GPUs that were freed for team/h"
    ]


def test_a_nominee_that_is_handed_over_keeps_nothing_beside_what_its_attempt_takes() -> None:
    request = {
        "metadata": {"name": "h", "namespace": "team", "uid": "request"},
        "spec": {"podName": "h", "selectedNode": "other"},
    }
    story = freed()
    story.sees(request, kind=BIND_REQUESTS, event="ADDED")
    assert story.binds("x").broken() == set()
    story = freed()
    story.sees(request, kind=BIND_REQUESTS, event="ADDED").sees(request, kind=BIND_REQUESTS, event="DELETED")
    assert story.binds("x").broken() == {"S14"}


@pytest.mark.parametrize(("seconds", "broken"), [(30, set[str]()), (90, {"S14"})])
def test_a_nominee_that_is_bound_elsewhere_within_a_minute_was_on_its_way(seconds: int, broken: set[str]) -> None:
    story = freed().binds("x").later(seconds)
    story.sees(version(holding("y", node=""), story.number))
    assert story.binds("h", node="other").broken() == broken


def test_what_victims_still_have_is_kept_by_that() -> None:
    """Two are to go for one of two GPUs: while one of them is there, the other one's GPU is anybody's."""
    story = PreemptionStory().records(nomination("h", "v w")).evicts("v").goes("v")
    assert story.binds("x").broken() == set()
    story = PreemptionStory()
    story.sees(holding("h", 2, node=""))
    story.records(nomination("h", "v w")).evicts("v").goes("v")
    assert story.binds("x").broken() == {"S14"}


def test_an_end_that_is_told_of_late_counts_from_when_it_was_written() -> None:
    story = freed()
    ended = story.number + 1
    story.number += 1
    assert story.binds("x").records(at=ended).broken() == set()


def test_a_nomination_that_ends_after_the_binding_stood_then() -> None:
    assert freed().binds("x").records().broken() == {"S14"}


def test_room_is_kept_until_all_of_a_gang_are_placed() -> None:
    story = PreemptionStory().records(nomination("h g", "v w")).evicts("v").evicts("w").goes("v").goes("w")
    assert story.binds("h").binds("x").broken() == {"S14"}
    story = PreemptionStory().records(nomination("h g", "v w")).evicts("v").evicts("w").goes("v").goes("w")
    assert story.binds("h").binds("g").broken() == set()


def test_a_younger_nominee_before_an_older_one_breaks_s14() -> None:
    assert freed(nomination("g", "w")).binds("g").broken() == {"S14"}


def test_what_an_older_nominee_lacks_a_younger_one_does_not_lack_as_well() -> None:
    """The older one is soon bound elsewhere, so it was on its way; the younger one is owed nothing."""
    story = freed(nomination("g", "w")).binds("x").later(30)
    story.sees(version(holding("y", node=""), story.number))
    assert story.binds("h", node="other").broken() == set()


def test_an_older_nominee_may_have_what_was_freed_for_a_younger_one() -> None:
    story = PreemptionStory().records(nomination("h", "v"), nomination("g", "w")).evicts("w").goes("w")
    assert story.binds("h").broken() == set()


def test_pods_of_other_schedulers_may_take_it() -> None:
    story = freed()
    story.binds("foreign", scheduler="default-scheduler")
    assert story.broken() == set()


def test_nobody_is_placed_on_the_rest_that_others_left() -> None:
    story = freed().goes("w").binds("foreign", scheduler="default-scheduler")
    assert story.binds("x").broken() == {"S14"}


def shared(name: str, nano: int, **more: Any) -> dict[str, Any]:
    """A pod with a part of the device of group ``g``."""
    grant = {"attempt": "a", "devices": [{"group": "g", "reservation": "uid-r", "uuid": "GPU-a", "nano": nano}]}
    annotations = {"moorage.dev/grant": json.dumps(grant)}
    return share(name, "g", str(nano / 10**9), annotations=annotations, **more)


def test_a_part_of_a_device_is_kept_for_its_nominee() -> None:
    def story() -> PreemptionStory:
        made = PreemptionStory()
        made.sees(node(gpus=3), kind=NODES).sees(reservation("r", "g"))
        made.sees(shared("a", 500_000_000)).sees(shared("b", 500_000_000))
        made.sees(share("h2", "", "0.5", node=""))
        made.records(nomination("h2", "a", devices=[{"group": "g", "nano": 500_000_000}])).evicts("a")
        made.sees(version(shared("a", 500_000_000), 90), event="DELETED")
        made.number = 100
        return made

    taken, given = story(), story()
    assert taken.sees(version(shared("other", 300_000_000), 101)).broken() >= {"S14"}
    assert "S14" not in given.sees(version(shared("h2", 500_000_000), 101)).broken()


FREED = "has waited since 2026-01-01T00:00:00Z, so its place is being freed on"
STARTS = "It starts when enough of the pods there have ended"


def saying(raw: dict[str, Any], message: str, priority: int = 0) -> dict[str, Any]:
    """It waits and says why."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    spec = {**raw["spec"], "nodeName": "", "priority": priority}
    return {**raw, "spec": spec, "status": {"phase": "Pending", "conditions": [condition]}}


def of(queue: str) -> dict[str, Any]:
    return {"labels": {"kai.scheduler/queue": queue}}


def queues(story: Story, **quotas: float) -> None:
    for name, quota in quotas.items():
        free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
        resources = {"gpu": {**free, "quota": quota}, "cpu": free, "memory": free}
        raw = {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": {"resources": resources}}
        story.sees(raw, kind=QUEUES)


def beside(
    queue: str, *, priority: int = 0, quota: float = 0, message: str = "", several_decide: bool = False
) -> set[str]:
    """``large`` of queue ``a`` has a node reserve; one GPU of two is in use there; ``small`` asks for one."""
    story = Story(several_decide=several_decide).sees(node(gpus=2), kind=NODES)
    queues(story, a=0, b=quota)
    story.sees(holding("old", **of("a")))
    story.sees(saying(holding("large", 2, **of("a")), f"team/large {FREED} {NODE}. {STARTS}"))
    kept = "no nodes with enough resources were found: 1 node(s) are kept for team/large, which has waited since then."
    story.sees(saying(holding("small", **of(queue)), message or kept, priority))
    return story.rests().broken() & {"L1", "L3", "L6"}


@pytest.mark.parametrize(
    ("queue", "more", "broken"),
    [
        ("a", {}, set()),
        ("a", {"priority": 50}, {"L1"}),
        ("b", {}, set()),
        ("b", {"priority": 50}, set()),
        ("b", {"quota": 1}, {"L1"}),
    ],
)
def test_a_reserve_keeps_off_its_own_queue_and_those_that_have_their_quota(
    queue: str, more: dict[str, Any], broken: set[str]
) -> None:
    assert beside(queue, **more) == broken


def test_nodes_are_kept_for_one_that_says_so() -> None:
    text = "no nodes with enough resources were found: 1 node(s) are kept for team/other, which has waited since then."
    assert beside("a", message=text) == {"L3"}
    assert beside("a", message=text, several_decide=True) == set()


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        (f"team/large {FREED} {NODE}. {STARTS}", set()),
        (f"team/large {FREED} {NODE} and 2 more. {STARTS}", set()),
        (f"team/large {FREED} node-9. {STARTS}", {"L3"}),
        (f"team/other {FREED} {NODE}. {STARTS}", {"L3"}),
    ],
)
def test_an_owner_names_itself_and_nodes_that_are_there(text: str, broken: set[str]) -> None:
    story = Story().sees(node(gpus=2), kind=NODES).sees(holding("old"))
    assert story.sees(saying(holding("large", 2), text)).rests().broken() & {"L1", "L3", "L6"} == broken


@pytest.mark.parametrize(("several_decide", "broken"), [(False, {"L3"}), (True, set())])
def test_a_queue_has_one_reserve_of_each_scheduler_that_decides(several_decide: bool, broken: set[str]) -> None:
    story = Story(several_decide=several_decide).sees(node(gpus=2), kind=NODES).sees(holding("old"))
    for name in ("large", "huge"):
        story.sees(saying(holding(name, 2), f"team/{name} {FREED} {NODE}. {STARTS}"))
    assert story.rests().broken() & {"L1", "L3", "L6"} == broken


@pytest.mark.parametrize(
    ("told", "several_decide", "broken"),
    [
        ("1 node(s) are kept for team/large, which has waited", True, set()),
        ("1 node(s) didn't have enough resources: GPUs.", True, {"L1", "L3"}),
        ("1 node(s) are kept for team/large, which has waited", False, {"L1", "L3"}),
    ],
)
def test_of_several_schedulers_one_may_write_over_what_the_owner_of_another_says(
    told: str, several_decide: bool, broken: set[str]
) -> None:
    none = "no nodes with enough resources were found:"
    story = Story(several_decide=several_decide).sees(node(gpus=2), kind=NODES).sees(holding("old"))
    story.sees(saying(holding("large", 2), f"{none} 1 node(s) didn't have enough resources: GPUs."))
    story.sees(saying(holding("small"), f"{none} {told} since then."))
    assert story.rests().broken() & {"L1", "L3", "L6"} == broken


def test_an_owner_whose_nodes_are_empty_has_its_place() -> None:
    story = Story().sees(node(gpus=2), kind=NODES).sees(node("node-1", gpus=2), kind=NODES)
    story.sees(holding("old", node="node-1"))
    story.sees(saying(holding("large", 3), f"team/large {FREED} {NODE}. {STARTS}"))
    assert story.rests().broken() & {"L1", "L3", "L6"} == {"L6"}


# --- node pools ------------------------------------------------------------------------------------------------------
def in_pool(pool: str, raw: dict[str, Any]) -> dict[str, Any]:
    labels = {**raw["metadata"].get("labels", {}), **({names.NODE_POOL_LABEL: pool} if pool else {})}
    return {**raw, "metadata": {**raw["metadata"], "labels": labels}}


def two_pools() -> Story:
    """A pool ``a`` with one node and one without a label with another, of two GPUs each, one of which is in use."""
    story = Story(is_divided=True)
    for pool, name in (("a", NODE), ("", "node-1")):
        story.sees(in_pool(pool, node(name, gpus=2)), kind=NODES)
        story.sees(in_pool(pool, holding(f"old-{name}", node=name)))
    return story


@pytest.mark.parametrize(("others", "broken"), [("", set[str]()), ("a", {"L3"})])
def test_a_queue_has_one_reserve_in_each_pool(others: str, broken: set[str]) -> None:
    story = two_pools().sees(in_pool("a", saying(holding("large", 2), f"team/large {FREED} {NODE}. {STARTS}")))
    where = NODE if others else "node-1"
    story.sees(in_pool(others, saying(holding("huge", 2), f"team/huge {FREED} {where}. {STARTS}")))
    assert story.rests().broken() & {"L1", "L3", "L6"} == broken


def test_a_place_is_freed_on_nodes_of_the_owners_pool() -> None:
    story = two_pools().sees(in_pool("a", saying(holding("large", 2), f"team/large {FREED} node-1. {STARTS}")))
    assert story.rests().broken() & {"L1", "L3", "L6"} == {"L3"}


@pytest.mark.parametrize(("pool", "broken"), [("a", set[str]()), ("", {"L1", "L3"})])
def test_a_reserve_keeps_off_pods_of_its_pool_alone(pool: str, broken: set[str]) -> None:
    story = two_pools().sees(in_pool("a", saying(holding("large", 2), f"team/large {FREED} {NODE}. {STARTS}")))
    kept = "no nodes with enough resources were found: 1 node(s) are kept for team/large, which has waited since then"
    others = "1 node(s) were in another node pool, or have just left one"
    story.sees(in_pool(pool, saying(holding("small", 1), f"{kept}. {others}.")))
    assert story.rests().broken() & {"L1", "L3", "L6"} == broken
