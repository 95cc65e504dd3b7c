"""Intents that stand: what they keep for their holders, and as what their victims count."""

from __future__ import annotations

import msgspec
import pytest

from scheduler.core.model.plan import Placement
from scheduler.core.model.pod_class import Demand
from scheduler.core.model.preemption import Intent, Moved
from tests.scheduler.core.nodes.test_nominated_usage import intent, place, running
from tests.scheduler.core.objects import bound, changed, cluster, feed, free_gpus, node, pod, pod_group, queue
from wire import names

IN_A = {names.QUEUE_LABEL: "a"}


def _placement(name: str, node_name: str = "n1") -> Placement:
    return Placement(pod_uid=f"uid-{name}", namespace="ns", name=name, rv="1", node=node_name)


def test_intents_stand_in_the_order_in_which_they_came_and_one_that_changes_keeps_its_age() -> None:
    made = cluster(node(), *(pod(name, gpus=1) for name in "abc"))
    for name in "abc":
        made.commits.intents.put(intent(place(name), id_=name))
    made.commits.intents.put(intent(place("a"), victims=("v",), id_="a"))
    assert [each.id for each in made.commits.intents.all()] == ["a", "b", "c"]
    assert made.commits.intents.victims.keys() == {"uid-v"}
    made.commits.intents.drop("b")
    assert [each.id for each in made.commits.intents.all()] == ["a", "c"]
    assert made.commits.intents.holders.keys() == {"uid-a", "uid-c"}


def test_intents_are_found_by_their_nodes_their_gang_and_what_they_keep_for_successors() -> None:
    made = cluster(node("n1"), node("n2"), *(pod(name, gpus=1) for name in "abc"))
    intents = made.commits.intents
    assert not intents
    for name, on in (("a", "n1"), ("b", "n2"), ("c", "n1")):
        intents.put(intent(place(name, node_name=on), id_=name))
    intents.put(msgspec.structs.replace(intents.all()[0], pod_group="g", moved=(_moved("v", "n2"),)))
    assert bool(intents)
    assert sorted(intents.ids_at("n1")) == ["a", "c"]
    assert sorted(intents.ids_at("n2")) == ["a", "b"]
    assert [each.id for each in intents.younger_at("n1", intents.all()[0])] == ["c"]
    assert [each.id for each in intents.in_order(["c", "gone", "a"])] == ["a", "c"]
    assert [*intents.ids_of_gang("ns", "g")] == ["a"]
    assert [each.id for each in intents.moving] == ["a"]
    for name in "abc":
        intents.drop(name)
    assert [*intents.ids_at("n1"), *intents.ids_at("n2"), *intents.ids_of_gang("ns", "g"), *intents.moving] == []


def _moved(name: str, on: str) -> Moved:
    return Moved(pod_uid=f"uid-{name}", namespace="ns", owner="o", node=on, demand=Demand(gpus=1))


@pytest.mark.parametrize("other", [intent(place("h"), id_="j"), intent(place("k"), victims=("v",), id_="j")])
def test_two_intents_never_have_one_holder_or_take_one_victim(other: Intent) -> None:
    made = cluster(node(), running("v", 4), pod("h"), pod("k"))
    made.commits.intents.put(intent(place("h"), victims=("v",)))
    with pytest.raises(ValueError, match="which intent i has already"):
        made.commits.intents.put(other)
    assert [each.id for each in made.commits.intents.all()] == ["i"]


def test_a_place_is_charged_until_its_holder_is_bound_or_gone_and_once_while_it_is_on_its_way() -> None:
    made = cluster(node(), pod("h", gpus=3), pod("k", gpus=2))
    made.commits.intents.put(intent(place("h"), place("k")))
    assert free_gpus(made) == 3
    made.commits.assume(_placement("h"))
    assert free_gpus(made) == 3
    made.commits.release("uid-h", attempt=0)
    assert free_gpus(made) == 3
    feed(made, bound(pod("h", gpus=3), "n1"))
    assert free_gpus(made) == 3
    made.remove_pod("uid-k")
    assert free_gpus(made) == 5


def test_a_holder_on_its_way_to_another_node_keeps_no_place_until_it_comes_back() -> None:
    made = cluster(node("n1"), node("n2"), pod("h", gpus=3))
    made.commits.intents.put(intent(place("h")))
    placement = _placement("h", "n2")
    made.commits.assume(placement)
    assert (free_gpus(made, "n1"), free_gpus(made, "n2")) == (8, 5)
    made.commits.release("uid-h", attempt=placement.number)
    assert (free_gpus(made, "n1"), free_gpus(made, "n2")) == (5, 8)


def test_a_holder_that_asks_more_is_charged_with_more_though_nobody_names_its_node() -> None:
    made = cluster(node(), pod("h", gpus=1))
    made.commits.intents.put(intent(place("h")))
    assert free_gpus(made) == 7
    feed(made, pod("h", gpus=3))
    assert free_gpus(made) == 5


def test_an_intent_of_pods_that_nobody_has_seen_charges_nothing_until_they_come() -> None:
    made = cluster(node())
    made.commits.intents.put(intent(place("h")))
    assert free_gpus(made) == 8
    feed(made, pod("h", gpus=2))
    assert free_gpus(made) == 6


def test_victims_are_not_kept_by_their_queue_and_the_place_of_a_holder_is_held_in_its_own() -> None:
    made = cluster(node(), queue("a"), queue("b"), pod_group("g", 1, queue="b"))
    feed(made, bound(pod("v", gpus=2, labels=IN_A), "n1"), pod("h", gpus=1, group="g"))
    made.commits.intents.put(intent(place("h"), victims=("v",)))
    made.count_queues()
    sums = made.queues.sums.sums
    gpus = {name: (each.held.gpu_nano, each.kept.gpu_nano, each.asked.gpu_nano) for name, each in sums.items()}
    assert gpus == {"a": (2 * 10**9, 0, 0), "b": (10**9, 10**9, 10**9)}
    assert made.validate() == []
    made.commits.intents.drop("i")
    made.count_queues()
    gpus = {name: (each.held.gpu_nano, each.kept.gpu_nano, each.asked.gpu_nano) for name, each in sums.items()}
    assert gpus == {"a": (2 * 10**9, 2 * 10**9, 2 * 10**9), "b": (0, 0, 10**9)}
    assert made.validate() == []


def test_while_an_intent_stands_not_all_that_is_charged_can_be_seen() -> None:
    made = cluster(node(), pod("h"))
    found = [made.commits.are_settled]
    made.commits.intents.put(intent(place("h")))
    found.append(made.commits.are_settled)
    made.commits.intents.drop("i")
    assert [*found, made.commits.are_settled] == [True, False, True]


def test_a_change_of_a_victim_or_a_holder_has_their_node_counted_again() -> None:
    made = cluster(node(), running("v", 4), pod("h", gpus=4))
    made.commits.intents.put(intent(place("h"), victims=("v",)))
    made.refresh()
    generation = made.generation
    feed(made, changed(pod("h", gpus=2)))
    assert made.generation > generation
    assert free_gpus(made) == 4


def test_what_is_over_is_charged_for_holders_that_wait_until_it_is_dropped() -> None:
    made = cluster(node(gpus=4), pod("h", gpus=3))
    made.commits.intents.put(intent(place("h")))
    before = made.generation
    made.commits.intents.end("i")
    assert (made.commits.intents.is_ending("i"), made.generation > before, free_gpus(made)) == (True, True, 1)
    made.commits.intents.drop("i")
    assert (made.commits.intents.is_ending("i"), free_gpus(made)) == (False, 4)


def test_what_is_kept_on_a_node_is_made_once_between_two_changes() -> None:
    made = cluster(node("n1"), node("n2"), *(pod(name, gpus=1) for name in "abc"))
    intents = made.commits.intents
    for name, on in (("a", "n1"), ("b", "n1"), ("c", "n2")):
        intents.put(intent(place(name, node_name=on), id_=name))
    first, other = intents.kept_at("n1"), intents.kept_at("n2")
    assert [[each.pod_uid for each in room.places] for room in first] == [["uid-a"], ["uid-b"]]
    assert intents.kept_at("n1") is first
    made.commits.assume(_placement("a"))
    assert [[each.pod_uid for each in room.places] for room in intents.kept_at("n1")] == [[], ["uid-b"]]
    made.commits.release("uid-a", attempt=0)
    feed(made, changed(pod("b", gpus=2)))
    assert [place.demand.gpus for room in intents.kept_at("n1") for place in room.places] == [1, 2]
    intents.drop("a")
    assert [room.intent_id for room in intents.kept_at("n1")] == ["b"]
    assert intents.kept_at("n2") is other
    assert [*intents.all_kept()] == [("n1", *intents.kept_at("n1")), ("n2", *other)]
