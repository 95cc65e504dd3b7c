"""Nominations that stand: what they keep for their nominated pods, and as what their victims count."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import msgspec
import pytest

from gpu.bind_request import PlannedDevice
from scheduler.core.convert import pod_groups
from scheduler.core.model.plan import Explain, Placement
from scheduler.core.model.pod_class import Demand
from scheduler.core.model.preemption import Moved, Nomination
from tests.scheduler.core.nodes.test_nominated_usage import nomination, place, running
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
    queue,
    reservation,
)
from wire import names
from wire.core import Pod
from wire.crds.podgroup import PodGroup

IN_A = {names.QUEUE_LABEL: "a"}


def _placement(name: str, node_name: str = "n1") -> Placement:
    return Placement(pod_uid=f"uid-{name}", namespace="ns", name=name, rv="1", node=node_name)


def test_nominations_stand_in_the_order_in_which_they_came_and_one_that_changes_keeps_its_age() -> None:
    made = cluster(node(), *(pod(name, gpus=1) for name in "abc"))
    for name in "abc":
        made.commits.nominations.put(nomination(place(name), id_=name))
    made.commits.nominations.put(nomination(place("a"), victims=("v",), id_="a"))
    assert [each.id for each in made.commits.nominations.all()] == ["a", "b", "c"]
    assert made.commits.nominations.victims.keys() == {"uid-v"}
    made.commits.nominations.drop("b")
    assert [each.id for each in made.commits.nominations.all()] == ["a", "c"]
    assert made.commits.nominations.nominees.keys() == {"uid-a", "uid-c"}


def test_nominations_are_found_by_their_nodes_their_gang_and_what_they_keep_for_successors() -> None:
    made = cluster(node("n1"), node("n2"), *(pod(name, gpus=1) for name in "abc"))
    nominations = made.commits.nominations
    assert not nominations
    for name, on in (("a", "n1"), ("b", "n2"), ("c", "n1")):
        nominations.put(nomination(place(name, node_name=on), id_=name))
    nominations.put(msgspec.structs.replace(nominations.all()[0], pod_group="g", moved=(_moved("v", "n2"),)))
    assert bool(nominations)
    assert sorted(nominations.ids_at("n1")) == ["a", "c"]
    assert sorted(nominations.ids_at("n2")) == ["a", "b"]
    assert [each.id for each in nominations.younger_at("n1", nominations.all()[0])] == ["c"]
    assert [each.id for each in nominations.in_order(["c", "gone", "a"])] == ["a", "c"]
    assert [*nominations.ids_of_gang("ns", "g")] == ["a"]
    assert [each.id for each in nominations.moving] == ["a"]
    for name in "abc":
        nominations.drop(name)
    assert [
        *nominations.ids_at("n1"),
        *nominations.ids_at("n2"),
        *nominations.ids_of_gang("ns", "g"),
        *nominations.moving,
    ] == []


def _moved(name: str, on: str) -> Moved:
    return Moved(pod_uid=f"uid-{name}", namespace="ns", owner="o", node=on, demand=Demand(gpus=1))


@pytest.mark.parametrize("other", [nomination(place("h"), id_="j"), nomination(place("k"), victims=("v",), id_="j")])
def test_two_nominations_never_have_one_nominee_or_take_one_victim(other: Nomination) -> None:
    made = cluster(node(), running("v", 4), pod("h"), pod("k"))
    made.commits.nominations.put(nomination(place("h"), victims=("v",)))
    with pytest.raises(ValueError, match="which nomination i has already"):
        made.commits.nominations.put(other)
    assert [each.id for each in made.commits.nominations.all()] == ["i"]


def test_a_place_is_charged_until_its_nominee_is_bound_or_gone_and_once_while_it_is_on_its_way() -> None:
    made = cluster(node(), pod("h", gpus=3), pod("k", gpus=2))
    made.commits.nominations.put(nomination(place("h"), place("k")))
    assert free_gpus(made) == 3
    made.commits.assume(_placement("h"))
    assert free_gpus(made) == 3
    made.commits.release("uid-h", attempt=0)
    assert free_gpus(made) == 3
    feed(made, bound(pod("h", gpus=3), "n1"))
    assert free_gpus(made) == 3
    made.remove_pod("uid-k")
    assert free_gpus(made) == 5


def test_a_nominee_on_its_way_to_another_node_keeps_no_place_until_it_comes_back() -> None:
    made = cluster(node("n1"), node("n2"), pod("h", gpus=3))
    made.commits.nominations.put(nomination(place("h")))
    placement = _placement("h", "n2")
    made.commits.assume(placement)
    assert (free_gpus(made, "n1"), free_gpus(made, "n2")) == (8, 5)
    made.commits.release("uid-h", attempt=placement.number)
    assert (free_gpus(made, "n1"), free_gpus(made, "n2")) == (5, 8)


def test_a_nominee_that_asks_more_is_charged_with_more_though_nobody_names_its_node() -> None:
    made = cluster(node(), pod("h", gpus=1))
    made.commits.nominations.put(nomination(place("h")))
    assert free_gpus(made) == 7
    feed(made, pod("h", gpus=3))
    assert free_gpus(made) == 5


def test_a_nomination_of_pods_that_nobody_has_seen_charges_nothing_until_they_come() -> None:
    made = cluster(node())
    made.commits.nominations.put(nomination(place("h")))
    assert free_gpus(made) == 8
    feed(made, pod("h", gpus=2))
    assert free_gpus(made) == 6


def test_victims_are_not_kept_by_their_queue_and_the_place_of_a_nominee_is_held_in_its_own() -> None:
    made = cluster(node(), queue("a"), queue("b"), pod_group("g", 1, queue="b"))
    feed(made, bound(pod("v", gpus=2, labels=IN_A), "n1"), pod("h", gpus=1, group="g"))
    made.commits.nominations.put(nomination(place("h"), victims=("v",)))
    made.count_queues()
    sums = made.queues.sums.sums
    gpus = {name: (each.held.gpu_nano, each.kept.gpu_nano, each.asked.gpu_nano) for name, each in sums.items()}
    assert gpus == {"a": (2 * 10**9, 0, 0), "b": (10**9, 10**9, 10**9)}
    assert made.validate() == []
    made.commits.nominations.drop("i")
    made.count_queues()
    gpus = {name: (each.held.gpu_nano, each.kept.gpu_nano, each.asked.gpu_nano) for name, each in sums.items()}
    assert gpus == {"a": (2 * 10**9, 2 * 10**9, 2 * 10**9), "b": (0, 0, 10**9)}
    assert made.validate() == []


def test_while_a_nomination_stands_not_all_that_is_charged_can_be_seen() -> None:
    made = cluster(node(), pod("h"))
    found = [made.commits.are_settled]
    made.commits.nominations.put(nomination(place("h")))
    found.append(made.commits.are_settled)
    made.commits.nominations.drop("i")
    assert [*found, made.commits.are_settled] == [True, False, True]


def test_a_change_of_a_victim_or_a_nominee_has_their_node_counted_again() -> None:
    made = cluster(node(), running("v", 4), pod("h", gpus=4))
    made.commits.nominations.put(nomination(place("h"), victims=("v",)))
    made.refresh()
    generation = made.generation
    feed(made, changed(pod("h", gpus=2)))
    assert made.generation > generation
    assert free_gpus(made) == 4


def test_what_is_over_is_charged_for_nominees_that_wait_until_it_is_dropped() -> None:
    made = cluster(node(gpus=4), pod("h", gpus=3))
    made.commits.nominations.put(nomination(place("h")))
    before = made.generation
    made.commits.nominations.end("i")
    assert (made.commits.nominations.is_ending("i"), made.generation > before, free_gpus(made)) == (True, True, 1)
    made.commits.nominations.drop("i")
    assert (made.commits.nominations.is_ending("i"), free_gpus(made)) == (False, 4)


def test_what_is_kept_on_a_node_is_made_once_between_two_changes() -> None:
    made = cluster(node("n1"), node("n2"), *(pod(name, gpus=1) for name in "abc"))
    nominations = made.commits.nominations
    for name, on in (("a", "n1"), ("b", "n1"), ("c", "n2")):
        nominations.put(nomination(place(name, node_name=on), id_=name))
    first, other = nominations.kept_at("n1"), nominations.kept_at("n2")
    assert [[each.pod_uid for each in room.places] for room in first] == [["uid-a"], ["uid-b"]]
    assert nominations.kept_at("n1") is first
    made.commits.assume(_placement("a"))
    assert [[each.pod_uid for each in room.places] for room in nominations.kept_at("n1")] == [[], ["uid-b"]]
    made.commits.release("uid-a", attempt=0)
    feed(made, changed(pod("b", gpus=2)))
    assert [place.demand.gpus for room in nominations.kept_at("n1") for place in room.places] == [1, 2]
    nominations.drop("a")
    assert [room.nomination_id for room in nominations.kept_at("n1")] == ["b"]
    assert nominations.kept_at("n2") is other
    assert [*nominations.all_kept()] == [("n1", *nominations.kept_at("n1")), ("n2", *other)]


HALF = NANO // 2
FIRST, SECOND = (pod(name, group="g", gpus=1) for name in ("m0", "m1"))


def _planned_members_placement(of: Pod, on: str = "n1", *devices: tuple[str, int]) -> Placement:
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


BOTH = _planned(_planned_members_placement(FIRST), _planned_members_placement(SECOND))


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
    plan = _planned(*(_planned_members_placement(share, "n1", ("d", HALF)) for share in shares))
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
        ([_planned(_planned_members_placement(FIRST, "n2"), _planned_members_placement(SECOND, "n2"))], (2, 0)),
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
        made.commits.assume(_planned_members_placement(member))
    feed(made, BOTH)
    assert free_gpus(made) == 0
    for member in (FIRST, SECOND):
        made.commits.release(member.metadata.uid, attempt=0)
    assert free_gpus(made) == 0


@pytest.mark.parametrize("stranger", [pod("s", gpus=1), pod("s", gpus=1, group="h")], ids=["alone", "in another gang"])
def test_a_plan_keeps_no_place_for_pods_that_are_not_of_its_gang(stranger: Pod) -> None:
    made = cluster(node(gpus=2), _planned(_planned_members_placement(stranger)), stranger)
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
    plan = pod_groups.make("a plan", [_planned_members_placement(FIRST, "n1", ("group", 1))])
    assert list(pod_groups.members(pod_groups.render(plan))) == [FIRST.metadata.uid]
    none = pod_groups.make("a plan", [_planned_members_placement(FIRST, "n1", ("group", 0))])
    assert pod_groups.members(pod_groups.render(none)) == {}
