"""Introduces a device plug-in to kubelet, and asks the sockets of others whether a plug-in is behind them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError

from nodeagent.kubeletapi import deviceplugin
from nodeagent.kubeletapi.codec import BytesCodec

_WITHIN_S: Final = 5.0
_OPTIONS: Final = f"/{deviceplugin.PLUGIN_SERVICE}/GetDevicePluginOptions"
_UNANSWERED: Final = (OSError, TimeoutError, StreamTerminatedError, ProtocolError, AssertionError)


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
    except _UNANSWERED as error:
        raise NotRegistered(str(error) or type(error).__name__) from error


async def is_plugin(socket: Path) -> bool:
    """Whether a device plug-in answers at a socket. Any program that speaks its protocol counts."""
    try:
        await _call(socket, _OPTIONS, deviceplugin.NOTHING)
    except (GRPCError, *_UNANSWERED):
        return False
    return True


async def _call(socket: Path, method: str, request: bytes) -> bytes:
    channel = Channel(path=str(socket), codec=BytesCodec())
    try:
        call: UnaryUnaryMethod[bytes, bytes] = UnaryUnaryMethod(channel, method, bytes, bytes)
        return await call(request, timeout=_WITHIN_S)
    finally:
        channel.close()
