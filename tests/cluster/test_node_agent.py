"""The agent of a node as a process, with its own rights on a real API server; kubelet is played."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.to_thread
import pytest
import yaml

from admission.policies import policy_manifests
from gpu.book import Book, Entry, render
from nodeagent.core.enforcement.messages import Done, Report, read_caps, write_report
from nodeagent.core.enforcement.overuse import Action, Device, Key, Kill, Process, Sample
from nodeagent.kubeletapi.client import Devices, PodDevices
from nodeagent.listener import Listener
from tests.nodeagent.kubeletapi.kubelets import kubelet
from tests.nodeagent.kubeletapi.played import PlayedKubelet, listening
from tests.pauses import pause_s
from tools import manifests
from tools.cluster.nodeagent import AgentPod, NodeAgent
from tools.cluster.plane import ControlPlane
from tools.node.gpus import MACHINE, made_up, write_machine
from tools.rest import Rest, RestError
from wire import names

pytestmark = pytest.mark.cluster

T = TypeVar("T")
PATIENCE_S = 60.0
PODS = f"/api/v1/namespaces/{names.RESERVATION_NAMESPACE}/pods"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
COUNT = "nvidia.com/gpu.count"
TWICE = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, rename: nvidia.com/twice, replicas: 2}]}}"
MIG_CARD = (
    "gpu GPU-a NVIDIA_H100_80GB_HBM3 81559 5\n"
    "profile GPU-a 0 1g.10gb 9856 1 7 0,1,2,3,4,5,6\n"
    "profile GPU-a 1 2g.20gb 19968 2 3 0,2,4\n"
    "gi GPU-a 3 0 0\n"
    "ci GPU-a 3 0 MIG-x\n"
)
GPU_NODES = "/apis/moorage.dev/v1alpha1/gpunodes"


@pytest.fixture(scope="module")
def control_plane() -> Iterator[ControlPlane]:
    """One of its own, with Moorage's rights and policies and without its components."""
    with ControlPlane(node_lifecycle=False) as plane:
        plane.apply("\n---\n".join(manifests.foundation(teller="", leaders=())))
        plane.apply(yaml.safe_dump_all(policy_manifests()))
        yield plane


@pytest.fixture(scope="module")
def rest(control_plane: ControlPlane) -> Rest:
    return control_plane.rest()


async def eventually(probe: Callable[[], T | None], what: str) -> T:
    began_at = time.monotonic()
    while (found := probe()) is None:
        waited_s = time.monotonic() - began_at
        assert waited_s < PATIENCE_S, f"waited {PATIENCE_S} s for {what}"
        await anyio.sleep(pause_s(waited_s))
    return found


def reserve(plane: ControlPlane, node: str) -> str:
    """A reservation pod of a node, made by the binder and not admitted yet; returns its name."""
    name = f"r-{uuid.uuid4().hex[:8]}"
    container: dict[str, Any] = {"name": "c", "image": "i", "resources": {"limits": {names.GPU_RESOURCE: "1"}}}
    restricted = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True}
    container["securityContext"] = {**restricted, "seccompProfile": {"type": "RuntimeDefault"}}
    body = {
        "metadata": {"name": name, "labels": {names.APP_LABEL: names.RESERVATION_APP}},
        "spec": {"nodeName": node, "containers": [container], "automountServiceAccountToken": False},
    }
    binder = plane.rest(plane.service_account_token(names.SYSTEM_NAMESPACE, "moorage-binder"))
    binder.call("POST", PODS, body)
    return name


def admit(rest: Rest, name: str) -> None:
    status = {"status": {"phase": "Pending", "startTime": "2026-01-01T00:00:00Z"}}
    rest.call("PATCH", f"{PODS}/{name}/status", status)


def told(rest: Rest, name: str) -> dict[str, str] | None:
    annotations: dict[str, str] = rest.call("GET", f"{PODS}/{name}")["metadata"].get("annotations", {})
    return annotations if names.DEVICE_REPORTER in annotations else None


def given(name: str, *ids: str) -> PodDevices:
    return PodDevices(names.RESERVATION_NAMESPACE, name, (Devices(names.GPU_RESOURCE, ids),))


async def test_an_agent_tells_devices_says_what_its_node_has_and_rests(
    control_plane: ControlPlane, rest: Rest, tmp_path: Path
) -> None:
    node = f"node-{uuid.uuid4().hex[:8]}"
    rest.call("POST", "/api/v1/nodes", {"metadata": {"name": node}})
    gpus = made_up(node, 2)
    write_machine(tmp_path, gpus)
    played = PlayedKubelet()
    socket = tmp_path / "kubelet.sock"
    async with listening(played, socket):
        agent = NodeAgent(control_plane, node, socket=socket, machine=tmp_path / MACHINE)
        await anyio.to_thread.run_sync(agent.__enter__)
        try:
            name = reserve(control_plane, node)
            played.pods = [given(name, gpus[1].uuid)]
            admit(rest, name)
            annotations = await eventually(lambda: told(rest, name), "the device to be told")
            assert annotations == {
                names.RESERVE_FOR_GPU_INDEX: gpus[1].uuid,
                names.DEVICE_INDEX: "1",
                names.DEVICE_MEMORY: "81559",
                names.DEVICE_REPORTER: names.REPORTER_KUBELET,
            }
            made: dict[str, Any] = await eventually(lambda: _status(rest, node), "the GpuNode")
            assert [card["uuid"] for card in made["cards"]] == [gpu.uuid for gpu in gpus]
            assert made["agent"]["pluginMode"] == "off"
            assert 'moorage_device_reports_total{outcome="told"} 1.0' in agent.metrics()
            agent.check()
            assert agent.stop() == 0
        finally:
            agent.__exit__(None, None, None)


async def test_beside_an_enforcer_it_sends_the_caps_of_books_and_tells_pods_what_was_done(
    control_plane: ControlPlane, rest: Rest, tmp_path: Path
) -> None:
    node, pod_uid = f"node-{uuid.uuid4().hex[:8]}", str(uuid.uuid4())
    rest.call("POST", "/api/v1/nodes", {"metadata": {"name": node}})
    gpus = made_up(node, 1)
    write_machine(tmp_path, gpus)
    enforcer = Listener(str(tmp_path / "run" / "memory-enforcer.sock"), read=read_caps, say=lambda _: None)
    played, socket = PlayedKubelet(), tmp_path / "kubelet.sock"
    async with listening(played, socket):
        agent = NodeAgent(
            control_plane,
            node,
            socket=socket,
            machine=tmp_path / MACHINE,
            further={"memory-enforcer-socket": tmp_path / "run" / "memory-enforcer.sock"},
        )
        await anyio.to_thread.run_sync(agent.__enter__)
        try:
            name = reserve(control_plane, node)
            entry = Entry(250_000_000, "a", "1", 0, "default/p", cap_mib=20_000)
            binder = control_plane.rest(control_plane.service_account_token(names.SYSTEM_NAMESPACE, "moorage-binder"))
            book = {names.TENANTS: render(Book({pod_uid: entry}))}
            binder.call("PATCH", f"{PODS}/{name}", {"metadata": {"annotations": book}})
            played.pods = [given(name, gpus[0].uuid)]
            admit(rest, name)
            key = (pod_uid, gpus[0].uuid)
            await eventually(lambda: _taken(enforcer, {key: 20_000}), "the caps to be sent")
            process = Process(7, 1, 40_000 << 20, 10, pod_uid, name="train")
            device = Device(gpus[0].uuid, gpus[0].mem_mib << 20, 40_000 << 20, (process,))
            kill = Kill(*key, 40_000 << 20, 20_000, Action.END_LARGEST, (process,))
            sample = Sample(time.monotonic_ns(), (device,))
            enforcer.send(write_report(Report(sample, (Done(kill, ("ended",)),), caps=1)))
            note = await eventually(lambda: _noted(rest, pod_uid), "the event")
            assert note == (f"40000 MiB of {gpus[0].uuid} are in use, the cap is 20000 MiB: process train was killed")
            tenant: dict[str, Any] = await eventually(lambda: _enforced(rest, node), "the tenant in the GpuNode")
            assert (tenant["podUID"], tenant["pod"], tenant["memoryPercent"]) == (pod_uid, "default/p", 100)
            assert tenant["enforced"] == "kill"
            shown = agent.metrics()
            assert 'moorage_memory_enforcer_kills_total{dry_run="false",processes="largest"} 1.0' in shown
            assert f'pod="p",pod_uid="{pod_uid}"' in shown
            agent.check()
            assert agent.stop() == 0
        finally:
            agent.__exit__(None, None, None)
            enforcer.close()


async def test_an_agent_that_is_the_device_plugin_serves_by_its_nodes_label_and_says_what_is_wrong(
    control_plane: ControlPlane, rest: Rest, tmp_path: Path
) -> None:
    node = f"node-{uuid.uuid4().hex[:8]}"
    path = f"/api/v1/nodes/{node}"
    rest.call("POST", "/api/v1/nodes", {"metadata": {"name": node}})
    gpus = made_up(node, 2)
    write_machine(tmp_path, gpus)
    files, plugins = tmp_path / "files", tmp_path / "p"
    for folder in (files, plugins):
        folder.mkdir()
    (files / "default").write_text("moorage: {healingSeconds: 1}")
    (files / "twice").write_text(TWICE)
    further: dict[str, str | Path] = {
        "device-plugin": "own",
        "device-plugin-files": files,
        "device-plugin-sockets": plugins,
        "device-plugin-state": tmp_path / "run",
        "device-plugin-cdi": tmp_path / "cdi",
    }
    socket = tmp_path / "kubelet.sock"
    async with listening(PlayedKubelet(), socket), kubelet(plugins) as registry:
        agent = NodeAgent(control_plane, node, socket=socket, machine=tmp_path / MACHINE, further=further)
        await anyio.to_thread.run_sync(agent.__enter__)
        try:
            first = await registry.next()
            assert first.resource == names.GPU_RESOURCE
            assert await first.healthy() == {gpu.uuid: True for gpu in gpus}
            await eventually(lambda: rest.call("GET", path)["metadata"]["labels"].get(COUNT), "labels")
            rest.call("PATCH", path, {"metadata": {"labels": {names.NODE_AGENT_CONFIG: "none"}}})
            why = f"{names.NODE_AGENT_CONFIG}: 'none' is no file; allowed: default, twice"
            event = await eventually(lambda: _event(rest, node), "the event")
            assert (event["reason"], event["note"]) == (names.REASON_CONFIG_REFUSED, why)
            made = await eventually(lambda: _missing(rest, node), "what is missing")
            assert made["agent"]["pluginMode"] == "own"
            assert made["agent"]["missing"] == [{"what": "device-plugin file", "why": why}]
            rest.call("PATCH", path, {"metadata": {"labels": {names.NODE_AGENT_CONFIG: "twice"}}})
            assert (await registry.next()).resource == "nvidia.com/twice"
            assert "moorage_device_plugin_rivals 0.0" in agent.metrics()
            agent.check()
            assert agent.stop() == 0
        finally:
            agent.__exit__(None, None, None)


async def test_mig_slices_are_made_as_the_gpu_node_asks(
    control_plane: ControlPlane, rest: Rest, tmp_path: Path
) -> None:
    node = f"node-{uuid.uuid4().hex[:8]}"
    rest.call("POST", "/api/v1/nodes", {"metadata": {"name": node, "labels": {names.NODE_MIG: names.MIG_DYNAMIC}}})
    (tmp_path / MACHINE).write_text(MIG_CARD)
    plugins = tmp_path / "p"
    plugins.mkdir()
    further: dict[str, str | Path] = {
        "device-plugin": "own",
        "device-plugin-sockets": plugins,
        "device-plugin-state": tmp_path / "run",
        "device-plugin-cdi": tmp_path / "cdi",
        "device-plugin-files": tmp_path / "files",
        "mig-on-demand": "true",
    }
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "default").write_text("version: v1\nflags: {migStrategy: mixed}\n")
    socket, played = tmp_path / "kubelet.sock", PlayedKubelet()
    async with listening(played, socket), kubelet(plugins) as registry:
        agent = NodeAgent(control_plane, node, socket=socket, machine=tmp_path / MACHINE, further=further)
        await anyio.to_thread.run_sync(agent.__enter__)
        try:
            first = await registry.next()
            assert (first.resource, await first.healthy()) == ("nvidia.com/mig-1g.10gb", {"MIG-x": True})
            assert await eventually(lambda: _layout(rest, node), "a layout") == [("1g.10gb", 0, False)]

            played.pods = [PodDevices("team", "a", (Devices("nvidia.com/mig-1g.10gb", ("MIG-x",)),))]
            _ask(rest, node, "1", ("2g.20gb", 0))
            refused = await eventually(lambda: _partitioned(rest, node, "1"), "the refusal")
            assert refused == {"attempt": "1", "state": "refused", "why": "kubelet gave 1g.10gb at 0 to a pod"}

            _ask(rest, node, "2", ("1g.10gb", 0), ("2g.20gb", 2))
            assert await eventually(lambda: _partitioned(rest, node, "2"), "the slice") == {
                "attempt": "2",
                "state": "done",
            }
            second = await registry.next()
            assert second.resource == "nvidia.com/mig-2g.20gb"
            assert _layout(rest, node) == [("1g.10gb", 0, True), ("2g.20gb", 2, False)]

            played.pods = []
            _ask(rest, node, "3")
            await first.until(lambda found: not found.get("MIG-x", False))
            assert await eventually(lambda: _partitioned(rest, node, "3"), "no slices") == {
                "attempt": "3",
                "state": "done",
            }
            assert _layout(rest, node) == []

            text = f"{MIG_CARD.partition('gi ')[0]}fail nvmlDeviceCreateGpuInstanceWithPlacement 999\n"
            (tmp_path / MACHINE).write_text(text)
            _ask(rest, node, "4", ("1g.10gb", 0))
            words = "create 1g.10gb at 0: unable to create the GPU instance: Unknown Error"
            failed = await eventually(lambda: _partitioned(rest, node, "4"), "the failure")
            assert failed == {"attempt": "4", "state": "failed", "why": words}
            event = await eventually(lambda: _event(rest, node), "the event")
            assert (event["reason"], event["note"]) == (
                names.REASON_PARTITIONING_FAILED,
                f"MIG slices of GPU-a: {words}",
            )
            agent.check()
            assert agent.stop() == 0
        finally:
            agent.__exit__(None, None, None)


async def test_its_token_makes_events_about_its_own_node_and_about_no_other(
    control_plane: ControlPlane, rest: Rest
) -> None:
    node = f"node-{uuid.uuid4().hex[:8]}"
    rest.call("POST", "/api/v1/nodes", {"metadata": {"name": node}})
    body = {
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": names.NODE_AGENT_SERVICE_ACCOUNT,
        "reportingInstance": node,
        "action": "Looking",
        "reason": "Any",
        "type": "Normal",
        "note": "x",
    }

    def event(about: str) -> dict[str, Any]:
        regarding = {"apiVersion": "v1", "kind": "Node", "name": about}
        return {"metadata": {"name": uuid.uuid4().hex}, "regarding": regarding, **body}

    with AgentPod(control_plane, node) as pod:
        as_agent = control_plane.rest(pod.token())
        as_agent.call("POST", EVENTS, event(node))
        with pytest.raises(RestError, match="may make Events in its own name"):
            as_agent.call("POST", EVENTS, event("another"))


def _taken(enforcer: Listener[dict[Key, int]], caps: dict[Key, int]) -> bool | None:
    enforcer.wait(0)
    return enforcer.said == caps or None


def _noted(rest: Rest, pod_uid: str) -> str | None:
    found = rest.call("GET", EVENTS)["items"]
    about = [each for each in found if each["regarding"].get("uid") == pod_uid]
    return next((each["note"] for each in about if each["reason"] == names.REASON_MEMORY_EXCEEDED), None)


def _enforced(rest: Rest, node: str) -> dict[str, Any] | None:
    tenants = (_status(rest, node) or {}).get("tenants", ())
    return next((each for each in tenants if each.get("enforced")), None)


def _event(rest: Rest, node: str) -> dict[str, Any] | None:
    events = rest.call("GET", "/apis/events.k8s.io/v1/namespaces/default/events")["items"]
    return next((each for each in events if each["regarding"]["name"] == node), None)


def _missing(rest: Rest, node: str) -> dict[str, Any] | None:
    status = _status(rest, node)
    return status if status and status["agent"].get("missing") else None


def _status(rest: Rest, node: str) -> dict[str, Any] | None:
    code, _ = rest.send("GET", f"{GPU_NODES}/{node}")
    status = rest.call("GET", f"{GPU_NODES}/{node}").get("status", {}) if code == 200 else {}
    return status if status.get("cards") else None


def _ask(rest: Rest, node: str, attempt: str, *layout: tuple[str, int]) -> None:
    places = [{"profile": profile, "start": start} for profile, start in layout]
    wanted = {"mig": [{"uuid": "GPU-a", "attempt": attempt, "layout": places}]}
    rest.call("PATCH", f"{GPU_NODES}/{node}", {"spec": wanted})


def _partitioned(rest: Rest, node: str, attempt: str) -> dict[str, Any] | None:
    """What became of an attempt that has ended."""
    (card,) = (_status(rest, node) or {}).get("cards", ({},))
    found = {key: value for key, value in (card.get("partitioning") or {}).items() if value}
    return found if found.get("attempt") == attempt and found["state"] != "underway" else None


def _layout(rest: Rest, node: str) -> list[tuple[str, int, bool]] | None:
    (card,) = (_status(rest, node) or {}).get("cards", ({},))
    layout = card.get("layout")
    return (
        None
        if layout is None
        else [(each["profile"], each.get("start", 0), each.get("inUse", False)) for each in layout]
    )
