"""Use of shares on a terminal: drawn from nodes, and followed on an API server, in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from gpu.book import Book, Entry, render
from gpu.share import NANO_PER_DEVICE
from kube.client.api import Api
from kube.client.resources import GPU_NODES, NODES, PODS
from kube.client.retry import Retry
from simulator.apiserver.server import MemoryApiServer
from simulator.apiserver.types import MOORAGE
from simulator.clock import VirtualClock
from simulator.installation import SERVICE_ACCOUNTS
from ui.commands.top import Top
from ui.page.values import Changes, Device, NodeCard, PodLine, Tenant
from ui.page.watch import Following, Publishing
from ui.top.panels import idle_lines, use_lines
from ui.top.screen import Letters, View, screen
from wire import names
from wire.rfc3339 import parse_ns, rfc3339

VIRTUAL_TIME = True

REPOSITORY = Path(__file__).parents[3]
HALF = NANO_PER_DEVICE // 2
NOW_NS = parse_ns("2026-11-27T18:30:00Z") or 0
BUSY = Tenant(
    namespace="team-a", name="train", uid="u1", nano=HALF, memory_percent=90, sm_percent=80,
    enforced="kill", strength="after",
)  # fmt: skip
IDLE = Tenant(
    namespace="team-b", name="notebook", uid="u2", nano=HALF, memory_percent=5, sm_percent=0,
    idle_since="2026-11-27T13:05:00Z",
)  # fmt: skip
SILENT = Tenant(namespace="team-a", name="new", uid="u3", nano=HALF)
WHOLE = Device(kind="whole", number=1, used_nano=NANO_PER_DEVICE, tenants=(Tenant(namespace="team-c", name="w"),))


def node(name: str, *tenants: Tenant, use: str = "current", others: Sequence[Device] = (), **how: Any) -> NodeCard:
    device = Device(kind="shared", number=0, uuid="GPU-a", tenants=tenants)
    return NodeCard(name=name, gpus=1, use=use, devices=(device, *others), **how)


def drawn(*nodes: NodeCard, by: str = "namespace", width: int = 140, queues: dict[str, str] | None = None) -> list[str]:
    lines = use_lines(nodes, queues or {}, by=by, now_ns=NOW_NS, width=width)
    return [each.plain.rstrip() for each in lines]


def test_the_documents_show_what_is_drawn() -> None:
    stale = node("node-2", SILENT, use="stale", use_since="2026-11-27T15:30:00Z")
    said = drawn(node("node-1", BUSY, IDLE, SILENT, others=[WHOLE]), stale, NodeCard(name="node-3", gpus=1))
    assert "\n".join(said) in (REPOSITORY / "docs/top.md").read_text()


def idle_drawn(*nodes: NodeCard, width: int = 140, queues: dict[str, str] | None = None) -> list[str]:
    return [each.plain.rstrip() for each in idle_lines(nodes, queues or {}, now_ns=NOW_NS, width=width)]


LONG_IDLE = Tenant(
    namespace="team-c", name="jupyter", uid="u4", nano=NANO_PER_DEVICE // 4, memory_percent=0, sm_percent=0,
    idle_since="2026-11-27T02:30:00Z",
)  # fmt: skip


def test_idle_shares_alone_are_listed_by_what_they_have_cost_as_the_documents_show() -> None:
    stale = node("node-2", SILENT, use="stale", use_since="2026-11-27T15:30:00Z")
    there = node("node-1", IDLE, BUSY, SILENT, LONG_IDLE), stale, NodeCard(name="node-3", gpus=1)
    said = idle_drawn(*there, queues={"u2": "research"})
    assert [line.split()[0] for line in said[1:3]] == ["team-c/jupyter", "team-b/notebook"]
    assert "team-a/train" not in "\n".join(said)
    assert "\n".join(said) in (REPOSITORY / "docs/top.md").read_text()


@pytest.mark.parametrize(
    ("there", "said"),
    [
        (node("n", BUSY), ["no share is idle"]),
        (node("n", IDLE, use="stale"), ["no share is idle", "shares whose use is not known: 1"]),
        (NodeCard(name="n"), ["use is not shown: no node agent has reported (docs/node-agent.md)"]),
    ],
    ids=["busy", "dead-agent", "no-agent"],
)
def test_nobody_is_called_idle_without_a_report_of_now(there: NodeCard, said: list[str]) -> None:
    assert idle_drawn(there)[: len(said)] == said


def test_without_an_agent_one_line_says_why_nothing_is_shown() -> None:
    assert drawn(node("node-1", BUSY, use="")) == ["use is not shown: no node agent has reported (docs/node-agent.md)"]


def test_what_is_not_measured_or_not_sure_is_said() -> None:
    said = drawn(node("n", SILENT, use_why="no memory enforcer: gone"), node("m", SILENT, use="unsure"))
    assert "n: use is not measured: no memory enforcer: gone" in said
    assert "whether the agents work is not known: pods of their namespace were not read" in said


def test_mig_slices_that_are_being_made_are_said_once_for_each_gpu() -> None:
    text = "MIG slices of GPU 0 are being made: 2g.20gb at 0"
    there = node("n", BUSY, partitionings=(text, "\x1b[2J"))
    assert f"n: {text}" in drawn(there)
    assert f"n: {text}" in idle_drawn(there)
    assert not any("\x1b" in line for line in drawn(there))


def test_sums_are_by_queue_where_that_is_asked_for() -> None:
    said = drawn(node("n", BUSY, IDLE), by="queue", queues={"u1": "research"})
    assert [line.split()[:2] for line in said[4:7]] == [["QUEUE", "SHARES"], ["no", "queue"], ["research", "1"]]


def test_names_of_others_are_not_shown_nor_shares_of_pods_that_are_gone() -> None:
    kept = Tenant(namespace="team-a", name="gone", uid="u9", nano=HALF, is_kept=True)
    said = drawn(node("n", Tenant(nano=HALF, is_hidden=True), kept, BUSY))
    assert [line.split()[0] for line in said[:2]] == ["POD", "team-a/train"]
    assert "gone" not in "\n".join(said)


def test_what_others_wrote_moves_no_cursor_and_long_names_are_cut() -> None:
    odd = Tenant(namespace="x" * 60, name="\x1b[2J", uid="u", nano=HALF, memory_percent=5, sm_percent=5)
    said = drawn(node("n", odd, use_why="\x1b]0;title"), width=100)
    assert not any("\x1b" in line for line in said)
    assert said[1].split()[0] == f"{'x' * 24}…"


def test_it_takes_the_place_of_the_map_and_scrolls() -> None:
    shown = Changes(
        nodes=(node("node-1", BUSY, IDLE),),
        pods=(PodLine(namespace="team-a", name="train", uid="u1", queue="research", node="node-1"),),
    )
    view = View(140, 12, use=True, has_use=True, now_ns=NOW_NS)
    lines = [each.plain.rstrip() for each in screen(shown, Letters(), view).lines]
    assert lines[3].startswith("POD  ")
    assert lines[-1].endswith("b: namespace or queue   i: use   o: idle only")
    lines = [each.plain.rstrip() for each in screen(shown, Letters(), msgspec.structs.replace(view, idle=True)).lines]
    assert lines[3].startswith("POD  ")
    assert lines[4].startswith("team-b/notebook")
    assert lines[6] == "1 idle share holds 0.5 GPUs, 2.7 GPU-hours so far"
    scrolled = screen(shown, Letters(), msgspec.structs.replace(view, top=1_000))
    assert scrolled.top > 0


async def _tenant(api: Api) -> str:
    """A pod with half of GPU-a on n1. Returns its UID."""
    pod: dict[str, Any] = {
        "metadata": {
            "name": "train",
            "labels": {names.GPU_GROUP_LABEL: "g"},
            "annotations": {names.GPU_FRACTION: "0.5"},
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
    }
    uid = (await api.create(PODS, pod, namespace="team")).metadata.uid
    meta = {
        "name": "r",
        "labels": {names.APP_LABEL: names.RESERVATION_APP, names.GPU_GROUP_LABEL: "g"},
        "annotations": {
            names.RESERVE_FOR_GPU_INDEX: "GPU-a",
            names.DEVICE_INDEX: "0",
            names.DEVICE_MEMORY: "81920",
            names.TENANTS: render(Book({uid: Entry(HALF, "a", "1", 0, "team/train")})),
        },
    }
    spec = {"nodeName": "n1", "containers": [{"name": "c", "image": "i", "resources": GPU}]}
    await api.create(PODS, {"metadata": meta, "spec": spec}, namespace=names.RESERVATION_NAMESPACE)
    return uid


GPU = {"limits": {names.GPU_RESOURCE: "1"}}


async def test_it_follows_what_agents_report_and_takes_nothing_of_a_dead_one_for_current() -> None:
    clock = VirtualClock(asyncio.get_running_loop())
    server = MemoryApiServer(clock=clock, rng=random.Random(1), extra_types=MOORAGE, auto_namespaces=True)
    api = Api(server.transport(), retry=Retry(random.Random(1)))
    publishing = Publishing("top", every_s=0.5)
    following = Following(api, publishing.objects, rng=random.Random(1), has_use=True)
    view = View(140, 100, use=True, has_use=True)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.run)
        node_ = {"metadata": {"name": "n1"}, "status": {"allocatable": {names.GPU_RESOURCE: "1", "pods": "9"}}}
        await api.create(NODES, node_)
        uid = await _tenant(api)
        await api.create(GPU_NODES, {"metadata": {"name": "n1"}})
        tenant = {"podUID": uid, "pod": "team/train", "card": "GPU-a", "memoryPercent": 15, "smPercent": 5}
        status = {"tenants": [tenant], "agent": {"backEnds": ["kill"]}}
        await api.patch(GPU_NODES, "n1", {"status": status}, subresource="status")
        agent = {"metadata": {"name": "agent"}, "spec": {
            "nodeName": "n1",
            "serviceAccountName": names.NODE_AGENT_SERVICE_ACCOUNT,
            "containers": [{"name": "c", "image": "i"}],
        }}  # fmt: skip
        account = {"metadata": {"name": names.NODE_AGENT_SERVICE_ACCOUNT}}
        await api.create(SERVICE_ACCOUNTS, account, namespace=names.NODE_NAMESPACE)
        await api.create(PODS, agent, namespace=names.NODE_NAMESPACE)

        async def ready(is_ready: str) -> str:
            condition = {"type": "Ready", "status": is_ready, "lastTransitionTime": rfc3339(clock.now_ns())}
            body = {"status": {"conditions": [condition]}}
            await api.patch(PODS, "agent", body, namespace=names.NODE_NAMESPACE, subresource="status")
            await anyio.sleep(7_200)
            return "\n".join(line.plain for line in top.drawn().lines)

        await tasks.start(following.run)
        tasks.start_soon(publishing.run)
        top = Top(publishing, following, view, clock=clock)
        assert "15%" in await ready("True")
        said = await ready("False")
        assert "15%" not in said
        assert "n1: its agent has not worked for 2h" in said
        top.pressed("o")
        assert "no share is idle" in "\n".join(line.plain for line in top.drawn().lines)
        top.pressed("o")
        top.pressed("i")
        top.pressed("o")
        assert "POD  " not in "\n".join(line.plain for line in top.drawn().lines)
        tasks.cancel_scope.cancel()
