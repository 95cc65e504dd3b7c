"""``moorage clean-nodes`` on an API server in memory."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import anyio
import pytest

from cli.checks.nodes import foreign_offers
from cli.clean_nodes import Cleaner, removal
from cli.main import main
from kube.client import errors
from kube.client.api import Api
from kube.client.resources import NODES, PODS
from kube.client.retry import Retry
from runtime.text import BadInput
from simulator.apiserver.server import MemoryApiServer
from simulator.clock import VirtualClock

VIRTUAL_TIME = True

GONE, KEPT = "volcano.sh/vgpu-number", "aliyun.com/gpu-mem"


class Cluster:
    def __init__(self, server: MemoryApiServer) -> None:
        self.api = Api(server.transport("admin"), retry=Retry(random.Random(1)))
        self._server = server
        self.told: list[str] = []

    async def node(self, name: str, **amounts: str) -> None:
        await self.api.create(NODES, {"metadata": {"name": name}})
        await self.offer(name, {"cpu": "2", "nvidia.com/gpu": "0", **amounts})

    async def offer(self, name: str, amounts: dict[str, str]) -> None:
        status = {"capacity": amounts, "allocatable": amounts}
        await self.api.patch(NODES, name, {"status": status}, subresource="status")

    async def pod(self, name: str, node: str, resource: str) -> None:
        container = {"name": "main", "image": "work", "resources": {"limits": {resource: "1"}}}
        pod = {"metadata": {"name": name}, "spec": {"nodeName": node, "containers": [container]}}
        await self.api.create(PODS, pod, namespace="team")

    async def names(self, name: str) -> set[str]:
        return set((await self.api.get(NODES, name)).status.capacity or ())

    async def clean(self, *wanted: str, is_meant: bool = True, also: tuple[str, ...] = ()) -> int:
        transport = self._server.transport("user")
        api = Api(transport, retry=Retry(random.Random(1)))
        cleaner = Cleaner(transport, api, also=also, tell=self.told.append)
        return await cleaner.clean(wanted, is_meant=is_meant, settle_s=15)


@pytest.fixture
async def it() -> AsyncIterator[Cluster]:
    clock = VirtualClock(asyncio.get_running_loop())
    server = MemoryApiServer(clock=clock, rng=random.Random(5), auto_namespaces=True)
    async with anyio.create_task_group() as tasks:
        await tasks.start(server.run)
        yield Cluster(server)
        tasks.cancel_scope.cancel()


async def test_what_is_left_goes_and_all_else_stays(it: Cluster) -> None:
    await it.node("a", **{GONE: "0", KEPT: "0"})
    await it.node("b", **{GONE: "4"})
    await it.pod("asks", "a", KEPT)
    assert await it.clean() == 1
    assert await it.names("a") == {"cpu", "nvidia.com/gpu", KEPT}
    assert await it.names("b") == {"cpu", "nvidia.com/gpu", GONE}
    assert sorted(it.told) == [
        "1 removed, 2 left",
        f"a: {KEPT} stays: asked for by team/asks",
        f"a: {GONE} removed",
        f"b: {GONE} stays: it is offered (capacity 4, allocatable 4)",
    ]


async def test_nothing_is_changed_unless_it_is_meant(it: Cluster) -> None:
    await it.node("a", **{GONE: "0"})
    before = await it.api.get(NODES, "a")
    assert await it.clean(is_meant=False) == 0
    assert await it.api.get(NODES, "a") == before
    assert it.told == [
        f"a: {GONE} would be removed",
        "1 would be removed, 0 would stay; nothing was changed: add --yes",
    ]


async def test_only_the_named_nodes_are_cleaned(it: Cluster) -> None:
    await it.node("a", **{GONE: "0"})
    await it.node("b", **{GONE: "0"})
    assert await it.clean("b") == 0
    assert GONE in await it.names("a")
    assert GONE not in await it.names("b")


async def test_a_renamed_resource_goes_when_it_is_named(it: Cluster) -> None:
    await it.node("a", **{"example.com/shared": "0"})
    assert await it.clean() == 0
    assert "example.com/shared" in await it.names("a")
    assert await it.clean(also=("example.com/shared",)) == 0
    assert "example.com/shared" not in await it.names("a")


async def test_what_a_kubelet_puts_back_is_told(it: Cluster) -> None:
    await it.node("a", **{GONE: "0"})
    async with anyio.create_task_group() as tasks:

        async def kubelet() -> None:
            await anyio.sleep(10)
            await it.offer("a", {GONE: "0"})

        tasks.start_soon(kubelet)
        assert await it.clean() == 1
    assert it.told[1].startswith(f"a: {GONE} is back: kubelet knows a device plugin for five minutes")
    assert it.told[-1] == "0 removed, 1 left"


async def test_what_came_back_to_life_since_it_was_read_is_not_removed(it: Cluster) -> None:
    await it.node("a", **{GONE: "0"})
    told = {"capacity": {GONE: "0"}, "allocatable": {GONE: "0"}}
    read = {"metadata": {"uid": (await it.api.get(NODES, "a")).metadata.uid}, "status": told}
    await it.offer("a", {GONE: "4"})
    with pytest.raises(errors.Invalid):
        await it.api.patch(NODES, "a", removal(read, foreign_offers(read)), subresource="status")
    assert GONE in await it.names("a")


async def test_a_node_that_is_not_there_is_named(it: Cluster) -> None:
    with pytest.raises(BadInput, match="node 'other' is not there"):
        await it.clean("other")


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "cpu", "example.com/", "/x"])
def test_our_own_resources_and_kubernetes_can_not_be_named(resource: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clean-nodes", "--server", "https://127.0.0.1:1", "--resource", resource]) == 2
    assert f"--resource: {resource!r} is not an extended resource of another system" in capsys.readouterr().err
