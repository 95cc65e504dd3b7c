from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from grpclib.const import Status
from grpclib.exceptions import GRPCError

from nodeagent.kubeletapi.client import identity, is_served
from nodeagent.kubeletapi.deviceplugin import (
    AllocateRequest,
    AllocateResponse,
    Choice,
    ContainerResponse,
    Device,
    DeviceList,
    Options,
    PreferredRequest,
    PreferredResponse,
)
from nodeagent.kubeletapi.service import NotRegistered, PluginService, Refusal, is_plugin, register
from tests.nodeagent.kubeletapi.kubelets import call, connected, kubelet, lists


class Fixed:
    """Answers from a table."""

    def __init__(self, *ids: str) -> None:
        self.listed = [Device(each) for each in ids]

    def devices(self) -> bytes:
        return DeviceList(self.listed).encode()

    def preferred(self, request: PreferredRequest) -> PreferredResponse:
        return PreferredResponse([one.available[: one.size] for one in request.containers])

    def allocate(self, request: AllocateRequest) -> AllocateResponse:
        if any("x" in ids for ids in request.containers):
            raise Refusal("unknown device: x")
        return AllocateResponse([ContainerResponse(environment={"D": ",".join(ids)}) for ids in request.containers])


@pytest.fixture
def answers() -> Fixed:
    return Fixed("a", "b")


@pytest.fixture
async def service(tmp_path: Path, answers: Fixed) -> AsyncIterator[PluginService]:
    async with PluginService(tmp_path / "p.sock", answers) as made:
        yield made


async def test_devices_are_listed_at_once_and_again_after_each_change(
    service: PluginService, answers: Fixed, tmp_path: Path
) -> None:
    async with connected(tmp_path / "p.sock") as channel:
        async with lists(channel) as each:
            assert list(await anext(each)) == ["a", "b"]
            assert service.heard.is_set()
            answers.listed = [Device("a", is_healthy=False)]
            service.changed()
            assert await anext(each) == {"a": Device("a", is_healthy=False)}
        with anyio.fail_after(30):
            await service.left.wait()


async def test_kubelet_asks_for_advice_and_allocations(service: PluginService, tmp_path: Path) -> None:
    assert not service.heard.is_set()
    async with connected(tmp_path / "p.sock") as channel:
        assert Options.decode(await call(channel, "GetDevicePluginOptions")) == Options(preferred_allocation=True)
        choice = PreferredRequest((Choice(("a", "b"), (), 1),))
        assert await call(channel, "GetPreferredAllocation", choice.encode()) == PreferredResponse([["a"]]).encode()
        given = await call(channel, "Allocate", AllocateRequest((("a", "b"),)).encode())
        assert AllocateResponse.decode(given).containers[0].environment == {"D": "a,b"}
        assert await call(channel, "PreStartContainer") == b""


@pytest.mark.parametrize("request_", [AllocateRequest((("x",),)).encode(), b"\xff"])
async def test_a_refusal_and_odd_bytes_are_answered_and_the_service_goes_on(
    service: PluginService, tmp_path: Path, request_: bytes
) -> None:
    async with connected(tmp_path / "p.sock") as channel:
        with pytest.raises(GRPCError) as refused:
            await call(channel, "Allocate", request_)
        assert refused.value.status is Status.INVALID_ARGUMENT
        assert await call(channel, "Allocate", AllocateRequest((("a",),)).encode())
    assert service.is_there()


async def test_a_list_of_sixty_thousand_devices_is_sent(service: PluginService, answers: Fixed, tmp_path: Path) -> None:
    answers.listed = [Device(f"GPU-b1028956-cfa2-0990-bf4a-5da9abb51763::{number}", numa=1) for number in range(60_000)]
    async with connected(tmp_path / "p.sock") as channel, lists(channel) as each:
        assert len(await anext(each)) == 60_000


async def test_the_socket_is_for_root_alone_and_goes_at_the_end(tmp_path: Path, answers: Fixed) -> None:
    socket = tmp_path / "p.sock"
    socket.write_text("what a program left that was killed")
    async with PluginService(socket, answers) as service:
        assert socket.stat().st_mode & 0o777 == 0o600
        assert service.is_there()
        assert await is_served(socket)
    assert not socket.exists()
    assert not await is_served(socket)


async def test_a_socket_that_another_plugin_has_made_meanwhile_is_left(tmp_path: Path, answers: Fixed) -> None:
    socket = tmp_path / "p.sock"
    async with PluginService(socket, answers) as service:
        socket.unlink()
        assert not service.is_there()
        socket.touch()
        other = identity(socket)
    assert identity(socket) == other


async def test_kubelet_is_told_resource_and_socket(tmp_path: Path, answers: Fixed) -> None:
    async with kubelet(tmp_path) as registry, PluginService(tmp_path / "p.sock", answers):
        await register(tmp_path, "p.sock", "nvidia.com/gpu")
        request = (await registry.next()).request
    assert (request.version, request.endpoint, request.resource) == ("v1beta1", "p.sock", "nvidia.com/gpu")
    assert request.preferred_allocation


async def test_without_kubelet_nothing_is_registered(tmp_path: Path) -> None:
    with pytest.raises(NotRegistered):
        await register(tmp_path, "p.sock", "nvidia.com/gpu")


async def test_a_plugin_is_known_by_its_answer(service: PluginService, tmp_path: Path) -> None:
    assert await is_plugin(tmp_path / "p.sock")
    async with kubelet(tmp_path / "."):
        assert not await is_plugin(tmp_path / "kubelet.sock")
    assert not await is_plugin(tmp_path / "none.sock")
    (tmp_path / "file.sock").touch()
    assert not await is_plugin(tmp_path / "file.sock")
