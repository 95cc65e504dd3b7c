"""What a device plug-in is told to do on one node: values, as read from its file and its environment, or what is wrong.

Names of fields follow NVIDIA's file ``version: v1``; nodeagent/core/plugin/settings_file.py reads it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from typing_extensions import override


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing that is wrong. ``path`` names an entry, as in ``sharing.timeSlicing.resources[1].replicas``.

    ``is_unserved``: the file is right, and asks for something that this plug-in does not do.
    """

    path: str
    problem: str
    allowed: str
    is_unserved: bool = False

    @override
    def __str__(self) -> str:
        """In one line, for a log or an event."""
        return f"{self.path}: {self.problem}; allowed: {self.allowed}"


def shown(value: object) -> str:
    """A value of a file in at most 40 characters. Lists and objects are not written out."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    text = {True: "true", False: "false", None: "null"}[value] if isinstance(value, bool | None) else str(value)
    printable = "".join(character if character.isprintable() else "?" for character in text)
    return repr(printable if len(printable) <= 40 else f"{printable[:37]}...")


#: Prefix of all resources that a device plug-in serves here.
PREFIX: Final = "nvidia.com/"
#: kubelet reads at most 4 MiB of a list of devices.
MOST_IDS: Final = 60_000


class MigStrategy(Enum):
    """How MIG slices are offered: not at all, as if they were GPUs, or under names of their own."""

    NONE = "none"
    SINGLE = "single"
    MIXED = "mixed"


class Delivery(Enum):
    """How a container gets its devices. Several can be combined."""

    ENVVAR = "envvar"
    VOLUME_MOUNTS = "volume-mounts"
    CDI_ANNOTATIONS = "cdi-annotations"
    CDI_CRI = "cdi-cri"

    @property
    def is_cdi(self) -> bool:
        """Whether it names devices of a CDI file, which has to be there."""
        return self in {Delivery.CDI_ANNOTATIONS, Delivery.CDI_CRI}


class IdStrategy(Enum):
    """By which name a device is given to the container runtime."""

    UUID = "uuid"
    INDEX = "index"


class Policy(Enum):
    """Which replica kubelet is advised to take: of the GPU with the fewest in use, or with the most."""

    DISTRIBUTED = "distributed"
    PACKED = "packed"


class All(Enum):
    """Every device of a name."""

    ALL = "all"


class Auto(Enum):
    """One replica for each of these amounts of device memory, in MiB."""

    PER_GIB = 1024
    #: iktos' ``-1``.
    PER_1000_MIB = 1000


#: Every device, the first n of them, or these: an index, ``i:j`` (slice j of GPU i), or a UUID.
Devices = All | int | tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Devices that are served under another name, several times, or both.

    ``name`` is the resource that they would have without this entry, ``rename`` the one that pods ask for. ``path`` is
    the place in the file. ``replicas`` of 1: exclusive.
    """

    path: str
    name: str
    rename: str
    replicas: int | Auto
    devices: Devices = All.ALL


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSettings:
    """All settings of a device plug-in. Defaults are NVIDIA's."""

    mig_strategy: MigStrategy = MigStrategy.NONE
    fail_on_init_error: bool = True
    driver_root: str = "/"
    #: "": the driver's root.
    dev_root: str = ""
    pass_device_specs: bool = False
    deliveries: frozenset[Delivery] = frozenset({Delivery.ENVVAR})
    id_strategy: IdStrategy = IdStrategy.UUID
    cdi_annotation_prefix: str = "cdi.k8s.io/"
    ctk_path: str = "/usr/bin/nvidia-ctk"
    policy: Policy = Policy.DISTRIBUTED
    entries: tuple[Entry, ...] = ()
    fail_requests_greater_than_one: bool = False
    #: Of the section ``moorage``: UUIDs of GPUs that were taken out of the machine.
    gone: frozenset[str] = field(default_factory=frozenset)
    #: XIDs that are not counted, or are although they usually are not. None: all of them.
    ignored_xids: frozenset[int] | None = field(default_factory=frozenset)
    counted_xids: frozenset[int] | None = field(default_factory=frozenset)
    #: Seconds without a sign of illness before a device is offered again.
    healing_s: int = 60
    #: Whether the node gets the labels of GPU feature discovery.
    labels: bool = True
