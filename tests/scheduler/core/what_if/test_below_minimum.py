"""How a gang below its minimum stands: since when, and how much of its grace time is left."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.model.stale import Stale
from scheduler.core.what_if.explanation import BelowMinimum, below_minimum
from tests.scheduler.core.decide.test_gang_search import members
from tests.scheduler.core.objects import cluster, node, pod_group
from wire import names
from wire.rfc3339 import rfc3339

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
    found = stands(made, now_ns=90 * S)
    assert found is not None
    assert found.is_going


def test_who_has_only_read_the_cluster_goes_by_the_stamp_and_the_usual_grace_time() -> None:
    made = gang(stamp=rfc3339((WALL_S - 20) * S))
    assert stands(made, now_ns=12345) == BelowMinimum(
        bound=2, minimum=3, since_s=WALL_S - 20, left_s=40, until_s=WALL_S + 40, assumed_grace_s=60
    )
    own = stands(gang(stamp=rfc3339((WALL_S - 20) * S), stalenessGracePeriod="30s"))
    assert own is not None
    assert (own.left_s, own.assumed_grace_s) == (10, 0)


def test_a_stamp_in_the_future_is_no_longer_ago_than_now() -> None:
    found = stands(gang(stamp=rfc3339((WALL_S + 100) * S)))
    assert found is not None
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
    found = stands(made)
    assert found is not None
    assert found.short is not None
    assert (found.short.name, found.short.required, found.short.present) == ("a", 3, 2)
