"""Of files a group is explained by budgets, Topologies and evictions, or they are named as not read.

The record is one that a scheduler has written.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kube.client.resources import QUEUES
from runtime.options.selection import GROUP, POD
from scheduler.core.preemption import nomination_record
from scheduler.core.preemption.nomination_record import Record
from ui.explain import explanation, tables
from ui.explain.views import GroupView
from ui.queues import files
from ui.queues.pools import About
from wire import names

WALL_S = 1_800_000_000
TEAM = {names.QUEUE_LABEL: "a"}
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1", "labels": {"hall": "one"}},
    "status": {
        "allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110", "nvidia.com/gpu": "1"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}
OPEN = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
QUEUE = {
    "apiVersion": QUEUES.api_version,
    "kind": "Queue",
    "metadata": {"name": "a"},
    "spec": {"resources": dict.fromkeys(("cpu", "memory", "gpu"), OPEN)},
}
RECORD = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": names.NOMINATIONS, "namespace": names.SYSTEM_NAMESPACE},
    "data": {nomination_record.KEY: nomination_record.written(Record())},
}
TOPOLOGY = {
    "apiVersion": "kai.scheduler/v1alpha1",
    "kind": "Topology",
    "metadata": {"name": "hall"},
    "spec": {"levels": [{"nodeLabel": "hall"}]},
}
PLACED = {
    "apiVersion": "scheduling.run.ai/v2alpha2",
    "kind": "PodGroup",
    "metadata": {"name": "g"},
    "spec": {
        "minMember": 1,
        "queue": "a",
        "topologyConstraint": {"topology": "hall", "requiredTopologyLevel": "hall"},
    },
}


def pod(name: str, priority: int = 0, *, node: str = "", group: str = "") -> dict[str, Any]:
    """A pod with a GPU; one that runs may be evicted for one of a higher priority."""
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    spec = {"schedulerName": names.SCHEDULER_NAME, "priority": priority, "containers": [container], "nodeName": node}
    annotations = {names.POD_GROUP_NAME: group} if group else {}
    metadata = {"name": name, "namespace": "default", "labels": TEAM, "annotations": annotations}
    started = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"} if node else {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": started}


def budget(allowed: int) -> dict[str, Any]:
    selector = {"matchLabels": TEAM}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": selector},
        "status": {"disruptionsAllowed": allowed},
    }


CROWDED = QUEUE, NODE, pod("low", 10, node="n1"), pod("p", 50)
UNREAD_BUDGETS = "PodDisruptionBudgets, which may protect pods that could be evicted"
UNREAD_RECORD = "the record of evictions (ConfigMaps of kai-scheduler): no pod counts as one that may be evicted for it"
UNREAD_TOPOLOGIES = "Topologies: the PodGroup counts as if it named none"


def explained(folder: Path, *objects: dict[str, Any], kind: str = POD, name: str = "p") -> tuple[GroupView, list[str]]:
    path = folder / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}), encoding="utf-8")
    known = files.read([str(path)], About(kind=kind, name=name, namespace="default"), wall_s=WALL_S)
    subject = explanation.subject(known, kind, "default", name)
    found = explanation.explained(known, subject, [], WALL_S)
    view = tables.group_view(found, is_in_doubt=explanation.is_in_doubt(known, subject, found))
    return view, [*known.unread, *explanation.not_looked_at(known, subject, found)]


@pytest.mark.parametrize(
    ("objects", "said", "unread"),
    [
        ((*CROWDED, RECORD, budget(1)), "starts when 1 pod is evicted for it.", []),
        ((*CROWDED, RECORD, budget(0)), "waits: no nodes with enough resources were found", []),
        ((*CROWDED, RECORD), "starts when 1 pod is evicted for it, unless something", [UNREAD_BUDGETS]),
        (CROWDED, "waits: no nodes with enough resources were found", [UNREAD_RECORD]),
    ],
    ids=["a-budget-that-allows-it", "a-budget-that-protects", "no-budgets", "no-record"],
)
def test_of_files_evictions_are_looked_at_by_record_and_budgets(
    tmp_path: Path, objects: tuple[dict[str, Any], ...], said: str, unread: list[str]
) -> None:
    view, left_out = explained(tmp_path, *objects)
    assert (said in view.message, left_out) == (True, unread), view.message


def test_a_budget_that_protects_is_the_reason_why_nothing_is_evicted(tmp_path: Path) -> None:
    view, _ = explained(tmp_path, *CROWDED, RECORD, budget(0))
    assert view.preemption is not None
    assert [each.reason for each in view.preemption.kept] == ["budget"]


@pytest.mark.parametrize(
    ("objects", "said", "unread"),
    [
        ((TOPOLOGY,), "fits now, on node n1: the scheduler's next decision places it.", []),
        (({**TOPOLOGY, "metadata": {"name": "other"}},), "topology hall doesn't exist", []),
        ((), "places it, unless something that was not read keeps it waiting.", [UNREAD_TOPOLOGIES]),
    ],
    ids=["there", "another", "not-read"],
)
def test_a_topology_that_is_not_read_is_not_said_to_be_missing(
    tmp_path: Path, objects: tuple[dict[str, Any], ...], said: str, unread: list[str]
) -> None:
    waits = pod("p", group="g")
    view, left_out = explained(tmp_path, QUEUE, NODE, RECORD, PLACED, waits, *objects, kind=GROUP, name="g")
    assert (said in view.message, left_out) == (True, unread), view.message
