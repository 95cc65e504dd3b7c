"""MIG slices are made and destroyed beside a real kubelet: NVML is the stub, everything else is as in a cluster.

What is measured is printed: ``pytest -s``.
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.node.pods import NAMESPACE, Machine, Pod, eventually, pod
from tests.node.test_device_plugin import has
from tools.cluster.deployment import Deployment
from tools.cluster.nodeagent import NodeAgent
from tools.node.gpus import MACHINE
from tools.node.node import PLUGIN
from wire import names

pytestmark = pytest.mark.node
ONE, TWO, SEVEN = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-2g.20gb", "nvidia.com/mig-7g.80gb"
CARD = (
    "gpu GPU-a NVIDIA_H100_80GB_HBM3 81559 5\n"
    "profile GPU-a 0 1g.10gb 9856 1 7 0,1,2,3,4,5,6\n"
    "profile GPU-a 1 2g.20gb 19968 2 3 0,2,4\n"
    "profile GPU-a 4 7g.80gb 80896 8 1 0\n"
    "gi GPU-a 3 0 0\n"
    "ci GPU-a 3 0 MIG-x\n"
)
#: Seconds after an attempt was asked for: before it is taken up, before and between the two looks, and after the cut.
MOMENTS_S = (0.0, 1.5, 3.0)


class GpuPartitioning:
    """The node's only GPU, and its agent."""

    def __init__(self, machine: Machine, agent: NodeAgent, state: Path) -> None:
        self.machine = machine
        self._state = state
        self.agent = agent
        self._path = f"/apis/moorage.dev/v1alpha1/gpunodes/{machine.node.name}"

    def ask(self, *layout: tuple[str, int]) -> str:
        """Ask for a layout; return the attempt."""
        attempt = uuid.uuid4().hex
        places = [{"profile": profile, "start": start} for profile, start in layout]
        wanted = {"mig": [{"uuid": "GPU-a", "attempt": attempt, "layout": places}]}
        self.machine.plane.rest().call("PATCH", self._path, {"spec": wanted})
        return attempt

    def outcome(self, attempt: str) -> tuple[str, str]:
        """Wait for the end of an attempt; return its state, and why."""

        def ended() -> tuple[str, str] | None:
            (card,) = self.machine.plane.rest().call("GET", self._path)["status"]["cards"]
            found = card.get("partitioning", {})
            is_ended = found.get("attempt") == attempt and found["state"] != "underway"
            return (found["state"], found.get("why", "")) if is_ended else None

        return eventually(ended, self.agent.log)

    def reboot(self) -> None:
        """Take what a reboot takes: the GPU's slices, and what the agent keeps in /run."""
        self.agent.kill()
        shutil.rmtree(self._state)
        stub = self.machine.node.folder / MACHINE
        kept = [line for line in stub.read_text().splitlines() if line.split()[0] not in {"gi", "ci"}]
        stub.write_text("\n".join(kept) + "\n")
        assert self.slices() == set()
        self.agent.start()

    def slices(self) -> set[str]:
        """UUIDs of the slices that the driver has."""
        lines = (self.machine.node.folder / MACHINE).read_text().splitlines()
        return {line.split()[-1] for line in lines if line.startswith("ci ")}


@pytest.fixture
def partitioned(machine: Machine, moorage: Deployment) -> Iterator[GpuPartitioning]:
    """The agent with slices on demand, in the place of the emulated device plug-in; afterwards that one again."""
    del moorage  # has made the namespaces, rights and kinds
    node, rest = machine.node, machine.plane.rest()
    own, kubelet = node.folder / "agent-mig", node.folder / "kubelet"
    files = own / "files"
    files.mkdir(parents=True, exist_ok=True)
    (files / "default").write_text("flags: {migStrategy: mixed}\nmoorage: {labels: false}\n")
    state = own / uuid.uuid4().hex
    further: dict[str, str | Path] = {
        "device-plugin": "own",
        "device-plugin-files": files,
        "device-plugin-sockets": kubelet / "device-plugins",
        "device-plugin-state": state,
        "device-plugin-cdi": own / "cdi",
        "mig-on-demand": "true",
    }
    node.kill(PLUGIN)
    (node.folder / MACHINE).write_text(CARD)
    rest.call("PATCH", f"/api/v1/nodes/{node.name}", {"metadata": {"labels": {names.NODE_MIG: names.MIG_DYNAMIC}}})
    socket = kubelet / "pod-resources" / "kubelet.sock"
    with NodeAgent(machine.plane, node.name, socket=socket, machine=node.folder / MACHINE, further=further) as made:
        has(machine, 1, ONE)
        yield GpuPartitioning(machine, made, state)
        made.check()
    machine.remove(*(one["metadata"]["name"] for one in machine.pods(NAMESPACE)))
    node.set_gpus(node.gpus)
    rest.call("PATCH", f"/api/v1/nodes/{node.name}", {"metadata": {"labels": {names.NODE_MIG: None}}})
    node.start_again(PLUGIN)
    node.wait_until_ready()


def holding(machine: Machine, name: str, resource: str) -> Pod:
    """A pod that kubelet gives a slice, whatever a scheduler would say; it needs no GPU to run."""
    made = pod(name, nodeName=machine.node.name)
    del made["spec"]["runtimeClassName"]
    made["spec"]["containers"][0]["resources"] = {"limits": {resource: "1"}}
    made["spec"]["containers"][0]["command"] = ["/usr/bin/python3", "-c", "import time; time.sleep(3600)"]
    return made


def taken_as(machine: Machine, name: str) -> str:
    """Wait until kubelet has taken or refused a pod: Running or Failed."""

    def phase() -> str | None:
        found: str = machine.get(name)["status"].get("phase", "Pending")
        return found if found != "Pending" else None

    return eventually(phase, lambda: str(machine.get(name)["status"]))


def test_slices_change_beside_a_pod_that_keeps_its_own(partitioned: GpuPartitioning) -> None:
    machine = partitioned.machine
    machine.create(holding(machine, "holds", ONE))
    machine.reached("holds", "Running")
    assert partitioned.outcome(partitioned.ask(("2g.20gb", 0))) == ("refused", "kubelet gave 1g.10gb at 0 to a pod")
    began = time.monotonic()
    assert partitioned.outcome(partitioned.ask(("1g.10gb", 0), ("2g.20gb", 2))) == ("done", "")
    has(machine, 1, TWO)
    print(f"a slice beside another one, from asking to the Node's allocatable: {time.monotonic() - began:.1f} s")
    (status,) = machine.get("holds")["status"]["containerStatuses"]
    assert "running" in status["state"]
    machine.remove("holds")
    began = time.monotonic()
    assert partitioned.outcome(partitioned.ask(("7g.80gb", 0))) == ("done", "")
    has(machine, 1, SEVEN)
    print(f"one in the place of two, from asking to the Node's allocatable: {time.monotonic() - began:.1f} s")
    has(machine, 0, TWO)


def test_after_a_reboot_the_node_offers_the_same_slices_without_another_attempt(partitioned: GpuPartitioning) -> None:
    machine = partitioned.machine
    assert partitioned.outcome(partitioned.ask(("2g.20gb", 0), ("1g.10gb", 2))) == ("done", "")
    has(machine, 1, TWO)
    partitioned.reboot()
    eventually(lambda: len(partitioned.slices()) == 2 or None, partitioned.agent.log)
    has(machine, 1, ONE)
    has(machine, 1, TWO)


def test_a_pod_that_comes_at_any_moment_has_its_slice_or_is_refused(partitioned: GpuPartitioning) -> None:
    machine, taken = partitioned.machine, list[tuple[float, str, str]]()
    layouts: tuple[Any, Any] = ((("2g.20gb", 0),), (("1g.10gb", 0),))
    for number, after_s in enumerate(MOMENTS_S):
        name = f"comes-{number}"
        has(machine, 1, ONE)
        attempt = partitioned.ask(*layouts[0])
        time.sleep(after_s)
        machine.create(holding(machine, name, ONE))
        how = taken_as(machine, name)
        state, _ = partitioned.outcome(attempt)
        taken.append((after_s, how, state))
        assert (how, state) in {("Running", "refused"), ("Failed", "done"), ("Failed", "refused")}, taken
        assert len(partitioned.slices()) == 1
        machine.remove(name)
        assert partitioned.outcome(partitioned.ask(*layouts[1])) == ("done", "")
    print("seconds after asking, pod, attempt:", taken)
