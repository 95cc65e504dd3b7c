"""Moorage on a real node: reservation pods are real containers, and hold real devices of kubelet's device manager."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.node.pods import NAMESPACE, Machine, Pod, eventually, pod
from tools.cluster import ControlPlane
from tools.deployment import Deployment, Options
from tools.node.node import CTR
from wire import names

pytestmark = pytest.mark.node


@pytest.fixture(scope="module", autouse=True)
def moorage(plane: ControlPlane) -> Iterator[Deployment]:
    arguments = {"binder": ["--idle-s", "1", "--reservation-runtime-class", "nvidia"]}
    with Deployment(plane, Options(arguments=arguments)) as deployment:
        yield deployment
        deployment.check()


def share(name: str, fraction: str) -> Pod:
    wanted = pod(name, schedulerName=names.SCHEDULER_NAME)
    wanted["metadata"]["annotations"] = {names.GPU_FRACTION: fraction}
    return wanted


def whole(name: str) -> Pod:
    return pod(name, gpus=1, schedulerName=names.SCHEDULER_NAME)


def reservations(machine: Machine) -> list[Pod]:
    return machine.pods(names.RESERVATION_NAMESPACE)


def no_reservations(machine: Machine) -> None:
    eventually(
        lambda: not reservations(machine) or None, lambda: f"reservations to go: {reservations(machine)}", within_s=60
    )


def test_two_halves_share_the_device_that_their_reservation_pod_holds(machine: Machine) -> None:
    machine.create(share("left", "0.5"), share("right", "0.5"))
    seen = [machine.sees(name) for name in ("left", "right")]
    (reservation,) = reservations(machine)
    (device,) = seen[0]
    assert seen == [{device}, {device}]
    assert device in machine.devices
    assert reservation["metadata"]["annotations"][names.RESERVE_FOR_GPU_INDEX] == device
    (status,) = reservation["status"]["containerStatuses"]
    assert status["allocatedResourcesStatus"][0]["resources"] == [{"resourceID": device, "health": "Healthy"}]

    # The other device is left for a pod that wants all of one.
    machine.create(whole("whole"))
    assert machine.sees("whole") == set(machine.devices) - {device}
    machine.remove("left", "right", "whole")
    no_reservations(machine)


def test_a_share_outlives_its_reservations_container(machine: Machine) -> None:
    machine.create(share("tenant", "0.5"))
    seen = machine.sees("tenant")
    (reservation,) = reservations(machine)
    pod_name = reservation["metadata"]["name"]
    (status,) = reservation["status"]["containerStatuses"]
    container = status["containerID"].removeprefix("containerd://")
    machine.node.run(*CTR, "task", "kill", "--signal", "SIGKILL", container)

    def restarted() -> Pod | None:
        found = machine.get(pod_name, names.RESERVATION_NAMESPACE)
        (now,) = found["status"]["containerStatuses"]
        return found if now["restartCount"] == 1 and now["ready"] else None

    again = eventually(restarted, lambda: f"{pod_name} to start again: {reservations(machine)}", within_s=60)
    assert {again["metadata"]["annotations"][names.RESERVE_FOR_GPU_INDEX]} == seen
    machine.create(share("second", "0.5"))
    assert machine.sees("second") == seen
    assert machine.get("tenant", NAMESPACE)["status"]["containerStatuses"][0]["restartCount"] == 0
    machine.remove("tenant", "second")
    no_reservations(machine)
