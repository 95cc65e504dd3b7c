"""What CDI devices add to a container: the CDI files of a node, and their edits as a part of a CRI request.

Debian's containerd (1.6) knows no CDI; from 1.7 on it does what is here. Environment and bind mounts are enough for
emulated devices; a file that wants more is refused. Sources: the CDI specification 0.6.0; CRI's runtime/v1/api.proto,
whose field numbers are below.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from wire.protobuf import flag, message, parts, strings, text

#: Where drivers put files of devices that come and go.
FOLDER: Final = "/var/run/cdi"
VERSION: Final = "0.6.0"
_ENV, _MOUNTS = "env", "mounts"
_READ_ONLY: Final = "ro"
#: CreateContainerRequest.config, and in it envs, mounts, CDI_devices.
_CONFIG, _CONFIG_ENVS, _CONFIG_MOUNTS, _CONFIG_CDI_DEVICES = 2, 6, 7, 17

#: Edits of a container as a CDI file has them.
Edits: TypeAlias = Mapping[str, Any]


class Unresolvable(Exception):
    """Raised when a container can't get a CDI device; the text says why."""


@dataclass(frozen=True, slots=True)
class Spec:
    """One CDI file: devices of one kind (``vendor/class``) by name, and what each container with one of them gets."""

    kind: str
    devices: Mapping[str, Edits]
    common: Edits

    @classmethod
    def decode(cls, content: str) -> Spec:
        """Read a file. Raises Unresolvable."""
        try:
            read = json.loads(content)
            devices = {str(each["name"]): each["containerEdits"] for each in read["devices"]}
            return cls(str(read["kind"]), devices, read.get("containerEdits", {}))
        except (ValueError, KeyError, TypeError) as error:
            raise Unresolvable(f"not a CDI file: {error!r}") from error


def read(folder: Path) -> list[Spec]:
    """Return the files of a folder by name; none if there is no folder. Raises Unresolvable."""
    return [Spec.decode(path.read_text()) for path in sorted(folder.glob("*.json"))]


def write(path: Path, spec: Spec) -> None:
    """Write a file as a whole."""
    devices = [{"name": name, "containerEdits": edits} for name, edits in spec.devices.items()]
    content = {"cdiVersion": VERSION, "kind": spec.kind, "devices": devices, "containerEdits": spec.common}
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(content))
    fresh.replace(path)


def wanted(request: bytes) -> list[str]:
    """Return the CDI devices that a CreateContainerRequest names. Raises wire.protobuf.Malformed."""
    named = (part for config in parts(request, _CONFIG) for part in parts(config, _CONFIG_CDI_DEVICES))
    return [name for part in named for name in strings(part, 1)]


def resolved(specs: Iterable[Spec], names: Sequence[str]) -> list[Edits]:
    """Return the edits of devices: each device's own, and once what its file has for all. Raises Unresolvable."""
    by_name = {f"{spec.kind}={name}": (spec, edits) for spec in specs for name, edits in spec.devices.items()}
    if unknown := [name for name in names if name not in by_name]:
        raise Unresolvable(f"unresolvable CDI devices {', '.join(unknown)}")
    files = {id(by_name[name][0]): by_name[name][0].common for name in names}
    return [*(by_name[name][1] for name in names), *files.values()]


def edited(request: bytes, edits: Iterable[Edits]) -> bytes:
    """Return a CreateContainerRequest with these edits. Raises Unresolvable for edits of other kinds.

    A message that is there a second time is merged into the first one, and repeated fields are added to.
    """
    added = b"".join(map(_encoded, edits))
    return request + message(_CONFIG, added) if added else request


def _encoded(edits: Edits) -> bytes:
    if other := edits.keys() - {_ENV, _MOUNTS}:
        raise Unresolvable(f"edits {', '.join(sorted(other))}: {_ENV} and {_MOUNTS} are all that is served here")
    variables = (entry.partition("=")[::2] for entry in edits.get(_ENV, ()))
    envs = b"".join(message(_CONFIG_ENVS, text(1, name) + text(2, value)) for name, value in variables)
    return envs + b"".join(message(_CONFIG_MOUNTS, _mount(each)) for each in edits.get(_MOUNTS, ()))


def _mount(mount: Mapping[str, Any]) -> bytes:
    is_read_only = _READ_ONLY in mount.get("options", ())
    return text(1, mount["containerPath"]) + text(2, mount["hostPath"]) + flag(3, value=is_read_only)
