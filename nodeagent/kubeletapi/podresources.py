"""The messages of kubelet's pod-resources API, v1, and their bytes (wire/protobuf.py).

Source: k8s.io/kubelet/pkg/apis/podresources/v1; field numbers as there. Devices alone are read: CPUs, memory, NUMA
nodes and what DRA gave are skipped. What is read comes from kubelet, which is trusted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from wire.protobuf import message, parts, strings, text

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
