"""Who goes for whom on a real node: kubelet ends the victims, and the devices that they held are used again."""

from __future__ import annotations

import json

import pytest

from tests.node.pods import NAMESPACE, PATIENCE_S, Machine, Pod, eventually, share, whole
from tools.cluster.deployment import SCHEDULER, Deployment
from wire import names

pytestmark = [pytest.mark.node, pytest.mark.usefixtures("nothing_is_left", "urgent_class")]

#: A program that does nothing about SIGTERM: kubelet kills it when its grace period is over.
_STAYS = """
import signal, pynvml
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pynvml.nvmlInit()
devices = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
print("sees", *map(pynvml.nvmlDeviceGetUUID, devices), flush=True)
while True:
    signal.pause()
"""
_FINALIZER = "moorage.test/stays"


@pytest.fixture(scope="module")
def urgent_class(machine: Machine) -> None:
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 90}
    machine.plane.apply(json.dumps(body))


def urgent(wanted: Pod) -> Pod:
    wanted["spec"]["priorityClassName"] = "urgent"
    return wanted


def deaf(wanted: Pod, grace_s: int) -> Pod:
    """A pod whose program ignores SIGTERM."""
    wanted["spec"]["containers"][0]["command"] = ["/usr/bin/python3", "-c", _STAYS]
    wanted["spec"]["terminationGracePeriodSeconds"] = grace_s
    return wanted


def full(machine: Machine, *pods: Pod) -> list[set[str]]:
    """Have these run; return what each sees."""
    machine.create(*pods)
    return [machine.sees(one["metadata"]["name"]) for one in pods]


def phases(machine: Machine) -> dict[str, str]:
    """Pods that are there, and not about to go."""
    listed = machine.pods(NAMESPACE)
    return {one["metadata"]["name"]: one["status"]["phase"] for one in listed if not _is_going(one)}


def only(machine: Machine, **wanted: str) -> None:
    """Wait until exactly these are there, in these phases."""
    expected = {name.replace("_", "-"): phase for name, phase in wanted.items()}
    eventually(
        lambda: phases(machine) == expected or None, lambda: f"{expected}: {phases(machine)}", within_s=PATIENCE_S
    )


def release(machine: Machine, name: str) -> None:
    """Take a pod's finalizer away."""
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}"
    machine.plane.rest().call("PATCH", path, {"metadata": {"finalizers": None}})


def _is_going(found: Pod) -> bool:
    return "deletionTimestamp" in found["metadata"]


def test_a_pod_that_ignores_sigterm_is_waited_for(machine: Machine) -> None:
    seen = full(machine, deaf(whole("deaf"), 6), deaf(whole("deaf-too"), 6))
    machine.create(urgent(whole("high")))
    (device,) = machine.sees("high")
    assert {device} in seen
    assert len(phases(machine)) == 2


def test_a_device_whose_pod_has_a_finalizer_is_kept_for_the_holder(machine: Machine) -> None:
    wanted = whole("stays")
    wanted["metadata"]["finalizers"] = [_FINALIZER]
    full(machine, wanted, urgent(whole("beside")))
    machine.create(urgent(whole("high")))
    eventually(lambda: _is_going(machine.get("stays")) or None, lambda: "stays to be evicted")
    machine.create(whole("late"))
    release(machine, "stays")
    only(machine, beside="Running", high="Running", late="Pending")


def test_a_holder_has_its_place_when_the_scheduler_is_killed_before_its_victim_is_gone(
    machine: Machine, moorage: Deployment
) -> None:
    wanted = whole("stays")
    wanted["metadata"]["finalizers"] = [_FINALIZER]
    full(machine, wanted, urgent(whole("beside")))
    machine.create(urgent(whole("high")))
    eventually(lambda: _is_going(machine.get("stays")) or None, lambda: "stays to be evicted")
    moorage.kill(SCHEDULER)
    machine.create(urgent(whole("late")))
    moorage.start(SCHEDULER)
    release(machine, "stays")
    only(machine, beside="Running", high="Running", late="Pending")


def test_a_gang_takes_both_devices_from_four_shares(machine: Machine) -> None:
    full(machine, *(share(name, "0.5") for name in "abcd"))
    group = {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "gang", "namespace": NAMESPACE},
        "spec": {"minMember": 2, "queue": "default", "priorityClassName": "urgent"},
    }
    machine.plane.apply(json.dumps(group))
    members = [urgent(whole(f"gang-{number}")) for number in range(2)]
    for member in members:
        member["metadata"]["annotations"] = {names.POD_GROUP_NAME: "gang"}
    seen = full(machine, *members)
    assert set.union(*seen) == set(machine.devices)
    only(machine, gang_0="Running", gang_1="Running")


def test_a_pod_whose_budget_is_spent_runs_on(machine: Machine) -> None:
    kept = whole("kept")
    kept["metadata"]["labels"] = {"app": "kept"}
    full(machine, kept, whole("goes"))
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "kept", "namespace": NAMESPACE},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}},
    }
    machine.plane.apply(json.dumps(budget))
    machine.create(urgent(whole("high")))
    only(machine, kept="Running", high="Running")
