"""Node reserves by pods' conditions: who may be kept off (L1), what is said (L3), owners with empty nodes (L6)."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.checks.checker import NODES, QUEUES
from tests.simulator.checks.preemptions import holding
from tests.simulator.made_up import NODE, Story, node
from wire import names

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
