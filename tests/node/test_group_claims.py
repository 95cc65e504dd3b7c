"""Claims of a PodGroup of Kubernetes on a real kubelet: it takes the group's claim as reserved for each of its pods."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.node.claimnode import ClaimNode
from tests.node.claims import listed, moorage_on, node_with, plane_with
from tests.node.pods import NAMESPACE, Machine, eventually, pod
from tools.cluster.deployment import Deployment
from tools.cluster.plane import ControlPlane
from wire import names

pytestmark = pytest.mark.node

_NODE = "node-with-group-claims"
_CLASS = "claimed"
_GATES = ("GenericWorkload", "DRAWorkloadResourceClaims")
_ENTRY = {"name": "gpu", "resourceClaimTemplateName": "one"}


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    yield from plane_with(_NODE, _CLASS, gates=_GATES)


@pytest.fixture(scope="module")
def node(plane: ControlPlane) -> Iterator[ClaimNode]:
    yield from node_with(plane, _NODE, gpus=2, claimable=2)


@pytest.fixture(scope="module")
def moorage(plane: ControlPlane) -> Iterator[Deployment]:
    yield from moorage_on(plane)


def _object(kind: str, name: str, api_version: str, **spec: Any) -> str:
    metadata = {"name": name, "namespace": NAMESPACE}
    return json.dumps({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec})


def _member(name: str) -> dict[str, Any]:
    """A pod of the PodGroup that is grouped by nothing here."""
    annotations = {names.IGNORE_WORKLOAD_API: "true"}
    wanted = pod(name, schedulerName=names.SCHEDULER_NAME, schedulingGroup={"podGroupName": "g"})
    wanted["metadata"]["annotations"] = {**wanted["metadata"].get("annotations", {}), **annotations}
    wanted["spec"]["resourceClaims"] = [_ENTRY]
    wanted["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
    return wanted


@pytest.mark.usefixtures("moorage")
def test_pods_of_a_pod_group_see_the_device_of_its_claim_and_the_last_one_gives_it_back(
    plane: ControlPlane, node: ClaimNode
) -> None:
    machine = Machine(plane, node)
    exactly = {"deviceClassName": _CLASS, "count": 1}
    asked = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    plane.apply(_object("ResourceClaimTemplate", "one", "resource.k8s.io/v1", spec=asked))
    policy = {"gang": {"minCount": 2}}
    plane.apply(
        _object("PodGroup", "g", "scheduling.k8s.io/v1alpha2", schedulingPolicy=policy, resourceClaims=[_ENTRY])
    )
    machine.create(_member("a"), _member("b"))
    first, second = machine.sees("a"), machine.sees("b")
    assert first == second
    assert len(first & set(node.claimable)) == len(first) == 1
    (claim,) = listed(machine).values()
    (owner,) = claim["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("PodGroup", "g")
    assert {(each["resource"], each["name"]) for each in claim["status"]["reservedFor"]} == {
        ("pods", "a"),
        ("pods", "b"),
    }
    assert node.prepared() == {claim["metadata"]["uid"]}
    machine.remove("a")
    assert node.prepared() == {claim["metadata"]["uid"]}
    machine.remove("b")
    eventually(lambda: not node.prepared() or None, lambda: f"the claim to be unprepared: {node.prepared()}")
    eventually(
        lambda: not any("allocation" in each.get("status", {}) for each in listed(machine).values()) or None,
        lambda: f"the claim to be free: {listed(machine)}",
    )
