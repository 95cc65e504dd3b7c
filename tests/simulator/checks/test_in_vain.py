"""L6: who had others evicted runs soon after its nomination has left the record, or something happened to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from simulator.checks.checker import NODES, QUEUES
from simulator.checks.preemption import CLAIM_PAUSE_S, SERVED_S
from tests.simulator.checks.rooms import RoomStory, holding, nomination
from tests.simulator.made_up import node

Step = Callable[[RoomStory], object]


def told(*steps: Step, after_s: float = SERVED_S + 1, is_evicted: bool = True) -> set[str]:
    """``v`` was evicted for ``h``, then this happens, and the nomination leaves the record."""
    story = RoomStory()
    story.later(60).records(nomination("h", "v"))
    if is_evicted:
        story.evicts("v").goes("v")
    story.later(3)
    for step in steps:
        step(story)
    story.records().later(after_s)
    return story.sees(holding("x", node="")).broken()


def nothing(_: RoomStory) -> None:
    return


def changed_queue(story: RoomStory) -> None:
    story.sees({"metadata": {"name": "team", "uid": "uid-team"}, "spec": {}}, kind=QUEUES)


def test_a_nomination_that_is_dropped_once_its_victim_is_gone_breaks_l6() -> None:
    assert told(nothing) == {"L6"}


def test_nobody_was_evicted_in_vain_for_a_nomination_that_was_given_up_before() -> None:
    assert told(nothing, is_evicted=False) == set()


def test_a_holder_has_two_minutes() -> None:
    assert told(nothing, after_s=SERVED_S - 1) == set()


@pytest.mark.parametrize(
    "happens",
    [
        pytest.param(lambda story: story.binds("h"), id="it is bound"),
        pytest.param(lambda story: story.goes("h", node=""), id="it is gone"),
        pytest.param(lambda story: story.sees(holding("h", node="", labels={"a": "b"})), id="it has changed"),
        pytest.param(lambda story: story.binds("g"), id="another one came while the nomination stood"),
        pytest.param(lambda story: story.sees(holding("f"), by_hand=True), id="somebody else's pod came"),
        pytest.param(lambda story: story.sees(node(gpus=1), kind=NODES), id="its node has less"),
        pytest.param(lambda story: story.sees(node(gpus=2), kind=NODES, event="DELETED"), id="its node is gone"),
        pytest.param(changed_queue, id="a queue has changed"),
    ],
)
def test_what_happens_to_it_meanwhile_explains_its_end(happens: Step) -> None:
    assert told(happens) & {"L6"} == set()


@pytest.mark.parametrize(
    "happens",
    [
        pytest.param(lambda story: story.sees(node(gpus=2), kind=NODES), id="its node says the same"),
        pytest.param(lambda story: story.sees(holding("h", node="")), id="it says the same"),
        pytest.param(lambda story: story.goes("x", node=""), id="another one that waits is gone"),
    ],
)
def test_what_has_nothing_to_do_with_it_explains_nothing(happens: Step) -> None:
    assert told(happens) == {"L6"}


def test_who_takes_the_place_after_the_nomination_was_dropped_explains_nothing() -> None:
    story = RoomStory()
    story.later(60).records(nomination("h", "v")).evicts("v").goes("v").later(3).records().later(1)
    story.binds("g").later(SERVED_S + 1)
    assert story.sees(holding("x", node="")).broken() == {"L6"}


def test_a_victim_that_stays_explains_it() -> None:
    story = RoomStory()
    story.later(60).records(nomination("h", "v")).evicts("v").later(3).records().later(SERVED_S + 1)
    assert story.sees(holding("x", node="")).broken() == set()


def test_a_nomination_that_is_revised_is_the_same_one() -> None:
    story = RoomStory()
    story.later(60).records(nomination("h", "v", id_="i")).evicts("v").goes("v").later(3)
    story.records(nomination("h", "w", id_="i")).later(SERVED_S + 1)
    assert story.sees(holding("x", node="")).broken() == set()
    story.evicts("w").goes("w").later(3).records().later(SERVED_S + 1)
    assert story.sees(holding("x", node="")).broken() == {"L6"}


CLAIM = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
DEVICE = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}


def again(after_s: float, spec: dict[str, Any]) -> set[str]:
    """Two are evicted for ``h``, which has this in its spec, in vain: one so long after the other."""
    story, holder = RoomStory(), holding("h", node="")
    holder["spec"].update(spec)
    story.sees(holder)
    story.later(60)
    story.records(nomination("h", "v")).evicts("v").goes("v").later(3).records().later(after_s)
    story.records(nomination("h", "w", id_="second")).evicts("w").goes("w").later(3).records().later(SERVED_S + 1)
    return story.sees(holding("x", node="")).broken()


@pytest.mark.parametrize("spec", [CLAIM, DEVICE], ids=["a volume", "a device"])
def test_claims_that_may_have_failed_explain_one_end_of_a_nomination_in_a_while(spec: dict[str, Any]) -> None:
    assert again(CLAIM_PAUSE_S, spec) == set()
    assert again(CLAIM_PAUSE_S - 1, spec) == {"L6"}
