"""Extended resources by ResourceClaims on a real kubelet: a node without a device plug-in, whose driver has all GPUs.

Pods ask for ``nvidia.com/gpu`` as on any node. Moorage makes the claims, and kubelet finds them in the pods' statuses.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.node.claimnode import ClaimNode
from tests.node.claims import listed, moorage_on, node_with, plane_with
from tests.node.pods import NAMESPACE, Machine, eventually, share, whole
from tools.cluster.deployment import Deployment
from tools.cluster.plane import ControlPlane
from wire import names

pytestmark = [pytest.mark.node, pytest.mark.usefixtures("no_claim_is_left")]

_NODE = "node-of-claims"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    yield from plane_with(_NODE, "gpus", extendedResourceName=names.GPU_RESOURCE)


@pytest.fixture(scope="module")
def node(plane: ControlPlane) -> Iterator[ClaimNode]:
    yield from node_with(plane, _NODE, gpus=2, claimable=2)


@pytest.fixture(scope="module")
def machine(plane: ControlPlane, node: ClaimNode) -> Machine:
    return Machine(plane, node)


@pytest.fixture(scope="module")
def moorage(plane: ControlPlane) -> Iterator[Deployment]:
    yield from moorage_on(plane)


@pytest.fixture
def no_claim_is_left(machine: Machine, node: ClaimNode, nothing_is_left: None) -> Iterator[None]:
    """After a test its pods go, and with them the claims that were made for them."""
    del nothing_is_left
    yield
    machine.remove(*(one["metadata"]["name"] for one in machine.pods(NAMESPACE)))
    eventually(lambda: not (listed(machine) or node.prepared()) or None, lambda: f"claims to go: {listed(machine)}")


def test_a_pod_that_asks_for_a_gpu_sees_the_device_of_the_claim_that_was_made_for_it(
    machine: Machine, node: ClaimNode, name: str
) -> None:
    machine.create(whole(name))
    seen = machine.sees(name)
    assert len(seen & set(node.claimable)) == len(seen) == 1
    (claim,) = listed(machine).values()
    assert machine.get(name)["status"]["extendedResourceClaimStatus"]["resourceClaimName"] == claim["metadata"]["name"]
    assert node.prepared() == {claim["metadata"]["uid"]}


def test_each_container_sees_the_devices_that_it_asks_for(machine: Machine, node: ClaimNode, name: str) -> None:
    wanted = whole(name)
    (main,) = wanted["spec"]["containers"]
    wanted["spec"]["containers"] += [{**main, "name": "beside"}, {**main, "name": "without", "resources": {}}]
    machine.create(wanted)
    (of_main,) = machine.sees(name)

    def told(container: str, wanted: str) -> str:
        """Wait for a line with what is wanted: the lines of a traceback come one by one."""

        def line() -> str | None:
            lines = node.output(NAMESPACE, name, container).splitlines()
            return next((one for one in lines if wanted in one), None)

        return eventually(line, lambda: f"{container} to tell: {node.output(NAMESPACE, name, container)}")

    assert {of_main, *told("beside", "sees").split()[1:]} == set(node.claimable)
    assert told("without", "NVML Shared Library Not Found")


def test_a_gang_starts_when_there_are_devices_for_all(machine: Machine, node: ClaimNode, name: str) -> None:
    machine.create(whole(f"{name}-holder"))
    machine.sees(f"{name}-holder")
    group = {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"minMember": 2, "queue": "default"},
    }
    machine.plane.apply(json.dumps(group))
    members = [whole(f"{name}-{number}") for number in range(2)]
    for member in members:
        member["metadata"]["annotations"] = {names.POD_GROUP_NAME: name}
    machine.create(*members)
    machine.told("Unschedulable", f"{name}-0")
    assert len(listed(machine)) == 1
    machine.remove(f"{name}-holder")
    assert set.union(*(machine.sees(f"{name}-{number}") for number in range(2))) == set(node.claimable)


def test_pods_see_different_devices_and_the_next_one_has_that_of_the_first_to_go(
    machine: Machine, node: ClaimNode, name: str
) -> None:
    machine.create(*(whole(f"{name}-{number}") for number in range(2)))
    first, second = (machine.sees(f"{name}-{number}") for number in range(2))
    assert first | second == set(node.claimable)
    machine.create(whole(f"{name}-late"))
    machine.told("Unschedulable", f"{name}-late")
    machine.remove(f"{name}-0")
    assert machine.sees(f"{name}-late") == first


def test_a_share_waits_and_says_that_the_node_gives_gpus_by_claims_alone(machine: Machine, name: str) -> None:
    machine.create(share(name, "0.5"))
    assert "ResourceClaims" in machine.told("Unschedulable", name)
    assert machine.reservations() == []
