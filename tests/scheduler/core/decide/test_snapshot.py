"""A snapshot is good until the next event."""

from __future__ import annotations

import pytest

from scheduler.core.decide.changes import WithoutPods
from scheduler.core.decide.decide import decide
from scheduler.core.decide.snapshot import StaleSnapshot
from scheduler.core.snapshot.node_count import Supposed
from tests.scheduler.core.objects import bound, cluster, feed, node, pod


def test_a_snapshot_that_is_older_than_the_last_event_is_refused() -> None:
    made = cluster(node(), pod("a", gpus=1))
    snapshot = made.prepared(0)
    assert decide(snapshot, 0).entries
    feed(made, node("n2"))
    with pytest.raises(StaleSnapshot, match="generation"):
        decide(snapshot, 0)
    assert decide(made.prepared(0), 0).entries


def test_a_node_is_counted_once_without_pods_that_go_until_something_on_it_changes() -> None:
    made = cluster(node(), bound(pod("v", gpus=3), "n1"), bound(pod("w", gpus=1), "n1"))
    where, gone = made.node("n1"), Supposed(evicted={"uid-v"})
    assert where is not None
    first = made.snapshot().used(where, gone)
    assert (first.gpus, made.snapshot().used(where, gone)) == (1, first)
    assert made.snapshot().used(where, gone) is first
    assert made.snapshot().with_(WithoutPods(("uid-w",))).used(where, gone).gpus == 0
    made.remove_pod("uid-w")
    assert made.snapshot().used(where, gone).gpus == 0
