"""The service that kubelet calls for one resource: devices, advice, allocations; and its introduction to kubelet."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Protocol, Self
from weakref import WeakSet

import anyio
from anyio.lowlevel import cancel_shielded_checkpoint
from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError
from grpclib.protocol import H2Protocol
from grpclib.server import Server, Stream
from typing_extensions import override

from nodeagent.kubeletapi import deviceplugin
from nodeagent.kubeletapi.client import UNANSWERED, BytesCodec, identity
from nodeagent.kubeletapi.deviceplugin import (
    NOTHING,
    PLUGIN_SERVICE,
    AllocateRequest,
    AllocateResponse,
    Options,
    PreferredRequest,
    PreferredResponse,
)
from wire.protobuf import Malformed

_WITHIN_S: Final = 5.0
_OPTIONS: Final = f"/{deviceplugin.PLUGIN_SERVICE}/GetDevicePluginOptions"


class NotRegistered(Exception):
    """Raised when kubelet did not take the plug-in; the text says why."""


async def register(folder: Path, endpoint: str, resource: str) -> None:
    """Introduce the plug-in that listens at the socket ``endpoint`` of kubelet's folder. Raises NotRegistered.

    kubelet asks for the devices after it has answered: until it has them it refuses pods that want one.
    """
    request = deviceplugin.RegisterRequest(endpoint, resource, preferred_allocation=True)
    try:
        await _call(folder / deviceplugin.KUBELET_SOCKET, deviceplugin.REGISTER, request.encode())
    except GRPCError as error:
        raise NotRegistered(f"{error.status.name}: {error.message}") from error
    except UNANSWERED as error:
        raise NotRegistered(str(error) or type(error).__name__) from error


async def is_plugin(socket: Path) -> bool:
    """Whether a device plug-in answers at a socket. Any program that speaks its protocol counts."""
    try:
        await _call(socket, _OPTIONS, deviceplugin.NOTHING)
    except (GRPCError, *UNANSWERED):
        return False
    return True


async def _call(socket: Path, method: str, request: bytes) -> bytes:
    channel = Channel(path=str(socket), codec=BytesCodec())
    try:
        call: UnaryUnaryMethod[bytes, bytes] = UnaryUnaryMethod(channel, method, bytes, bytes)
        return await call(request, timeout=_WITHIN_S)
    finally:
        channel.close()


_CLOSES_WITHIN_S: Final = 1.0
_Bytes = Stream[bytes, bytes]


class Refusal(Exception):
    """Raised by Answers; kubelet shows the text on the pod."""


class Answers(Protocol):
    """What the service answers."""

    def devices(self) -> bytes:
        """Return the DeviceList of now, as bytes."""
        ...

    def preferred(self, request: PreferredRequest) -> PreferredResponse:
        """Advise. Fewer devices than wanted are allowed."""
        ...

    def allocate(self, request: AllocateRequest) -> AllocateResponse:
        """Give devices. Raises Refusal."""
        ...


class Servable(Protocol):
    """What grpclib serves."""

    def __mapping__(self) -> dict[str, Handler]:
        """Return what handles each path."""
        ...


class ClosingServer(Server):
    """Closes its connections, too: grpclib's leaves them to the other side, which may never close them."""

    def __init__(self, service: Servable) -> None:
        super().__init__([service], codec=BytesCodec())
        self._protocols: WeakSet[H2Protocol] = WeakSet()

    @override
    def _protocol_factory(self) -> H2Protocol:
        made = super()._protocol_factory()
        self._protocols.add(made)
        return made

    async def end(self) -> None:
        """Stop listening, end all calls, and close all connections."""
        await self._stop_accepting()
        self.close()
        # From Python 3.12 on, waiting for the end includes the end of all connections.
        for protocol in [each for each in self._protocols if hasattr(each, "processor")]:
            protocol.processor.close("the service has ended")
        with anyio.move_on_after(_CLOSES_WITHIN_S, shield=True):
            await self.wait_closed()

    async def _stop_accepting(self) -> None:
        """Give each accepted connection its protocol: asyncio leaks the socket of one that meets a closed server."""
        if isinstance(self._server, asyncio.Server):
            for listening in self._server.sockets:
                self._loop.remove_reader(listening)
            await cancel_shielded_checkpoint()


class PluginService:
    """``async with PluginService(socket, answers):`` listens at the socket, and removes it at the end.

    ``heard`` is set when a list was sent whole; ``left`` when kubelet has ended its last stream of lists.
    """

    def __init__(self, socket: Path, answers: Answers) -> None:
        self._socket = socket
        self._answers = answers
        self._server: ClosingServer | None = None
        self._identity: tuple[int, int] | None = None
        self._streams = 0
        self._changed = anyio.Event()
        self.heard = anyio.Event()
        self.left = anyio.Event()

    async def __aenter__(self) -> Self:
        self._server = ClosingServer(self)
        self._socket.unlink(missing_ok=True)
        await self._server.start(path=str(self._socket))
        self._socket.chmod(0o600)
        self._identity = identity(self._socket)
        return self

    async def __aexit__(self, *_error: object) -> None:
        if self._server is not None:
            await self._server.end()
        if self.is_there():
            self._socket.unlink(missing_ok=True)

    def is_there(self) -> bool:
        """Whether the socket is still ours: kubelet removes all of them when it starts."""
        return self._identity is not None and identity(self._socket) == self._identity

    def changed(self) -> None:
        """Send the devices again to who listens."""
        self._changed.set()
        self._changed = anyio.Event()

    def __mapping__(self) -> dict[str, Handler]:
        """Return all methods by path, as grpclib wants it."""
        unary = {
            "GetDevicePluginOptions": self._options,
            "GetPreferredAllocation": self._preferred,
            "Allocate": self._allocate,
            "PreStartContainer": self._nothing,
        }
        methods: dict[str, Any] = {
            name: Handler(function, Cardinality.UNARY_UNARY, bytes, bytes) for name, function in unary.items()
        }
        methods["ListAndWatch"] = Handler(self._list_and_watch, Cardinality.UNARY_STREAM, bytes, bytes)
        return {f"/{PLUGIN_SERVICE}/{name}": method for name, method in methods.items()}

    async def _list_and_watch(self, stream: _Bytes) -> None:
        await stream.recv_message()
        self._streams += 1
        try:
            while True:
                # Before the list is made, so that no change falls between.
                changed = self._changed
                await stream.send_message(self._answers.devices())
                self.heard.set()
                await changed.wait()
        finally:
            self._streams -= 1
            if not self._streams:
                self.left.set()

    async def _options(self, stream: _Bytes) -> None:
        await stream.recv_message()
        await stream.send_message(Options(preferred_allocation=True).encode())

    async def _nothing(self, stream: _Bytes) -> None:
        await stream.recv_message()
        await stream.send_message(NOTHING)

    async def _preferred(self, stream: _Bytes) -> None:
        with _refusing():
            request = PreferredRequest.decode(await stream.recv_message() or b"")
            answer = self._answers.preferred(request).encode()
        await stream.send_message(answer)

    async def _allocate(self, stream: _Bytes) -> None:
        with _refusing():
            request = AllocateRequest.decode(await stream.recv_message() or b"")
            answer = self._answers.allocate(request).encode()
        await stream.send_message(answer)


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except (Refusal, Malformed) as error:
        raise GRPCError(Status.INVALID_ARGUMENT, str(error)) from error
