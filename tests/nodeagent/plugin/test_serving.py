"""The device plug-in against a kubelet that is not real: the sockets and the bytes are."""

from __future__ import annotations

import contextlib
import stat
from collections.abc import AsyncIterator, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from grpclib.exceptions import GRPCError
from typing_extensions import override

from nodeagent.core.devices import Slices
from nodeagent.core.plugin.settings import Mistake
from nodeagent.kubeletapi.deviceplugin import (
    AllocateRequest,
    AllocateResponse,
    Choice,
    PreferredRequest,
    PreferredResponse,
)
from nodeagent.kubeletapi.service import PluginService
from nodeagent.plugin.device_plugin import serve
from nodeagent.plugin.ports import Intervals, Pace, Places, Sources, Unreadable
from tests.conftest import AnyioBackend
from tests.nodeagent.core.machine import card, uuid
from tests.nodeagent.kubeletapi.kubelets import kubelet
from tests.nodeagent.kubeletapi.test_client import Fixed
from tests.nodeagent.machines import EmulatedMachine, Heard

GPU = "nvidia.com/gpu"
SOCKET = "moorage-agent-gpu.sock"
SHARED = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, rename: shared, replicas: 2}]}}"
QUICK = Intervals(
    file_s=0.01, look_s=0.01, wait_s=0.01, answer_s=30, life=Pace(poll_s=0.01, serving_s=0.01, heard_s=30, rival_s=0.02)
)


@pytest.fixture(scope="module")
def anyio_backend() -> AnyioBackend:
    """Real time: it has threads and sockets."""
    return ("asyncio", {})


class Node:
    """A folder of kubelet, a machine with two GPUs, and a plug-in that can be started on them."""

    def __init__(self, folder: Path) -> None:
        self.plugins = folder / "plugins"
        self.plugins.mkdir()
        self.file = folder / "config.yaml"
        self.machine = EmulatedMachine([card(0), card(1)])
        self.heard = Heard()
        self.places = Places(plugins=self.plugins, state=folder / "run" / "state", cdi=folder / "cdi", root=folder)
        self.known: Collection[str] | None = ()
        self.wanted: Collection[str] = ()
        self.cleared: Collection[str] = ()
        self.intervals = QUICK
        self.slices = Slices()
        self.unnamed: Mistake | None = None

    async def allocatable(self) -> Collection[str] | None:
        return self.known

    def configure(self, text: str) -> None:
        fresh = self.file.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(self.file)

    @contextlib.asynccontextmanager
    async def plugin(self, **environment: str) -> AsyncIterator[None]:
        sources = Sources(
            file=lambda: self.unnamed or (self.file if self.file.exists() else None),
            allocatable=self.allocatable,
            wanted=lambda: self.wanted,
            cleared=lambda: self.cleared,
            slices=self.slices,
        )
        async with anyio.create_task_group() as tasks:

            async def run() -> None:
                passed: Any = {"places": self.places, "environment": environment, "intervals": self.intervals}
                await serve(self.machine, sources, self.heard, **passed)

            tasks.start_soon(run)
            yield
            tasks.cancel_scope.cancel()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


BOTH = {uuid(0): True, uuid(1): True}


async def test_it_registers_and_lists_and_allocates(node: Node) -> None:
    async with kubelet(node.plugins) as registry, node.plugin():
        plugin = await registry.next()
        assert (plugin.resource, plugin.request.endpoint) == (GPU, SOCKET)
        assert await plugin.healthy() == BOTH
        await node.heard.until(lambda: node.heard.registrations == [GPU])
        given = await plugin.call("Allocate", AllocateRequest(((uuid(1),),)).encode())
        environment = AllocateResponse.decode(given).containers[0].environment
        assert environment == {"NVIDIA_VISIBLE_DEVICES": uuid(1)}


class Withdrawn(Slices):
    """Slices of which a test says which are withdrawn, and when some were made or destroyed."""

    def __init__(self) -> None:
        self.uuids: frozenset[str] = frozenset()
        self.number = 0
        self.taken_at: list[int] = []

    @property
    @override
    def withdrawn(self) -> frozenset[str]:
        return self.uuids

    @property
    @override
    def generation(self) -> int:
        return self.number

    @override
    def taken(self, generation: int) -> None:
        self.taken_at.append(generation)


async def test_a_withdrawn_device_is_unhealthy_and_given_to_nobody(node: Node) -> None:
    node.slices = slices = Withdrawn()
    async with kubelet(node.plugins) as registry, node.plugin():
        plugin = await registry.next()
        assert await plugin.healthy() == BOTH
        slices.uuids = frozenset({uuid(1)})
        with pytest.raises(GRPCError, match=f"{uuid(1)} is being destroyed"):
            await plugin.call("Allocate", AllocateRequest(((uuid(1),),)).encode())
        assert await plugin.until(lambda found: not found[uuid(1)]) == {uuid(0): True, uuid(1): False}
        slices.uuids = frozenset()
        assert await plugin.until(lambda found: found[uuid(1)]) == BOTH


async def test_the_driver_is_read_again_after_slices_were_made(node: Node) -> None:
    node.slices = slices = Withdrawn()
    node.intervals = replace(QUICK, look_s=3600)
    async with kubelet(node.plugins) as registry, node.plugin():
        plugin = await registry.next()
        assert await plugin.healthy() == BOTH
        node.machine.cards.append(card(2))
        slices.number = 7
        assert await plugin.until(lambda found: uuid(2) in found) == {**BOTH, uuid(2): True}
    assert slices.taken_at == [0, 7]


async def test_kubelet_is_advised_to_take_the_card_that_a_reservation_waits_for(node: Node) -> None:
    node.wanted = {uuid(1)}
    async with kubelet(node.plugins) as registry, node.plugin():
        plugin = await registry.next()
        choice = PreferredRequest((Choice((uuid(0), uuid(1)), (), 1),))
        answer = await plugin.call("GetPreferredAllocation", choice.encode())
    assert PreferredResponse.decode(answer).containers == [[uuid(1)]]


async def test_it_waits_for_kubelet_and_registers_with_each_that_follows(node: Node) -> None:
    async with node.plugin():
        for _ in range(5):
            async with kubelet(node.plugins) as registry:
                plugin = await registry.next()
                assert (plugin.resource, await plugin.healthy()) == (GPU, BOTH)
                await node.heard.until(lambda: node.heard.registrations)
                node.heard.registrations.clear()
    assert node.heard.rivals == {GPU: ""}


async def test_it_comes_back_when_its_socket_was_removed(node: Node) -> None:
    async with kubelet(node.plugins) as registry, node.plugin():
        await registry.next()
        await node.heard.until(lambda: node.heard.registrations)
        (node.plugins / SOCKET).unlink()
        assert (await registry.next()).resource == GPU


async def test_a_card_that_vanished_is_ill_and_stays_so_after_a_restart_of_the_plugin(node: Node) -> None:
    lost = {uuid(0): True, uuid(1): False}
    async with kubelet(node.plugins) as registry, node.plugin():
        plugin = await registry.next()
        assert await plugin.healthy() == BOTH
        del node.machine.cards[1]
        assert await plugin.healthy() == lost
    async with kubelet(node.plugins) as registry, node.plugin():
        plugin = await registry.next()
        assert await plugin.healthy() == lost
        node.configure(f"moorage: {{gone: [{uuid(1)}]}}")
        await plugin.until(lambda devices: devices == {uuid(0): True})


@pytest.mark.parametrize("fault", ["broken", "unlisted"])
async def test_all_cards_are_ill_while_the_driver_does_not_answer(node: Node, fault: str) -> None:
    node.configure("moorage: {healingSeconds: 1}")
    async with kubelet(node.plugins) as registry, node.plugin():
        plugin = await registry.next()
        assert await plugin.healthy() == BOTH
        setattr(node.machine, fault, True)
        await plugin.until(lambda devices: not any(devices.values()))
        assert node.heard.why == "no driver"
        setattr(node.machine, fault, False)
        await plugin.until(lambda devices: devices == BOTH)


async def test_all_cards_are_ill_while_the_driver_hangs(node: Node) -> None:
    node.configure("moorage: {healingSeconds: 1}")
    node.intervals = replace(QUICK, answer_s=0.1)
    async with kubelet(node.plugins) as registry, node.plugin():
        plugin = await registry.next()
        assert await plugin.healthy() == BOTH
        node.machine.answers.clear()
        try:
            await plugin.until(lambda devices: not any(devices.values()))
        finally:
            node.machine.answers.set()
        assert node.heard.why == "the driver did not answer within 0.1 s"
        await plugin.until(lambda devices: devices == BOTH)


async def test_a_new_file_changes_the_resources_and_a_bad_one_keeps_the_last(node: Node) -> None:
    async with kubelet(node.plugins) as registry, node.plugin():
        assert (await registry.next()).resource == GPU
        node.configure(SHARED)
        shared = await registry.next()
        assert shared.resource == "nvidia.com/shared"
        assert len(await shared.healthy()) == 4
        node.configure("flags: {nonsense: 1}")
        await node.heard.until(lambda: node.heard.mistakes == ["flags.nonsense"])
        given = await shared.call("Allocate", AllocateRequest(((f"{uuid(0)}::1",),)).encode())
        assert AllocateResponse.decode(given).containers[0].environment == {"NVIDIA_VISIBLE_DEVICES": uuid(0)}
        assert [one.name for one in node.plugins.glob("moorage*")] == ["moorage-agent-shared.sock"]


@pytest.mark.parametrize("known", [{GPU}, None])
async def test_it_leaves_a_resource_that_another_plugin_serves(node: Node, known: Collection[str] | None) -> None:
    node.known = known
    rival = PluginService(node.plugins / "nvidia-gpu.sock", Fixed("a"))
    async with kubelet(node.plugins) as registry, rival, node.plugin():
        await node.heard.until(lambda: node.heard.rivals.get(GPU))
        assert "nvidia-gpu.sock" in node.heard.rivals[GPU]
        assert registry.endpoints == []
        node.known = ()
        assert (await registry.next()).resource == GPU
        assert node.heard.rivals[GPU] == ""


async def test_a_plugin_of_another_resource_is_no_rival(node: Node) -> None:
    node.known = {"rdma/hca"}
    other = PluginService(node.plugins / "rdma.sock", Fixed("a"))
    async with kubelet(node.plugins) as registry, other, node.plugin():
        assert (await registry.next()).resource == GPU


async def test_a_socket_of_a_plugin_that_has_died_is_no_rival(node: Node) -> None:
    node.known = {GPU}
    async with kubelet(node.plugins) as registry:
        (node.plugins / "nvidia-gpu.sock").touch()
        async with node.plugin():
            assert (await registry.next()).resource == GPU


async def test_it_tries_once_more_when_another_plugin_took_its_place_and_then_leaves_it(node: Node) -> None:
    async with kubelet(node.plugins) as registry, node.plugin():
        for _ in range(2):
            plugin = await registry.next()
            await plugin.devices()
            await node.heard.until(lambda: node.heard.registrations)
            node.heard.registrations.clear()
            plugin.drop()
        await node.heard.until(lambda: "twice" in node.heard.rivals.get(GPU, ""))


async def test_without_a_driver_it_ends_unless_the_file_says_that_it_waits(node: Node) -> None:
    node.machine.broken = True
    with pytest.RaisesGroup(Unreadable, flatten_subgroups=True):
        async with kubelet(node.plugins), node.plugin():
            await anyio.sleep_forever()
    node.configure("flags: {failOnInitError: false}")
    async with kubelet(node.plugins) as registry, node.plugin():
        await node.heard.until(lambda: node.heard.why)
        node.machine.broken = False
        await registry.next()


def ctk(node: Node, script: str) -> str:
    program = node.file.with_name("nvidia-ctk")
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


async def test_cdi_needs_a_file_that_nvidias_program_makes(node: Node) -> None:
    node.configure("flags: {plugin: {deviceListStrategy: [envvar, cdi-cri]}}")
    environment: dict[str, Any] = {"NVIDIA_CTK_PATH": ctk(node, "echo no driver >&2; exit 3")}
    async with kubelet(node.plugins) as registry, node.plugin(**environment):
        await node.heard.until(lambda: node.heard.mistakes == ["flags.plugin.deviceListStrategy"])
        assert registry.endpoints == []
        # It is tried again with each look at the devices.
        ctk(node, """echo '{"kind": "k8s.device-plugin.nvidia.com/gpu", "devices": []}'""")
        await registry.next()
    assert '"kind"' in (node.places.cdi / "moorage-gpu.json").read_text()


async def test_nothing_is_served_without_a_file_that_should_be_there(node: Node) -> None:
    node.file.mkdir()
    async with kubelet(node.plugins) as registry, node.plugin():
        await node.heard.until(lambda: node.heard.mistakes == [str(node.file)])
        assert registry.endpoints == []


async def test_a_socket_that_can_not_be_made_is_tried_again(node: Node) -> None:
    async with kubelet(node.plugins) as registry:
        (node.plugins / SOCKET).mkdir()
        async with node.plugin():
            await node.heard.until(lambda: node.heard.failures)
            (node.plugins / SOCKET).rmdir()
            assert (await registry.next()).resource == GPU


async def test_notes_say_what_has_no_effect(node: Node) -> None:
    node.configure(SHARED.replace("replicas: 2", "replicas: 2, devices: [7]"))
    async with kubelet(node.plugins), node.plugin():
        await node.heard.until(lambda: node.heard.notes)
    assert node.heard.notes == ["sharing.timeSlicing.resources[0]: this node has no such device of nvidia.com/gpu"]


async def test_the_nodes_labels_are_told_unless_the_file_takes_them_back(node: Node) -> None:
    async with kubelet(node.plugins), node.plugin():
        await node.heard.until(lambda: node.heard.labels.get("nvidia.com/gpu.count") == "2")
        node.configure(SHARED)
        await node.heard.until(lambda: node.heard.labels.get("nvidia.com/gpu.replicas") == "2")
        node.configure("moorage: {labels: false}")
        await node.heard.until(lambda: node.heard.labels == {})


async def test_a_file_that_can_not_be_named_is_refused_and_the_last_one_goes_on(node: Node) -> None:
    async with kubelet(node.plugins) as registry, node.plugin():
        plugin = await registry.next()
        node.unnamed = Mistake("label", "'x' is no file", "default")
        await node.heard.until(lambda: node.heard.mistakes == ["label"])
        assert await plugin.healthy() == BOTH
        node.unnamed = None
        await node.heard.until(lambda: node.heard.mistakes == [])
