from __future__ import annotations

import asyncio
import random

import anyio
import pytest

from gpu.node_use import State
from kube.client.api import Api
from kube.client.resources import GPU_NODES, NAMESPACES, PODS
from kube.client.retry import Retry
from kube.events import EventRecorder
from scheduler.app import Scheduler
from scheduler.settings import CarvingSettings, SchedulerSettings
from scheduler.watch.node_agents import NodeUses
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import NOTHING, Fault
from simulator.apiserver.server import MemoryApiServer
from simulator.apiserver.types import MOORAGE
from simulator.clock import VirtualClock
from simulator.installation import SERVICE_ACCOUNTS
from tests.conftest import AnyioBackend
from wire import names


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


async def test_reports_and_agents_are_followed_and_forgotten() -> None:
    clock = VirtualClock(asyncio.get_running_loop())
    server = MemoryApiServer(clock=clock, rng=random.Random(1), extra_types=MOORAGE)
    api = Api(server.transport(), retry=Retry(random.Random(1)))
    uses = NodeUses(api, rng=random.Random(2))
    where = names.NODE_NAMESPACE
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.run)
        await api.create(NAMESPACES, {"metadata": {"name": where}})
        account = {"metadata": {"name": names.NODE_AGENT_SERVICE_ACCOUNT}}
        await api.create(SERVICE_ACCOUNTS, account, namespace=where)
        await api.create(GPU_NODES, {"metadata": {"name": "n1"}})
        assert uses.use_on("n1") is None
        await tasks.start(uses.run)
        await uses.catch_up()
        await anyio.sleep(5)

        def state() -> State | None:
            use = uses.use_on("n1")
            return None if use is None else use.state

        assert (state(), uses.use_on("n2")) == (State.STALE, None)
        container = {"name": "c", "image": "i"}
        spec = {"nodeName": "n1", "serviceAccountName": names.NODE_AGENT_SERVICE_ACCOUNT, "containers": [container]}
        await api.create(PODS, {"metadata": {"name": "agent"}, "spec": spec}, namespace=where)
        await api.create(PODS, {"metadata": {"name": "other"}, "spec": {"containers": [container]}}, namespace=where)
        status = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        await api.patch(PODS, "agent", status, namespace=where, subresource="status")
        await anyio.sleep(5)
        assert state() is State.CURRENT
        await api.delete(PODS, "agent", namespace=where, grace_s=0)
        await anyio.sleep(5)
        assert state() is State.STALE
        await api.delete(GPU_NODES, "n1")
        await anyio.sleep(5)
        assert state() is None
        tasks.cancel_scope.cancel()


async def test_where_the_kind_is_not_served_nobody_waits_and_nothing_is_known() -> None:
    clock = VirtualClock(asyncio.get_running_loop())
    server = MemoryApiServer(clock=clock, rng=random.Random(1))
    uses = NodeUses(Api(server.transport(), retry=Retry(random.Random(1))), rng=random.Random(2))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.run)
        await tasks.start(uses.run)
        await anyio.sleep(600)
        assert uses.use_on("n1") is None
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("carves", [True, False])
async def test_gpu_nodes_are_watched_once_whether_or_not_slices_are_made(carves: bool) -> None:
    clock = VirtualClock(asyncio.get_running_loop())
    server = MemoryApiServer(clock=clock, rng=random.Random(1), extra_types=MOORAGE, auto_namespaces=True)
    api = Api(server.transport(), retry=Retry(random.Random(1)))
    settings = SchedulerSettings(carving=CarvingSettings() if carves else None, follows_use=True)
    events = EventRecorder(api, clock=clock, controller="scheduler", instance="a")
    scheduler = Scheduler(api, settings=settings, clock=clock, rng=random.Random(2), events=events)
    watched: list[str] = []

    def count(call: Call) -> Fault:
        watched.extend([call.verb] if call.kind.plural == "gpunodes" else [])
        return NOTHING

    server.faults.on_request.append(count)
    await api.create(GPU_NODES, {"metadata": {"name": "n1"}})
    watched.clear()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.run)
        await tasks.start(scheduler.follow)
        await anyio.sleep(5)
        assert sorted(watched) == ["list", "watch"]
        assert scheduler.uses is not None
        use = scheduler.uses.use_on("n1")
        assert (use is not None and use.state) is State.STALE
        await api.delete(GPU_NODES, "n1")
        await anyio.sleep(5)
        assert scheduler.uses.use_on("n1") is None
        tasks.cancel_scope.cancel()
