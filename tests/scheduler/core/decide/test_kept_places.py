from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from scheduler.core.decide.gang_places import are_in_domains, place_bounds
from scheduler.core.model.verdict import Verdict
from tests.scheduler.core.objects import cluster, node, pod, pod_group, topology

#: In the order of their names: racks x, x, y, and none.
NODES = [node("a", labels={"rack": "x"}), node("b", labels={"rack": "x"}), node("c", labels={"rack": "y"}), node("d")]
RACK: Mapping[str, Any] = {"topologyConstraint": {"topology": "t", "requiredTopologyLevel": "rack"}}
BEST: Mapping[str, Any] = {"topologyConstraint": {"topology": "t", "preferredTopologyLevel": "rack"}}


@pytest.mark.parametrize(
    ("spec", "subgroup", "runs_on", "places", "are_in"),
    [
        pytest.param(RACK, {}, "", [("", 0), ("", 1)], True, id="one rack"),
        pytest.param(RACK, {}, "", [("", 0), ("", 2)], False, id="two racks"),
        pytest.param(RACK, {}, "", [("", 3)], False, id="no rack"),
        pytest.param(RACK, {}, "", [("", 0), ("", None)], False, id="a node that is not there"),
        pytest.param(RACK, {}, "a", [("", 1)], True, id="beside one that runs"),
        pytest.param(RACK, {}, "a", [("", 2)], False, id="not beside one that runs"),
        pytest.param(RACK, {}, "d", [("", 2)], True, id="one that runs in no rack holds none"),
        pytest.param(BEST, {}, "a", [("", 0), ("", 2)], True, id="nothing is required"),
        pytest.param({}, RACK, "", [("s", 0), ("other", 2)], True, id="others of the gang may be anywhere"),
        pytest.param({}, RACK, "", [("s", 0), ("s", 2)], False, id="two racks for a subgroup"),
        pytest.param(RACK, {}, "", [("s", 0), ("other", 2)], False, id="two racks for a gang of subgroups"),
    ],
)
def test_kept_places_are_where_the_gang_has_to_be(
    spec: Mapping[str, Any],
    subgroup: Mapping[str, Any],
    runs_on: str,
    places: Sequence[tuple[str, int | None]],
    are_in: bool,
) -> None:
    subgroups = [{"name": "s", "minMember": 1, **subgroup}, {"name": "other", "minMember": 1}]
    running = [pod("runs", group="g", bound_to=runs_on)] if runs_on else []
    made = cluster(topology("t", "rack"), *NODES, pod_group("g", subGroups=subgroups, **spec), *running)
    snapshot = made.snapshot()
    group = snapshot.pod_group("ns", "g")
    assert group is not None
    bounds = place_bounds(snapshot, group)
    assert not isinstance(bounds, Verdict)
    assert are_in_domains(group.tree, bounds, places) == are_in
