"""The emulated GPUs of a real node: files that say which there are, which are ill, and which are for claims alone.

The first is in the NVML stub's own words (tools/nvml_stub), so what a container sees is a selection of its lines. All
are replaced as a whole and may change while the node runs. Standard library only, and nothing of ours: the runtime
wrapper reads the same file at every start of a container.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

MACHINE = "machine"
UNHEALTHY = "unhealthy"
CLAIMABLE = "claimable"
#: A file here, in a container, is a device that one of the pod's ResourceClaims has; its name is the UUID.
CLAIMED = "/run/moorage-claimed"


@dataclass(frozen=True, slots=True)
class Gpu:
    """One emulated device; ``minor`` is the N of /dev/nvidiaN."""

    uuid: str
    minor: int
    name: str = "NVIDIA H100 80GB HBM3"
    mem_mib: int = 81559

    @property
    def line(self) -> str:
        """The stub's statement of it."""
        return f"gpu {self.uuid} {self.name.replace(' ', '_')} {self.mem_mib} {self.minor}"


def made_up(node: str, count: int) -> tuple[Gpu, ...]:
    """Return devices of a node, the same ones each time."""
    return tuple(Gpu(f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{i}.{node}')}", i) for i in range(count))


def write_machine(folder: Path, gpus: Sequence[Gpu]) -> None:
    """Say which devices there are."""
    _replace(folder / MACHINE, [gpu.line for gpu in gpus])


def add_statements(folder: Path, statements: Sequence[str]) -> None:
    """Add further statements of the stub, until the devices are written again."""
    path = folder / MACHINE
    _replace(path, [*path.read_text().splitlines(), *statements])


def write_unhealthy(folder: Path, uuids: Collection[str]) -> None:
    """Say which devices are ill; a device plugin that runs tells kubelet at once."""
    _replace(folder / UNHEALTHY, sorted(uuids))


def write_claimable(folder: Path, uuids: Collection[str]) -> None:
    """Say which devices the driver of ResourceClaims offers, and so the device plug-in does not."""
    _replace(folder / CLAIMABLE, sorted(uuids))


def read_machine(folder: Path) -> dict[str, str]:
    """Return UUID -> line of each device, in NVML's order."""
    lines = (folder / MACHINE).read_text().splitlines()
    return {line.split()[1]: line for line in lines if line.startswith("gpu ")}


def read_unhealthy(folder: Path) -> frozenset[str]:
    """Return the UUIDs of ill devices."""
    return frozenset((folder / UNHEALTHY).read_text().split())


def read_claimable(folder: Path) -> frozenset[str]:
    """Return the UUIDs of devices for claims; none where that was not said."""
    path = folder / CLAIMABLE
    return frozenset(path.read_text().split()) if path.exists() else frozenset()


def _replace(path: Path, lines: Sequence[str]) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text("".join(f"{line}\n" for line in lines))
    fresh.replace(path)
