"""A gang's written plan keeps its places for its members, whoever wrote it, until they are bound or it goes."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from gpu.bind_request import PlannedDevice
from scheduler.core.convert import pod_groups
from scheduler.core.model.plan import Explain, Placement
from tests.scheduler.core.objects import (
    NANO,
    bound,
    changed,
    cluster,
    ended,
    feed,
    free_gpus,
    node,
    pod,
    pod_group,
    reservation,
)
from wire import names
from wire.core import Pod
from wire.crds.podgroup import PodGroup

HALF = NANO // 2
FIRST, SECOND = (pod(name, group="g", gpus=1) for name in ("m0", "m1"))


def _placement(of: Pod, on: str = "n1", *devices: tuple[str, int]) -> Placement:
    meta = of.metadata
    return Placement(
        pod_uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        rv=meta.resource_version,
        node=on,
        devices=tuple(PlannedDevice(group, nano) for group, nano in devices),
    )


def _planned(*placements: Placement, name: str = "g") -> PodGroup:
    text = pod_groups.render(pod_groups.make("an earlier scheduler's", placements))
    return pod_group(name, len(placements), annotations={names.PLAN: text})


BOTH = _planned(_placement(FIRST), _placement(SECOND))


@pytest.mark.parametrize("order", list(permutations([node(gpus=2), BOTH, FIRST, SECOND])))
def test_places_of_a_plan_are_charged_from_the_start_in_whatever_order_it_is_read(order: tuple[Any, ...]) -> None:
    made = cluster(*order)
    assert free_gpus(made) == 0
    assert not made.commits.are_settled


def test_nobody_is_placed_where_a_plan_that_is_not_carried_out_puts_a_member() -> None:
    made = cluster(node(gpus=2), BOTH, FIRST, SECOND, pod("urgent", gpus=1, priority=100))
    (entry,) = made.decide(0).entries
    assert isinstance(entry, Explain)
    assert entry.pods == ("uid-urgent",)
    feed(made, changed_group(BOTH))
    assert made.commits.are_settled
    assert len(made.decide(0).entries) == 2


def changed_group(of: PodGroup) -> PodGroup:
    """The PodGroup when its plan was taken back."""
    return pod_group(of.metadata.name, of.spec.min_member)


def test_a_share_of_a_plan_is_charged_though_its_book_has_no_entry_of_it() -> None:
    shares = [pod(name, group="g", fraction="0.5") for name in ("m0", "m1")]
    plan = _planned(*(_placement(share, "n1", ("d", HALF)) for share in shares))
    made = cluster(node(gpus=1), reservation("d", book={}), plan, *shares, pod("other", fraction="0.1"))
    (entry,) = made.decide(0).entries
    assert isinstance(entry, Explain)
    assert made.refresh().table.devices[0][0].free_nano == 0


@pytest.mark.parametrize(
    ("later", "free"),
    [
        ([bound(FIRST, "n1")], (0, 2)),
        ([bound(FIRST, "n2")], (1, 1)),
        ([ended(FIRST)], (1, 2)),
        ([bound(FIRST, "n1"), bound(SECOND, "n1")], (0, 2)),
        ([changed(FIRST)], (0, 2)),
        ([changed_group(BOTH)], (2, 2)),
        ([_planned(_placement(FIRST, "n2"), _placement(SECOND, "n2"))], (2, 0)),
    ],
    ids=["bound", "bound elsewhere", "gone", "all bound", "changed", "taken back", "planned anew"],
)
def test_a_place_is_kept_until_its_member_is_bound_or_gone_or_the_plan_is_taken_back(
    later: list[Any], free: tuple[int, int]
) -> None:
    made = cluster(node(gpus=2), node("n2", gpus=2), BOTH, FIRST, SECOND)
    assert (free_gpus(made), free_gpus(made, "n2")) == (0, 2)
    feed(made, *later)
    assert (free_gpus(made), free_gpus(made, "n2")) == free


def test_a_plan_goes_with_its_pod_group() -> None:
    made = cluster(node(gpus=2), BOTH, FIRST, SECOND)
    made.remove_pod_group("ns", "g")
    assert free_gpus(made) == 2
    assert made.commits.are_settled


def test_a_plan_that_is_being_carried_out_is_charged_once() -> None:
    made = cluster(node(gpus=2), FIRST, SECOND)
    for member in (FIRST, SECOND):
        made.commits.assume(_placement(member))
    feed(made, BOTH)
    assert free_gpus(made) == 0
    for member in (FIRST, SECOND):
        made.commits.release(member.metadata.uid, attempt=0)
    assert free_gpus(made) == 0


@pytest.mark.parametrize("stranger", [pod("s", gpus=1), pod("s", gpus=1, group="h")], ids=["alone", "in another gang"])
def test_a_plan_keeps_no_place_for_pods_that_are_not_of_its_gang(stranger: Pod) -> None:
    made = cluster(node(gpus=2), _planned(_placement(stranger)), stranger)
    assert free_gpus(made) == 2
    assert made.commits.are_settled


def test_a_spent_plan_is_settled() -> None:
    made = cluster(node(gpus=2), BOTH, bound(FIRST, "n1"))
    assert free_gpus(made) == 1
    assert made.commits.are_settled


def test_a_member_that_is_seen_after_its_plan_was_counted_is_charged() -> None:
    made = cluster(node(gpus=2), BOTH)
    assert free_gpus(made) == 2
    feed(made, FIRST)
    assert free_gpus(made) == 1
    assert made.validate() == []


def test_a_plan_may_give_a_member_the_smallest_share_there_is() -> None:
    plan = pod_groups.make("a plan", [_placement(FIRST, "n1", ("group", 1))])
    assert list(pod_groups.members(pod_groups.render(plan))) == [FIRST.metadata.uid]
    none = pod_groups.make("a plan", [_placement(FIRST, "n1", ("group", 0))])
    assert pod_groups.members(pod_groups.render(none)) == {}
