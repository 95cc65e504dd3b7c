"""Whether nominated pods will fit once all victims are gone, beside pods that came meanwhile."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.model.pod_class import Demand
from scheduler.core.model.preemption import Moved
from tests.scheduler.core.nodes.test_nominated_usage import HALF, nomination, place, running, share
from tests.scheduler.core.objects import Fed, bound, cluster, feed, node, pod, reservation


def fits(made: Cluster, id_: str = "i") -> bool:
    found = made.commits.nominations.get(id_)
    assert found is not None
    return made.will_fit(found)


def foreign(gpus: int = 1, **more: Any) -> Fed:
    return bound(pod("foreign", gpus=gpus, scheduler="another", **more), "n1")


def test_victims_count_as_gone_those_that_are_gone_already_as_well() -> None:
    made = cluster(node(gpus=4), running("v", 2), running("w", 2), pod("h", gpus=4))
    made.commits.nominations.put(nomination(place("h"), victims=("v", "w")))
    assert fits(made)
    made.remove_pod("uid-v")
    assert fits(made)


@pytest.mark.parametrize(("gpus", "asked", "is_enough"), [(2, 3, False), (2, 2, True), (0, 4, True)])
def test_others_that_came_take_their_places(gpus: int, asked: int, is_enough: bool) -> None:
    made = cluster(node(gpus=4), running("v", 2), running("w", 2), pod("h", gpus=asked))
    made.commits.nominations.put(nomination(place("h"), victims=("v", "w")))
    made.remove_pod("uid-v")
    feed(made, foreign(gpus))
    assert fits(made) is is_enough


def test_others_that_are_going_count_as_gone() -> None:
    made = cluster(node(gpus=4), running("v", 3), pod("h", gpus=4), foreign(1, deleting=True))
    made.commits.nominations.put(nomination(place("h"), victims=("v",)))
    assert fits(made)


def test_what_nominees_do_not_ask_may_be_overfull() -> None:
    made = cluster(node(gpus=4), running("v", 4), pod("h", gpus=4, cpu="0", memory="0"), foreign(0, cpu="900"))
    made.commits.nominations.put(nomination(place("h"), victims=("v",)))
    assert fits(made)
    feed(made, pod("h", gpus=4, cpu="1"))
    assert not fits(made)


def test_a_node_that_is_gone_takes_nobody() -> None:
    made = cluster(node(gpus=4), running("v", 4), pod("h", gpus=4))
    made.commits.nominations.put(nomination(place("h"), victims=("v",)))
    made.remove_node("n1")
    assert not fits(made)


def test_a_place_is_judged_beside_what_older_nominations_keep_and_before_younger_ones() -> None:
    made = cluster(node(gpus=4), running("v", 2), running("w", 2), pod("h", gpus=2), pod("k", gpus=2))
    made.commits.nominations.put(nomination(place("h"), victims=("v",)))
    made.commits.nominations.put(nomination(place("k"), victims=("w",), id_="j"))
    assert (fits(made), fits(made, "j")) == (True, True)
    made.remove_pod("uid-v")
    feed(made, foreign(1))
    assert (fits(made), fits(made, "j")) == (False, False)
    feed(made, pod("h", gpus=1))
    assert (fits(made), fits(made, "j")) == (True, True)


def test_victims_of_a_nomination_that_is_over_stay() -> None:
    made = cluster(node(gpus=4), running("v", 2), running("w", 1), pod("h", gpus=2), pod("k", gpus=2))
    made.commits.nominations.put(nomination(place("h"), victims=("v",)))
    made.commits.nominations.put(nomination(place("k"), victims=("w",), id_="j"))
    made.commits.nominations.end("i")
    assert fits(made, "j")
    feed(made, foreign(1))
    assert not fits(made, "j")


def test_who_has_a_place_already_takes_it_from_nobody() -> None:
    made = cluster(node(gpus=4), running("v", 2), pod("h", gpus=2), pod("k", gpus=2))
    made.commits.nominations.put(nomination(place("h"), place("k"), victims=("v",)))
    feed(made, bound(pod("k", gpus=2), "n1"))
    assert fits(made)
    feed(made, foreign(1))
    assert not fits(made)


def test_a_part_of_a_device_has_to_be_left_once_its_tenant_is_gone() -> None:
    book = {"uid-v": HALF, "uid-o": HALF}
    made = cluster(node(gpus=1), reservation("g", book=book), share("v", HALF), share("o", HALF))
    feed(made, pod("h", fraction="0.5"))
    made.commits.nominations.put(nomination(place("h", ("g", HALF)), victims=("v",)))
    assert fits(made)
    feed(made, reservation("g", book={"uid-o": HALF, "uid-new": HALF // 2}))
    assert not fits(made)


def test_a_device_that_is_to_be_whole_must_have_no_other_tenant() -> None:
    made = cluster(node(gpus=1), reservation("g", book={"uid-v": HALF}), share("v", HALF), pod("h", gpus=1))
    made.commits.nominations.put(nomination(place("h", emptied=("g",)), victims=("v",)))
    assert fits(made)
    feed(made, reservation("g", book={"uid-v": HALF, "uid-new": HALF // 2}))
    assert not fits(made)


def test_a_device_that_is_to_be_opened_is_one_of_those_that_come_free() -> None:
    made = cluster(node(gpus=1), running("v", 1), pod("h", fraction="0.5"))
    made.commits.nominations.put(nomination(place("h", ("new", HALF)), victims=("v",)))
    assert fits(made)
    made.remove_pod("uid-v")
    assert fits(made)
    feed(made, foreign(1))
    assert not fits(made)


@pytest.mark.parametrize(("gpus", "is_enough"), [(3, True), (4, False)])
def test_successors_of_victims_have_to_fit_as_well(gpus: int, is_enough: bool) -> None:
    made = cluster(node(gpus=4), node("n2", 4), running("v", 1), pod("h", gpus=4))
    moved = Moved(pod_uid="uid-v", namespace="ns", owner="o", node="n2", demand=Demand(gpus=1))
    made.commits.nominations.put(msgspec.structs.replace(nomination(place("h"), victims=("v",)), moved=(moved,)))
    feed(made, bound(pod("foreign", gpus=gpus, scheduler="another"), "n2"))
    assert fits(made) is is_enough
