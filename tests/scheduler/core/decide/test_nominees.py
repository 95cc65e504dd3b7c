"""Nominated pods of nominations: placed where room is kept for them, in time; and when a nomination is over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import Attempt, Bind, Entry, Explain, Gang, GiveUp, Join, Placement, Retire, placements
from scheduler.core.model.preemption import Action, Ended, Nomination, Place, Victim
from scheduler.core.model.settings import Settings
from scheduler.core.model.verdict import Code, Verdict
from tests.scheduler.core.nodes.test_nominated_usage import nomination, place, running, share
from tests.scheduler.core.objects import NANO, Fed, bound, cluster, feed, node, pod, pod_group, queue, reservation
from wire import names

HALF = NANO // 2


def preempting_cluster(*objects: Fed) -> Cluster:
    return cluster(*objects, settings=Settings())


def done(made: Cluster, now_ns: int = 0) -> list[Entry]:
    """What a decision does, without what it says."""
    return [entry for entry in made.decide(now_ns).entries if not isinstance(entry, Explain)]


def said(made: Cluster, name: str) -> Verdict | None:
    return made.scheduling_queue.said.verdict(f"uid-{name}")


def where(entries: Sequence[Entry]) -> dict[str, str]:
    return {each.name: each.node for each in placements(entries)}


def test_a_nominee_waits_for_its_victims_and_is_placed_before_all_others_when_they_are_gone() -> None:
    made = preempting_cluster(node(gpus=4), running("v", 2), running("w", 2), pod("h", gpus=4))
    made.commits.nominations.put(nomination(place("h"), victims=("v", "w")))
    feed(made, pod("first", gpus=1, priority=9))
    assert done(made) == []
    assert said(made, "h") == Verdict(code=Code.WAITS_FOR_VICTIMS, present=0, required=2, detail="n1")
    made.remove_pod("uid-v")
    assert done(made) == []
    assert said(made, "h") == Verdict(code=Code.WAITS_FOR_VICTIMS, present=1, required=2, detail="n1")
    made.remove_pod("uid-w")
    assert where(done(made)) == {"h": "n1"}


def test_how_many_are_gone_is_no_news_that_pods_are_told() -> None:
    made = preempting_cluster(node(gpus=4), running("v", 2), running("w", 2), pod("h", gpus=4))
    made.commits.nominations.put(nomination(place("h"), victims=("v", "w")))
    plan = made.decide(0)
    assert [entry.verdict.code for entry in plan.entries if isinstance(entry, Explain)] == [Code.WAITS_FOR_VICTIMS]
    made.told([entry for entry in plan.entries if isinstance(entry, Explain)])
    made.remove_pod("uid-v")
    assert made.decide(0).entries == ()


def test_without_the_setting_nobody_is_placed_where_room_is_kept_but_it_stays_kept() -> None:
    made = Cluster(Settings(preemption=False))
    feed(made, node(gpus=4), pod("h", gpus=4), pod("o", gpus=1))
    made.commits.nominations.put(nomination(place("h")))
    assert done(made) == []


def test_a_nomination_goes_when_its_nominee_is_bound_and_stands_while_it_is_on_its_way() -> None:
    made = preempting_cluster(node(gpus=4), pod("h", gpus=4))
    made.commits.nominations.put(nomination(place("h")))
    (entry,) = done(made)
    assert isinstance(entry, Bind)
    made.commits.assume(entry.placement)
    assert done(made) == []
    feed(made, bound(pod("h", gpus=4), "n1"))
    assert done(made) == [GiveUp("i", Ended.BOUND)]


def _gone(made: Cluster) -> None:
    made.remove_pod("uid-h")


def _deleted(made: Cluster) -> None:
    feed(made, pod("h", gpus=2, deleting=True))


def _gated(made: Cluster) -> None:
    feed(made, pod("h", gpus=2, gated=True))


def _of_a_gang(made: Cluster) -> None:
    feed(made, pod("h", gpus=2, group="g"))


def _node_gone(made: Cluster) -> None:
    made.remove_node("n1")


def _cordoned(made: Cluster) -> None:
    feed(made, node(gpus=4, cordoned=True))


def _failed_there(made: Cluster) -> None:
    made.commits.failed("uid-h", "n1", "it broke", now_ns=-10_000_000_000)


def _taken(made: Cluster) -> None:
    made.remove_pod("uid-v")
    feed(made, bound(pod("foreign", gpus=3, scheduler="another"), "n1"))


def _asks_more(made: Cluster) -> None:
    made.remove_pod("uid-v")
    feed(made, pod("h", gpus=5))


@pytest.mark.parametrize(
    ("happens", "because"),
    [
        (_gone, Ended.NOMINEE_GONE),
        (_deleted, Ended.NOMINEE_GONE),
        (_gated, Ended.NOMINEE_KEPT),
        (_of_a_gang, Ended.ASKS_DIFFERENTLY),
        (_node_gone, Ended.PLACE_GONE),
        (_cordoned, Ended.PLACE_GONE),
        (_failed_there, Ended.PLACE_GONE),
        (_taken, Ended.PLACE_TAKEN),
        (_asks_more, Ended.PLACE_TAKEN),
    ],
)
def test_a_nomination_is_given_up_when_nobody_can_use_what_it_keeps(happens: Any, because: Ended) -> None:
    made = preempting_cluster(node(gpus=4), running("v", 4), pod("h", gpus=2))
    made.commits.nominations.put(nomination(place("h"), victims=("v",)))
    assert done(made) == []
    happens(made)
    assert done(made, 1_000_000_000)[:1] == [GiveUp("i", because)]


def test_what_keeps_a_nominee_for_a_while_ends_nothing() -> None:
    made = preempting_cluster(node(gpus=4), pod("h", gpus=2))
    made.commits.nominations.put(nomination(place("h")))
    made.commits.failed("uid-h", "", "no answer", now_ns=0)
    plan = made.decide(0)
    assert [entry for entry in plan.entries if not isinstance(entry, Explain)] == []
    assert plan.wake_at_ns is not None
    assert where(done(made, plan.wake_at_ns)) == {"h": "n1"}


def test_what_a_nomination_that_is_over_kept_is_nobody_elses_until_it_is_dropped_and_it_is_given_up_once() -> None:
    made = preempting_cluster(node(gpus=4), pod("h", gpus=4, gated=True), pod("o", gpus=4))
    made.commits.nominations.put(nomination(place("h")))
    assert done(made) == [GiveUp("i", Ended.NOMINEE_KEPT)]
    made.commits.nominations.end("i")
    assert done(made, 10**9) == []
    made.commits.nominations.drop("i")
    assert where(done(made, 2 * 10**9)) == {"o": "n1"}


def test_a_nominee_of_a_nomination_that_is_ending_may_have_its_place_once() -> None:
    made = preempting_cluster(node(gpus=4), pod("h", gpus=4), pod("o", gpus=4, priority=9))
    made.commits.nominations.put(nomination(place("h")))
    made.commits.nominations.end("i")
    assert where(entries := done(made)) == {"h": "n1"}
    assert len(entries) == 1


def test_a_younger_nomination_is_not_given_up_for_what_one_that_is_ending_keeps_for_a_moment() -> None:
    made = preempting_cluster(node(gpus=4), pod("h", gpus=4, gated=True), pod("k", gpus=4))
    made.commits.nominations.put(nomination(place("h")))
    made.commits.nominations.put(nomination(place("k"), id_="j"))
    assert done(made) == [GiveUp("i", Ended.NOMINEE_KEPT)]
    made.commits.nominations.end("i")
    assert done(made, 10**9) == []
    made.commits.nominations.drop("i")
    assert where(done(made, 2 * 10**9)) == {"k": "n1"}


def test_a_place_that_comes_free_elsewhere_ends_the_nomination_before_its_victims_have_to_go() -> None:
    made = preempting_cluster(node("n1", 4), running("v", 4), pod("h", gpus=3), pod("o", gpus=3))
    made.commits.nominations.put(nomination(place("h"), victims=("v",)))
    assert done(made) == []
    feed(made, node("n2", 3))
    entries = done(made)
    assert where(entries) == {"h": "n2"}
    assert entries[-1] == GiveUp("i", Ended.BETTER_PLACE)


def test_the_oldest_nomination_has_its_place_first_where_room_shrank() -> None:
    made = preempting_cluster(node(gpus=4), pod("young", gpus=2), pod("old", gpus=2))
    made.commits.nominations.put(nomination(place("old"), id_="a"))
    made.commits.nominations.put(nomination(place("young"), id_="b"))
    feed(made, bound(pod("foreign", gpus=2, scheduler="another"), "n1"))
    entries = done(made)
    assert where(entries) == {"old": "n1"}
    assert [entry for entry in entries if isinstance(entry, GiveUp)] == [GiveUp("b", Ended.PLACE_TAKEN)]


def test_a_queue_at_its_limit_has_its_nominee_counted_once() -> None:
    in_a = {names.QUEUE_LABEL: "a"}
    made = preempting_cluster(node(gpus=4), queue("a", gpu=(0, 1, 2)), pod("h", gpus=2, labels=in_a))
    feed(made, pod("o", gpus=1, labels=in_a))
    made.commits.nominations.put(nomination(place("h")))
    assert where(done(made)) == {"h": "n1"}


# --- gangs -------------------------------------------------------------------------------------------------------
def _gang(made: Cluster, *held: tuple[str, str], victims: Sequence[tuple[str, str]] = ()) -> Nomination:
    gone = (Victim(pod_uid=f"uid-{v}", namespace="ns", name=v, node=on, owner=f"uid-{v}") for v, on in victims)
    found = Nomination(
        id="i",
        action=Action.RECLAIM,
        namespace="ns",
        pod_group="g",
        places=tuple(Place(f"uid-{name}", on) for name, on in held),
        victims=tuple(gone),
    )
    made.commits.nominations.put(found)
    return found


def test_nominees_of_a_gang_start_together_when_the_last_place_is_free() -> None:
    made = preempting_cluster(node("n1", 2), node("n2", 2), pod_group("g", 2))
    feed(made, *(pod(name, gpus=2, group="g") for name in ("m0", "m1")))
    feed(made, bound(pod("v", gpus=2), "n1"), bound(pod("w", gpus=2), "n2"), pod("o", gpus=1))
    _gang(made, ("m0", "n1"), ("m1", "n2"), victims=[("v", "n1"), ("w", "n2")])
    assert done(made) == []
    made.remove_pod("uid-w")
    assert done(made) == []
    assert said(made, "m0") == Verdict(code=Code.WAITS_FOR_VICTIMS, present=1, required=2)
    made.remove_pod("uid-v")
    (entry,) = done(made)
    assert isinstance(entry, Gang)
    assert where([entry]) == {"m0": "n1", "m1": "n2"}


def test_a_gang_that_needs_more_than_its_nominees_is_given_up() -> None:
    made = preempting_cluster(
        node("n1", 4), pod_group("g", 2), *(pod(name, gpus=2, group="g") for name in ("m0", "m1"))
    )
    _gang(made, ("m0", "n1"), ("m1", "n1"))
    feed(made, pod_group("g", 3))
    assert done(made)[:1] == [GiveUp("i", Ended.ASKS_DIFFERENTLY)]


def test_a_gang_whose_group_is_gone_is_given_up() -> None:
    made = preempting_cluster(
        node("n1", 4), pod_group("g", 2), *(pod(name, gpus=2, group="g") for name in ("m0", "m1"))
    )
    _gang(made, ("m0", "n1"), ("m1", "n1"))
    made.remove_pod_group("ns", "g")
    assert done(made)[:1] == [GiveUp("i", Ended.NOMINEE_KEPT)]


def test_a_gang_that_finds_room_elsewhere_starts_there_and_gives_up_what_is_kept() -> None:
    made = preempting_cluster(
        node("n1", 4), pod_group("g", 2), *(pod(name, gpus=2, group="g") for name in ("m0", "m1"))
    )
    feed(made, running("v", 4))
    _gang(made, ("m0", "n1"), ("m1", "n1"), victims=[("v", "n1")])
    assert done(made) == []
    feed(made, node("n2", 4))
    entries = done(made)
    assert where(entries) == {"m0": "n2", "m1": "n2"}
    assert entries[-1] == GiveUp("i", Ended.BETTER_PLACE)


def test_members_that_a_gang_needs_no_more_for_its_minimum_are_bound_one_by_one_in_their_places() -> None:
    made = preempting_cluster(
        node("n1", 4), pod_group("g", 2), *(pod(name, gpus=2, group="g") for name in ("m0", "m1"))
    )
    _gang(made, ("m0", "n1"), ("m1", "n1"))
    feed(made, pod_group("g", 0))
    entries = done(made)
    assert where(entries) == {"m0": "n1", "m1": "n1"}
    assert [type(entry) for entry in entries] == [Bind, Bind]


# --- shares ------------------------------------------------------------------------------------------------------
def test_a_fraction_takes_the_part_of_a_device_that_a_fraction_leaves() -> None:
    made = preempting_cluster(node(gpus=1), reservation("g", book={"uid-v": HALF, "uid-o": HALF}))
    feed(made, share("v", HALF), share("o", HALF), pod("h", fraction="0.5"), pod("k", fraction="0.5"))
    made.commits.nominations.put(nomination(place("h", ("g", HALF)), victims=("v",)))
    assert done(made) == []
    made.remove_pod("uid-v")
    assert done(made) == []  # its entry in the book is still there
    feed(made, reservation("g", book={"uid-o": HALF}))
    (entry,) = done(made)
    assert isinstance(entry, Join | Attempt)
    assert where([entry]) == {"h": "n1"}
    assert [device.group for device in entry.placement.devices] == ["g"]


def test_a_device_that_is_to_be_whole_is_retired_when_its_tenants_are_gone_and_then_given_to_the_nominee() -> None:
    made = preempting_cluster(node(gpus=1), reservation("g", book={"uid-v": HALF}), share("v", HALF))
    feed(made, pod("h", gpus=1), pod("k", fraction="0.5"), pod("l", gpus=1))
    made.commits.nominations.put(nomination(place("h", emptied=("g",)), victims=("v",)))
    assert done(made) == []
    made.remove_pod("uid-v")
    feed(made, reservation("g", book={}))
    assert done(made) == [Retire("r-g", "uid-h")]
    feed(made, reservation("g", book={}, deleting=True))
    assert done(made) == []
    made.remove_pod("r-g")
    assert where(done(made)) == {"h": "n1"}


def test_a_device_that_is_to_be_whole_is_given_up_when_a_pod_that_stays_has_come_to_it() -> None:
    """As another leader may have decided before it read the nomination."""
    made = preempting_cluster(node(gpus=1), reservation("g", book={"uid-v": HALF}), share("v", HALF))
    feed(made, pod("h", gpus=1))
    made.commits.nominations.put(nomination(place("h", emptied=("g",)), victims=("v",)))
    assert done(made) == []
    made.remove_pod("uid-v")
    feed(made, reservation("g", book={"uid-new": HALF}))
    assert done(made) == []  # its pod is not there: nobody knows whether it stays
    feed(made, share("new", HALF))
    assert done(made, 10**9) == [GiveUp("i", Ended.PLACE_TAKEN)]


def test_nodes_of_places_may_be_gone_while_a_nominee_is_on_its_way() -> None:
    made = preempting_cluster(node(gpus=1), pod("h", gpus=1))
    made.commits.nominations.put(nomination(place("h")))
    made.commits.assume(Placement(pod_uid="uid-h", namespace="ns", name="h", rv="1", node="n1"))
    made.remove_node("n1")
    assert done(made) == []
