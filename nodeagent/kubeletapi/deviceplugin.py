"""The messages of kubelet's device-plugin API, v1beta1, and their bytes (wire/protobuf.py), in both directions.

Source: k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1; field numbers as there. PreStartContainer is left out: a plug-in
is asked only if it wants to be. Reading raises Malformed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from wire.protobuf import flag, integer, integers, mapping, message, parts, strings, text, texts

#: kubelet takes it from nowhere else, under any root folder.
FOLDER: Final = "/var/lib/kubelet/device-plugins"
KUBELET_SOCKET: Final = "kubelet.sock"
VERSION: Final = "v1beta1"
REGISTER: Final = f"/{VERSION}.Registration/Register"
PLUGIN_SERVICE: Final = f"{VERSION}.DevicePlugin"
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"
#: Empty, and DevicePluginOptions of a plug-in that wants no further calls.
NOTHING: Final = b""
_T = TypeVar("_T")
_READ_WRITE: Final = "rw"


@dataclass(frozen=True, slots=True)
class Options:
    """Which further calls a plug-in wants of kubelet."""

    preferred_allocation: bool = False

    def encode(self) -> bytes:
        """Its bytes."""
        return flag(2, value=self.preferred_allocation)

    @classmethod
    def decode(cls, content: bytes) -> Options:
        """Read it."""
        return cls(bool(_last(integers(content, 2), 0)))


@dataclass(frozen=True, slots=True)
class RegisterRequest:
    """A plug-in introduces itself; ``endpoint`` is its socket's name in FOLDER."""

    endpoint: str
    resource: str
    version: str = VERSION
    preferred_allocation: bool = False

    def encode(self) -> bytes:
        """Its bytes."""
        options = Options(self.preferred_allocation).encode()
        return text(1, self.version) + text(2, self.endpoint) + text(3, self.resource) + message(4, options)

    @classmethod
    def decode(cls, content: bytes) -> RegisterRequest:
        """Read it."""
        options = Options.decode(_last(parts(content, 4), b""))
        endpoint, resource, version = (_last(strings(content, number), "") for number in (2, 3, 1))
        return cls(endpoint, resource, version, options.preferred_allocation)


@dataclass(frozen=True, slots=True)
class Device:
    """A device as kubelet knows it. ``numa``: its NUMA node, None if it belongs to none."""

    id: str
    is_healthy: bool = True
    numa: int | None = None


@dataclass(frozen=True, slots=True)
class DeviceList:
    """All devices of a resource; each list replaces the one before."""

    devices: Iterable[Device]

    def encode(self) -> bytes:
        """Its bytes."""
        health = {True: text(2, HEALTHY), False: text(2, UNHEALTHY)}
        return b"".join(
            message(1, text(1, one.id) + health[one.is_healthy] + _topology(one.numa)) for one in self.devices
        )

    @classmethod
    def decode(cls, content: bytes) -> DeviceList:
        """Read it."""
        return cls(tuple(map(_device, parts(content, 1))))


@dataclass(frozen=True, slots=True)
class AllocateRequest:
    """Which devices kubelet has chosen, for each container of the request (kubelet sends one)."""

    containers: tuple[tuple[str, ...], ...]

    def encode(self) -> bytes:
        """Its bytes."""
        return b"".join(message(1, texts(1, devices)) for devices in self.containers)

    @classmethod
    def decode(cls, content: bytes) -> AllocateRequest:
        """Read it."""
        return cls(tuple(tuple(strings(container, 1)) for container in parts(content, 1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerResponse:
    """What kubelet adds to a container. ``mounts`` and ``files``: path in the container -> path on the node.

    Mounts are read-only; device files can be read and written.
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    mounts: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    cdi_devices: Sequence[str] = ()

    def encode(self) -> bytes:
        """Its bytes."""
        mounts = (text(1, inside) + text(2, outside) + flag(3, value=True) for inside, outside in self.mounts.items())
        files = (text(1, inside) + text(2, outside) + text(3, _READ_WRITE) for inside, outside in self.files.items())
        return b"".join(
            (
                mapping(1, self.environment),
                *(message(2, mount) for mount in mounts),
                *(message(3, file) for file in files),
                mapping(4, self.annotations),
                *(message(5, text(1, name)) for name in self.cdi_devices),
            )
        )

    @classmethod
    def decode(cls, content: bytes) -> ContainerResponse:
        """Read it."""
        return cls(
            environment=_pairs(content, 1),
            mounts=_pairs(content, 2),
            files=_pairs(content, 3),
            annotations=_pairs(content, 4),
            cdi_devices=tuple(_last(strings(one, 1), "") for one in parts(content, 5)),
        )


@dataclass(frozen=True, slots=True)
class AllocateResponse:
    """The answer for each container of the request, in its order."""

    containers: Sequence[ContainerResponse]

    def encode(self) -> bytes:
        """Its bytes."""
        return b"".join(message(1, container.encode()) for container in self.containers)

    @classmethod
    def decode(cls, content: bytes) -> AllocateResponse:
        """Read it."""
        return cls([ContainerResponse.decode(one) for one in parts(content, 1)])


@dataclass(frozen=True, slots=True)
class Choice:
    """kubelet has to choose ``size`` of ``available``, those of ``included`` among them."""

    available: tuple[str, ...]
    included: tuple[str, ...]
    size: int


@dataclass(frozen=True, slots=True)
class PreferredRequest:
    """A choice for each container (kubelet sends one)."""

    containers: tuple[Choice, ...]

    def encode(self) -> bytes:
        """Its bytes."""
        return b"".join(
            message(1, texts(1, one.available) + texts(2, one.included) + integer(3, one.size))
            for one in self.containers
        )

    @classmethod
    def decode(cls, content: bytes) -> PreferredRequest:
        """Read it."""
        return cls(
            tuple(
                Choice(tuple(strings(one, 1)), tuple(strings(one, 2)), _last(integers(one, 3), 0))
                for one in parts(content, 1)
            )
        )


@dataclass(frozen=True, slots=True)
class PreferredResponse:
    """The advice for each choice."""

    containers: Sequence[Sequence[str]]

    def encode(self) -> bytes:
        """Its bytes."""
        return b"".join(message(1, texts(1, ids)) for ids in self.containers)

    @classmethod
    def decode(cls, content: bytes) -> PreferredResponse:
        """Read it."""
        return cls([strings(one, 1) for one in parts(content, 1)])


def _last(values: Sequence[_T], default: _T) -> _T:
    """Of a field that is there several times the last one counts."""
    return values[-1] if values else default


def _topology(numa: int | None) -> bytes:
    return b"" if numa is None else message(3, message(1, integer(1, numa)))


def _device(content: bytes) -> Device:
    nodes = parts(_last(parts(content, 3), b""), 1)
    numa = _last(integers(nodes[0], 1), 0) if nodes else None
    return Device(_last(strings(content, 1), ""), _last(strings(content, 2), "") == HEALTHY, numa)


def _pairs(content: bytes, number: int) -> dict[str, str]:
    """A map, or messages whose first two fields are texts."""
    return {_last(strings(one, 1), ""): _last(strings(one, 2), "") for one in parts(content, number)}
