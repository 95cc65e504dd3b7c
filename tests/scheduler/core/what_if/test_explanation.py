"""All about one group: its verdict, its queue, what comes before it, who is evicted for it."""

from __future__ import annotations

from scheduler.core.model.preemption import Action, Nomination, Place, Victim
from scheduler.core.model.verdict import Code
from scheduler.core.what_if.explanation import explained
from tests.scheduler.core.objects import NANO, bind_request, cluster, node, pod, queue
from tests.scheduler.core.what_if.given import tries, trying

LABELS = {"kai.scheduler/queue": "a"}


def test_a_pod_that_fits_nowhere_has_its_nodes_by_reason_most_first() -> None:
    found = explained(tries(node(gpus=1), node("n2", 1), node("n3", cordoned=True), pod("p", gpus=2)))
    assert found.verdict is not None
    assert found.verdict.code is Code.NO_NODE_FITS
    assert [(each.kind, each.nodes) for each in found.node_reasons] == [("insufficient", 2), ("cordoned", 1)]
    assert found.nodes == 3


def test_each_queue_on_the_way_up_says_what_it_holds_and_which_is_passed() -> None:
    queues = queue("org", gpu=(0, 1, 2)), queue("a", "org", gpu=(1, 1, 3))
    found = explained(
        tries(node(), *queues, pod("r", gpus=1, bound_to="n1", labels=LABELS), pod("p", gpus=2, labels=LABELS))
    )
    assert [
        (each.queue, each.limit // NANO, each.holds // NANO, each.adds // NANO, each.passes) for each in found.queue
    ] == [
        ("a", 3, 1, 2, ""),
        ("org", 2, 1, 2, "limit"),
    ]


def test_a_group_that_fits_may_come_after_others() -> None:
    older = pod("older", gpus=2, created="2025-01-01T00:00:00Z")
    found = explained(tries(node(gpus=2), older, pod("p", gpus=2)))
    assert (found.outcome.starts, found.comes_later) == (True, True)
    assert not explained(tries(node(gpus=4), older, pod("p", gpus=2))).comes_later


def test_a_pod_on_its_way_has_its_node() -> None:
    goes = pod("p", gpus=1)
    assert explained(tries(node(), goes, bind_request(goes, "n1"))).on_their_way == (("p", "n1"),)


def test_who_is_evicted_for_whom_is_told_to_both() -> None:
    made = cluster(node(gpus=1), pod("low", gpus=1, bound_to="n1"), pod("p", gpus=1))
    victims = tuple(
        Victim(pod_uid=f"uid-{name}", namespace="ns", name=name, node="n1", owner="o") for name in ("low", "gone")
    )
    place = Place("uid-p", "n1")
    made.commits.nominations.put(
        Nomination(id="i", action=Action.PREEMPT, namespace="ns", places=(place,), victims=victims)
    )
    for name, is_holder in (("p", True), ("low", False)):
        (standing,) = explained(trying(made, name)).standing
        assert (standing.is_holder, standing.gone, standing.nomination.id) == (is_holder, 1, "i")
