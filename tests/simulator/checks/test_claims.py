"""S15, S16 and S17: a pod is bound by claims that are its own, and a gang once all that it needs are ready."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.checks import facts
from simulator.checks.claims import Claims, fitting
from simulator.checks.facts import PodFacts
from simulator.checks.facts import pod as read
from simulator.checks.fit import Room
from simulator.checks.gangs import Minimums
from simulator.checks.messages import Scene
from tests.simulator.checks.claim_stories import ClaimStory, claiming
from tests.simulator.made_up import reservation
from wire import names


def told(parts_gib: int = 0) -> ClaimStory:
    return ClaimStory().offers("node-0", "d0", "d1", parts_gib=parts_gib)


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


# L7, and L1 of pods with claims: at rest nobody keeps devices in vain, and what fits with its claims is bound.


@pytest.mark.parametrize(
    ("pod", "text"),
    [
        (None, "is reserved for a pod that is gone"),
        ({"node": "node-0", "phase": "Succeeded"}, "is reserved for a pod that has ended"),
        ({"node": ""}, "is reserved for pod team/p, which waits"),
    ],
)
def test_a_claim_that_is_kept_for_a_pod_without_a_place_breaks_s18(pod: dict[str, Any] | None, text: str) -> None:
    made = ClaimStory().offers("node-0", "d0").claim("c", "d0", by="p")
    if pod is not None:
        made.binds("p", "c", **pod)
    assert made.rests().broken == [f"L7: ResourceClaim team/c {text}"]


@pytest.mark.parametrize(("seconds", "number"), [(60, 0), (200, 1)])
def test_a_claim_that_is_allocated_for_nobody_breaks_s18_after_a_while(seconds: int, number: int) -> None:
    made = ClaimStory().offers("node-0", "d0").claim("c", "d0").after(seconds).rests()
    assert made.broken == ["L7: ResourceClaim team/c is allocated since 0.000 s, and no pod may use it"] * number
    assert ClaimStory().claim("c", "d0").claim("c").after(seconds).rests().broken == []


@pytest.mark.parametrize(
    ("node", "by", "made_for", "number"),
    [("", "", "p", 1), ("", "", "q", 0), ("node-0", "p", "p", 0), ("node-0", "", "p", 0)],
    ids=["waits", "of another pod", "runs with it", "runs without it"],
)
def test_a_claim_that_was_made_for_a_pod_that_waits_breaks_l7(node: str, by: str, made_for: str, number: int) -> None:
    annotations = {names.EXTENDED_RESOURCE_CLAIM: "true"}
    made = ClaimStory().offers("node-0", "d0").claim("c", by=by, owner=made_for, annotations=annotations)
    made.binds("p", node=node).rests()
    assert made.broken == ["L7: ResourceClaim team/c was made for pod team/p, which waits"] * number


# --- L1 ---------------------------------------------------------------------------------------------------------------


def _plain() -> ClaimStory:
    made = ClaimStory().offers("node-0", "d0", "d1").stores("deviceclasses", {"metadata": {"name": "any"}, "spec": {}})
    return made.stores(
        "storageclasses",
        {"metadata": {"name": "fast"}, "provisioner": "disk.csi.example", "volumeBindingMode": "WaitForFirstConsumer"},
    )


def _room(name: str = "node-0") -> Room:
    return Room(name=name, gpus=8, cpu_milli=8000, mem_mib=8000, pods=8, smallest_mib=80_000)


def _told(made: ClaimStory, *pods: dict[str, Any], minimum: int = 0, rooms: tuple[Room, ...] = ()) -> list[str]:
    waiting: list[PodFacts] = [read(raw) for raw in pods]
    members = {("team", "g"): waiting} if minimum else {}
    minimums = {("team", "g"): Minimums({"minMember": minimum})} if minimum else {}
    scene = Scene(nodes={}, rooms=[*rooms] or [_room()], members=members, minimums=minimums)
    return [text for _, text in fitting(waiting, scene, made.claims.records, kept_from=lambda _: ())]


@pytest.mark.parametrize(
    ("story", "fits"),
    [
        (lambda: _plain().claim("c"), True),
        (lambda: _plain().claim("c", count=2), True),
        (lambda: _plain().claim("c", count=3), False),
        (lambda: _plain().claim("c", count=2).claim("other", "d0"), False),
        (lambda: _plain().claim("c", "d0", by="other"), True),
        (lambda: _plain().claim("c", "d0", by="other", node="node-1"), False),
        (lambda: _plain().claim("c", deletionTimestamp="2026-01-01T00:00:00Z"), False),
        (lambda: _plain().claim("c", owner="other"), False),
        (_plain, False),
        (lambda: ClaimStory().offers("node-0", "d0").claim("c"), False),
        (lambda: _plain().offers("node-0", "d0", generation=2, count=2).claim("c"), False),
        (lambda: _plain().offers("node-0", "d0", parts_gib=16, generation=2).claim("c"), False),
    ],
    ids=[
        *("free", "two", "too many", "one is in use", "allocated here", "allocated elsewhere"),
        *("goes", "another pod's", "not there", "class not known", "incomplete pool", "shared devices"),
    ],
)
def test_a_pod_fits_where_its_claims_have_devices(story: Any, fits: bool) -> None:
    assert _told(story(), claiming("p", "c", node="")) == ["it fits with its claims on node-0"] * fits


@pytest.mark.parametrize(("selected", "fits"), [("", True), ("node-0", True), ("node-1", False)])
def test_a_volume_that_is_made_for_a_node_holds_its_pod_to_it(selected: str, fits: bool) -> None:
    annotations = {"volume.kubernetes.io/selected-node": selected} if selected else {}
    meta = {"namespace": "team", "name": "v", "uid": "v", "annotations": annotations}
    made = _plain().stores("persistentvolumeclaims", {"metadata": meta, "spec": {"storageClassName": "fast"}})
    assert _told(made, claiming("p", node="", volumes="v")) == ["it fits with its claims on node-0"] * fits


@pytest.mark.parametrize(("minimum", "fits"), [(2, True), (3, False)])
def test_a_gang_fits_where_there_are_devices_for_all_that_it_needs(minimum: int, fits: bool) -> None:
    made, members = _plain(), []
    for number in range(3):
        made.claim(f"c{number}", owner=f"p{number}")
        members.append(claiming(f"p{number}", f"c{number}", node="", group="g"))
    assert _told(made, *members, minimum=minimum) == ["all of gang g that is missing fits with its claims"] * fits
    assert _told(made.claim("c0"), *members, minimum=minimum) == []


# S19: the checker finds a device that a reservation holds and a claim gives at once, whichever came first.

_BROKEN = ["S19: device GPU-0 is held by kai-resource-reservation/r and given by ResourceClaim team/c"]


def _nominee(uuid: str = "GPU-0", phase: str = "Running") -> dict[str, Any]:
    raw = reservation("r", "g")
    raw["metadata"]["annotations"]["run.ai/reserve_for_gpu_index"] = uuid
    raw["status"]["phase"] = phase
    return raw


def _story() -> ClaimStory:
    return ClaimStory().offers("node-0", "d0", parts_gib=80, uuid="GPU-0")


def test_a_claim_of_a_device_that_a_reservation_holds_breaks_it() -> None:
    assert _story().stores("pods", _nominee()).claim("c", "d0", part_gib=8).broken == _BROKEN


def test_a_reservation_that_tells_a_device_of_a_claim_breaks_it() -> None:
    made = _story().stores("pods", _nominee("")).claim("c", "d0", part_gib=8)
    assert made.broken == []
    assert made.stores("pods", _nominee()).broken == _BROKEN


def test_a_reservation_that_told_its_device_before_there_were_claims_breaks_it() -> None:
    made = _story()
    made.claims = Claims(made.findings, {"uid-r": facts.pod({**_nominee(), "kind": "Pod"})})
    made.offers("node-0", "d0", parts_gib=80, uuid="GPU-0").claim("c", "d0", part_gib=8)
    assert made.broken == _BROKEN


@pytest.mark.parametrize(("scheduler", "broken"), [("kai-scheduler", _BROKEN), ("rival-scheduler", [])])
def test_what_another_scheduler_gives_its_own_pods_breaks_nothing(scheduler: str, broken: list[str]) -> None:
    user = {**claiming("p", "c"), "kind": "Pod"}
    user["spec"]["schedulerName"] = scheduler
    for is_first in (True, False):
        made = _story().stores("pods", _nominee("GPU-0" if is_first else ""))
        made.claims = Claims(
            made.findings, {each.uid: each for each in map(facts.pod, (user, _both_ways_told(is_first)))}
        )
        made.offers("node-0", "d0", parts_gib=80, uuid="GPU-0").claim("c", "d0", part_gib=8, by="p")
        made.stores("pods", _nominee())
        assert made.broken == broken


@pytest.mark.parametrize(
    ("steps", "broken"),
    [
        (("own", "rival"), _BROKEN),
        (("own", "own rival", "rival"), _BROKEN),
        (("own", ""), _BROKEN),
        (("rival", "own"), []),
        (("rival", "own rival", "own"), []),
        (("rival", ""), []),
        (("rival", None, "own"), _BROKEN),
        (("own", None, "rival"), []),
    ],
)
def test_a_claim_is_of_the_scheduler_that_allocated_it_whoever_uses_it_later(
    steps: tuple[str | None, ...], broken: list[str]
) -> None:
    made = _story()
    live: dict[str, facts.PodFacts] = {}
    made.claims = Claims(made.findings, live)
    made.offers("node-0", "d0", parts_gib=80, uuid="GPU-0").stores("pods", _nominee(""))
    for users in steps:
        live.clear()
        live.update({each.uid: each for each in map(_user, (users or "").split())})
        made.claim("c", *(() if users is None else ("d0",)), part_gib=8, by=users or "")
    assert made.stores("pods", _nominee()).broken == broken


def _user(name: str) -> facts.PodFacts:
    user = {**claiming(name, "c"), "kind": "Pod"}
    user["spec"]["schedulerName"] = "rival-scheduler" if name == "rival" else "kai-scheduler"
    return facts.pod(user)


def _both_ways_told(is_told: bool) -> dict[str, Any]:
    return {**_nominee("GPU-0" if is_told else ""), "kind": "Pod"}
