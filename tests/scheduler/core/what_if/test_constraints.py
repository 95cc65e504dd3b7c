"""Constraints that keep a group off nodes are left out one at a time."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.what_if.edits import NotPossible
from scheduler.core.what_if.group_changes import Tolerating, Without, dropped_constraints
from tests.scheduler.core.objects import node, pod
from tests.scheduler.core.what_if.given import changes, edits, spelled, tries
from wire.core import Taint

TERM = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}


def _affine(expression: dict[str, Any]) -> dict[str, Any]:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"affinity": {"nodeAffinity": {REQUIRED: terms}}}


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({"nodeSelector": {"zone": "b"}}, ["without nodeSelector zone"]),
        ({"nodeSelector": {"zone": "b", "rack": "1"}}, ["without nodeSelector"]),
        ({"nodeSelector": {"zone": "a", "rack": "1"}}, ["without nodeSelector rack", "without nodeSelector"]),
        (_affine({"key": "zone", "operator": "In", "values": ["b"]}), ["without nodeAffinity"]),
        ({"affinity": {"podAffinity": {REQUIRED: [TERM]}}}, ["without podAffinity"]),
        ({"affinity": {"podAntiAffinity": {REQUIRED: [{**TERM, "labelSelector": {}}]}}}, ["without podAntiAffinity"]),
        ({"topologySpreadConstraints": [{**SPREAD, "topologyKey": "rack"}]}, ["without topologySpreadConstraints"]),
    ],
)
def test_what_keeps_a_pod_off_is_found(spec: dict[str, Any], found: list[str]) -> None:
    tried = tries(node(labels={"zone": "a"}), pod("there", bound_to="n1"), pod("p", spec=spec))
    assert spelled(edits(dropped_constraints, tried)) == found


def test_a_taint_of_a_node_with_room_is_found_and_others_are_not() -> None:
    tainted = node("n2", taints=[("dedicated", "ml", "NoSchedule")])
    full = node("n3", 0, taints=[("other", "", "NoSchedule")])
    assert spelled(edits(dropped_constraints, tries(node(gpus=0), tainted, full, pod("p", gpus=1)))) == [
        "tolerate dedicated=ml:NoSchedule"
    ]


def test_a_constraint_that_is_not_there_is_refused_with_those_that_are() -> None:
    tried = tries(node(), pod("p", spec={"nodeSelector": {"zone": "b"}}))
    with pytest.raises(NotPossible, match=r"has no such constraint; allowed: without nodeSelector zone"):
        changes(tried, Without("podAffinity"))
    with pytest.raises(NotPossible, match="it has no constraint that can be left out"):
        changes(tries(node(), pod("p")), Without("nodeSelector", "zone"))
    assert len(changes(tried, Tolerating(Taint(key="k", effect="NoSchedule")))) == 1
