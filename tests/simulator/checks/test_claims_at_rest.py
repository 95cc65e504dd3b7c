"""L7, and L1 of pods with claims: at rest nobody keeps devices in vain, and what fits with its claims is bound."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.checks.claims_at_rest import fitting
from simulator.checks.facts import PodFacts
from simulator.checks.facts import pod as read
from simulator.checks.fit import Room
from simulator.checks.gangs import Minimums
from simulator.checks.messages import Scene
from tests.simulator.checks.claim_stories import ClaimStory, claiming
from wire import names


def test_claims_of_pods_that_run_break_nothing() -> None:
    assert ClaimStory().offers("node-0", "d0").claim("c", "d0", by="p").binds("p", "c").rests().broken == []


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
    return made.stores("storageclasses", {"metadata": {"name": "fast"}, "provisioner": "disk.csi.example"})


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
