"""A DaemonSet has a pod on each node that it may be on, and on no other."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.controllers.kubernetes import Expander
from simulator.nodes import shape

NODES = shape.parse(["2x1x80GiB", "1x0"])
IN = "In"


def on(key: str, operator: str, *values: str, part: str = "matchExpressions") -> dict[str, Any]:
    term = {part: [{"key": key, "operator": operator, "values": list(values)}]}
    required = {"nodeSelectorTerms": [term]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def pods(**spec: Any) -> list[dict[str, Any]]:
    template = {"spec": {"containers": [{"name": "main", "image": "work"}], **spec}}
    daemon_set = {"kind": "DaemonSet", "metadata": {"name": "agent"}, "spec": {"template": template}}
    return [dict(made.body) for made in Expander(NODES).expand(daemon_set)]


def nodes(made: list[dict[str, Any]]) -> list[str]:
    terms = [
        pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        for pod in made
    ]
    assert all(len(each) == 1 and list(each[0]) == ["matchFields"] for each in terms)
    return [each[0]["matchFields"][0]["values"][0] for each in terms]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, ["node-0", "node-1", "node-2"]),
        ({"nodeSelector": {"nvidia.com/gpu.count": "1"}}, ["node-0", "node-1"]),
        ({"nodeSelector": {"nowhere": "x"}}, []),
        (on("kubernetes.io/hostname", IN, "node-1"), ["node-1"]),
        (on("metadata.name", "NotIn", "node-1", part="matchFields"), ["node-0", "node-2"]),
    ],
    ids=["all", "a selector", "none", "affinity", "a field"],
)
def test_each_node_that_it_may_be_on_gets_a_pod(spec: dict[str, Any], expected: list[str]) -> None:
    assert nodes(pods(**spec)) == expected


def test_a_pod_has_what_kubernetes_adds() -> None:
    own = {"key": "team", "operator": "Exists"}
    pod = pods(tolerations=[own], hostNetwork=True)[0]
    (owner,) = pod["metadata"]["ownerReferences"]
    assert (owner["apiVersion"], owner["kind"], owner["name"]) == ("apps/v1", "DaemonSet", "agent")
    assert pod["metadata"]["generateName"] == "agent-"
    assert set(pod["metadata"]["labels"]) == {"controller-revision-hash", "pod-template-generation"}
    first, *added = pod["spec"]["tolerations"]
    assert first == own
    assert {(each["key"].rpartition("/")[2], each["effect"]) for each in added} == {
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
        ("network-unavailable", "NoSchedule"),
    }


def test_without_nodes_there_are_no_pods() -> None:
    template = {"spec": {"containers": [{"name": "main"}]}}
    daemon_set = {"kind": "DaemonSet", "metadata": {"name": "agent"}, "spec": {"template": template}}
    assert Expander().expand(daemon_set) == []
