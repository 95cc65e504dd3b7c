"""All about one group: its verdict, its queue, what comes before it, who is evicted for it."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.model.preemption import Action, Nomination, Place, Victim
from scheduler.core.model.stale import Stale
from scheduler.core.model.verdict import Code
from scheduler.core.what_if.edits import subject_of_group, subject_of_pod
from scheduler.core.what_if.explanation import BelowMinimum, below_minimum, explained, node_explained
from tests.scheduler.core.decide.test_gang_search import members
from tests.scheduler.core.objects import NANO, bind_request, cluster, node, pod, pod_group, queue
from tests.scheduler.core.what_if.given import tries, trying
from tests.values import there
from wire import names
from wire.rfc3339 import rfc3339

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
    ] == [("a", 3, 1, 2, ""), ("org", 2, 1, 2, "limit")]


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
    for name, is_nominee in (("p", True), ("low", False)):
        (standing,) = explained(trying(made, name)).standing
        assert (standing.is_nominee, standing.gone, standing.nomination.id) == (is_nominee, 1, "i")


# What keeps pods that wait off one node.


def node_explanation_explained(*objects: Any) -> tuple[int, int, dict[tuple[str, str], int]]:
    """Pods that wait, that fit, and those kept off by reason and resource."""
    found = there(node_explained(cluster(*objects).prepared(0), "n1", 0))
    return found.waiting, found.fits, {(each.reason.kind, each.reason.resource): each.pods for each in found.kept_off}


GPUS = "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("objects", "waiting", "fits", "kept"),
    [
        ((node(gpus=2), pod("a", gpus=4), pod("b", gpus=4), pod("c", gpus=1)), 3, 1, {("insufficient", GPUS): 2}),
        ((node(cordoned=True), pod("a")), 1, 0, {("cordoned", ""): 1}),
        ((node(), node("n2", cordoned=True), pod("a", cpu="99")), 1, 0, {("insufficient", "cpu"): 1}),
        ((node(gpus=0), pod("a", fraction="0.5")), 1, 0, {("insufficient", "gpu-share"): 1}),
        ((node(), pod("gated", gated=True)), 0, 0, {}),
    ],
)
def test_pods_are_counted_by_what_keeps_them_off(
    objects: tuple[Any, ...], waiting: int, fits: int, kept: dict[tuple[str, str], int]
) -> None:
    assert node_explanation_explained(*objects) == (waiting, fits, kept)


def test_a_node_that_is_not_there_is_none() -> None:
    assert node_explained(cluster(node()).prepared(0), "x", 0) is None


def test_forms_beyond_the_first_two_hundred_are_counted_as_left_out() -> None:
    found = node_explained(
        cluster(node(), *(pod(f"p{at}", cpu=f"{at + 1}m") for at in range(203))).prepared(0), "n1", 0
    )
    assert found is not None
    assert (found.waiting, found.fits, found.left_out) == (203, 200, 3)


# What is asked about: a pod alone, or the PodGroup that it is a member of.


def test_a_member_stands_for_its_group_and_those_with_a_node_are_apart() -> None:
    made = cluster(
        node(), pod_group("g", 3), pod("a", group="g"), pod("b", group="g", bound_to="n1"), pod("c", group="g")
    )
    found = there(subject_of_pod(made.snapshot(), "ns", "a"))
    assert (found.name, found.uids, [pod.name for pod in found.bound]) == ("g", frozenset({"uid-a", "uid-c"}), ["b"])
    assert found.is_gang
    assert found == subject_of_group(made.snapshot(), "ns", "g")


def test_a_pod_alone_is_itself_and_one_that_is_being_deleted_does_not_wait() -> None:
    made = cluster(node(), pod("a"), pod("gone", deleting=True), pod("lost", group="missing"))
    snapshot = made.snapshot()
    alone, gone, lost = (subject_of_pod(snapshot, "ns", name) for name in ("a", "gone", "lost"))
    assert alone is not None
    assert gone is not None
    assert lost is not None
    assert (alone.uids, alone.group, alone.is_gang) == (frozenset({"uid-a"}), None, False)
    assert gone.waiting == ()
    assert lost.name == "lost"


def test_what_is_not_there_is_nothing() -> None:
    assert subject_of_pod(cluster().snapshot(), "ns", "a") is None
    assert subject_of_group(cluster().snapshot(), "ns", "a") is None


def test_pods_that_request_the_same_are_one_class() -> None:
    made = cluster(
        pod_group("g", 2), pod("a", gpus=1, group="g"), pod("b", gpus=1, group="g"), pod("c", gpus=2, group="g")
    )
    found = there(subject_of_group(made.snapshot(), "ns", "g"))
    assert sorted(found.classes().values()) == [("uid-a", "uid-b"), ("uid-c",)]


# How a gang below its minimum stands: since when, and how much of its grace time is left.

S = 1_000_000_000
WALL_S = 1_800_000_000
G = ("ns", "g")


def gang(pods: str = "a2+", *, minimum: int = 3, stamp: str = "", **spec: Any) -> Cluster:
    annotations = {names.STALE_SINCE: stamp} if stamp else {}
    return cluster(node("n1", 8), pod_group("g", minimum, annotations=annotations, **spec), *members(pods))


def stands(made: Cluster, *, now_ns: int = 0, wall_s: int = WALL_S) -> BelowMinimum | None:
    snapshot = made.prepared(0)
    return below_minimum(snapshot, snapshot.pod_group(*G), now_ns=now_ns, wall_s=wall_s)


@pytest.mark.parametrize(
    ("period", "now_s", "left_s", "until_s"),
    [
        (None, 100, 60, 60),
        (None, 159, 1, 1),
        (None, 160, 0, 0),
        (None, 200, 0, -40),
        ("10s", 100, 10, 10),
        ("2h", 100, 7200, 7200),
        ("-1s", 100, 0, None),
    ],
)
def test_the_scheduler_counts_by_its_own_clock(
    period: str | None, now_s: int, left_s: int, until_s: int | None
) -> None:
    made = gang(stalenessGracePeriod=period)
    made.note_stale(G, Stale(since_ns=100 * S))
    found = stands(made, now_ns=now_s * S)
    assert found == BelowMinimum(
        bound=2,
        minimum=3,
        since_s=WALL_S - (now_s - 100),
        left_s=left_s,
        until_s=None if until_s is None else WALL_S + until_s,
    )


def test_a_part_of_a_second_that_is_left_counts_as_a_second() -> None:
    made = gang()
    made.note_stale(G, Stale(since_ns=0))
    assert [found.left_s for at in (60 * S - 1, 60 * S) if (found := stands(made, now_ns=at))] == [1, 0]


def test_pods_that_are_being_evicted_are_told_from_those_that_may_be() -> None:
    made = gang()
    made.note_stale(G, Stale(since_ns=0, is_going=True))
    found = there(stands(made, now_ns=90 * S))
    assert found.is_going


def test_who_has_only_read_the_cluster_goes_by_the_stamp_and_the_usual_grace_time() -> None:
    made = gang(stamp=rfc3339((WALL_S - 20) * S))
    assert stands(made, now_ns=12345) == BelowMinimum(
        bound=2, minimum=3, since_s=WALL_S - 20, left_s=40, until_s=WALL_S + 40, assumed_grace_s=60
    )
    own = there(stands(gang(stamp=rfc3339((WALL_S - 20) * S), stalenessGracePeriod="30s")))
    assert (own.left_s, own.assumed_grace_s) == (10, 0)


def test_a_stamp_in_the_future_is_no_longer_ago_than_now() -> None:
    found = there(stands(gang(stamp=rfc3339((WALL_S + 100) * S))))
    assert (found.since_s, found.left_s) == (WALL_S, 160)


@pytest.mark.parametrize(
    "made",
    [
        gang(),
        gang(stamp="yesterday"),
        gang("a3+", stamp=rfc3339(WALL_S * S)),
        gang("a2", stamp=rfc3339(WALL_S * S)),
        cluster(node("n1", 8)),
    ],
    ids=["nobody says since when", "no time", "whole", "nothing runs", "no group"],
)
def test_of_other_gangs_nothing_is_said(made: Cluster) -> None:
    assert stands(made) is None


def test_the_part_that_is_short_is_named() -> None:
    parts = [{"name": "a", "minMember": 3}, {"name": "b", "minMember": 1}]
    made = cluster(node("n1", 8), pod_group("g", subGroups=parts), *members("a2+ b1+"))
    made.note_stale(G, Stale(since_ns=0))
    found = there(stands(made))
    assert found.short is not None
    assert (found.short.name, found.short.required, found.short.present) == ("a", 3, 2)
