"""S15, S16 and S17: a pod is bound by claims that are its own, and a gang once all that it needs are ready."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulator.checks.claim_stories import ClaimStory


def told(parts_gib: int = 0) -> ClaimStory:
    return ClaimStory().offers("node-0", "d0", "d1", parts_gib=parts_gib)


def test_a_pod_that_is_bound_by_a_claim_that_is_reserved_for_it_breaks_nothing() -> None:
    assert told().waits("p", "c").claim("c", "d0", by="p").binds("p", "c").broken == []


def test_a_pod_that_is_bound_when_its_devices_have_reported_all_breaks_nothing() -> None:
    made = told().waits("p", "c").claim("c", "d0", by="p", awaits="up on", reports="on up")
    assert made.binds("p", "c").broken == []


_NOT_RESERVED = "ResourceClaim c is not reserved for it"


@pytest.mark.parametrize(
    ("devices", "told_of_claim", "text"),
    [
        ([], {}, _NOT_RESERVED),
        (["d0"], {}, _NOT_RESERVED),
        (["d0"], {"by": "other"}, _NOT_RESERVED),
        (["d0"], {"by": "p", "node": "node-1"}, "the devices of ResourceClaim c are on node-1"),
        (["d0"], {"by": "p", "is_gone": True}, "ResourceClaim c is not there"),
        (["d0"], {"by": "p", "awaits": "up on", "reports": "up"}, "devices of ResourceClaim c lack on"),
    ],
    ids=["not allocated", "for nobody", "for another", "elsewhere", "gone", "not ready"],
)
def test_a_pod_that_is_bound_without_its_claim_breaks_s16(
    devices: list[str], told_of_claim: dict[str, Any], text: str
) -> None:
    made = told().waits("p", "c").claim("c", *devices, **told_of_claim).binds("p", "c")
    assert made.broken == [f"S16: pod team/p is bound to node-0, and {text}"]


@pytest.mark.parametrize(("volume", "number"), [("", 1), ("pv", 0)])
def test_a_pod_that_is_bound_before_its_volume_breaks_s16(volume: str, number: int) -> None:
    made = told().volume_claim("v", volume).waits("p", volumes="v").binds("p", volumes="v")
    assert made.broken == ["S16: pod team/p is bound to node-0, and claim v is not bound to a volume"] * number


def test_pods_of_other_schedulers_and_pods_that_were_bound_before_are_not_judged() -> None:
    made = told().claim("c").waits("p", "c", scheduler="other").binds("p", "c", scheduler="other")
    assert made.binds("by-hand", "c").broken == []


@pytest.mark.parametrize(("first", "number"), [("other", 1), ("c", 0)])
def test_of_two_claims_with_one_device_the_pod_of_the_later_one_is_not_bound(first: str, number: int) -> None:
    made = told().waits("p", "c")
    for name in sorted(["c", "other"], key=lambda each: each != first):
        made.claim(name, "d0", by="p" if name == "c" else "x")
    text = (
        "S15: pod team/p is bound to node-0, and device gpu.example.com/node-0/d0 of ResourceClaim team/c was given to"
    )
    assert [each.startswith(text) for each in made.binds("p", "c").broken] == [True] * number


def test_a_device_that_was_given_back_before_is_not_given_twice() -> None:
    made = told().waits("p", "c").claim("other", "d0", by="x").claim("other", by="")
    assert made.claim("c", "d0", by="p").binds("p", "c").broken == []


def test_a_claim_that_was_made_again_under_its_name_is_another_one() -> None:
    made = told().waits("p", "c").claim("other", "d0", by="x").claim("other", is_gone=True).claim("other", uid="new")
    assert made.claim("c", "d0", by="p").binds("p", "c").broken == []


@pytest.mark.parametrize(("parts", "number"), [((6, 10), 0), ((7, 10), 1), ((16,), 0)])
def test_parts_of_a_device_are_no_more_than_it_has(parts: tuple[int, ...], number: int) -> None:
    made = told(parts_gib=16)
    for at, part in enumerate(parts):
        made.waits(f"p{at}", f"c{at}").claim(f"c{at}", "d0", by=f"p{at}", part_gib=part)
        made.binds(f"p{at}", f"c{at}")
    assert [each[:3] for each in made.broken] == ["S15"] * number


@pytest.mark.parametrize(("most", "number"), [(8, 0), (7, 1)])
def test_devices_take_no_more_of_a_counter_than_its_pool_has(most: int, number: int) -> None:
    made = ClaimStory().counts("node-0", most, d0=4, d1=4)
    for at in range(2):
        made.waits(f"p{at}", f"c{at}").claim(f"c{at}", f"d{at}", by=f"p{at}").binds(f"p{at}", f"c{at}")
    text = (
        "S15: pod team/p1 is bound to node-0, and 8 of 7 slices of pool node-0 are taken with what team/c0 had before"
    )
    assert made.broken == [text] * number


def test_a_device_of_several_claims_takes_of_a_counter_once() -> None:
    made = ClaimStory().counts("node-0", 4, d0=4).claim("c0", "d0", by="x", part_gib=1)
    assert made.waits("p", "c").claim("c", "d0", by="p", part_gib=1).binds("p", "c").broken == []


def _gang() -> ClaimStory:
    made = told().gang("g", 2)
    for name in ("a", "b"):
        made.waits(name, f"of-{name}", group="g").claim(f"of-{name}", owner=name)
    return made


def test_a_gang_is_bound_when_all_claims_of_its_members_are_reserved() -> None:
    made = _gang().claim("of-a", "d0", by="a").claim("of-b", "d1", by="b")
    assert made.binds("a", "of-a", group="g").binds("b", "of-b", group="g").broken == []


def test_the_first_binding_of_a_gang_that_is_not_ready_breaks_s17() -> None:
    made = _gang().claim("of-a", "d0", by="a").binds("a", "of-a", group="g")
    assert made.broken == ["S17: pod team/a is bound, and of gang g 1 of 2 are ready"]


def test_members_above_the_minimum_come_later() -> None:
    made = _gang().claim("of-a", "d0", by="a").claim("of-b", "d1", by="b").waits("c", "of-c", group="g")
    assert made.binds("a", "of-a", group="g").binds("b", "of-b", group="g").broken == []
    assert made.claim("of-c", "d2", by="c").binds("c", "of-c", group="g").broken == []


@pytest.mark.parametrize(("seconds", "number"), [(10, 0), (400, 1)])
def test_a_member_that_was_ready_a_while_ago_counts(seconds: int, number: int) -> None:
    made = _gang().claim("of-a", "d0", by="a").claim("of-b", "d1", by="b").goes("b", "of-b", group="g")
    made.after(seconds).binds("a", "of-a", group="g")
    assert [each[:3] for each in made.broken] == ["S17"] * number


def test_a_minimum_that_was_raised_a_moment_ago_may_not_be_known() -> None:
    made = _gang().claim("of-a", "d0", by="a").claim("of-b", "d1", by="b").gang("g", 100)
    assert made.binds("a", "of-a", group="g").broken == []
    late = _gang().claim("of-a", "d0", by="a").claim("of-b", "d1", by="b").gang("g", 100).after(400)
    assert [each[:3] for each in late.binds("a", "of-a", group="g").broken] == ["S17"]


def test_a_gang_whose_pod_group_went_a_moment_ago_is_not_judged() -> None:
    assert _gang().claim("of-a", "d0", by="a").gang("g", 2, is_gone=True).binds("a", "of-a", group="g").broken == []
