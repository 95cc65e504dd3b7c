"""What kubelet, containerd and runc do with emulated GPUs, without Moorage: pods are bound by hand."""

from __future__ import annotations

import pytest

from cli.run import why_refused
from tests.node.pods import Machine, Pod, eventually, pod
from tools.controlplane import KUBELET
from tools.node.node import CONTAINERD, PLUGIN

pytestmark = pytest.mark.node


def bound(machine: Machine, name: str, *, gpus: int = 0, **env: str) -> Pod:
    return pod(name, gpus=gpus, env=env, nodeName=machine.node.name)


def told_by_kubelet(found: Pod) -> set[str]:
    (status,) = found["status"]["containerStatuses"]
    (resource,) = status["allocatedResourcesStatus"]
    return {one["resourceID"] for one in resource["resources"] if one["health"] == "Healthy"}


def test_each_pod_sees_the_device_that_kubelet_chose_for_it_and_one_too_many_is_refused(machine: Machine) -> None:
    names = ["first", "second"]
    machine.create(*(bound(machine, name, gpus=1) for name in names))
    found = {name: machine.reached(name, "Running") for name in names}
    seen = {name: machine.sees(name) for name in names}
    assert sorted(len(devices) for devices in seen.values()) == [1, 1]
    assert set.union(*seen.values()) == set(machine.devices)
    assert {name: told_by_kubelet(found[name]) for name in names} == seen

    machine.create(bound(machine, "third", gpus=1))
    refused = machine.reached("third", "Failed")["status"]
    assert refused["reason"] == "UnexpectedAdmissionError"
    assert "requested number of devices unavailable for nvidia.com/gpu" in refused["message"]
    assert "Requested: 1, Available: 0" in refused["message"]

    machine.remove("first", "third")
    machine.create(bound(machine, "fourth", gpus=1))
    assert machine.sees("fourth") == seen["first"]
    machine.remove("second", "fourth")


def test_moorage_run_is_refused_beside_a_kubelet_that_gives_out_gpus(machine: Machine) -> None:
    """By what kubelet writes down as soon as a plug-in has told its devices."""
    checkpoint = machine.node.folder / "kubelet" / "device-plugins" / "kubelet_internal_checkpoint"
    told = eventually(lambda: why_refused(checkpoint) or None, lambda: f"{checkpoint} to name GPUs")
    assert told == "the kubelet of this machine gives out its GPUs as nvidia.com/gpu"


def test_an_ill_device_is_no_longer_allocatable_until_it_is_well(machine: Machine) -> None:
    machine.node.set_unhealthy([machine.devices[0]])
    _allocatable(machine, 1)
    machine.node.set_unhealthy([])
    _allocatable(machine, 2)


@pytest.mark.parametrize("program", [KUBELET, CONTAINERD, PLUGIN])
def test_a_container_outlives_the_crash_of_a_program_and_the_next_pod_gets_the_other_device(
    machine: Machine, name: str, program: str
) -> None:
    machine.create(bound(machine, name, gpus=1))
    seen = machine.sees(name)
    machine.node.kill(program)
    if program == PLUGIN:
        # Until it has noticed, the node's status is that of before, and so tells nothing about the next plug-in.
        _allocatable(machine, 0)
    machine.node.start_again(program)
    machine.node.wait_until_ready()
    after = f"{name}-after"
    machine.create(bound(machine, after, gpus=1))
    assert machine.sees(after) == set(machine.devices) - seen
    assert machine.get(name)["status"]["containerStatuses"][0]["restartCount"] == 0
    machine.remove(name, after)


@pytest.mark.parametrize("plugin", [True, False])
def test_after_a_reboot_a_pod_keeps_its_device_if_the_device_plugin_came_first_and_is_refused_otherwise(
    machine: Machine, name: str, plugin: bool
) -> None:
    machine.create({**(wanted := bound(machine, name, gpus=1)), "spec": {**wanted["spec"], "restartPolicy": "Always"}})
    seen = machine.sees(name)
    machine.node.reboot(plugin=plugin)
    if plugin:
        machine.restarted(name)
        assert machine.sees(name) == seen
    else:
        refused = machine.reached(name, "Failed")["status"]
        assert refused["reason"] == "UnexpectedAdmissionError"
        assert "no healthy devices present; cannot allocate unhealthy devices nvidia.com/gpu" in refused["message"]
        machine.node.start_again(PLUGIN)
        machine.node.wait_until_ready()
    machine.remove(name)


def _allocatable(machine: Machine, count: int) -> None:
    eventually(
        lambda: machine.allocatable() == count or None,
        lambda: f"{count} allocatable devices: {machine.node.status()['status']['allocatable']}",
    )
