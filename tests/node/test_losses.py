"""What a node forgets, and what becomes of the shares on it (docs/design/healing.md)."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import pytest

from tests.node.histories.stage import on_node
from tests.node.pods import NAMESPACE, Machine, Pod, eventually, share
from tools.cluster.deployment import BINDER, Deployment
from tools.controlplane import KUBELET
from tools.node.gpus import made_up
from tools.node.node import PLUGIN
from wire import names

MOVED = "evicted: GPU {} was lost by the pod's reservation and given to another pod"
pytestmark = [pytest.mark.node, pytest.mark.usefixtures("nothing_is_left")]


def stays(wanted: Pod) -> Pod:
    """The same pod, started again after a reboot."""
    return {**wanted, "spec": {**wanted["spec"], "restartPolicy": "Always"}}


def given(machine: Machine) -> dict[str, Fraction]:
    """How much of each device is asked by pods that were let on it, and have not ended."""
    sums: dict[str, Fraction] = {}
    for one in machine.pods(NAMESPACE):
        annotations = one["metadata"].get("annotations", {})
        devices = annotations.get(f"{names.VISIBLE_DEVICES_PREFIX}c0", "").split(",")
        asked = annotations.get(names.GPU_FRACTION)
        if asked and devices != [""] and one["status"]["phase"] not in names.ENDED_PHASES:
            for device in devices:
                sums[device] = sums.get(device, Fraction(0)) + Fraction(asked)
    return sums


def known_to_kubelet(reservations: Iterable[Pod]) -> set[str]:
    """The devices that kubelet knows it gave to these."""
    statuses = [status for one in reservations for status in one["status"].get("containerStatuses", ())]
    told = [each for status in statuses for each in status.get("allocatedResourcesStatus", ())]
    return {device["resourceID"] for each in told for device in each["resources"]}


def left(machine: Machine) -> set[str]:
    """Names of the pods that are there."""
    return {one["metadata"]["name"] for one in machine.pods(NAMESPACE)}


def has_left(machine: Machine, name: str) -> str:
    """Wait until a tenant was evicted, and return what it was told."""
    eventually(lambda: name not in left(machine) or None, lambda: f"{name} to go: {machine.reservations()}")
    return machine.told("GPUMoved", name)


def test_a_device_that_kubelet_forgot_with_its_checkpoint_is_held_again_and_its_tenants_go_on(machine: Machine) -> None:
    machine.create(share("left", "0.5"), share("right", "0.5"))
    seen = machine.sees("left")
    assert machine.sees("right") == seen
    (before,) = machine.reservations()
    machine.node.kill(KUBELET)
    machine.node.lose_devices()
    machine.node.start_again(KUBELET)
    machine.node.wait_until_ready()

    def lost() -> list[Pod]:
        return [one for one in machine.reservations() if one["metadata"]["uid"] == before["metadata"]["uid"]]

    # The next one may be there before this one is seen to have no device, or it is deleted before that.
    eventually(lambda: not known_to_kubelet(lost()) or None, lambda: f"kubelet to have forgotten it: {lost()}")
    # What it gives now may be the other device; then a second reservation pod guards this one.
    eventually(
        lambda: seen <= known_to_kubelet(machine.reservations()) or None,
        lambda: f"a reservation to hold {seen}: {machine.reservations()}",
    )
    eventually(lambda: not lost() or None, lambda: f"the reservation that holds nothing to go: {lost()}")
    for name in ("left", "right"):
        assert machine.get(name)["status"]["containerStatuses"][0]["restartCount"] == 0


@pytest.mark.usefixtures("quick")
def test_tenants_of_a_device_that_has_another_uuid_after_a_reboot_are_moved(machine: Machine) -> None:
    machine.create(stays(share("renewed", "0.5")))
    (device,) = machine.sees("renewed")
    machine.node.set_gpus(made_up(f"{machine.node.name}-renewed", len(machine.devices)))
    machine.node.reboot()
    assert has_left(machine, "renewed") == MOVED.format(device)
    machine.create(share("next", "0.5"))
    assert machine.sees("next") < set(machine.devices)


def test_while_a_reservation_is_refused_nobody_is_let_on_its_device_beyond_what_that_has(machine: Machine) -> None:
    """The device plug-in comes late on a reboot: kubelet refuses the reservation, and tells that seconds later."""
    machine.create(stays(share("left", "0.5")), stays(share("right", "0.4")))
    seen = machine.sees("left")
    assert machine.sees("right") == seen
    (before,) = machine.reservations()
    machine.node.reboot(plugin=False)
    machine.create(stays(share("little", "0.1")), share("much", "0.3"))

    def is_refused() -> bool | None:
        assert max(given(machine).values()) <= 1, given(machine)
        there = {one["metadata"]["uid"]: one["status"]["phase"] for one in machine.reservations()}
        return there.get(before["metadata"]["uid"], names.FAILED) == names.FAILED or None

    def is_held_again() -> bool | None:
        assert max(given(machine).values()) <= 1, given(machine)
        return seen <= known_to_kubelet(machine.reservations()) or None

    eventually(is_refused, lambda: f"the reservation to be refused: {machine.reservations()}")
    machine.node.start_again(PLUGIN)
    eventually(is_held_again, lambda: f"a reservation to hold {seen}: {machine.reservations()}")
    for name in ("left", "right"):
        machine.restarted(name)
        assert machine.sees(name) == seen


def test_tenants_leave_a_device_that_went_to_others_while_their_reservation_was_refused(
    machine: Machine, moorage: Deployment
) -> None:
    machine.create(stays(share("overtaken", "0.5")))
    (device,) = machine.sees("overtaken")
    moorage.stop(BINDER)
    machine.node.reboot(plugin=False)
    eventually(
        lambda: all(one["status"]["phase"] == names.FAILED for one in machine.reservations()) or None,
        lambda: f"the reservation to be refused: {machine.reservations()}",
    )
    machine.node.start_again(PLUGIN)
    machine.node.wait_until_ready()
    machine.create(*(on_node(machine.node.name, f"taker-{number}", gpus=1) for number in range(2)))
    assert machine.sees("taker-0") | machine.sees("taker-1") == set(machine.devices)
    moorage.start(BINDER, "--contended-s", "3")
    try:
        assert has_left(machine, "overtaken") == MOVED.format(device)
    finally:
        machine.clear()
        moorage.stop(BINDER)
        moorage.start(BINDER)
