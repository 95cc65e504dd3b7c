"""HAMi-core's library in real containers, by the agent's CDI file; a library that does nothing stands in for it.

What the real one does with its limits needs a real GPU. Here a program writes into the pod's file what it would write.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.node.conftest import started_with
from tests.node.pods import IMAGE, NAMESPACE, Machine, Pod, eventually, pod
from tests.node.test_node_agent import socket_of
from tools.cluster.deployment import BINDER, SCHEDULER, Deployment
from tools.cluster.nodeagent import NodeAgent
from tools.goprogram import cache_root
from tools.node.gpus import MACHINE
from tools.node.nvidia_runtime import CDI_FOLDER
from tools.nvml_stub import build as nvml_stub
from wire import names

pytestmark = [pytest.mark.node, pytest.mark.usefixtures("nothing_is_left")]

_WORDS = "memory-cap=hami-core,compute-cap=hami-core"
_LIBRARY = "/usr/local/vgpu/libvgpu.so"
#: Tells what the container has, writes what the library would have written, and stays.
_PROGRAM = """
import os, signal, struct
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
env, mib = os.environ, 2**20
cache = env.get("CUDA_DEVICE_MEMORY_SHARED_CACHE", "")
found = {
    "env": {name: value for name, value in env.items() if name.startswith(("CUDA_", "GPU_CORE"))},
    "uid": os.getuid(),
    "preload": os.path.exists("/etc/ld.so.preload") and open("/etc/ld.so.preload").read(),
    "is_loaded": "/usr/local/vgpu/libvgpu.so" in open("/proc/self/maps").read(),
    "locks": os.path.isdir("/tmp/vgpulock") and os.access("/tmp/vgpulock", os.W_OK),
}
for path in ("/etc/ld.so.preload", "/usr/local/vgpu/libvgpu.so"):
    try:
        open(path, "ab")
        found["wrote"] = path
    except OSError:
        pass
if cache:
    limit, percent = int(env["CUDA_DEVICE_MEMORY_LIMIT_0"][:-1]) * mib, int(env["CUDA_DEVICE_SM_LIMIT_0"])
    with open(cache, "r+b") as file:
        file.write(struct.pack("<iIIiQ32xQ", 19920718, 1, 2, 0, 0, 1) + bytes(16 * 96))
        file.write(struct.pack("<32Q", *[limit] * 16, *[percent] * 16))
print(found, flush=True)
signal.sigwait([signal.SIGTERM])
"""


def limited(name: str, mib: int, percent: int, *, restart: str = "Always") -> Pod:
    """A pod of a user that is not root, which asks in HAMi's words, and would have other limits."""
    wanted = pod(name, schedulerName=names.SCHEDULER_NAME, securityContext={"runAsUser": 65534}, restartPolicy=restart)
    wanted["spec"]["containers"] = [
        {
            "name": "main",
            "image": IMAGE,
            "imagePullPolicy": "Never",
            "command": ["/usr/bin/python3", "-c", _PROGRAM],
            "env": [{"name": "CUDA_DEVICE_MEMORY_LIMIT_3", "value": "80000m"}],
            "resources": {"limits": {"nvidia.com/gpumem": str(mib), "nvidia.com/gpucores": str(percent)}},
        }
    ]
    return wanted


@pytest.fixture
def by_hami_core(machine: Machine, moorage: Deployment) -> Iterator[None]:
    """Binder and scheduler write caps into books and name devices by CDI; the node says that its agent limits."""
    words = json.dumps({"metadata": {"annotations": {names.NODE_ENFORCES: _WORDS}}})
    machine.plane.kubectl("patch", "node", machine.node.name, "-p", words)
    yield from started_with(machine, moorage, [BINDER, SCHEDULER], "--cdi-enabled", "--memory-caps=wished")
    none = json.dumps({"metadata": {"annotations": {names.NODE_ENFORCES: None}}})
    machine.plane.kubectl("patch", "node", machine.node.name, "-p", none)


def agent(machine: Machine, library: Path) -> NodeAgent:
    """An agent whose folders are those of the node's runtime."""
    folder = machine.node.folder
    further = {"hami-core": library, "limits": folder / "limits", "limits-cdi": folder / CDI_FOLDER}
    return NodeAgent(
        machine.plane, machine.node.name, socket=socket_of(machine), machine=folder / MACHINE, further=further
    )


@pytest.mark.usefixtures("by_hami_core")
def test_a_container_starts_with_the_library_and_its_limits_and_not_without(
    machine: Machine, subtests: pytest.Subtests
) -> None:
    library = machine.node.folder / "libvgpu.so"
    shutil.copy(nvml_stub.build(cache_root(os.environ)) / "libnvidia-ml.so.1", library)
    library.chmod(0o644)
    with subtests.test("while there is no agent no program runs: kubelet tries again, where it may start another one"):
        machine.create(limited("one", 3000, 30), limited("never", 1000, 10, restart="Never"))
        machine.reached("never", "Failed")
        assert _told_nothing(machine, "never")
        assert "moorage.dev/limits=" in _refused(machine, "never")
        eventually(lambda: "moorage.dev/limits=" in _refused(machine, "one") or None, lambda: "the runtime to refuse")
        assert _told_nothing(machine, "one")
    with agent(machine, library):
        with subtests.test("with it the container starts, and has what HAMi-core needs"):
            machine.reached("one", "Running")
            found = _told(machine, "one")
            assert found["uid"] == 65534
            assert (found["preload"], found["is_loaded"], found["locks"]) == (f"{_LIBRARY}\n", True, True)
            assert "wrote" not in found
            env = found["env"]
            assert {env[f"CUDA_DEVICE_MEMORY_LIMIT{number}"] for number in ("", "_0", "_3", "_15")} == {"3000m"}
            assert (env["CUDA_DEVICE_SM_LIMIT"], env["CUDA_OVERSUBSCRIBE"]) == ("30", "false")
        with subtests.test("what its file says is told: in the GpuNode, and by the pod's condition"):
            assert eventually(lambda: _enforced(machine, "one") or None, lambda: "the report") == "hami-core"
            assert _condition(machine, "one", "True") == "EnforcedByHamiCore"
        with subtests.test("a pod without limits has nothing of it"):
            plain = limited("plain", 3000, 30)
            plain["spec"]["containers"][0]["resources"] = {}
            plain["metadata"]["annotations"] = {names.GPU_FRACTION: "0.1"}
            machine.create(plain)
            found = _told(machine, "plain")
            assert (found["preload"], found["is_loaded"]) == (False, False)
    machine.remove("plain", "never")
    library.unlink()


def _told(machine: Machine, name: str) -> dict[str, Any]:
    uid = machine.get(name)["metadata"]["uid"]
    text = eventually(
        lambda: machine.node.output(NAMESPACE, name, "main", uid=uid).strip() or None,
        lambda: f"{name} to tell what it has: {machine.get(name)['status']}",
    )
    found: dict[str, Any] = ast.literal_eval(text)
    return found


def _told_nothing(machine: Machine, name: str) -> bool:
    """Whether no process of the pod has ever run."""
    return not machine.node.output(NAMESPACE, name, "main", uid=machine.get(name)["metadata"]["uid"])


def _refused(machine: Machine, name: str) -> str:
    """What the runtime said when it refused the container."""
    listed = machine.get(name)["status"].get("containerStatuses", ())
    states = [state for each in listed for state in (each["state"], each.get("lastState", {}))]
    return " ".join(one.get("message", "") for state in states for one in state.values())


def _enforced(machine: Machine, name: str) -> str:
    path = f"/apis/{names.MOORAGE_GROUP}/v1alpha1/gpunodes/{machine.node.name}"
    tenants = machine.plane.rest().call("GET", path)["status"].get("tenants", ())
    return next((one.get("enforced", "") for one in tenants if one["pod"] == f"{NAMESPACE}/{name}"), "")


def _condition(machine: Machine, name: str, status: str) -> str:
    def said() -> str | None:
        listed = machine.get(name)["status"].get("conditions", ())
        found = (one for one in listed if one["type"] == names.CONDITION_LIMITS_ENFORCED and one["status"] == status)
        return next((str(one["reason"]) for one in found), None)

    return eventually(said, lambda: f"{name} to say that its caps are in place: {machine.get(name)['status']}")
