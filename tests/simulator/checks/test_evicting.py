"""S7 and S13 of evictions for others, and L6: what stands on record when somebody is evicted."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.checks.checker import BUDGETS, ROOM
from simulator.checks.evictions import MOST
from simulator.checks.limits import Lateness
from tests.simulator.checks.rooms import RoomStory, holding, nomination, record
from tests.simulator.made_up import pod, version


def test_a_pod_that_a_nomination_on_record_names_may_be_evicted() -> None:
    assert RoomStory().records(nomination("h", "v")).evicts("v").broken() == set()


@pytest.mark.parametrize("victim", ["w", "h", "x"])
def test_an_eviction_of_one_that_no_nomination_names_breaks_s7(victim: str) -> None:
    assert RoomStory().records(nomination("h", "v")).evicts(victim).broken() == {"S7"}


def test_an_eviction_before_its_nomination_is_written_breaks_s7() -> None:
    assert RoomStory().evicts("v").records(nomination("h", "v")).broken() == {"S7"}


def test_a_record_that_is_told_of_later_than_the_eviction_counts_from_when_it_was_written() -> None:
    story = RoomStory()
    written = story.number + 1
    story.number += 1
    assert story.evicts("v").records(nomination("h", "v"), at=written).broken() == set()


def test_a_refused_eviction_took_nobody_away() -> None:
    assert RoomStory().evicts("v", code=429).broken() == set()


@pytest.mark.parametrize(("seconds", "broken"), [(59, set[str]()), (61, {"S7"})])
def test_an_eviction_may_be_on_its_way_for_a_minute_after_its_nomination_is_over(
    seconds: int, broken: set[str]
) -> None:
    story = RoomStory().records(nomination("h", "v")).records().later(seconds).evicts("v")
    assert story.later(10).broken() == broken


def test_another_pod_of_a_victims_name_is_not_named_by_its_nomination() -> None:
    story = RoomStory().records(nomination("h", "v")).goes("v")
    successor = holding("v", node="")
    successor["metadata"]["uid"] = "uid-v-2"
    story.sees(successor)
    assert story.evicts("v").broken() == {"S7"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no json",
        "[]",
        '{"nominations": 1}',
        '{"nominations": [{"id": "a"}]}',
        '{"nominations": [{"id": "a", "places": [["=uid-h"]], "victims": [["=uid-v", "team", "v", "node-0", "="]]}]}',
        '{"nominations": [{"id": "a", "places": [["=u", "node-0"]], "victims": [["uid-v", "team", "v", "n", "="]]}]}',
    ],
)
def test_nobody_is_evicted_for_what_cannot_be_read(text: str) -> None:
    story = RoomStory()
    story.sees(record(text=text, at=11), kind=ROOM)
    assert story.evicts("v").broken() == {"S7"}


def test_uids_are_read_as_22_characters() -> None:
    story = RoomStory()
    victim = holding("u")
    victim["metadata"]["uid"] = "00112233-4455-6677-8899-aabbccddeeff"
    story.sees(victim)
    named = nomination("h", "u")
    named["victims"][0][0] = "ABEiM0RVZneImaq7zN3u_w"
    assert story.records(named).evicts("u").broken() == set()


def test_another_config_map_of_the_namespace_is_no_record() -> None:
    story = RoomStory()
    other = record(nomination("h", "v"), at=11)
    other["metadata"]["name"] = "moorage-queue-use"
    assert story.sees(other, kind=ROOM).broken() == set()
    assert story.checker.findings.all_held
    assert RoomStory().sees(other, kind=ROOM).writes("create", "pods", "v", subresource="eviction").broken() == {"S7"}


def test_an_eviction_of_one_that_cannot_be_preempted_breaks_s7() -> None:
    story = RoomStory()
    fixed = holding("f", labels={"kai.scheduler/preemptibility": "non-preemptible"})
    story.sees(fixed)
    assert story.later(100).records(nomination("h", "f")).evicts("f").broken() == {"S7"}


def test_one_that_could_be_preempted_a_moment_ago_may_be_evicted() -> None:
    story = RoomStory(lateness=Lateness(30))
    story.records(nomination("h", "v")).later(100)
    story.sees(version(holding("v", labels={"kai.scheduler/preemptibility": "non-preemptible"}), 90))
    assert story.later(20).evicts("v").broken() == set()


# --- budgets ---------------------------------------------------------------------------------------------------------
def ready(name: str, **labels: str) -> dict[str, Any]:
    made = pod(name, labels={"app": "web", **labels}, phase="Running")
    made["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    return made


def where(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def budget(**spec: Any) -> dict[str, Any]:
    selector = {"matchLabels": {"app": "web"}}
    metadata = {"namespace": "team", "name": "b", "uid": "uid-b"}
    return {"metadata": metadata, "spec": {"selector": selector, **spec}}


@pytest.mark.parametrize(
    ("spec", "broken"),
    [
        ({"minAvailable": 2}, {"S7"}),
        ({"minAvailable": 1}, set[str]()),
        ({"minAvailable": "100%"}, {"S7"}),
        ({"minAvailable": "50%"}, set[str]()),
        ({"maxUnavailable": 0}, {"S7"}),
        ({"maxUnavailable": 1}, set[str]()),
        ({"maxUnavailable": 0, "selector": {"matchLabels": {"app": "other"}}}, set[str]()),
        ({"maxUnavailable": 0, "selector": {}}, {"S7"}),
        ({"maxUnavailable": 0, "selector": None}, set[str]()),
        ({"maxUnavailable": 0, "selector": where("app", "In", "web")}, {"S7"}),
        ({"maxUnavailable": 0, "selector": where("app", "NotIn", "web")}, set[str]()),
        ({"maxUnavailable": 0, "selector": where("app", "Exists")}, {"S7"}),
        ({"maxUnavailable": 0, "selector": where("app", "DoesNotExist")}, set[str]()),
    ],
)
def test_an_eviction_past_a_disruption_budget_breaks_s7(spec: dict[str, Any], broken: set[str]) -> None:
    story = RoomStory()
    story.sees(ready("a")).sees(ready("b")).sees(budget(**spec), kind=BUDGETS)
    assert story.records(nomination("h", "a")).later(3).evicts("a").broken() == broken


@pytest.mark.parametrize(("seconds", "broken"), [(1, set[str]()), (3, {"S7"})])
def test_a_budget_is_judged_when_the_disruption_controller_has_counted(seconds: int, broken: set[str]) -> None:
    changed = RoomStory()
    changed.sees(ready("a")).sees(budget(minAvailable=0), kind=BUDGETS).after(60)
    changed.sees(budget(minAvailable=1), kind=BUDGETS)
    assert changed.records(nomination("h", "a")).later(seconds).evicts("a").broken() == broken
    lost = RoomStory()
    lost.sees(ready("a")).sees(ready("b")).sees(budget(minAvailable=1), kind=BUDGETS).after(60)
    lost.sees(ready("b"), event="DELETED")
    assert lost.records(nomination("h", "a")).later(seconds).evicts("a").broken() == broken


def test_a_pod_that_is_not_ready_may_be_evicted_past_a_budget_and_a_deleted_budget_forbids_nothing() -> None:
    story = RoomStory()
    story.sees(pod("a", labels={"app": "web"})).sees(budget(minAvailable=1), kind=BUDGETS)
    assert story.records(nomination("h", "a")).evicts("a").broken() == set()
    story = RoomStory()
    story.sees(ready("a")).sees(budget(minAvailable=1), kind=BUDGETS)
    story.sees(budget(minAvailable=1), kind=BUDGETS, event="DELETED")
    assert story.records(nomination("h", "a")).evicts("a").broken() == set()


# --- S13 -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("seconds", "broken"), [(4, set[str]()), (6, {"S13"})])
def test_an_eviction_for_one_that_is_gone_breaks_s13(seconds: int, broken: set[str]) -> None:
    story = RoomStory().records(nomination("h", "v")).goes("h", node="").later(seconds).evicts("v")
    assert story.broken() == broken


def test_an_eviction_for_one_that_is_placed_breaks_s13() -> None:
    story = RoomStory().records(nomination("h", "v")).goes("w").binds("h").later(6).evicts("v")
    assert story.broken() == {"S13"}


def test_an_eviction_for_two_of_whom_one_waits_is_for_somebody() -> None:
    story = RoomStory().records(nomination("h g", "v w")).goes("h", node="").later(60).evicts("v")
    assert story.broken() == set()


def test_who_evicts_may_hear_late_that_its_holder_is_gone() -> None:
    story = RoomStory(lateness=Lateness(30)).records(nomination("h", "v")).goes("h", node="").later(30).evicts("v")
    assert story.broken() == set()


def test_a_pod_in_two_nominations_breaks_s13() -> None:
    assert RoomStory().records(nomination("h", "v"), nomination("g", "v")).broken() == {"S13"}


def test_a_pod_that_is_to_go_and_for_whom_room_is_made_breaks_s13() -> None:
    assert RoomStory().records(nomination("h", "v"), nomination("v", "w")).broken() == {"S13"}


def evicted_often(times: int, seconds: float, *, group: str = "ring") -> RoomStory:
    """One member of a group after the other is evicted, each for another nomination."""
    story = RoomStory()
    for number in range(times):
        name = f"m{number}"
        story.sees(holding(name, annotations={"pod-group-name": group} if group else {}))
        story.records(nomination("h", name, id_=f"i{number}")).evicts(name).goes(name)
        story.later(seconds)
    return story


@pytest.mark.parametrize(
    ("times", "seconds", "broken"),
    [(MOST, 1, set[str]()), (MOST + 1, 1, {"S13"}), (MOST + 1, 350, {"S13"}), (3 * MOST, 361, set[str]())],
)
def test_a_group_that_is_evicted_for_others_more_than_ten_times_an_hour_breaks_s13(
    times: int, seconds: float, broken: set[str]
) -> None:
    assert evicted_often(times, seconds).broken() == broken


def test_pods_alone_are_counted_each_by_itself() -> None:
    assert evicted_often(2 * MOST, 1, group="").broken() == set()


def test_members_that_go_for_one_nomination_are_one_eviction_of_their_group() -> None:
    story = RoomStory()
    members = [f"m{number}" for number in range(2 * MOST)]
    for name in members:
        story.sees(holding(name, annotations={"pod-group-name": "ring"}))
    story.records(nomination("h", " ".join(members)))
    for name in members:
        story.evicts(name)
    assert story.broken() == set()


def test_a_pod_that_is_going_already_is_not_evicted_once_more() -> None:
    story = RoomStory().records(nomination("h", "v")).evicts("v").goes("h", node="").later(60)
    story.sees(holding("v", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}))
    assert story.evicts("v").broken() == set()


# --- L6 --------------------------------------------------------------------------------------------------------------
def at_rest(story: RoomStory) -> set[str]:
    story.checker.nominations.judge_rest(story.now_s)
    return story.broken()


@pytest.mark.parametrize(("seconds", "broken"), [(119, set[str]()), (121, {"L6"})])
def test_a_nomination_that_nobody_waits_for_leaves_the_record(seconds: int, broken: set[str]) -> None:
    story = RoomStory().records(nomination("h", "v")).evicts("v").goes("v").binds("h").later(seconds)
    assert at_rest(story) == broken


@pytest.mark.parametrize(("seconds", "broken"), [(899, set[str]()), (901, {"L6"})])
def test_a_nomination_of_which_nothing_comes_does_not_stand_for_ever(seconds: int, broken: set[str]) -> None:
    assert at_rest(RoomStory().records(nomination("h", "v")).evicts("v").later(seconds)) == broken


def test_a_nomination_that_was_taken_out_has_come_to_its_end() -> None:
    assert at_rest(RoomStory().records(nomination("h", "v")).records().later(9000)) == set()
