"""Shares of GPUs by ResourceClaims on a real kubelet: a node without a device plug-in, whose driver shares its GPUs.

Pods ask for ``gpu-fraction`` as on any node. Two of them see one device, each by a claim of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.node.claimnode import ClaimNode
from tests.node.claims import listed, plane_with
from tests.node.pods import NAMESPACE, Machine, eventually, share
from tools.cluster.deployment import Deployment, Options
from tools.cluster.plane import ControlPlane
from wire import names

pytestmark = [pytest.mark.node, pytest.mark.usefixtures("no_claim_is_left")]

_NODE = "node-of-parts"
_LABELS = {"nvidia.com/gpu.present": "true"}


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    yield from plane_with(_NODE, "gpus", extendedResourceName=names.GPU_RESOURCE)


@pytest.fixture(scope="module")
def node(plane: ControlPlane) -> Iterator[ClaimNode]:
    with ClaimNode(plane, _NODE, gpus=1, claimable=1, sharable=True, labels=_LABELS) as node:
        yield node


@pytest.fixture(scope="module")
def machine(plane: ControlPlane, node: ClaimNode) -> Machine:
    return Machine(plane, node)


@pytest.fixture(scope="module")
def moorage(plane: ControlPlane) -> Iterator[Deployment]:
    with Deployment(plane, Options(arguments={"admission": ["--shares-by-claims"]})) as deployment:
        yield deployment
        deployment.check()


@pytest.fixture
def no_claim_is_left(machine: Machine, node: ClaimNode, nothing_is_left: None) -> Iterator[None]:
    """After a test its pods go, and with them the claims that were made for them."""
    del nothing_is_left
    yield
    machine.remove(*(one["metadata"]["name"] for one in machine.pods(NAMESPACE)))
    eventually(lambda: not (listed(machine) or node.prepared()) or None, lambda: f"claims to go: {listed(machine)}")


def test_two_shares_see_one_device_by_claims_of_their_own_and_the_third_waits(
    machine: Machine, node: ClaimNode, name: str
) -> None:
    machine.create(*(share(f"{name}-{number}", "0.5") for number in range(2)))
    assert [machine.sees(f"{name}-{number}") for number in range(2)] == [set(node.claimable)] * 2
    claims = {claim["metadata"]["uid"]: claim for claim in listed(machine).values()}
    assert node.prepared() == claims.keys()
    results = [each for claim in claims.values() for each in claim["status"]["allocation"]["devices"]["results"]]
    assert len({each["shareID"] for each in results}) == len(results) == 2
    assert machine.reservations() == []
    machine.create(share(f"{name}-late", "0.5"))
    assert "cannot allocate all claims" in machine.told("Unschedulable", f"{name}-late")
    machine.remove(f"{name}-0")
    assert machine.sees(f"{name}-late") == set(node.claimable)


def test_a_share_is_written_on_its_pod_with_the_claim(machine: Machine, name: str) -> None:
    machine.create(share(name, "0.25"))
    machine.sees(name)
    written = machine.get(name)["metadata"]["annotations"]
    assert json.loads(written[names.CLAIMED_SHARE])["nano"] == 250_000_000
    assert written[names.VISIBLE_DEVICES_PREFIX + "c0"] == "void"
