"""Gangs that a queue holds back in part, or of which some members fit on nodes only that are kept for others."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.decide.allowance import LIMITS, Limits
from scheduler.core.model.plan import placements
from scheduler.core.model.settings import Settings
from scheduler.core.model.verdict import Code, Verdict
from tests.scheduler.core.nodes.mounting import mounting, told
from tests.scheduler.core.objects import (
    Fed,
    bound,
    claim,
    cluster,
    feed,
    node,
    pod,
    pod_group,
    queue,
    storage_class,
    volume,
)
from wire import names
from wire.core import Pod

S = 1_000_000_000
LATER = 1_800_000_000
OF_LARGE: dict[str, Any] = {"spec": {"nodeSelector": {"zone": "b"}}}
_ALONE = ["ReadWriteOncePod"]
_UNBOUND = claim("data", modes=_ALONE, storage_class="fast")
_FAST = storage_class("fast", "WaitForFirstConsumer", provisioner="disk.csi.example")


def in_queue(name: str) -> dict[str, str]:
    return {names.QUEUE_LABEL: name}


def beside_a_reserve(*members: Pod, minimum: int = 1, limit: int = 3) -> Cluster:
    """Node ``n2`` is kept for a large pod of ``b``; a gang of ``a``, which may have so many GPUs, has one on ``n1``."""
    made = Cluster(Settings(reserved_nodes_percent=60))
    feed(made, queue("a", gpu=(0, 1, limit)), queue("b", gpu=(4, 1, -1)))
    feed(made, node("n1", 4), node("n2", 4, labels={"zone": "b"}))
    feed(made, bound(pod("old", gpus=1, labels=in_queue("b")), "n2"))
    feed(made, pod("large", gpus=4, labels=in_queue("b"), **OF_LARGE))
    made.decide(0, wall_s=LATER)
    assert [reserve.nodes for reserve in made.scheduling_queue.reserves.of] == [("n2",)]
    feed(made, pod_group("g", minimum, queue="a"), bound(pod("m0", gpus=1, group="g"), "n1"), *members)
    return made


def placed(made: Cluster, second: int, limits: Limits = LIMITS) -> list[str]:
    plan = made.decide(second * S, limits, wall_s=LATER + second)
    return [placement.name for placement in placements(plan.entries)]


def test_a_member_that_its_queue_holds_back_beside_one_that_is_kept_off_is_placed_once_the_queue_takes_it() -> None:
    made = beside_a_reserve(pod("m1", gpus=1, group="g", **OF_LARGE), pod("m2", gpus=3, group="g"))
    assert placed(made, 2) == []
    said = [made.scheduling_queue.said.verdict(f"uid-{name}") for name in ("m1", "m2")]
    assert [one.code for one in said if one is not None] == [Code.NO_NODE_FITS, Code.OVER_LIMIT]
    feed(made, queue("a", gpu=(0, 1, 8)))
    assert placed(made, 4) == ["m2"]


def test_a_start_that_the_queue_holds_back_in_one_way_and_a_reserve_in_another_comes_once_the_queue_takes_it() -> None:
    made = beside_a_reserve(limit=2)
    members = [pod("k1", gpus=1, group="k", **OF_LARGE), pod("k2", gpus=2, group="k")]
    feed(made, pod_group("k", 1, queue="a"), *members)
    assert placed(made, 2) == []
    feed(made, queue("a", gpu=(0, 1, 8)))
    assert placed(made, 4) == ["k2"]


def test_a_member_that_is_left_to_the_next_decision_beside_one_that_is_kept_off_has_its_turn_soon() -> None:
    made = beside_a_reserve(pod("m1", gpus=1, group="g", **OF_LARGE), pod("m2", gpus=1, group="g"))
    assert placed(made, 2, Limits(most=1)) == []
    assert placed(made, 3) == ["m2"]


@pytest.mark.parametrize(
    ("amounts", "code"), [((3, 1, -1), Code.OVER_QUOTA), ((0, 1, 3), Code.OVER_LIMIT)], ids=["quota", "limit"]
)
def test_a_gang_of_which_others_may_start_is_told_what_it_requests_and_what_is_allocated_without_it(
    amounts: tuple[int, int, int], code: Code
) -> None:
    priority = 100 if code is Code.OVER_QUOTA else 0
    made = Cluster(Settings(reserved_nodes_percent=0))
    feed(made, queue("a", gpu=amounts), *(node(f"n{number}", 4) for number in range(3)))
    feed(made, bound(pod("old", gpus=1, priority=priority, labels=in_queue("a")), "n0"))
    members = [pod(f"m{number}", gpus=2, group="g", priority=priority) for number in range(3)]
    feed(made, pod_group("g", 2, queue="a"), *members)
    assert placed(made, 1) == []
    said = made.scheduling_queue.said.verdict("uid-m0")
    assert said is not None
    assert said.queue is not None
    assert (said.code, said.queue.held, said.queue.asked) == (code, 10**9, 4 * 10**9)


@pytest.mark.parametrize(
    "disk", [[claim("data", "pv", modes=_ALONE), volume("pv")], [_UNBOUND, _FAST]], ids=["bound", "to be bound"]
)
def test_a_gang_whose_members_mount_a_claim_of_one_pod_is_told_so(disk: list[Fed]) -> None:
    members = [mounting(f"m{number}", "data", group="g") for number in range(2)]
    made = cluster(node("n1"), *disk, pod_group("g", 2), *members)
    assert told(made, "uid-m0") == (Code.CLAIM_IN_USE, "data")


def test_a_gang_of_which_a_member_lacks_room_says_that_before_a_claim_that_another_member_has() -> None:
    members = [mounting(f"m{number}", "data", group="g") for number in range(2)]
    made = cluster(node("n1", 2), claim("data", "pv", modes=_ALONE), volume("pv"), pod_group("g", 3), *members)
    feed(made, *(pod(f"other{number}", gpus=1, group="g") for number in range(2)))
    assert told(made, "uid-m0")[0] is Code.GANG_INCOMPLETE


def of_two_sizes(limit: float, *, large_cpu: str = "64", is_large_there: bool = True) -> Cluster:
    """A gang of three of a queue with this limit; each takes an eighth of a large card, and half of a small one.

    The node with the small cards is the better place by its fit: it has fewer of them.
    """
    made = cluster(queue("a", gpu=(limit, 1, limit)), pod_group("g", 3, queue="a"), node("small", 2, mem_mib=20_000))
    if is_large_there:
        feed(made, node("large", 8, mem_mib=80_000, cpu=large_cpu))
    feed(made, *(pod(f"m{number}", mem=10_000, cpu="1", group="g") for number in range(3)))
    return made


@pytest.mark.parametrize(
    ("limit", "there", "expected"),
    [
        (0.375, {}, ["large", "large", "large"]),
        (0.7, {}, ["large", "large", "large"]),
        (0.374, {}, []),
        (1.5, {}, ["small", "small", "small"]),
        (0.75, {"large_cpu": "2"}, ["large", "large", "small"]),
        (0.74, {"large_cpu": "2"}, []),
        (0.75, {"is_large_there": False}, []),
    ],
)
def test_members_that_ask_for_memory_start_on_larger_cards_where_their_queue_takes_them_there_only(
    limit: float, there: dict[str, Any], expected: list[str]
) -> None:
    plan = of_two_sizes(limit, **there).decide(S)
    assert sorted(placement.node for placement in placements(plan.entries)) == expected


def test_a_gang_that_is_held_back_on_all_cards_starts_when_its_queue_takes_it_on_the_largest() -> None:
    made = of_two_sizes(0.3)
    assert placed(made, 1) == []
    feed(made, queue("a", gpu=(0.7, 1, 0.7)))
    assert placed(made, 2) == ["m0", "m1", "m2"]


def test_a_gang_that_is_held_back_starts_when_a_node_with_larger_cards_comes() -> None:
    made = of_two_sizes(0.7, is_large_there=False)
    assert placed(made, 1) == []
    feed(made, node("large", 1, mem_mib=80_000))
    assert placed(made, 2) == ["m0", "m1", "m2"]


@pytest.mark.parametrize(("members", "starts"), [(86, True), (87, False)])
def test_after_a_large_start_has_failed_no_other_large_one_is_tried_at_once(members: int, starts: bool) -> None:
    """Large is what costs more than 5,000 operations: 55 for each member of one class, and 230."""
    failing = [pod(f"f{number}", gpus=1, group="failing", priority=9) for number in range(1_000)]
    others = [pod(f"o{number}", cpu="1m", group="other") for number in range(members)]
    made = cluster(node(gpus=0), pod_group("failing", 1_000), *failing, pod_group("other", members), *others)
    plan = made.decide(0)
    assert len(list(placements(plan.entries))) == (members if starts else 0)
    if not starts:
        assert made.scheduling_queue.said.verdict("uid-o0") == Verdict(code=Code.WAITS_FOR_TURN, required=members)
        assert plan.wake_at_ns is not None
        later = made.decide(plan.wake_at_ns)
        assert len(list(placements(later.entries))) == members


def test_a_large_gang_that_failed_keeps_its_pause_and_its_verdict_when_nodes_come_meanwhile() -> None:
    failing = [pod(f"f{number}", gpus=1, group="failing") for number in range(1_000)]
    made = cluster(node(gpus=0), pod_group("failing", 1_000), *failing)
    made.decide(0)
    said = made.scheduling_queue.said.verdict("uid-f0")
    assert said is not None
    feed(made, node("n2", gpus=1_000, cpu="2000", pods=1_100))
    plan = made.decide(1)
    assert list(placements(plan.entries)) == []
    assert made.scheduling_queue.said.verdict("uid-f0") == said
    # Ten times what it took: 230 operations, and five for each member.
    assert plan.wake_at_ns == 10 * (230 + 5 * 1_000) * 1_000
    assert len(list(placements(made.decide(plan.wake_at_ns).entries))) == 1_000
