"""Over-use on a real kubelet: books with caps, real control groups, and the memory enforcer that ends a container.

The driver is the stub, which says how much memory the processes hold.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpu import reservation
from nodeagent.core.enforcement.caps import Tenancy, caps, tenancies
from nodeagent.core.enforcement.messages import Done
from nodeagent.core.enforcement.overuse import MIB
from nodeagent.processes import seat
from tests.node.conftest import started_with
from tests.node.pods import Machine, eventually, memory, share
from tests.nodeagent.enforcement.memory_enforcer.conftest import ROOT, Run, environ_of
from tests.nodeagent.enforcement.memory_enforcer.conftest import Machine as Stubbed
from tools.cluster.deployment import BINDER, SCHEDULER, Deployment
from tools.cluster.nodeagent import NodeAgent
from tools.node.gpus import MACHINE
from tools.nvml_stub.build import build
from wire import names
from wire.core import Pod

pytestmark = pytest.mark.node


@pytest.fixture
def with_caps(machine: Machine, moorage: Deployment) -> Iterator[None]:
    """Books have the caps of all shares."""
    yield from started_with(machine, moorage, [BINDER, SCHEDULER], "--memory-caps", "all")


@pytest.fixture
def stubbed(machine: Machine, tmp_path: Path) -> Stubbed:
    made = Stubbed(tmp_path / "machine", {gpu.uuid: gpu.mem_mib for gpu in machine.node.gpus})
    made.write()
    return made


@pytest.fixture
def alone(stubbed: Stubbed, tmp_path: Path) -> Iterator[Path]:
    """A memory enforcer that ends processes, and nobody on its socket yet."""
    path = tmp_path / "run" / "memory-enforcer.sock"
    command = [
        sys.executable,
        "-m",
        "nodeagent.enforcement.memory_enforcer.main",
        f"--socket={path}",
        "--dry-run=false",
    ]
    environ = environ_of(build(tmp_path / "stub"), stubbed)
    process = subprocess.Popen(command, cwd=ROOT, env=environ, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert "begun" in process.stderr.readline()
    yield path
    process.terminate()
    process.communicate(timeout=30)
    assert process.returncode == 0


@pytest.fixture
def agent(machine: Machine, alone: Path) -> Iterator[NodeAgent]:
    """The agent of the node, beside that memory enforcer."""
    made = NodeAgent(
        machine.plane,
        machine.node.name,
        socket=machine.node.folder / "kubelet" / "pod-resources" / "kubelet.sock",
        machine=machine.node.folder / MACHINE,
        further={"memory-enforcer-socket": alone},
    )
    with made as running:
        yield running
        running.check()


@pytest.fixture
def run(stubbed: Stubbed, tmp_path: Path) -> Iterator[Run]:
    made = Run(tmp_path / "run" / "memory-enforcer.sock", environ_of(build(tmp_path / "stub"), stubbed))
    yield made
    made.end()


def held(machine: Machine) -> dict[str, Tenancy]:
    """Who holds what, as an agent reads it: by the pod's name."""
    found = [reservation.read(msgspec.convert(one, Pod)) for one in machine.reservations()]
    memory_mib = {gpu.uuid: gpu.mem_mib for gpu in machine.node.gpus}
    return {one.pod.partition("/")[2]: one for one in tenancies(found, memory_mib)}


def process_of(uid: str) -> int:
    """The first process of a pod that is no pause container: kubelet's and the runtime's own groups say whose it is."""
    for folder in sorted(Path("/proc").glob("[0-9]*"), key=lambda one: int(one.name)):
        try:
            found, name = seat((folder / "cgroup").read_text()), (folder / "comm").read_text().strip()
        except OSError:
            continue
        if found is not None and found.pod_uid == uid and name != "pause":
            assert found.container
            return int(folder.name)
    raise AssertionError(f"no process of pod {uid} in {len(os.listdir('/proc'))} entries")  # noqa: PTH208 - a count


@pytest.mark.usefixtures("with_caps")
def test_a_container_above_its_cap_is_ended_and_its_neighbour_is_not(
    machine: Machine, run: Run, stubbed: Stubbed
) -> None:
    machine.create(share("greedy", "0.25"))
    machine.reached("greedy", "Running")
    # The second share of a known device is entered by the scheduler.
    machine.create(memory("modest"))
    machine.reached("modest", "Running")
    for name in ("greedy", "modest"):
        machine.sees(name)
    tenants = held(machine)
    mib = machine.node.gpus[0].mem_mib
    assert {name: one.cap_mib for name, one in tenants.items()} == {"greedy": mib // 4, "modest": 2000}
    for name, use in (("greedy", mib // 2), ("modest", 2000)):
        stubbed.hold(process_of(tenants[name].pod_uid), tenants[name].device, use, 50)
    run.start("--dry-run", "false")
    run.cap(caps(tenants.values()))
    done: list[Done] = []
    while not done:
        done += run.report().done
    (one,) = done
    assert (one.kill.pod_uid, one.kill.used_bytes, one.outcomes) == (
        tenants["greedy"].pod_uid,
        mib // 2 * MIB,
        ("ended",),
    )
    ended = eventually(
        lambda: machine.get("greedy")["status"]["containerStatuses"][0]["state"].get("terminated"),
        lambda: f"the container to end: {machine.get('greedy')['status']}",
    )
    assert ended["exitCode"] == 137
    assert machine.get("modest")["status"]["phase"] == "Running"
    assert run.stop() == 0


def enforced_on(machine: Machine) -> dict[str, dict[str, Any]]:
    """Tenants whose cap is enforced, as the GpuNode says, by the pod's name."""
    path = f"/apis/moorage.dev/v1alpha1/gpunodes/{machine.node.name}"
    code, body = machine.plane.rest().send("GET", path)
    status = msgspec.json.decode(body).get("status", {}) if code == 200 else {}
    return {one["pod"].partition("/")[2]: one for one in status.get("tenants") or () if one.get("enforced")}


@pytest.mark.usefixtures("with_caps")
def test_agent_and_enforcer_end_what_passes_its_cap_and_say_so(
    machine: Machine, agent: NodeAgent, stubbed: Stubbed
) -> None:
    machine.create(share("large", "0.25"))
    machine.reached("large", "Running")
    machine.create(memory("small"))
    machine.reached("small", "Running")
    for name in ("large", "small"):
        machine.sees(name)
    found = held(machine)
    for name, mib in (("large", 4000), ("small", 2000)):
        stubbed.hold(process_of(found[name].pod_uid), found[name].device, mib, 50)
    enforced = eventually(
        lambda: there if len(there := enforced_on(machine)) == len(found) else None,
        lambda: f"both tenants in the GpuNode: {enforced_on(machine)} {agent.log()}",
    )
    assert {name: (one["podUID"], one["card"], one["enforced"]) for name, one in enforced.items()} == {
        name: (one.pod_uid, one.device, "kill") for name, one in found.items()
    }
    mib, victim = machine.node.gpus[0].mem_mib, process_of(found["large"].pod_uid)
    stubbed.forget(victim)
    stubbed.hold(victim, found["large"].device, mib // 2, 50)
    ended = eventually(
        lambda: machine.get("large")["status"]["containerStatuses"][0]["state"].get("terminated"),
        lambda: f"the container to end: {machine.get('large')['status']} {agent.log()}",
    )
    assert ended["exitCode"] == 137
    note = machine.told(names.REASON_MEMORY_EXCEEDED, "large")
    assert f"{mib // 2} MiB of {found['large'].device} are in use, the cap is {mib // 4} MiB: process " in note
    assert note.endswith(" was killed")
    assert machine.get("small")["status"]["phase"] == "Running"
    uid = found["small"].pod_uid
    shown = eventually(
        lambda: next((line for line in agent.metrics().splitlines() if "memory_used" in line and uid in line), None),
        lambda: f"its metrics: {agent.metrics()}",
    )
    assert float(shown.rpartition(" ")[2]) == 2000 * MIB
