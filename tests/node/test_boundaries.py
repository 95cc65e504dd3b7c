"""Moorage on a real node, where it is narrow: no slot left for a pod, one name twice, an init container, ConfigMaps."""

from __future__ import annotations

import pytest

from tests.node.histories.scenarios import MOST_PODS
from tests.node.histories.stage import on_node, placed, program
from tests.node.pods import NAMESPACE, Machine, Pod, eventually, share
from tools.cluster.deployment import ADMISSION, Deployment
from tools.rest import RestError
from wire import names

#: Answer of the API server when an object of the name is there.
_TAKEN = 409
pytestmark = [pytest.mark.node, pytest.mark.usefixtures("nothing_is_left")]


def says_why_it_waits(machine: Machine, name: str) -> str:
    """Wait until a pod is said to be unschedulable, and return the reason."""

    def why() -> str | None:
        conditions = machine.get(name)["status"].get("conditions", ())
        return next((one["message"] for one in conditions if one["type"] == "PodScheduled" and "message" in one), None)

    return eventually(why, lambda: f"{name} to say why it waits: {machine.get(name)['status']}")


def test_a_first_share_needs_two_slots_of_a_node_and_a_further_one_needs_one(machine: Machine) -> None:
    taken = [on_node(machine.node.name, f"taken-{number}") for number in range(MOST_PODS - 1)]
    machine.create(*taken)
    for one in taken:
        machine.reached(one["metadata"]["name"], "Running")
    machine.create(placed("first", fraction="0.3"))
    assert "pod" in says_why_it_waits(machine, "first").lower()
    assert machine.reservations() == []
    machine.remove("taken-0")
    seen = machine.sees("first")
    machine.create(placed("second", fraction="0.3"))
    says_why_it_waits(machine, "second")
    machine.remove("taken-1")
    assert machine.sees("second") == seen


def test_a_pod_that_comes_again_under_its_name_gets_a_share_of_its_own(machine: Machine) -> None:
    machine.create(share("stays", "0.5"))
    seen = machine.sees("stays")
    uids = set()
    for _ in range(2):
        eventually(lambda: _created(machine, share("web-0", "0.5")), lambda: "the name to be free")
        assert machine.sees("web-0") == seen
        uids.add(machine.get("web-0")["metadata"]["uid"])
        machine.plane.rest().call("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/web-0")
    assert len(uids) == 2
    assert len(machine.reservations()) == 1


def _created(machine: Machine, wanted: Pod) -> bool | None:
    try:
        machine.create(wanted)
    except RestError as error:
        if error.code != _TAKEN:
            raise
        return None
    return True


def test_a_share_of_an_init_container_is_its_own(machine: Machine) -> None:
    wanted = placed("init", fraction="0.5")
    wanted["spec"]["initContainers"] = [{**wanted["spec"]["containers"][0], "name": "before"}]
    wanted["metadata"]["annotations"] |= {
        names.GPU_FRACTION_CONTAINER_NAME: "before",
        names.GPU_FRACTION_CONTAINER_TYPE: names.CONTAINER_TYPE_INIT,
    }
    machine.create(program(wanted, run_s=1))
    machine.reached("init", "Succeeded")
    (seen,) = machine.node.output(NAMESPACE, "init", "before").split()[1:]
    assert seen in machine.devices
    assert machine.node.output(NAMESPACE, "init", "main").split() == ["sees"]


def test_a_share_is_told_its_device_by_config_maps_as_well(machine: Machine, moorage: Deployment) -> None:
    moorage.kill(ADMISSION)
    moorage.start(ADMISSION, "--hand-over", "configMaps")
    moorage.wait_for_webhooks()
    try:
        machine.create(share("told", "0.5"))
        seen = machine.sees("told")
        (reservation,) = machine.reservations()
        assert {reservation["metadata"]["annotations"][names.RESERVE_FOR_GPU_INDEX]} == seen
        maps = machine.plane.rest().call("GET", f"/api/v1/namespaces/{NAMESPACE}/configmaps")["items"]
        told = [
            one.get("data", {}).get(names.ENV_VISIBLE_DEVICES)
            for one in maps
            if "-shared-gpu-" in one["metadata"]["name"]
        ]
        assert set(filter(None, told)) == seen
    finally:
        moorage.kill(ADMISSION)
        moorage.start(ADMISSION)
        moorage.wait_for_webhooks()
