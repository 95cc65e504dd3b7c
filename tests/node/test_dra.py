"""ResourceClaims on a real kubelet: Moorage allocates, the driver prepares, and the container has its devices.

Of the node's four GPUs the device plug-in offers two and the driver of claims the other two.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.node.claimnode import DRIVER, ClaimNode
from tests.node.claims import CLAIMS, listed, moorage_on, node_with, plane_with
from tests.node.pods import NAMESPACE, Machine, Pod, eventually, pod, share, whole
from tools.cluster.deployment import SCHEDULER, Deployment
from tools.cluster.plane import ControlPlane
from tools.controlplane import KUBELET
from tools.node.dradriver import NAME
from wire import names

pytestmark = [pytest.mark.node, pytest.mark.usefixtures("no_claim_is_left")]

_NODE = "node-with-claims"
_CLASS = "claimed"
_STAYS = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    signal.pause()
"""
_TELLS_ITS_CLAIMS = """
import os
print("claimed", *sorted(value for name, value in os.environ.items() if name.startswith("CLAIMED_GPU_")), flush=True)
"""


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    yield from plane_with(_NODE, _CLASS)


@pytest.fixture(scope="module")
def node(plane: ControlPlane) -> Iterator[ClaimNode]:
    yield from node_with(plane, _NODE, gpus=4, claimable=2)


@pytest.fixture(scope="module")
def machine(plane: ControlPlane, node: ClaimNode) -> Machine:
    return Machine(plane, node)


@pytest.fixture(scope="module")
def moorage(plane: ControlPlane) -> Iterator[Deployment]:
    yield from moorage_on(plane)


def _claim(name: str, *, count: int = 1, is_template: bool = False) -> dict[str, Any]:
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": _CLASS, "count": count}}]}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate" if is_template else "ResourceClaim",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"spec": spec} if is_template else spec,
    }


def _using(name: str, *claims: str, template: str = "", **of_a_pod: Any) -> Pod:
    """A pod, for Moorage, whose container uses claims by name, or one that is made for it."""
    uses = [{"resourceClaimName": claim} for claim in claims]
    uses += [{"resourceClaimTemplateName": template}] if template else []
    wanted = pod(name, schedulerName=names.SCHEDULER_NAME, **of_a_pod)
    (container,) = wanted["spec"]["containers"]
    wanted["spec"]["resourceClaims"] = [{"name": f"c{number}", **use} for number, use in enumerate(uses)]
    container["resources"]["claims"] = [{"name": f"c{number}"} for number in range(len(uses))]
    container["command"][-1] = _TELLS_ITS_CLAIMS + container["command"][-1]
    return wanted


def _claimed(machine: Machine, name: str) -> set[str]:
    """What the variables in a container say that it was given."""
    machine.sees(name)
    uid = machine.get(name)["metadata"]["uid"]
    lines = machine.node.output(NAMESPACE, name, "main", uid=uid).splitlines()
    return set(next(line for line in lines if line.startswith("claimed")).split()[1:])


def _waits_for_devices(machine: Machine, name: str, why: str = "cannot allocate all claims") -> None:
    """Wait until the scheduler has said why there are no devices for a pod."""

    def says() -> bool | None:
        conditions = machine.get(name)["status"].get("conditions", ())
        return any(why in one.get("message", "") for one in conditions) or None

    eventually(says, lambda: f"{name} to wait for devices: {machine.get(name)['status']}")


def _are_prepared(node: ClaimNode, machine: Machine, *claims: str) -> None:
    """Wait until the driver has prepared exactly these claims."""

    def by_name() -> list[str]:
        found = {one["metadata"]["uid"]: name for name, one in listed(machine).items()}
        return sorted(found.get(uid, uid) for uid in node.prepared())

    eventually(lambda: by_name() == sorted(claims) or None, lambda: f"{claims} to be prepared, not {by_name()}")


@pytest.fixture
def no_claim_is_left(machine: Machine, node: ClaimNode, nothing_is_left: None) -> Iterator[None]:
    """After a test its claims are deleted, and the driver has nothing prepared."""
    del nothing_is_left
    yield
    machine.remove(*(one["metadata"]["name"] for one in machine.pods(NAMESPACE)))
    _are_prepared(node, machine)
    machine.plane.rest().call("DELETE", CLAIMS)
    eventually(lambda: not listed(machine) or None, lambda: f"claims to go: {listed(machine)}")


def test_a_pod_sees_the_device_of_its_claim_and_gives_it_back(machine: Machine, node: ClaimNode, name: str) -> None:
    machine.plane.apply(json.dumps(_claim(name)))
    machine.create(_using(name, name))
    seen = machine.sees(name)
    assert len(seen & set(node.claimable)) == len(seen) == 1
    assert _claimed(machine, name) == seen
    _are_prepared(node, machine, name)
    (result,) = listed(machine)[name]["status"]["allocation"]["devices"]["results"]
    assert (result["driver"], result["pool"]) == (NAME, node.name)
    machine.remove(name)
    _are_prepared(node, machine)
    eventually(
        lambda: "allocation" not in listed(machine)[name].get("status", {}) or None,
        lambda: f"the claim to be free: {listed(machine)[name]}",
    )


def test_a_container_sees_the_devices_of_both_of_its_claims(machine: Machine, node: ClaimNode, name: str) -> None:
    claims = [f"{name}-{number}" for number in range(2)]
    for claim in claims:
        machine.plane.apply(json.dumps(_claim(claim)))
    machine.create(_using(name, *claims))
    assert machine.sees(name) == _claimed(machine, name) == set(node.claimable)
    _are_prepared(node, machine, *claims)


def test_a_claim_by_template_has_its_devices_for_as_long_as_its_pod(
    machine: Machine, node: ClaimNode, name: str
) -> None:
    machine.plane.apply(json.dumps(_claim(name, count=2, is_template=True)))
    machine.create(_using(f"{name}-a", template=name))
    assert machine.sees(f"{name}-a") == set(node.claimable)
    machine.create(_using(f"{name}-b", template=name))
    _waits_for_devices(machine, f"{name}-b")
    machine.remove(f"{name}-a")
    assert machine.sees(f"{name}-b") == set(node.claimable)
    (claim,) = listed(machine)
    _are_prepared(node, machine, claim)


def test_pods_that_share_a_claim_see_its_device_and_the_last_one_gives_it_back(
    machine: Machine, node: ClaimNode, name: str
) -> None:
    machine.plane.apply(json.dumps(_claim(name)))
    pods = [f"{name}-{number}" for number in range(2)]
    machine.create(*(_using(each, name) for each in pods))
    first, second = (machine.sees(each) for each in pods)
    assert len(first) == 1
    assert first == second
    machine.remove(pods[0])
    _are_prepared(node, machine, name)
    machine.remove(pods[1])
    _are_prepared(node, machine)


def test_devices_pass_from_pods_that_have_ended_to_the_next_and_are_never_prepared_twice(
    machine: Machine, node: ClaimNode, name: str
) -> None:
    machine.plane.apply(json.dumps(_claim(name, is_template=True)))
    pods = [f"{name}-{number}" for number in range(6)]
    for each in pods:
        wanted = _using(each, template=name)
        wanted["spec"]["containers"][0]["command"] = ["/usr/bin/python3", "-c", _TELLS_ITS_CLAIMS]
        machine.create(wanted)
    for each in pods:
        machine.reached(each, "Succeeded")
    # A claim that was made for a pod goes when the pod has ended.
    eventually(lambda: not listed(machine) or None, lambda: f"claims to go: {listed(machine)}")
    _are_prepared(node, machine)
    told = node.driver_log()
    assert sum(f"has prepared {NAMESPACE}/{each}-" in told for each in pods) == len(pods)
    assert "another claim has" not in told


def _restart(moorage: Deployment) -> None:
    moorage.stop(SCHEDULER)
    moorage.start(SCHEDULER)


@pytest.mark.parametrize("is_known", [True, False], ids=["the same scheduler", "one that was restarted"])
def test_devices_of_a_pod_that_was_deleted_by_force_are_prepared_again_when_its_program_has_ended(
    machine: Machine, node: ClaimNode, moorage: Deployment, name: str, *, is_known: bool
) -> None:
    """The scheduler keeps them for 115 s and the grace period; one that was restarted leaves that to the driver."""
    machine.plane.apply(json.dumps(_claim(name, count=2, is_template=True)))
    deaf = _using(f"{name}-deaf", template=name, terminationGracePeriodSeconds=20)
    deaf["spec"]["containers"][0]["command"] = ["/usr/bin/python3", "-c", _TELLS_ITS_CLAIMS + _STAYS]
    machine.create(deaf)
    machine.reached(f"{name}-deaf", "Running")
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}-deaf"
    machine.plane.rest().call("DELETE", path, {"gracePeriodSeconds": 0})
    has_ended = f"has unprepared {NAMESPACE}/{name}-deaf"
    if is_known:
        machine.create(_using(f"{name}-next", template=name))
        _waits_for_devices(machine, f"{name}-next", f"Devices are kept for pod {NAMESPACE}/{name}-deaf")
        eventually(lambda: has_ended in node.driver_log() or None, lambda: f"{name}-deaf to end")
        _restart(moorage)
    else:
        _restart(moorage)
        machine.create(_using(f"{name}-next", template=name))
    assert machine.sees(f"{name}-next") == set(node.claimable)
    (claim,) = listed(machine)
    _are_prepared(node, machine, claim)
    told = node.driver_log()
    assert told.index(has_ended) < told.index(f"has prepared {NAMESPACE}/{name}-next")


def test_a_gang_starts_when_there_are_devices_for_all_of_its_claims(
    machine: Machine, node: ClaimNode, name: str
) -> None:
    machine.plane.apply(json.dumps(_claim(f"{name}-held")))
    machine.plane.apply(json.dumps(_claim(name, is_template=True)))
    machine.create(_using(f"{name}-holder", f"{name}-held"))
    machine.sees(f"{name}-holder")
    group = {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"minMember": 2, "queue": "default"},
    }
    machine.plane.apply(json.dumps(group))
    members = [f"{name}-{number}" for number in range(2)]
    for member in members:
        wanted = _using(member, template=name)
        wanted["metadata"]["annotations"] = {names.POD_GROUP_NAME: name}
        machine.create(wanted)
    _waits_for_devices(machine, members[0])
    _are_prepared(node, machine, f"{name}-held")
    assert sum("allocation" in one.get("status", {}) for one in listed(machine).values()) == 1
    machine.remove(f"{name}-holder")
    seen = [machine.sees(member) for member in members]
    assert set.union(*seen) == set(node.claimable)
    assert [len(devices) for devices in seen] == [1, 1]


def test_claims_outlive_a_kubelet(machine: Machine, node: ClaimNode, name: str) -> None:
    machine.plane.apply(json.dumps(_claim(name, is_template=True)))
    machine.create(_using(f"{name}-stays", template=name))
    seen = machine.sees(f"{name}-stays")
    node.kill(KUBELET)
    machine.create(_using(f"{name}-late", template=name))
    node.start_again(KUBELET)
    assert machine.sees(f"{name}-late") == set(node.claimable) - seen
    _are_prepared(node, machine, *listed(machine))
    (status,) = machine.get(f"{name}-stays")["status"]["containerStatuses"]
    assert status["restartCount"] == 0
    assert "running" in status["state"]


def test_a_container_has_its_device_again_after_a_reboot(machine: Machine, node: ClaimNode, name: str) -> None:
    machine.plane.apply(json.dumps(_claim(name)))
    machine.create(_using(name, name, restartPolicy="Always"))
    seen = machine.sees(name)
    node.reboot()
    machine.restarted(name)
    assert machine.sees(name) == _claimed(machine, name) == seen
    _are_prepared(node, machine, name)


def test_a_pod_starts_when_its_driver_has_come_back(machine: Machine, node: ClaimNode, name: str) -> None:
    machine.plane.apply(json.dumps(_claim(name)))
    node.kill(DRIVER)
    machine.create(_using(name, name))
    machine.told("FailedPrepareDynamicResources", name)
    node.start_again(DRIVER)
    assert len(machine.sees(name) & set(node.claimable)) == 1


def test_a_claim_that_the_driver_refuses_once_is_prepared_the_next_time(
    machine: Machine, node: ClaimNode, name: str
) -> None:
    machine.plane.apply(json.dumps(_claim(name)))
    node.refuse(1)
    machine.create(_using(name, name))
    assert "as it was told to" in machine.told("FailedPrepareDynamicResources", name)
    assert len(machine.sees(name) & set(node.claimable)) == 1


def test_shares_and_claims_use_different_devices_of_one_node(machine: Machine, node: ClaimNode, name: str) -> None:
    """Also in one pod: a GPU of the device plug-in, and one of a claim."""
    machine.plane.apply(json.dumps(_claim(name, is_template=True)))
    both = _using(f"{name}-both", template=name)
    both["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "1"}
    machine.create(both, share(f"{name}-left", "0.5"), share(f"{name}-right", "0.5"))
    machine.create(_using(f"{name}-claim", template=name), whole(f"{name}-waits"))
    plugged = set(machine.devices) - set(node.claimable)
    of_both, left, right, of_claim = (machine.sees(f"{name}-{each}") for each in ("both", "left", "right", "claim"))
    assert left == right
    assert (len(left & plugged), len(of_both & plugged), len(of_both & set(node.claimable))) == (1, 1, 1)
    assert left | of_both | of_claim == set(machine.devices)
    assert machine.get(f"{name}-waits")["status"]["phase"] == "Pending"
    machine.remove(f"{name}-both")
    assert machine.sees(f"{name}-waits") == of_both & plugged
