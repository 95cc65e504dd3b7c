"""Gangs whose minimum rises while they run: that breaks none of them, and a member that is lost does."""

from __future__ import annotations

from typing import Any

import pytest

from gpu.grant import charged
from scheduler.core.cluster import Cluster
from scheduler.core.convert.pod_groups import pod_group_record, read_kept, render_kept
from scheduler.core.model.records import Minimums
from tests.scheduler.core.objects import bind_request, bound, cluster, feed, node, pod, pod_group
from tests.values import of_kind, there
from wire import names


def parts(**minimums: int) -> list[dict[str, Any]]:
    return [{"name": name, "minMember": number} for name, number in minimums.items()]


def member(name: str, part: str = "") -> Any:
    return bound(pod(name, gpus=1, group="g", labels={names.SUBGROUP_LABEL: part} if part else {}), "n1")


def broken(made: Cluster) -> bool:
    return made.is_broken_gang("ns", "g")


def ray(least: int) -> Any:
    workers = parts(gpu=least) if least else []
    return pod_group("g", 1 + least, subGroups=[*parts(headgroup=1), *workers])


def test_a_minimum_that_rises_breaks_no_gang_and_a_member_that_is_lost_does() -> None:
    made = cluster(node("n1", 8), ray(0), member("head", "headgroup"))
    feed(made, ray(2))
    assert not broken(made)
    feed(made, member("w1", "gpu"))
    assert not broken(made)
    made.remove_pod("uid-head")
    assert broken(made)


def test_a_gang_that_has_reached_its_raised_minimum_is_broken_by_the_next_member_that_it_loses() -> None:
    made = cluster(node("n1", 8), pod_group("g", 1), member("a"))
    feed(made, pod_group("g", 2))
    feed(made, member("b"))
    made.remove_pod("uid-b")
    assert broken(made)


def test_a_minimum_that_rises_twice_and_one_that_falls_between_leave_it_what_it_had_last() -> None:
    made = cluster(node("n1", 8), pod_group("g", 2), member("a"), member("b"))
    feed(made, pod_group("g", 3))
    feed(made, pod_group("g", 4))
    assert not broken(made)
    made.remove_pod("uid-b")
    assert broken(made)
    feed(made, pod_group("g", 1))
    feed(made, pod_group("g", 4))
    assert not broken(made)


def test_a_gang_that_had_lost_a_member_before_its_minimum_rose_stays_broken() -> None:
    made = cluster(node("n1", 8), pod_group("g", 2), member("a"), member("b"))
    made.remove_pod("uid-b")
    feed(made, pod_group("g", 3))
    assert broken(made)


def test_a_scheduler_that_starts_afterwards_goes_by_the_annotation() -> None:
    before = cluster(node("n1", 8), ray(0), member("head", "headgroup"))
    feed(before, ray(2))
    record = there(before.pod_group("ns", "g"))
    assert record.kept is not None
    written = {names.KEPT_MINIMUM: render_kept(record.kept) or ""}
    spec: dict[str, Any] = {"subGroups": [*parts(headgroup=1), *parts(gpu=2)]}
    assert not broken(
        cluster(node("n1", 8), pod_group("g", 3, annotations=written, **spec), member("head", "headgroup"))
    )
    assert broken(cluster(node("n1", 8), pod_group("g", 3, annotations=written, **spec), member("w", "gpu")))


SHAPES = [
    pytest.param({}, id="without parts"),
    pytest.param({"subGroups": parts(a=2, b=0)}, id="parts"),
    pytest.param(
        {
            "subGroups": [
                {"name": "workers", "minSubGroup": 1},
                {"name": "a", "parent": "workers", "minMember": 2},
                {"name": "b", "parent": "workers", "minMember": 3},
            ]
        },
        id="parts of parts",
    ),
]


@pytest.mark.parametrize("spec", SHAPES)
def test_minimums_are_read_as_they_were_written(spec: dict[str, Any]) -> None:
    minimums = pod_group_record(pod_group("g", 3, **spec)).minimums
    text = there(render_kept(minimums))
    assert read_kept(text) == minimums


@pytest.mark.parametrize(
    "text",
    [None, "", "{", "[]", "null", '{"minMember":"x"}', '{"subGroups":[{"name":"a","parent":"b"}]}', " " * 20_000],
)
def test_an_annotation_that_can_not_be_read_says_nothing(text: str | None) -> None:
    assert read_kept(text) is None


def test_minimums_that_would_be_too_long_are_not_written() -> None:
    spec: dict[str, Any] = {"subGroups": parts(**{f"part-{number}": 1 for number in range(900)})}
    assert render_kept(pod_group_record(pod_group("g", 900, **spec)).minimums) is None


def test_a_minimum_below_zero_counts_as_none() -> None:
    found = of_kind(Minimums, read_kept('{"minMember":-3}'))
    assert found.pods == 0


def placed(name: str, minimum: int, part: str = "", of_part: int = 0) -> Any:
    """A member whose Binding says for which minimums it was placed."""
    one = pod(name, gpus=1, group="g", labels={names.SUBGROUP_LABEL: part} if part else {})
    return bound(one, "n1", charged=charged("q", None, is_preemptible=True, minimum=minimum, part=of_part))


HEAD, WORKERS = placed("h", 3, "headgroup", 1), (placed("w1", 3, "gpu", 2), placed("w2", 3, "gpu", 2))
STAMPED = {names.STALE_SINCE: "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("group", "members", "is_broken"),
    [
        (pod_group("g", 3), [placed("a", 2), placed("b", 2)], False),
        (pod_group("g", 3), [placed("a", 3), placed("b", 3)], True),
        (pod_group("g", 4), [placed("a", 2), placed("b", 3)], True),
        (pod_group("g", 3), [placed("a", 2)], True),
        (pod_group("g", 3), [member("a"), member("b")], True),
        (pod_group("g", 3, annotations=STAMPED), [placed("a", 2), placed("b", 2)], True),
        (ray(3), [HEAD, *WORKERS], False),
        (ray(3), [HEAD, WORKERS[0]], True),
        (ray(3), WORKERS, True),
        (ray(2), [*WORKERS, placed("w3", 3, "gpu", 2)], True),
        (pod_group("g", 3, subGroups=parts(headgroup=0, gpu=3)), [HEAD, *WORKERS], False),
    ],
    ids=[
        "rose", "lost one of three", "rose twice", "rose and lost one", "placed by an earlier version",
        "known to have lost one", "part rose", "part rose and lost one", "part rose and lost another part",
        "lost a part and has surplus", "part rose and all did not",
    ],
)  # fmt: skip
def test_a_scheduler_that_did_not_see_a_minimum_rise_goes_by_what_pods_were_placed_for(
    group: Any, members: list[Any], *, is_broken: bool
) -> None:
    made = cluster(node("n1", 8), group, *members)
    made.keep_placed_minimums()
    assert broken(made) is is_broken


def test_a_gang_that_lost_what_it_had_before_its_minimum_rose_is_broken_by_a_half_start() -> None:
    made = cluster(node("n1", 8), pod_group("g", 2), member("a"), member("b"))
    feed(made, pod_group("g", 4))
    assert not broken(made)
    made.remove_pod("uid-a")
    assert broken(made)
    made.remove_pod("uid-b")
    feed(made, member("c"), member("d"))
    assert broken(made)


@pytest.mark.parametrize("lost", [[], ["uid-w1"]], ids=["none lost", "a worker lost"])
def test_a_member_that_is_lost_beside_those_that_a_gang_had_breaks_nothing(lost: list[str]) -> None:
    made = cluster(node("n1", 8), ray(0), member("head", "headgroup"))
    feed(made, ray(3), member("w1", "gpu"))
    for uid in lost:
        made.remove_pod(uid)
    assert not broken(made)


def test_a_minimum_that_rises_before_the_first_member_is_shown_bound_breaks_no_gang() -> None:
    made = cluster(node("n1", 8), pod_group("g", 1))
    leader = pod("a", gpus=1, group="g")
    feed(made, leader, bind_request(leader, "n1"))
    feed(made, pod_group("g", 3), bound(leader, "n1"))
    assert not broken(made)
    made.remove_pod("uid-a")
    feed(made, member("b"))
    assert broken(made)
