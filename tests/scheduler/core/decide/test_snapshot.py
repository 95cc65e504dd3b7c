"""A snapshot is good until the next event."""

from __future__ import annotations

import pytest

from scheduler.core.decide.decide import decide
from scheduler.core.decide.snapshot import StaleSnapshot
from tests.scheduler.core.objects import cluster, feed, node, pod


def test_a_snapshot_that_is_older_than_the_last_event_is_refused() -> None:
    made = cluster(node(), pod("a", gpus=1))
    snapshot = made.prepared(0)
    assert decide(snapshot, 0).entries
    feed(made, node("n2"))
    with pytest.raises(StaleSnapshot, match="generation"):
        decide(snapshot, 0)
    assert decide(made.prepared(0), 0).entries
