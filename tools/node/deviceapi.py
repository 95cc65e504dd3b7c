"""The messages of kubelet's device-plugin API, v1beta1, and their bytes (wire/protobuf.py).

Source: k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1; field numbers as there. What an emulated device never has
(topology, mounts, device nodes, CDI names) is left out of what we send, and skipped in what we read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wire.protobuf import flag, mapping, message, parts, strings, text, texts

#: kubelet takes it from nowhere else, under any root folder.
FOLDER = "/var/lib/kubelet/device-plugins"
KUBELET_SOCKET = "kubelet.sock"
VERSION = "v1beta1"
REGISTER = f"/{VERSION}.Registration/Register"
PLUGIN_SERVICE = f"{VERSION}.DevicePlugin"
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"
#: DevicePluginOptions and Empty: a plug-in that wants no further calls says nothing.
NOTHING = b""


@dataclass(frozen=True, slots=True)
class RegisterRequest:
    """What a plug-in says when it introduces itself; ``endpoint`` is its socket's name in FOLDER."""

    endpoint: str
    resource: str
    version: str = VERSION
    preferred_allocation: bool = False

    def encode(self) -> bytes:
        """Its bytes."""
        options = flag(2, value=self.preferred_allocation)
        return text(1, self.version) + text(2, self.endpoint) + text(3, self.resource) + message(4, options)


@dataclass(frozen=True, slots=True)
class DeviceList:
    """All devices of a resource, device id -> whether it is healthy; each list replaces the one before."""

    devices: Mapping[str, bool]

    def encode(self) -> bytes:
        """Its bytes."""
        told = {uuid: HEALTHY if well else UNHEALTHY for uuid, well in self.devices.items()}
        return b"".join(message(1, text(1, uuid) + text(2, health)) for uuid, health in told.items())


@dataclass(frozen=True, slots=True)
class AllocateRequest:
    """Which devices kubelet has chosen, for each container of the request (kubelet sends one)."""

    containers: tuple[tuple[str, ...], ...]

    @classmethod
    def decode(cls, content: bytes) -> AllocateRequest:
        """Read it. Raises Malformed."""
        return cls(tuple(tuple(strings(container, 1)) for container in parts(content, 1)))

    def encode(self) -> bytes:
        """Its bytes."""
        return b"".join(message(1, texts(1, devices)) for devices in self.containers)


@dataclass(frozen=True, slots=True)
class AllocateResponse:
    """Environment for each container of the request, in its order."""

    environments: Sequence[Mapping[str, str]]

    def encode(self) -> bytes:
        """Its bytes."""
        return b"".join(message(1, mapping(1, environment)) for environment in self.environments)
