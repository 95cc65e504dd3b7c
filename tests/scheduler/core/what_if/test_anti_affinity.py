"""A pod that anti-affinity keeps out is told whose end lets it start, whichever of the two has the term."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from scheduler.core.decide.changes import WithoutPods
from scheduler.core.model.plan import placements
from scheduler.core.what_if.node_changes import ended_groups
from tests.scheduler.core.objects import cluster, node, pod
from tests.scheduler.core.what_if.given import NO_ROOM, edits, spelled, tries
from wire import names

WEB: Mapping[str, str] = {"app": "web"}
KEEPS_OFF: Mapping[str, Any] = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": names.HOSTNAME_LABEL, "labelSelector": {"matchLabels": dict(WEB)}}
            ]
        }
    }
}
PORT: Mapping[str, Any] = {
    "containers": [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}], "resources": {}}]
}
#: More pods than are tried, each smaller than the one in question.
CROWD = [pod(f"a{at:02}", cpu="1m", bound_to="n1") for at in range(20)]


@pytest.mark.parametrize("crowd", [[], CROWD], ids=["alone", "in-a-crowd"])
@pytest.mark.parametrize(
    ("theirs", "own"),
    [({}, KEEPS_OFF), (KEEPS_OFF, {}), (KEEPS_OFF, KEEPS_OFF), (PORT, PORT)],
    ids=["its-own-term", "their-term", "both-terms", "a-port"],
)
def test_the_pod_that_is_in_the_way_is_named_and_the_waiting_pod_starts_when_it_has_ended(
    theirs: Mapping[str, Any], own: Mapping[str, Any], crowd: list[Any]
) -> None:
    there = pod("there", bound_to="n1", labels=WEB, spec=theirs)
    objects = node(), *crowd, there, pod("p", labels=WEB, spec=own)
    assert spelled(edits(ended_groups, tries(*objects, settings=NO_ROOM)))[:1] == ["finish there"]
    made = cluster(*objects, settings=NO_ROOM)
    assert list(placements(made.decide(0).entries)) == []
    made.remove_pod("uid-there")
    assert [each.name for each in placements(made.decide(1).entries)] == ["p"]


@pytest.mark.parametrize(("gone", "starts"), [(("r",), False), (("s",), False), (("r", "s"), True)])
def test_a_node_is_open_once_all_owners_of_the_term_there_are_gone(gone: tuple[str, ...], starts: bool) -> None:
    owners = [pod(name, bound_to="n1", spec=KEEPS_OFF) for name in ("r", "s")]
    tried = tries(node(), *owners, pod("p", labels=WEB), settings=NO_ROOM)
    assert tried.helps(WithoutPods(tuple(f"uid-{name}" for name in gone)), is_own=False) is starts
    assert not tried.outcome().starts  # what was supposed is not remembered
