"""What the runtime handler shows to a container, by ``NVIDIA_VISIBLE_DEVICES``. Pods are bound by hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.node.pods import NAMESPACE, Machine, pod

pytestmark = pytest.mark.node

#: Value of the variable -> the devices that are seen. The last one is also given a device by kubelet.
SHOWN = {"all": [0, 1], "none": [], "1": [1], "0,1": [0, 1], "users": [0, 1]}
_USERS, _UNSET, _UNKNOWN, _BY_CDI = "users", "unset", "unknown", "by-cdi"


def _name(case: str) -> str:
    return f"shows-{case.replace(',', '-')}"


@pytest.fixture(scope="module", autouse=True)
def pods(machine: Machine) -> Iterator[None]:
    """One pod for each case: first those that end at once, and then all others, which need fewer slots of the node."""
    cases: dict[str, dict[str, str]] = {case: {"NVIDIA_VISIBLE_DEVICES": case} for case in SHOWN}
    cases |= {_USERS: {"NVIDIA_VISIBLE_DEVICES": "all"}, _UNSET: {}}
    cases[_UNKNOWN] = {"NVIDIA_VISIBLE_DEVICES": "GPU-of-another-machine"}
    cases[_BY_CDI] = {"NVIDIA_VISIBLE_DEVICES": f"k8s.device-plugin.nvidia.com/gpu={machine.devices[1]}"}
    names = [_name(case) for case in cases]
    gpus = {_USERS: 1}
    node = machine.node.name
    made = {case: pod(_name(case), gpus=gpus.get(case, 0), env=env, nodeName=node) for case, env in cases.items()}
    brief = (_UNSET, _UNKNOWN)
    machine.create(*map(made.pop, brief))
    for case in brief:
        machine.reached(_name(case), "Failed")
    machine.create(*made.values())
    yield
    machine.remove(*names)


@pytest.mark.parametrize("case", SHOWN)
def test_a_container_sees_what_its_environment_names_and_a_users_entry_comes_after_the_device_plugins(
    machine: Machine, case: str
) -> None:
    assert machine.sees(_name(case)) == {machine.devices[index] for index in SHOWN[case]}


def test_a_cdi_name_shows_the_device_that_it_names(machine: Machine) -> None:
    assert machine.sees(_name(_BY_CDI)) == {machine.devices[1]}


def test_without_the_variable_there_is_no_driver(machine: Machine) -> None:
    machine.reached(_name(_UNSET), "Failed")
    assert "NVML Shared Library Not Found" in machine.node.output(NAMESPACE, _name(_UNSET), "main")


def test_a_device_that_the_machine_does_not_have_fails_the_container(machine: Machine) -> None:
    (status,) = machine.reached(_name(_UNKNOWN), "Failed")["status"]["containerStatuses"]
    assert status["state"]["terminated"]["reason"] == "StartError"
    assert "device error: GPU-of-another-machine: unknown device" in status["state"]["terminated"]["message"]
