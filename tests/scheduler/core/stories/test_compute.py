"""What the pods on a device ask of its compute is all of it at most, as HAMi, Volcano and Koordinator keep it."""

from __future__ import annotations

from typing import Any

import pytest

from gpu.request import FractionAsk
from gpu.translation import Wishes
from scheduler.conditions import messages
from scheduler.core.model.plan import Alone
from scheduler.core.model.settings import Settings, Strategy
from scheduler.core.model.verdict import NodeReason
from tests.scheduler.core.decided import decided, groups_of
from tests.scheduler.core.model.test_records import said
from tests.scheduler.core.objects import NANO, bind_request, bound, cluster, commit, feed, node, recorded, reservation
from wire.core import Pod

TENTH = NANO // 10


def asking(name: str, percent: int, nano: int = TENTH, **more: Any) -> Pod:
    """A pod that asks for a share and for so much of the compute."""
    return recorded(said((FractionAsk(nano, compute_percent=percent),), **more), name)


TOLD_BY = [
    pytest.param([reservation("g", book={"uid-x": TENTH}, compute_percent=60)], id="the book"),
    pytest.param(
        [
            reservation("g", book={"uid-x": TENTH}),
            bound(asking("x", 60), "n1", ("g", TENTH), reservation="r-g", uuid="GPU-1", compute_percent=60),
        ],
        id="a grant, in a book that does not say it",
    ),
]


@pytest.mark.parametrize("tenants", TOLD_BY)
@pytest.mark.parametrize(("percent", "meets"), [(0, True), (40, True), (41, False), (100, False)])
def test_a_pod_joins_where_its_compute_is_left_and_opens_a_device_elsewhere(
    tenants: list[Pod], percent: int, meets: bool
) -> None:
    placed, _ = decided(node(gpus=2), *tenants, asking("p", percent))
    assert (groups_of(placed)["p"] == "g") is meets
    assert placed["p"].devices[0].compute_percent == percent


@pytest.mark.parametrize("tenants", TOLD_BY)
def test_where_no_device_is_left_to_open_it_waits_and_says_how_much_is_missing(tenants: list[Pod]) -> None:
    placed, (explained,) = decided(node(gpus=1), *tenants, asking("p", 45))
    assert placed == {}
    assert explained.verdict.node_reasons == (NodeReason("compute", "", 1),)
    assert explained.verdict.shortfall == ("compute_percent", 5)
    told = messages.told(explained.verdict).message
    assert "1 node(s) have room only on shared GPUs with less compute left" in told
    assert told.endswith(" The best node lacks 5% of the compute of a GPU.")


def test_memory_that_is_missing_too_is_what_is_told() -> None:
    objects = [node(gpus=1), reservation("g", book={"uid-x": 9 * TENTH}, compute_percent=60)]
    _, (explained,) = decided(*objects, asking("p", 45, nano=2 * TENTH))
    assert explained.verdict.node_reasons == (NodeReason("insufficient", "gpu-share", 1),)
    assert explained.verdict.shortfall == ("nano_gpu", TENTH)


def test_of_two_things_that_keep_it_out_the_mode_is_told_where_it_alone_would_do() -> None:
    objects = [node(gpus=1), reservation("g", book={"uid-x": TENTH}, mode="mps", compute_percent=60)]
    _, (explained,) = decided(*objects, asking("p", 45, wishes=Wishes(mode="hami-core")))
    assert explained.verdict.node_reasons == (NodeReason("mode", "", 1),)


def test_what_one_of_two_shares_asks_of_compute_is_told_where_the_other_asks_none() -> None:
    both = recorded(said((FractionAsk(TENTH, compute_percent=45), FractionAsk(TENTH))), "p")
    tenants = [reservation(group, book={f"uid-{group}": TENTH}, uuid=group, compute_percent=60) for group in "gh"]
    placed, (explained,) = decided(node(gpus=2), *tenants, both)
    assert placed == {}
    assert explained.verdict.node_reasons == (NodeReason("compute", "", 1),)


@pytest.mark.parametrize(
    ("nano", "percent", "kind"), [(TENTH, 60, "compute"), (TENTH, 100, "compute"), (NANO, 60, "mode")]
)
def test_beside_a_device_of_another_mode_compute_is_told_where_its_own_has_room(
    nano: int, percent: int, kind: str
) -> None:
    others = reservation("g", book={"uid-x": TENTH}, uuid="GPU-1", mode="mps")
    alike = reservation("h", book={"uid-y": nano}, uuid="GPU-2", mode="hami-core", compute_percent=percent)
    _, (explained,) = decided(node(gpus=2), others, alike, asking("p", 45, wishes=Wishes(mode="hami-core")))
    assert explained.verdict.node_reasons == (NodeReason(kind, "", 1),)


@pytest.mark.parametrize("strategy", list(Strategy))
def test_pods_that_are_decided_together_share_by_what_they_ask_of_compute(strategy: Strategy) -> None:
    pods = [asking(f"p{number}", percent) for number, percent in enumerate((60, 60, 40, 0, 40))]
    placed, explained = decided(node(gpus=2), *pods, settings=Settings(gpu_strategy=strategy))
    assert explained == []
    by_group: dict[str, int] = {}
    for placement in placed.values():
        (device,) = placement.devices
        by_group[device.group] = by_group.get(device.group, 0) + device.compute_percent
    assert sorted(by_group.values()) == [100, 100]


def test_a_placement_under_way_keeps_its_compute() -> None:
    made = cluster(node(gpus=1), asking("p", 60))
    commit(made, made.decide(0))
    feed(made, asking("q", 60), asking("r", 40))
    plan = made.decide(0)
    assert made.validate() == []
    assert [entry.placement.name for entry in plan.entries if isinstance(entry, Alone)] == ["r"]


def test_tenants_that_others_put_together_leave_no_compute_and_still_room_for_who_asks_none() -> None:
    objects = [node(gpus=1), reservation("g", book={"uid-x": TENTH, "uid-y": TENTH}, compute_percent=80)]
    placed, (explained,) = decided(*objects, asking("p", 1), asking("q", 0))
    assert groups_of(placed) == {"q": "g"}
    assert explained.verdict.shortfall == ("compute_percent", 1)


def test_a_hand_over_of_another_scheduler_says_its_compute() -> None:
    waiting = asking("x", 60)
    handed = bind_request(waiting, "n1", ("g", TENTH), compute_percent=60)
    made = cluster(node(gpus=1), waiting, handed, asking("p", 41))
    assert not [entry for entry in made.decide(0).entries if isinstance(entry, Alone)]
    assert made.validate() == []
