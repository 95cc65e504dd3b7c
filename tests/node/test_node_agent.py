"""The agent of a node beside a real kubelet: its devices are told before the reservation's process runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from nodeagent.kubeletapi.client import Devices, PodDevices, PodResources
from tests.node.pods import NAMESPACE, PATIENCE_S, Machine, eventually, pod, share
from tools.cluster.deployment import Deployment
from tools.cluster.nodeagent import NodeAgent
from tools.controlplane import KUBELET
from tools.node.gpus import MACHINE
from wire import names

pytestmark = [pytest.mark.node, pytest.mark.usefixtures("nothing_is_left")]


def socket_of(machine: Machine) -> Path:
    return machine.node.folder / "kubelet" / "pod-resources" / "kubelet.sock"


@pytest.fixture
def agent(machine: Machine, moorage: Deployment) -> Iterator[NodeAgent]:
    del moorage  # has made the namespaces, rights and kinds
    made = NodeAgent(machine.plane, machine.node.name, socket=socket_of(machine), machine=machine.node.folder / MACHINE)
    with made as running:
        yield running
        running.check()


# --- kubelet's API -----------------------------------------------------------------------------------------------


async def test_kubelet_says_which_devices_it_gave_and_which_it_has(machine: Machine) -> None:
    machine.create(pod("one", gpus=1, nodeName=machine.node.name), pod("none", nodeName=machine.node.name))
    (device,) = machine.sees("one")
    machine.reached("none", "Running")
    async with PodResources(socket_of(machine)) as kubelet:
        one = PodDevices(NAMESPACE, "one", (Devices(names.GPU_RESOURCE, (device,)),))
        assert await kubelet.get(NAMESPACE, "one") == one
        assert await kubelet.get(NAMESPACE, "none") == PodDevices(NAMESPACE, "none", ())
        assert await kubelet.get(NAMESPACE, "nobody") is None
        assert one in await kubelet.list()
        found = await kubelet.allocatable()
        assert sorted(id_ for each in found for id_ in each.ids) == sorted(machine.devices)


async def test_kubelet_names_the_device_of_a_pod_whose_container_never_starts(machine: Machine) -> None:
    """From ``status.startTime`` on, which is written after its admission."""
    never = pod("never", gpus=1, nodeName=machine.node.name)
    never["spec"]["containers"][0]["image"] = "registry.invalid/none:1"
    never["spec"]["containers"][0]["imagePullPolicy"] = "Never"
    machine.create(never)
    eventually(lambda: machine.get("never")["status"].get("startTime"), lambda: "kubelet to admit the pod")
    async with PodResources(socket_of(machine)) as kubelet:
        given = await kubelet.get(NAMESPACE, "never")
    assert given is not None
    ((resource, ids),) = [(each.resource, each.ids) for each in given.devices]
    assert (resource, len(ids), ids[0] in machine.devices) == (names.GPU_RESOURCE, 1, True)
    assert machine.get("never")["status"]["phase"] == "Pending"


async def test_the_next_kubelet_is_another_life_and_says_the_same(machine: Machine) -> None:
    machine.create(pod("stays", gpus=1, nodeName=machine.node.name))
    (device,) = machine.sees("stays")
    async with PodResources(socket_of(machine)) as kubelet:
        first = kubelet.life()
        await kubelet.list()
        machine.node.kill(KUBELET)
        machine.node.start_again(KUBELET)
        machine.node.wait_until_ready()
        assert kubelet.life() not in {first, None}
        given = await _known(kubelet, "stays")
    assert given == PodDevices(NAMESPACE, "stays", (Devices(names.GPU_RESOURCE, (device,)),))


async def _known(kubelet: PodResources, name: str) -> PodDevices:
    """Wait until a kubelet that has just started has read its pods; raises TimeoutError."""
    with anyio.fail_after(PATIENCE_S):
        while (given := await kubelet.get(NAMESPACE, name)) is None:  # noqa: ASYNC110 - real nodes tell by no event
            await anyio.sleep(0.2)
    return given


# --- the agent ---------------------------------------------------------------------------------------------------


def test_a_reservations_device_is_told_by_kubelets_word_and_its_process_says_the_same(
    machine: Machine, agent: NodeAgent
) -> None:
    machine.create(share("left", "0.5"), share("right", "0.5"))
    seen = [machine.sees(name) for name in ("left", "right")]
    (reservation,) = machine.reservations()
    annotations = reservation["metadata"]["annotations"]
    assert seen == [{annotations[names.RESERVE_FOR_GPU_INDEX]}] * 2
    assert annotations[names.DEVICE_REPORTER] == names.REPORTER_KUBELET
    minor = machine.devices.index(annotations[names.RESERVE_FOR_GPU_INDEX])
    assert (annotations[names.DEVICE_INDEX], annotations[names.DEVICE_MEMORY]) == (str(minor), "81559")
    writes = [
        entry["manager"] for entry in reservation["metadata"]["managedFields"] if "reservation" in entry["manager"]
    ]
    # Its process read the same and wrote nothing.
    assert writes == []
    assert 'moorage_device_reports_total{outcome="told"} 1.0' in agent.metrics()


def test_a_device_is_told_while_the_reservations_image_can_not_be_had(
    machine: Machine, moorage: Deployment, agent: NodeAgent
) -> None:
    del agent  # runs
    moorage.stop("binder")
    moorage.start("binder", "--reservation-image", "registry.invalid/none:1")
    try:
        machine.create(share("early", "0.5"))
        reservation = eventually(
            lambda: next(
                (
                    one
                    for one in machine.reservations()
                    if names.DEVICE_REPORTER in one["metadata"].get("annotations", {})
                ),
                None,
            ),
            lambda: f"the device to be told: {machine.reservations()}",
        )
        assert reservation["metadata"]["annotations"][names.RESERVE_FOR_GPU_INDEX] in machine.devices
        assert reservation["status"]["phase"] == "Pending"
    finally:
        machine.remove("early")
        moorage.stop("binder")
        moorage.start("binder")


def test_an_agent_that_starts_after_the_pods_writes_no_reservation(machine: Machine, moorage: Deployment) -> None:
    del moorage
    machine.create(share("first", "0.5"))
    machine.sees("first")
    (before,) = machine.reservations()
    made = NodeAgent(machine.plane, machine.node.name, socket=socket_of(machine), machine=machine.node.folder / MACHINE)
    with made as late:
        eventually(
            lambda: 'moorage_device_reports_total{outcome="agrees"} 1.0' in late.metrics() or None,
            lambda: f"the agent to compare: {late.log()}",
        )
        (after,) = machine.reservations()
    assert after["metadata"]["annotations"] == before["metadata"]["annotations"]


def test_after_a_restart_of_kubelet_and_agent_the_next_device_is_told(machine: Machine, agent: NodeAgent) -> None:
    machine.node.kill(KUBELET)
    machine.node.start_again(KUBELET)
    machine.node.wait_until_ready()
    agent.kill()
    agent.start()
    machine.create(share("next", "0.5"))
    (device,) = machine.sees("next")
    (reservation,) = machine.reservations()
    annotations = reservation["metadata"]["annotations"]
    assert (annotations[names.RESERVE_FOR_GPU_INDEX], annotations[names.DEVICE_REPORTER]) == (
        device,
        names.REPORTER_KUBELET,
    )


def test_what_the_node_has_is_in_its_gpu_node(machine: Machine, agent: NodeAgent) -> None:
    del agent
    path = f"/apis/moorage.dev/v1alpha1/gpunodes/{machine.node.name}"
    found = eventually(
        lambda: machine.plane.rest().call("GET", path) if machine.plane.rest().send("GET", path)[0] == 200 else None,
        lambda: "the GpuNode",
    )
    status = eventually(
        lambda: machine.plane.rest().call("GET", path).get("status", {}).get("cards"), lambda: f"its cards: {found}"
    )
    assert [card["uuid"] for card in status] == machine.devices
