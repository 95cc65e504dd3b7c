"""Nominations that don't come about as they are get other places and further victims, and are given up in the end."""

from __future__ import annotations

from scheduler.core.cluster import Cluster
from scheduler.core.decide.allowance import Limits
from scheduler.core.model.plan import GiveUp, Plan, placements
from scheduler.core.model.preemption import Ended, Place, PreemptionFacts
from tests.scheduler.core.decide.test_making import S, Searches, gone, making, nominations, take
from tests.scheduler.core.nodes.test_nominated_usage import running
from tests.scheduler.core.objects import bound, feed, node, pod, pod_group

#: The grace period of a pod that says nothing, and what is waited for beside.
PATIENCE = (30 + 60) * S


def given_up(plan: Plan) -> list[GiveUp]:
    return [entry for entry in plan.entries if isinstance(entry, GiveUp)]


def test_a_victim_that_does_not_end_in_time_is_replaced_by_another_and_the_nomination_keeps_its_name() -> None:
    search = Searches(["v", "w"])
    made = making(search, node(gpus=4), running("v", 2), running("w", 2), pod("h", gpus=2))
    (first,) = take(made, made.decide(0))
    plan = made.decide(1 * S)
    assert (nominations(plan), given_up(plan), plan.wake_at_ns) == ([], [], 1 * S + PATIENCE)
    plan = made.decide(1 * S + PATIENCE)
    assert given_up(plan) == []
    (second,) = take(made, plan)
    assert (first.id, gone(first), second.id, gone(second)) == ("uid-h-0", ["v"], "uid-h-0", ["w"])
    made.remove_pod("uid-w")
    assert [placement.name for placement in placements(made.decide(200 * S).entries)] == ["h"]


def test_what_other_victims_have_left_already_stays_kept_for_the_nominee() -> None:
    search = Searches(["v", "w", "x"])
    made = making(search, node(gpus=6), *(running(name, 2) for name in ("v", "w", "x")), pod("h", gpus=4))
    take(made, made.decide(0))
    made.decide(1 * S)
    made.remove_pod("uid-w")
    feed(made, pod("o", gpus=2, priority=9))
    (second,) = take(made, made.decide(1 * S + PATIENCE))
    assert gone(second) == ["x"]
    assert list(placements(made.decide(2 * PATIENCE).entries)) == []
    made.remove_pod("uid-x")
    assert [placement.name for placement in placements(made.decide(3 * PATIENCE).entries)] == ["h"]


def test_victims_that_may_still_end_in_time_stay_victims_where_a_place_is() -> None:
    search = Searches(["v", "w", "x"])
    made = making(search, node(gpus=6), *(running(name, 2) for name in ("v", "x")), pod("h", gpus=4))
    slow = {"terminationGracePeriodSeconds": 300}
    feed(made, bound(pod("w", gpus=2, spec=slow), "n1"))
    take(made, made.decide(0))
    made.decide(1 * S)
    (second,) = take(made, made.decide(1 * S + PATIENCE))
    assert gone(second) == ["w", "x"]


def test_a_nomination_is_given_up_when_nobody_else_can_go() -> None:
    search = Searches(["v"])
    made = making(search, node(gpus=4), running("v", 2), running("w", 2), pod("h", gpus=2))
    (first,) = take(made, made.decide(0))
    made.decide(1 * S)
    assert given_up(made.decide(1 * S + PATIENCE)) == [GiveUp(first.id, Ended.VICTIM_STAYS)]


def test_a_victim_is_waited_for_from_when_its_eviction_was_tried_or_it_is_terminating() -> None:
    for goes in (True, False):
        search, asked = Searches(["v"]), set[str]()
        made = making(search, node(gpus=4), running("v", 2), running("w", 2), pod("h", gpus=2))
        made.note_preemption_facts(PreemptionFacts(version=1, asked=asked))
        (first,) = take(made, made.decide(0))
        made.decide(1 * S)
        assert given_up(made.decide(1 * S + PATIENCE)) == []
        if goes:
            feed(made, bound(pod("v", gpus=2, deleting=True), "n1"))
        else:
            asked.add("uid-v")
            made.note_preemption_facts(PreemptionFacts(version=2, asked=asked))
        plan = made.decide(2 * PATIENCE)
        assert (given_up(plan), plan.wake_at_ns) == ([], 3 * PATIENCE)
        assert given_up(made.decide(3 * PATIENCE)) == [GiveUp(first.id, Ended.VICTIM_STAYS)]


def test_a_nomination_is_given_up_after_three_revisions() -> None:
    search = Searches([f"v{at}" for at in range(6)])
    made = making(search, node(gpus=6), *(running(f"v{at}", 1) for at in range(6)), pod("h", gpus=1))
    take(made, made.decide(0))
    found, over = [], list[GiveUp]()
    for at in range(1, 8):
        plan = made.decide(at * (PATIENCE + S))
        found += take(made, plan)
        over += given_up(plan)
        for each in over:
            made.commits.nominations.drop(each.nomination_id)
        if over:
            break
        made.decide(at * (PATIENCE + S) + S // 2)
    assert [each.id for each in found] == ["uid-h-0"] * 3
    assert over == [GiveUp("uid-h-0", Ended.VICTIM_STAYS)]


def test_a_place_that_somebody_else_took_is_replaced_by_one_elsewhere() -> None:
    search = Searches(["v", "w"])
    made = making(search, node("n1", 2), node("n2", 2), running("v", 2), bound(pod("w", gpus=2), "n2"))
    feed(made, pod("h", gpus=2))
    (first,) = take(made, made.decide(0))
    assert first.places == (Place("uid-h", "n1"),)
    made.remove_pod("uid-v")
    feed(made, bound(pod("foreign", gpus=1, scheduler="another"), "n1"))
    (second,) = take(made, made.decide(1 * S))
    assert (second.id, second.places, gone(second)) == (first.id, (Place("uid-h", "n2"),), ["w"])


def test_a_gang_whose_node_is_cordoned_moves_to_another_as_a_whole() -> None:
    search = Searches(["v", "w", "x"])
    made = making(search, node("n1", 2), node("n2", 2), node("n3", 2), running("v", 2), pod_group("g", 2))
    feed(made, bound(pod("w", gpus=2), "n2"), bound(pod("x", gpus=2), "n3"))
    feed(made, *(pod(f"m{at}", gpus=2, group="g") for at in range(2)))
    (first,) = take(made, made.decide(0))
    assert sorted(place.node for place in first.places) == ["n1", "n2"]
    made.remove_pod("uid-v")
    feed(made, node("n2", 2, cordoned=True))
    (second,) = take(made, made.decide(1 * S))
    assert (second.id, second.pod_group) == (first.id, "g")
    assert sorted(place.node for place in second.places) == ["n1", "n3"]
    assert "x" in gone(second)


def test_a_place_that_fails_just_after_a_look_is_revised_at_the_next_one() -> None:
    search = Searches(["v", "w"])
    made = making(search, node("n1", 2), node("n2", 2), running("v", 2), bound(pod("w", gpus=2), "n2"))
    feed(made, pod("h", gpus=2))
    take(made, made.decide(0))
    feed(made, node("n1", 2, cordoned=True))
    plan = made.decide(S // 10)
    assert (nominations(plan), given_up(plan), plan.wake_at_ns) == ([], [], S // 5)
    assert [gone(each) for each in nominations(made.decide(S // 5))] == [["w"]]


def _failing(at: dict[str, int]) -> Cluster:
    """Nominations of pods alone, so many of each namespace, whose only node was cordoned; nobody else can go."""
    names = [(namespace, f"{namespace}{number}") for namespace, count in at.items() for number in range(count)]
    victims = [f"v-{name}" for _, name in names]
    made = making(Searches(victims), node("n1", len(names)), *(running(victim, 1) for victim in victims))
    feed(made, *(pod(name, namespace=namespace, gpus=1) for namespace, name in names))
    assert len(take(made, made.decide(0))) == len(names)
    feed(made, node("n1", len(names), cordoned=True))
    return made


def test_revising_is_bounded_divided_between_namespaces_and_goes_on_in_the_next_decision() -> None:
    made, over = _failing({"x": 9, "y": 1}), list[list[str]]()
    while not over or over[-1]:
        plan = made.decide((1 + len(over)) * S, Limits(searching=2 * 2_100))
        over.append(sorted(each.nomination_id for each in given_up(plan)))
        for nomination_id in over[-1]:
            made.commits.nominations.drop(nomination_id)
            made.remove_pod(nomination_id.removesuffix("-0"))
    assert max(map(len, over)) <= 4
    assert "uid-y0-0" in over[0]
    everybody = ["uid-y0-0", *(f"uid-x{number}-0" for number in range(9))]
    assert sorted(nomination_id for each in over for nomination_id in each) == sorted(everybody)


def test_the_nomination_of_a_member_beyond_a_minimum_is_revised_for_that_member() -> None:
    made = making(Searches(["v", "w", "y"]), node(gpus=5), running("v", 2), running("w", 2), pod_group("g", 1))
    feed(made, bound(pod("m0", gpus=1, group="g"), "n1"), *(pod(f"m{at}", gpus=2, group="g") for at in (1, 2)))
    (first,) = take(made, made.decide(0))
    (other,) = take(made, made.decide(1 * S))
    assert [place.pod_uid for each in (first, other) for place in each.places] == ["uid-m1", "uid-m2"]
    made.remove_pod("uid-w")
    made.remove_pod("uid-m2")
    made.commits.nominations.drop(other.id)
    feed(made, running("y", 2))
    (second,) = take(made, made.decide(2 * S + PATIENCE))
    assert (second.id, second.places, gone(second)) == (first.id, first.places, ["y"])
