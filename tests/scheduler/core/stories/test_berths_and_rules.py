"""Nodes are kept for a group that waits, and rules about other pods keep somebody off all other nodes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.model.settings import Settings
from tests.scheduler.core.filters.beside import HOST, affinity, running, term
from tests.scheduler.core.objects import feed, node, pod, pod_group
from tests.scheduler.core.stories.test_berths import PATIENCE, Day, at

_BESIDE_A = {"spec": affinity(term(HOST))}


def _day() -> tuple[Day, str]:
    """A node that is kept for a large pod, and another one that has room; return the latter."""
    made = Day(Cluster(Settings(berths_percent=50)))
    feed(made.cluster, node("n1", 4), node("n2", 4))
    feed(
        made.cluster,
        pod("l1", bound_to="n1", gpus=1),
        pod("l2", bound_to="n2", gpus=1),
        pod("l3", bound_to="n2", gpus=1),
    )
    made.submit("large", minutes=60, gpus=4)
    made.until(PATIENCE)
    (berth,) = made.cluster.backlog.berths.of
    feed(made.cluster, running("a1", berth.nodes[0]))
    return made, "n2" if berth.nodes == ("n1",) else "n1"


@pytest.mark.parametrize(
    "asks",
    [(_BESIDE_A,), (_BESIDE_A, _BESIDE_A), (_BESIDE_A, {**_BESIDE_A, "cpu": "2"})],
    ids=["a pod", "a gang", "a gang of two classes"],
)
def test_one_that_sleeps_beside_a_berth_is_placed_when_a_rule_opens_another_node(
    asks: tuple[dict[str, Any], ...],
) -> None:
    made, elsewhere = _day()
    if len(asks) > 1:
        group = pod_group("g", len(asks), queue="a")
        created = msgspec.structs.replace(group.metadata, creation_timestamp=at(made.minute))
        feed(made.cluster, msgspec.structs.replace(group, metadata=created))
    for number, ask in enumerate(asks):
        made.submit(f"m{number}", minutes=60, group="g" if len(asks) > 1 else "", **ask)
    made.until(PATIENCE + 1)
    assert "m0" not in made.began
    assert len(made.cluster.backlog.kept_off) == 1
    feed(made.cluster, running("a2", elsewhere))
    made.until(PATIENCE + 2)
    assert {made.node_of.get(f"m{number}") for number in range(len(asks))} == {elsewhere}
