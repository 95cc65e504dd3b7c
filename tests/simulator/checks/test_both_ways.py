"""S19: the checker finds a device that a reservation holds and a claim gives at once, whichever came first."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.checks import facts
from simulator.checks.claims import Claims
from tests.simulator.checks.claim_stories import ClaimStory, claiming
from tests.simulator.made_up import reservation

_BROKEN = ["S19: device GPU-0 is held by kai-resource-reservation/r and given by ResourceClaim team/c"]


def _holder(uuid: str = "GPU-0", phase: str = "Running") -> dict[str, Any]:
    raw = reservation("r", "g")
    raw["metadata"]["annotations"]["run.ai/reserve_for_gpu_index"] = uuid
    raw["status"]["phase"] = phase
    return raw


def _story() -> ClaimStory:
    return ClaimStory().offers("node-0", "d0", parts_gib=80, uuid="GPU-0")


def test_a_claim_of_a_device_that_a_reservation_holds_breaks_it() -> None:
    assert _story().stores("pods", _holder()).claim("c", "d0", part_gib=8).broken == _BROKEN


def test_a_reservation_that_tells_a_device_of_a_claim_breaks_it() -> None:
    made = _story().stores("pods", _holder("")).claim("c", "d0", part_gib=8)
    assert made.broken == []
    assert made.stores("pods", _holder()).broken == _BROKEN


def test_a_reservation_that_told_its_device_before_there_were_claims_breaks_it() -> None:
    made = _story()
    made.claims = Claims(made.findings, {"uid-r": facts.pod({**_holder(), "kind": "Pod"})})
    made.offers("node-0", "d0", parts_gib=80, uuid="GPU-0").claim("c", "d0", part_gib=8)
    assert made.broken == _BROKEN


@pytest.mark.parametrize(
    ("holder", "is_gone"),
    [(_holder("GPU-1"), False), (_holder(phase="Failed"), False), (_holder(), True)],
    ids=["another device", "it has ended", "it is gone"],
)
def test_a_device_that_nobody_holds_any_more_breaks_nothing(holder: dict[str, Any], is_gone: bool) -> None:
    made = _story().stores("pods", _holder("")).stores("pods", holder, is_gone=is_gone)
    assert made.claim("c", "d0", part_gib=8).broken == []


def test_a_claim_that_gave_its_device_back_breaks_nothing() -> None:
    made = _story().claim("c", "d0", part_gib=8).claim("c")
    assert made.stores("pods", _holder()).broken == []


@pytest.mark.parametrize(("scheduler", "broken"), [("kai-scheduler", _BROKEN), ("rival-scheduler", [])])
def test_what_another_scheduler_gives_its_own_pods_breaks_nothing(scheduler: str, broken: list[str]) -> None:
    user = {**claiming("p", "c"), "kind": "Pod"}
    user["spec"]["schedulerName"] = scheduler
    for is_first in (True, False):
        made = _story().stores("pods", _holder("GPU-0" if is_first else ""))
        made.claims = Claims(made.findings, {each.uid: each for each in map(facts.pod, (user, _told(is_first)))})
        made.offers("node-0", "d0", parts_gib=80, uuid="GPU-0").claim("c", "d0", part_gib=8, by="p")
        made.stores("pods", _holder())
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
    made.offers("node-0", "d0", parts_gib=80, uuid="GPU-0").stores("pods", _holder(""))
    for users in steps:
        live.clear()
        live.update({each.uid: each for each in map(_user, (users or "").split())})
        made.claim("c", *(() if users is None else ("d0",)), part_gib=8, by=users or "")
    assert made.stores("pods", _holder()).broken == broken


def _user(name: str) -> facts.PodFacts:
    user = {**claiming(name, "c"), "kind": "Pod"}
    user["spec"]["schedulerName"] = "rival-scheduler" if name == "rival" else "kai-scheduler"
    return facts.pod(user)


def _told(is_told: bool) -> dict[str, Any]:
    return {**_holder("GPU-0" if is_told else ""), "kind": "Pod"}
