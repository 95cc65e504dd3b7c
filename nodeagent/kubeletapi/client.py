"""Asks kubelet which devices it has given to which pod: the pod-resources API, v1, over its Unix socket.

kubelet answers from its device manager, from a pod's admission on and whether or not its containers run. Source:
kubelet 1.36, pkg/kubelet/apis/podresources/server_v1.go. ``Get`` is on by default from 1.34; before that kubelet
answers that it is disabled, and ``List`` is used. kubelet answers 100 requests a second, of all its clients.

Messages are read from their bytes (wire/protobuf.py); field numbers as in k8s.io/kubelet/pkg/apis/podresources/v1.
Devices alone are read: CPUs, memory, NUMA nodes and what DRA gave are skipped. What is read comes from kubelet, which
is trusted. Sockets in kubelet's folder of device plug-ins say which kubelet one belongs to, and whether somebody
listens.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import anyio
from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.const import Status
from grpclib.encoding.base import CodecBase
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError
from typing_extensions import override

from wire.protobuf import Malformed, message, parts, strings, text

#: Where kubelet listens, under any root folder.
SOCKET: Final = "/var/lib/kubelet/pod-resources/kubelet.sock"
SERVICE: Final = "/v1.PodResourcesLister"
LIST: Final = f"{SERVICE}/List"
GET: Final = f"{SERVICE}/Get"
ALLOCATABLE: Final = f"{SERVICE}/GetAllocatableResources"
#: Requests without fields.
NOTHING: Final = b""


@dataclass(frozen=True, slots=True)
class Devices:
    """Devices of one resource: their ids, as the device plug-in names them."""

    resource: str
    ids: tuple[str, ...]

    @classmethod
    def decode(cls, content: bytes) -> Devices:
        """Read a ContainerDevices. Raises Malformed."""
        return cls(_text(content, 1), tuple(strings(content, 2)))


@dataclass(frozen=True, slots=True)
class PodDevices:
    """What the containers of a pod were given, in any order. The API tells no UID: a name may have had other pods."""

    namespace: str
    name: str
    devices: tuple[Devices, ...]

    @classmethod
    def decode(cls, content: bytes) -> PodDevices:
        """Read a PodResources. Raises Malformed."""
        found = (Devices.decode(each) for container in parts(content, 3) for each in parts(container, 2))
        return cls(namespace=_text(content, 2), name=_text(content, 1), devices=tuple(found))


def asked(namespace: str, name: str) -> bytes:
    """Return a GetPodResourcesRequest."""
    return text(1, name) + text(2, namespace)


def got(content: bytes) -> PodDevices:
    """Read a GetPodResourcesResponse. Raises Malformed."""
    return PodDevices.decode(b"".join(parts(content, 1)))


def listed(content: bytes) -> tuple[PodDevices, ...]:
    """Read a ListPodResourcesResponse. Raises Malformed."""
    return tuple(PodDevices.decode(each) for each in parts(content, 1))


def allocatable(content: bytes) -> tuple[Devices, ...]:
    """Read the devices of an AllocatableResourcesResponse. Raises Malformed.

    A resource comes in several pieces where its devices are on several NUMA nodes.
    """
    return tuple(Devices.decode(each) for each in parts(content, 1))


def encoded(pod: PodDevices) -> bytes:
    """Return a PodResources as kubelet writes it, in one container: for those who play kubelet."""
    content = b"".join(
        message(2, text(1, each.resource) + b"".join(message(2, id_.encode()) for id_ in each.ids))
        for each in pod.devices
    )
    return text(1, pod.name) + text(2, pod.namespace) + message(3, text(1, "main") + content)


def _text(content: bytes, number: int) -> str:
    """Return a string field: of several values the last counts, as in all of Protocol Buffers."""
    found = strings(content, number)
    return found[-1] if found else ""


#: What a call raises that got no answer. grpclib raises AssertionError or AttributeError where a connection is lost
#: between its opening and the request.
UNANSWERED: Final = (OSError, TimeoutError, StreamTerminatedError, ProtocolError, AssertionError, AttributeError)


class BytesCodec(CodecBase):
    """Passes bytes on. Without it grpclib imports protobuf, 6 MiB."""

    __content_subtype__ = "proto"

    @override
    def encode(self, message: Any, message_type: Any) -> bytes:
        """Return the message."""
        content: bytes = message
        return content

    @override
    def decode(self, data: bytes, message_type: Any) -> bytes:
        """Return the message."""
        return data


def identity(socket: Path) -> tuple[int, int] | None:
    """Tell one socket from its successor of the same name: inode numbers are used again, times are not."""
    try:
        found = socket.stat()
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns


async def is_served(socket: Path) -> bool:
    """Whether a program listens: the socket of one that was killed stays."""
    with contextlib.suppress(OSError), anyio.move_on_after(1):
        async with await anyio.connect_unix(socket):
            return True
    return False


T = TypeVar("T")

_GET_WITHIN_S: Final = 1.0
_LIST_WITHIN_S: Final = 5.0
#: kubelet's words: it gives both as an unknown error.
_NOT_FOUND: Final = "not found"
_DISABLED: Final = "disabled"

#: Which kubelet listens: inode and time of change of its socket. None: none does.
Life = tuple[int, int] | None


class Unanswered(Exception):
    """Raised when kubelet gave no answer that can be read; the text says why."""


class PodResources:
    """``async with PodResources(path) as kubelet:``. Connects with the first call, and again after a loss."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._channel: Channel | None = None
        #: The kubelet that the channel leads to.
        self._life: Life = None
        #: The kubelet that does not serve Get.
        self._without_get: Life = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._close()

    def life(self) -> Life:
        """Tell one kubelet from the next: each makes its socket anew."""
        return identity(self._socket)

    async def get(self, namespace: str, name: str) -> PodDevices | None:
        """Return what a pod was given; None: kubelet knows no pod of that name. Raises Unanswered."""
        life = self.life()
        if life is None or life != self._without_get:
            try:
                answer = await self._call(GET, asked(namespace, name), _GET_WITHIN_S)
            except GRPCError as error:
                said = error.message or ""
                if _NOT_FOUND in said:
                    return None
                if _DISABLED not in said and error.status is not Status.UNIMPLEMENTED:
                    raise Unanswered(f"Get: {error.status.name}: {said}") from error
                self._without_get = life
            else:
                return _read(got, answer)
        return next((pod for pod in await self.list() if (pod.namespace, pod.name) == (namespace, name)), None)

    async def list(self) -> tuple[PodDevices, ...]:
        """Return what all pods were given. Raises Unanswered."""
        return _read(listed, await self._asked(LIST))

    async def allocatable(self) -> tuple[Devices, ...]:
        """Return all devices that kubelet knows. Raises Unanswered."""
        return _read(allocatable, await self._asked(ALLOCATABLE))

    async def resources(self) -> frozenset[str] | None:
        """Return the names of all resources that kubelet has devices of; None: it does not say."""
        try:
            return frozenset(each.resource for each in await self.allocatable())
        except Unanswered:
            return None

    async def _asked(self, method: str) -> bytes:
        try:
            return await self._call(method, NOTHING, _LIST_WITHIN_S)
        except GRPCError as error:
            raise Unanswered(f"{method.rpartition('/')[2]}: {error.status.name}: {error.message}") from error

    async def _call(self, method: str, request: bytes, within_s: float) -> bytes:
        """Make one call. Raises GRPCError for what kubelet answers, and Unanswered for the rest."""
        call: UnaryUnaryMethod[bytes, bytes] = UnaryUnaryMethod(self._to_this_kubelet(), method, bytes, bytes)
        try:
            return await call(request, timeout=within_s)
        except UNANSWERED as error:
            said = str(error) or type(error).__name__
            raise Unanswered(f"{method.rpartition('/')[2]}: {self._socket}: {said}") from error

    def _to_this_kubelet(self) -> Channel:
        """Return a channel to the kubelet that listens now: a connection to the one before may outlive its socket."""
        life = self.life()
        if self._channel is None or life != self._life:
            self._close()
            self._channel, self._life = Channel(path=str(self._socket), codec=BytesCodec()), life
        return self._channel

    def _close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None


def _read(reader: Callable[[bytes], T], content: bytes) -> T:
    try:
        return reader(content)
    except Malformed as error:
        raise Unanswered(f"unreadable answer: {error}") from error
