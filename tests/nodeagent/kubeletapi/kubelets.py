"""A kubelet's side of the device-plugin API for tests, by grpclib."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
from grpclib.client import Channel, UnaryStreamMethod, UnaryUnaryMethod
from grpclib.const import Cardinality, Handler
from grpclib.server import Server, Stream

from nodeagent.kubeletapi.codec import BytesCodec
from nodeagent.kubeletapi.deviceplugin import (
    KUBELET_SOCKET,
    NOTHING,
    PLUGIN_SERVICE,
    REGISTER,
    Device,
    DeviceList,
    RegisterRequest,
)


class Registry:
    """kubelet's Registration service. ``registered``: all requests that came."""

    def __init__(self) -> None:
        self.registered: list[RegisterRequest] = []
        self._came, self._comes = anyio.create_memory_object_stream[RegisterRequest](100)

    async def next(self) -> RegisterRequest:
        """Wait for the next plug-in."""
        with anyio.fail_after(30):
            return await self._comes.receive()

    def close(self) -> None:
        self._came.close()
        self._comes.close()

    async def _register(self, stream: Stream[bytes, bytes]) -> None:
        request = RegisterRequest.decode(await stream.recv_message() or b"")
        self.registered.append(request)
        self._came.send_nowait(request)
        await stream.send_message(NOTHING)

    def __mapping__(self) -> dict[str, Handler]:
        return {REGISTER: Handler(self._register, Cardinality.UNARY_UNARY, bytes, bytes)}


@contextlib.asynccontextmanager
async def kubelet(folder: Path) -> AsyncIterator[Registry]:
    """Listen for plug-ins, as a kubelet that has just started: no socket of a plug-in is left."""
    _clear(folder)
    registry = Registry()
    server = Server([registry], codec=BytesCodec())
    await server.start(path=str(folder / KUBELET_SOCKET))
    try:
        yield registry
    finally:
        server.close()
        await server.wait_closed()
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
    return await method(request, timeout=30)


@contextlib.asynccontextmanager
async def lists(channel: Channel) -> AsyncIterator[AsyncIterator[dict[str, Device]]]:
    """The lists of devices, as they come."""
    method: UnaryStreamMethod[bytes, bytes] = UnaryStreamMethod(
        channel, f"/{PLUGIN_SERVICE}/ListAndWatch", bytes, bytes
    )
    async with method.open() as stream:
        await stream.send_message(NOTHING, end=True)

        async def each() -> AsyncIterator[dict[str, Device]]:
            while (content := await stream.recv_message()) is not None:
                yield {device.id: device for device in DeviceList.decode(content).devices}

        yield each()
        await stream.cancel()
