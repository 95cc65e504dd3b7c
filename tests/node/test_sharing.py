"""Moorage on a real node: reservation pods are real containers, and hold real devices of kubelet's device manager."""

from __future__ import annotations

import pytest

from tests.node.pods import NAMESPACE, Machine, Pod, eventually, memory, pod, share, two_devices, whole
from tools.cluster.deployment import SCHEDULER, Deployment
from tools.node.node import CTR
from wire import names

pytestmark = [pytest.mark.node, pytest.mark.usefixtures("nothing_is_left")]


def named_container(name: str) -> Pod:
    wanted = share(name, "0.5")
    wanted["metadata"]["annotations"][names.GPU_FRACTION_CONTAINER_NAME] = "main"
    wanted["spec"]["containers"].insert(0, {**wanted["spec"]["containers"][0], "name": "beside"})
    return wanted


def bind_requests(machine: Machine) -> list[Pod]:
    path = f"/apis/scheduling.run.ai/v1alpha2/namespaces/{NAMESPACE}/bindrequests"
    return list(machine.plane.rest().call("GET", path)["items"])


def refusals(machine: Machine) -> list[Pod]:
    """What kubelet said of reservation pods that it refused."""
    return [one for one in machine.events(names.RESERVATION_NAMESPACE) if one["reason"] == "UnexpectedAdmissionError"]


def test_two_halves_share_the_device_that_their_reservation_pod_holds(machine: Machine) -> None:
    machine.create(share("left", "0.5"), share("right", "0.5"))
    seen = [machine.sees(name) for name in ("left", "right")]
    (reservation,) = machine.reservations()
    (device,) = seen[0]
    assert seen == [{device}, {device}]
    assert device in machine.devices
    assert reservation["metadata"]["annotations"][names.RESERVE_FOR_GPU_INDEX] == device
    (status,) = reservation["status"]["containerStatuses"]
    assert status["allocatedResourcesStatus"][0]["resources"] == [{"resourceID": device, "health": "Healthy"}]

    # The other device is left for a pod that wants all of one.
    machine.create(whole("whole"))
    assert machine.sees("whole") == set(machine.devices) - {device}


@pytest.mark.usefixtures("by_cdi")
def test_shares_that_are_told_by_a_cdi_name_see_their_device(machine: Machine) -> None:
    machine.create(share("first", "0.5"))
    seen = [machine.sees("first")]
    # The first one was the binder's to tell, the second is the scheduler's.
    machine.create(share("further", "0.5"))
    seen.append(machine.sees("further"))
    (reservation,) = machine.reservations()
    device = reservation["metadata"]["annotations"][names.RESERVE_FOR_GPU_INDEX]
    assert seen == [{device}, {device}]
    told = [one["metadata"]["annotations"][f"{names.VISIBLE_DEVICES_PREFIX}c0"] for one in machine.pods(NAMESPACE)]
    assert told == [f"k8s.device-plugin.nvidia.com/gpu={device}"] * 2


def test_a_share_outlives_its_reservations_container(machine: Machine) -> None:
    machine.create(share("tenant", "0.5"))
    seen = machine.sees("tenant")
    (reservation,) = machine.reservations()
    pod_name = reservation["metadata"]["name"]
    (status,) = reservation["status"]["containerStatuses"]
    container = status["containerID"].removeprefix("containerd://")
    machine.node.run(*CTR, "task", "kill", "--signal", "SIGKILL", container)
    again = machine.restarted(pod_name, names.RESERVATION_NAMESPACE)
    assert {again["metadata"]["annotations"][names.RESERVE_FOR_GPU_INDEX]} == seen
    machine.create(share("second", "0.5"))
    assert machine.sees("second") == seen
    assert machine.get("tenant", NAMESPACE)["status"]["containerStatuses"][0]["restartCount"] == 0


@pytest.mark.parametrize(
    ("wanted", "devices"), [(memory("memory"), 1), (named_container("named"), 1), (two_devices("two"), 2)]
)
def test_a_form_of_asking_gets_the_devices_of_its_reservations(machine: Machine, wanted: Pod, devices: int) -> None:
    name = wanted["metadata"]["name"]
    machine.create(wanted)
    seen = machine.sees(name)
    assert len(seen) == devices
    held = {one["metadata"]["annotations"][names.RESERVE_FOR_GPU_INDEX] for one in machine.reservations()}
    assert held == seen
    for container in wanted["spec"]["containers"][:-1]:
        assert "NVML Shared Library Not Found" in machine.node.output(NAMESPACE, name, container["name"])


def test_a_reservation_that_kubelet_refuses_is_given_up_and_the_share_runs_when_there_is_a_device(
    machine: Machine, moorage: Deployment
) -> None:
    moorage.pause("binder")
    try:
        machine.create(share("late", "0.5"))
        eventually(lambda: bind_requests(machine) or None, lambda: "a BindRequest")
        taken = [pod(name, gpus=1, nodeName=machine.node.name) for name in ("taker-0", "taker-1")]
        machine.create(*taken)
        assert set.union(*(machine.sees(one["metadata"]["name"]) for one in taken)) == set(machine.devices)
    finally:
        moorage.go_on("binder")
    eventually(lambda: refusals(machine) or None, lambda: "a reservation to be refused")
    machine.remove("taker-0")
    # A node where an attempt has failed is left out for half a minute, by a scheduler that remembers it.
    moorage.stop(SCHEDULER)
    moorage.start(SCHEDULER)
    seen = machine.sees("late")
    (reservation,) = [one for one in machine.reservations() if one["status"]["phase"] == "Running"]
    assert {reservation["metadata"]["annotations"][names.RESERVE_FOR_GPU_INDEX]} == seen


@pytest.mark.usefixtures("quick")
def test_the_tenant_of_a_device_that_its_plugin_calls_unhealthy_is_evicted_and_the_other_stays(
    machine: Machine,
) -> None:
    machine.create(share("ill", "0.6"), share("well", "0.6"))
    seen = machine.sees("ill")
    assert seen.isdisjoint(machine.sees("well"))
    machine.node.set_unhealthy(seen)
    try:
        eventually(
            lambda: {one["metadata"]["name"] for one in machine.pods(NAMESPACE)} == {"well"} or None,
            lambda: f"the tenant of {seen} to go: {machine.reservations()}",
        )
        note = machine.told("GPUMoved", "ill")
        assert note == f"evicted: GPU {min(seen)} is unhealthy, as its device plugin says"
        eventually(lambda: len(machine.reservations()) == 1 or None, lambda: "the idle reservation to go")
        machine.create(share("late", "0.6"))
        machine.node.set_unhealthy(())
        assert machine.sees("late") == seen
    finally:
        machine.node.set_unhealthy(())
    assert machine.get("well", NAMESPACE)["status"]["containerStatuses"][0]["restartCount"] == 0


def test_after_a_reboot_tenants_are_on_the_device_that_their_reservation_holds(machine: Machine) -> None:
    tenants = [share(name, "0.5") for name in ("one", "other")]
    for tenant in tenants:
        tenant["spec"]["restartPolicy"] = "Always"
    machine.create(*tenants)
    seen = machine.sees("one")
    assert machine.sees("other") == seen
    machine.node.reboot()
    for name in ("one", "other"):
        machine.restarted(name)
        assert machine.sees(name) == seen
    (reservation,) = machine.reservations()
    machine.restarted(reservation["metadata"]["name"], names.RESERVATION_NAMESPACE)
    (again,) = machine.reservations()
    assert {again["metadata"]["annotations"][names.RESERVE_FOR_GPU_INDEX]} == seen
    assert again["status"]["containerStatuses"][0]["allocatedResourcesStatus"][0]["resources"][0]["resourceID"] in seen
