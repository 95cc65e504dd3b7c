"""A kubelet that answers the pod-resources API over a Unix socket, with grpclib's server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError
from grpclib.server import Server, Stream

from nodeagent.kubeletapi import client
from nodeagent.kubeletapi.client import BytesCodec, Devices, PodDevices
from wire.protobuf import message, strings, text

Answer = Callable[[bytes], bytes]


@dataclass
class PlayedKubelet:
    """``pods``: what it has given. ``refuses``: message of the error with which Get is refused; "": it is not."""

    pods: list[PodDevices] = field(default_factory=list)
    devices: list[Devices] = field(default_factory=list)
    refuses: str = ""
    status: Status = Status.UNKNOWN
    asked: list[str] = field(default_factory=list)

    def get(self, request: bytes) -> bytes:
        self.asked.append("Get")
        if self.refuses:
            raise GRPCError(self.status, self.refuses)
        (name,), (namespace,) = strings(request, 1), strings(request, 2)
        for pod in self.pods:
            if (pod.namespace, pod.name) == (namespace, name):
                return message(1, client.encoded(pod))
        raise GRPCError(Status.UNKNOWN, f"pod {name} in namespace {namespace} not found")

    def list(self, _: bytes) -> bytes:
        self.asked.append("List")
        return b"".join(message(1, client.encoded(pod)) for pod in self.pods)

    def allocatable(self, _: bytes) -> bytes:
        self.asked.append("GetAllocatableResources")
        made = (
            text(1, each.resource) + b"".join(message(2, id_.encode()) for id_ in each.ids) for each in self.devices
        )
        return b"".join(message(1, each) for each in made)

    def __mapping__(self) -> Mapping[str, Handler]:
        methods = {client.GET: self.get, client.LIST: self.list, client.ALLOCATABLE: self.allocatable}
        return {
            name: Handler(_handler(answer), Cardinality.UNARY_UNARY, bytes, bytes) for name, answer in methods.items()
        }


def _handler(answer: Answer) -> Callable[[Stream[Any, Any]], Any]:
    async def handle(stream: Stream[Any, Any]) -> None:
        request = await stream.recv_message()
        assert request is not None
        await stream.send_message(answer(request))

    return handle


@asynccontextmanager
async def listening(kubelet: PlayedKubelet, socket: Path) -> AsyncIterator[None]:
    """Serve until left; the socket is there then and not after."""
    server = Server([kubelet], codec=BytesCodec())
    await server.start(path=str(socket))
    try:
        yield
    finally:
        server.close()
        await server.wait_closed()
        await anyio.Path(socket).unlink(missing_ok=True)
