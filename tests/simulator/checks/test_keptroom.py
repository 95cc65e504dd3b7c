"""S14: what was freed for somebody is bound by nobody else of ours."""

from __future__ import annotations

import json
from typing import Any

import pytest

from simulator.checks.checker import BIND_REQUESTS, NODES
from tests.simulator.checks.rooms import RoomStory, holding, nomination
from tests.simulator.made_up import node, pod, reservation, share, version


def freed(*more: dict[str, Any]) -> RoomStory:
    """``v`` has gone for ``h``."""
    return RoomStory().records(nomination("h", "v"), *more).evicts("v").goes("v")


def test_a_pod_that_is_bound_on_what_was_freed_for_another_breaks_s14() -> None:
    story = freed().binds("x")
    assert story.broken() == {"S14"}
    assert [each.text for each in story.checker.findings.found.values()] == [
        "pod team/x was bound on node-0 on GPUs that were freed for team/h"
    ]


def test_the_holder_is_bound_on_it() -> None:
    assert freed().binds("h").broken() == set()


def test_a_holder_that_is_handed_over_keeps_nothing_beside_what_its_attempt_takes() -> None:
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
def test_a_holder_that_is_bound_elsewhere_within_a_minute_was_on_its_way(seconds: int, broken: set[str]) -> None:
    story = freed().binds("x").later(seconds)
    story.sees(version(holding("y", node=""), story.number))
    assert story.binds("h", node="other").broken() == broken


def test_what_victims_still_have_is_kept_by_that() -> None:
    """Two are to go for one of two GPUs: while one of them is there, the other one's GPU is anybody's."""
    story = RoomStory().records(nomination("h", "v w")).evicts("v").goes("v")
    assert story.binds("x").broken() == set()
    story = RoomStory()
    story.sees(holding("h", 2, node=""))
    story.records(nomination("h", "v w")).evicts("v").goes("v")
    assert story.binds("x").broken() == {"S14"}


def test_what_is_free_beside_it_is_anybodys() -> None:
    assert freed().goes("w").binds("x").broken() == set()


def test_a_pod_that_uses_nothing_of_what_was_freed_may_come() -> None:
    story = freed()
    story.sees(pod("small"))
    assert story.broken() == set()


def test_a_victim_that_is_still_there_has_freed_nothing() -> None:
    story = RoomStory().records(nomination("h", "v")).evicts("v").goes("w").binds("x")
    assert story.broken() == set()


def test_room_of_a_nomination_that_is_over_is_anybodys() -> None:
    assert freed().records().binds("x").broken() == set()


def test_an_end_that_is_told_of_late_counts_from_when_it_was_written() -> None:
    story = freed()
    ended = story.number + 1
    story.number += 1
    assert story.binds("x").records(at=ended).broken() == set()


def test_a_nomination_that_ends_after_the_binding_stood_then() -> None:
    assert freed().binds("x").records().broken() == {"S14"}


def test_room_of_a_holder_that_is_gone_is_anybodys() -> None:
    assert freed().goes("h", node="").binds("x").broken() == set()


def test_room_is_kept_until_all_of_a_gang_are_placed() -> None:
    story = RoomStory().records(nomination("h g", "v w")).evicts("v").evicts("w").goes("v").goes("w")
    assert story.binds("h").binds("x").broken() == {"S14"}
    story = RoomStory().records(nomination("h g", "v w")).evicts("v").evicts("w").goes("v").goes("w")
    assert story.binds("h").binds("g").broken() == set()


def test_a_younger_holder_before_an_older_one_breaks_s14() -> None:
    assert freed(nomination("g", "w")).binds("g").broken() == {"S14"}


def test_an_older_holder_may_have_what_was_freed_for_a_younger_one() -> None:
    story = RoomStory().records(nomination("h", "v"), nomination("g", "w")).evicts("w").goes("w")
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


def test_a_part_of_a_device_is_kept_for_its_holder() -> None:
    def story() -> RoomStory:
        made = RoomStory()
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
