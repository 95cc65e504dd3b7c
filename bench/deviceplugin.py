"""``python -m bench.deviceplugin``: what agent and warden cost a node of 8 GPUs and 64 tenants, and an allocation.

The agent is the real process, as device plug-in and with a warden, on a real API server. kubelet is played: its two
sockets are real. NVML is the stub, which reads its file while it waits. So the bars are for what is ours: the
first thread of the agent, since all calls of NVML are made in another one, and the warden's looks by a driver that
answers at once. Tenants are 64 processes in control groups as kubelet makes them: it needs root, and groups that can be
made.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
import grpc
import yaml

from admission.policies import policy_manifests
from bench.bytecode import bytecode
from bench.procfs import cpu_s, main_thread_cpu_s, memory_mib
from bench.result import quantile
from gpu.book import Book, Entry, render
from nodeagent.core.enforcement.messages import Report, write_report
from nodeagent.core.enforcement.overuse import History, Rules, judge
from nodeagent.enforcement.memory_enforcer.sampling import Sampler
from nodeagent.kubeletapi.deviceplugin import PLUGIN_SERVICE, AllocateRequest, AllocateResponse
from nodeagent.kubeletapi.podresources import Devices, PodDevices
from nodeagent.processes import Processes
from tests.nodeagent.enforcement.memory_enforcer.test_cost import Driver
from tests.nodeagent.groups import Groups, hierarchy
from tests.nodeagent.kubeletapi.kubelets import Registry, kubelet
from tests.nodeagent.kubeletapi.played import PlayedKubelet, listening
from tools import manifests
from tools.cluster.nodeagent import NodeAgent
from tools.cluster.plane import ControlPlane
from tools.goprogram import cache_root
from tools.node.gpus import MACHINE, Gpu, made_up, write_machine
from tools.nvml_stub import build as nvml_stub
from wire import names

NODE: Final = "bench-node"
GPUS, TENANTS_A_GPU = 8, 8
_CAP_MIB, _USED_MIB = 9000, 500
_RESERVATIONS: Final = f"/api/v1/namespaces/{names.RESERVATION_NAMESPACE}/pods"
_PATIENCE_S: Final = 120.0
_LOOKS: Final = 100
#: Bars: see docs/device-plugin.md.
_P99_MS, _PERCENT, _AGENT_MIB, _WARDEN_MIB = 5.0, 0.5, 60.0, 25.0


def main(arguments: list[str]) -> int:
    """Measure, and print one JSON object. Exit code 1: a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.deviceplugin", description=__doc__)
    parser.add_argument("--rest-s", type=float, default=60.0, help="how long agent and warden are watched at rest")
    parser.add_argument("--calls", type=int, default=5000, help="allocations, one after the other")
    wanted = parser.parse_args(arguments)
    mounted = hierarchy()
    if mounted is None:
        parser.error("control groups can't be made on this machine")
    groups = Groups(mounted / f"moorage-bench-{uuid.uuid4().hex[:8]}")
    try:
        with (
            bytecode(),
            ControlPlane(node_lifecycle=False) as plane,
            tempfile.TemporaryDirectory(prefix="bench-") as folder,
        ):
            for text in manifests.foundation(teller="", leaders=()):
                plane.apply(text)
            plane.apply(yaml.safe_dump_all(policy_manifests()))
            bench = Bench(plane, Path(folder), groups)
            figures = anyio.run(bench.measure, wanted.rest_s, wanted.calls)
    finally:
        groups.end()
    missed = [name for name, (value, bar) in bench.bars.items() if value > bar]
    print(json.dumps({**figures, "load_1m": round(os.getloadavg()[0], 1), "bars missed": missed}, indent=1))
    return int(bool(missed))


class Bench:
    """One node: its GPUs, its tenants by GPU (pod UIDs and PIDs), and the folder with its sockets."""

    def __init__(self, plane: ControlPlane, folder: Path, groups: Groups) -> None:
        self._plane = plane
        self._folder = folder
        self._gpus = made_up(NODE, GPUS)
        self._pids = {
            gpu.uuid: {pod: groups.start(groups.container(pod)).pid for pod in _pods(gpu)} for gpu in self._gpus
        }
        #: Value and bar.
        self.bars: dict[str, tuple[float, float]] = {}

    async def measure(self, rest_s: float, calls: int) -> dict[str, Any]:
        """Start everything, wait until the agent shows all tenants, and measure."""
        self._write_machine()
        played, sockets = PlayedKubelet(), self._folder / "device-plugins"
        sockets.mkdir()
        self._plane.rest().call("POST", "/api/v1/nodes", {"metadata": {"name": NODE}})
        played.pods = [await anyio.to_thread.run_sync(self._reserve, gpu) for gpu in self._gpus]
        path = self._folder / "run" / "warden.sock"
        further: dict[str, str | Path] = {
            "warden-socket": path,
            "device-plugin": "own",
            "device-plugin-sockets": sockets,
            "device-plugin-state": self._folder / "state",
            "device-plugin-cdi": self._folder / "cdi",
        }
        agent = NodeAgent(
            self._plane,
            NODE,
            socket=self._folder / "kubelet.sock",
            machine=self._folder / MACHINE,
            further=further,
        )
        with _warden(path, self._folder / MACHINE) as warden:
            async with listening(played, self._folder / "kubelet.sock"), kubelet(sockets) as registry:
                await anyio.to_thread.run_sync(agent.__enter__)
                try:
                    return await self._measured(agent, warden, registry, rest_s=rest_s, calls=calls)
                finally:
                    agent.__exit__(None, None, None)

    async def _measured(
        self, agent: NodeAgent, warden: int, registry: Registry, *, rest_s: float, calls: int
    ) -> dict[str, Any]:
        endpoint = await registry.next()
        await _until(lambda: agent.metrics().count("\nmoorage_tenant_memory_cap_bytes{") == GPUS * TENANTS_A_GPU)
        await anyio.sleep(5)  # what follows a start: status, labels, the first looks
        before = (agent.cpu_s(), cpu_s(warden), time.monotonic(), main_thread_cpu_s(agent.pid))
        await anyio.sleep(rest_s)
        took_s = time.monotonic() - before[2]
        agent_percent = (agent.cpu_s() - before[0]) / took_s * 100
        agent_ours = (main_thread_cpu_s(agent.pid) - before[3]) / took_s * 100
        warden_percent = (cpu_s(warden) - before[1]) / took_s * 100
        ours = self._warden_ours()
        socket = self._folder / "device-plugins" / endpoint.request.endpoint
        allocate_cpu_s = agent.cpu_s()
        times_s = await anyio.to_thread.run_sync(_allocate, socket, self._gpus[0].uuid, calls)
        allocate_cpu_s = agent.cpu_s() - allocate_cpu_s
        figures = {
            "gpus": GPUS,
            "tenants": GPUS * TENANTS_A_GPU,
            "rest_s": round(took_s, 1),
            "agent_percent_of_a_core": round(agent_percent, 2),
            "agent_ours_percent_of_a_core": round(agent_ours, 2),
            "warden_percent_of_a_core": round(warden_percent, 2),
            "warden_ours_percent_of_a_core": round(ours, 2),
            "agent_resident_mib": round(agent.resident_kib() / 1024, 1),
            "warden_resident_mib": memory_mib(warden)["resident_mib"],
            "agent_ready_s": round(agent.ready_after_s, 2),
            "calls": calls,
            "allocate_cpu_ms": round(allocate_cpu_s / calls * 1e3, 3),
            **{f"allocate_p{part * 100:g}_ms": round(quantile(times_s, part) * 1e3, 2) for part in (0.5, 0.99, 1.0)},
        }
        self.bars = {
            "allocate_p99_ms": (quantile(times_s, 0.99) * 1e3, _P99_MS),
            "agent_ours_percent_of_a_core": (agent_ours, _PERCENT),
            "warden_ours_percent_of_a_core": (ours, _PERCENT),
            "agent_resident_mib": (agent.resident_kib() / 1024, _AGENT_MIB),
            "warden_resident_mib": (memory_mib(warden)["resident_mib"], _WARDEN_MIB),
        }
        return figures

    def _warden_ours(self) -> float:
        """Return what the warden's looks take without the driver: by one that answers at once, in this process."""
        pids = [list(of.values()) for of in self._pids.values()]
        stand_in = Driver({f"GPU-{at}": of for at, of in enumerate(pids)})
        sampler, history, rules = Sampler(stand_in, Processes()), History(), Rules(dry_run=False)
        caps = {(pod, f"GPU-{at}"): _CAP_MIB for at, of in enumerate(self._pids.values()) for pod in of}
        sampler.look(0)
        before_s = time.process_time()
        for number in range(_LOOKS):
            sample = sampler.look(number * 10**9)
            history = judge(sample, caps, history, rules).history
            write_report(Report(sample))
        return (time.process_time() - before_s) / _LOOKS * 100

    def _write_machine(self) -> None:
        write_machine(self._folder, self._gpus)
        with (self._folder / MACHINE).open("a") as file:
            for device, of in self._pids.items():
                file.writelines(f"proc {pid} {device} {_USED_MIB} 5\n" for pid in of.values())

    def _reserve(self, gpu: Gpu) -> PodDevices:
        """A reservation pod that has the GPU, with a book of its tenants: what kubelet says of it."""
        name = f"reservation-{gpu.minor}"
        container: dict[str, Any] = {"name": "c", "image": "i", "resources": {"limits": {names.GPU_RESOURCE: "1"}}}
        restricted = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True}
        container["securityContext"] = {**restricted, "seccompProfile": {"type": "RuntimeDefault"}}
        tenants = self._pids[gpu.uuid]
        share = 10**9 // TENANTS_A_GPU
        book = Book({pod: Entry(share, "a", "1", 0, f"team/{pod[:8]}", cap_mib=_CAP_MIB) for pod in tenants})
        body = {
            "metadata": {"name": name, "labels": {names.APP_LABEL: names.RESERVATION_APP}},
            "spec": {"nodeName": NODE, "containers": [container], "automountServiceAccountToken": False},
        }
        binder = self._plane.rest(self._plane.service_account_token(names.SYSTEM_NAMESPACE, "moorage-binder"))
        binder.call("POST", _RESERVATIONS, body)
        binder.call("PATCH", f"{_RESERVATIONS}/{name}", {"metadata": {"annotations": {names.TENANTS: render(book)}}})
        started = {"status": {"phase": "Pending", "startTime": "2026-01-01T00:00:00Z"}}
        self._plane.rest().call("PATCH", f"{_RESERVATIONS}/{name}/status", started)
        return PodDevices(names.RESERVATION_NAMESPACE, name, (Devices(names.GPU_RESOURCE, (gpu.uuid,)),))


def _pods(gpu: Gpu) -> list[str]:
    return [str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{number}.{gpu.uuid}")) for number in range(TENANTS_A_GPU)]


@contextmanager
def _warden(path: Path, machine: Path) -> Iterator[int]:
    """A warden by the stub; its PID."""
    library = nvml_stub.build(cache_root(os.environ))
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library), "FAKE_NVML_STATE": str(machine)}
    command = [sys.executable, "-m", "nodeagent.enforcement.memory_enforcer.main", "--socket", str(path)]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)  # noqa: S603 - our own words
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


async def _until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(_PATIENCE_S):
        # Nobody tells when a page of metrics changes.
        while not await anyio.to_thread.run_sync(holds):  # noqa: ASYNC110
            await anyio.sleep(0.2)


def _allocate(socket: Path, device: str, calls: int) -> list[float]:
    """Seconds of each call."""
    request = AllocateRequest(((device,),)).encode()
    options = [("grpc.default_authority", "localhost")]
    with grpc.insecure_channel(f"unix://{socket}", options) as channel:
        allocate = channel.unary_unary(f"/{PLUGIN_SERVICE}/Allocate")
        answer = AllocateResponse.decode(allocate(request, timeout=30))
        if answer.containers[0].environment != {"NVIDIA_VISIBLE_DEVICES": device}:
            raise ValueError(f"the plug-in gave {answer}")
        times_s = []
        for _ in range(calls):
            began_s = time.perf_counter()
            allocate(request, timeout=30)
            times_s.append(time.perf_counter() - began_s)
    return times_s


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
