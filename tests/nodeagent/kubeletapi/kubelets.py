"""A kubelet's side of the device-plugin API for tests, by grpclib."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio
from anyio.abc import TaskGroup
from grpclib.client import Channel, UnaryStreamMethod, UnaryUnaryMethod
from grpclib.const import Cardinality, Handler
from grpclib.exceptions import StreamTerminatedError
from grpclib.server import Stream

from nodeagent.kubeletapi.client import BytesCodec
from nodeagent.kubeletapi.deviceplugin import (
    KUBELET_SOCKET,
    NOTHING,
    PLUGIN_SERVICE,
    REGISTER,
    Device,
    DeviceList,
    RegisterRequest,
)
from nodeagent.kubeletapi.service import ClosingServer

Devices = dict[str, Device]


class Endpoint:
    """A plug-in that has registered. kubelet reads its devices until it is dropped."""

    def __init__(self, request: RegisterRequest, folder: Path) -> None:
        self.request = request
        self.channel = Channel(path=str(folder / request.endpoint), codec=BytesCodec())
        self.heard = anyio.Event()
        self._scope = anyio.CancelScope()
        self._read, self._lists = anyio.create_memory_object_stream[Devices](1000)

    @property
    def resource(self) -> str:
        return self.request.resource

    async def devices(self, *, within_s: float | None = 60) -> Devices:
        """Wait for the next list."""
        with anyio.fail_after(within_s):
            return await self._lists.receive()

    async def healthy(self, *, within_s: float | None = 60) -> dict[str, bool]:
        return {name: device.is_healthy for name, device in (await self.devices(within_s=within_s)).items()}

    async def until(self, wanted: Callable[[dict[str, bool]], bool]) -> dict[str, bool]:
        """Wait for a list of this kind."""
        while not wanted(found := await self.healthy()):
            pass
        return found

    async def call(self, name: str, request: bytes = NOTHING) -> bytes:
        return await call(self.channel, name, request)

    def drop(self) -> None:
        """End the stream, as kubelet does with a plug-in that another one has replaced."""
        self._scope.cancel()

    async def follow(self) -> None:
        with self._scope, contextlib.suppress(StreamTerminatedError, OSError):
            async with lists(self.channel) as each:
                async for devices in each:
                    self._read.send_nowait(devices)
                    self.heard.set()

    def close(self) -> None:
        self.channel.close()
        self._read.close()
        self._lists.close()


class Registry:
    """kubelet's Registration service, and its end of the plug-ins' streams."""

    def __init__(self, folder: Path, tasks: TaskGroup) -> None:
        self.endpoints: list[Endpoint] = []
        self._folder = folder
        self._tasks = tasks
        self._came, self._comes = anyio.create_memory_object_stream[Endpoint](100)

    async def next(self, *, within_s: float | None = 60) -> Endpoint:
        """Wait for the next plug-in that registers, and until its devices were read."""
        with anyio.fail_after(within_s):
            endpoint = await self._comes.receive()
            await endpoint.heard.wait()
            return endpoint

    def close(self) -> None:
        for endpoint in self.endpoints:
            endpoint.close()
        self._came.close()
        self._comes.close()

    async def _register(self, stream: Stream[bytes, bytes]) -> None:
        request = RegisterRequest.decode(await stream.recv_message() or b"")
        await stream.send_message(NOTHING)
        endpoint = Endpoint(request, self._folder)
        self.endpoints.append(endpoint)
        self._tasks.start_soon(endpoint.follow)
        self._came.send_nowait(endpoint)

    def __mapping__(self) -> dict[str, Handler]:
        return {REGISTER: Handler(self._register, Cardinality.UNARY_UNARY, bytes, bytes)}


@contextlib.asynccontextmanager
async def kubelet(folder: Path) -> AsyncIterator[Registry]:
    """Listen for plug-ins, as a kubelet that has just started: no socket of a plug-in is left."""
    _clear(folder)
    async with anyio.create_task_group() as tasks:
        registry = Registry(folder, tasks)
        server = ClosingServer(registry)
        await server.start(path=str(folder / KUBELET_SOCKET))
        try:
            yield registry
        finally:
            tasks.cancel_scope.cancel()
            await server.end()
            registry.close()


def _clear(folder: Path) -> None:
    for socket in folder.glob("*.sock"):
        socket.unlink()


@contextlib.asynccontextmanager
async def connected(socket: Path) -> AsyncIterator[Channel]:
    channel = Channel(path=str(socket), codec=BytesCodec())
    try:
        yield channel
    finally:
        channel.close()


async def call(channel: Channel, name: str, request: bytes = NOTHING) -> bytes:
    method: UnaryUnaryMethod[bytes, bytes] = UnaryUnaryMethod(channel, f"/{PLUGIN_SERVICE}/{name}", bytes, bytes)
    return await method(request, timeout=60)


@contextlib.asynccontextmanager
async def lists(channel: Channel) -> AsyncIterator[AsyncIterator[Devices]]:
    """The lists of devices, as they come."""
    method: UnaryStreamMethod[bytes, bytes] = UnaryStreamMethod(
        channel, f"/{PLUGIN_SERVICE}/ListAndWatch", bytes, bytes
    )
    async with method.open() as stream:
        await stream.send_message(NOTHING, end=True)

        async def each() -> AsyncIterator[Devices]:
            while (content := await stream.recv_message()) is not None:
                yield {device.id: device for device in DeviceList.decode(content).devices}

        yield each()
        await stream.cancel()
