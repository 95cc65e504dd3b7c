"""How devices are named to the container runtime: by their UUIDs, or as CDI names them (docs/cdi.md).

Where NVIDIA's operator has CDI on, the runtime looks a bare UUID up among its default kind of devices, which need not
have it; elsewhere it takes a CDI name for the UUID of no device. Either way a container with the wrong form does not
start, and sees nothing.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Sequence
from typing import Final

from wire import names
from wire.clusterpolicy import CdiSpec, ClusterPolicy

#: On a ClusterPolicy: the operator's version.
VERSION_LABEL: Final = "app.kubernetes.io/version"
#: From this one on ``spec.cdi.enabled`` alone says that CDI is on.
_ALONE: Final = (25, 10, 0)

#: Go's semantic versions: with a v; minor and patch may be left out, the rest then too; no number begins with a zero.
_NUMBER: Final = r"(0|[1-9][0-9]*)"
_VERSION: Final = re.compile(rf"v{_NUMBER}(?:\.{_NUMBER}(?:\.{_NUMBER}(-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?)?)?")


class Cdi(enum.Enum):
    """Whether devices are named as CDI does (KAI's ``cdiEnabled``)."""

    #: As the ClusterPolicy says; without one they are not.
    AUTO = "auto"
    ON = "true"
    OFF = "false"


def is_on(policy: ClusterPolicy | None) -> bool:
    """Whether the operator has CDI on, by KAI's rule (kai-contract 1.11)."""
    spec = _spec(policy)
    if policy is None or not spec.enabled:
        return False
    return _says_all((policy.metadata.labels or {}).get(VERSION_LABEL, "")) or bool(spec.default)


def has_nri_plugin(policy: ClusterPolicy | None) -> bool:
    """Whether the operator hands devices over by its NRI plugin, which makes no runtime class. It needs CDI."""
    spec = _spec(policy)
    return bool(spec.enabled and spec.nri_plugin_enabled)


def listed(uuids: Iterable[str], *, cdi: bool, beside: Sequence[str] = ()) -> str:
    """The devices of a container as its runtime reads them. ``beside``: CDI names that it gets and that are no GPUs.

    Names of both forms are never mixed, so beside UUIDs those are left out. NVIDIA's toolkit in its mode ``auto``
    resolves CDI names only where all are such names. Of a mix it makes UUIDs and indices: it would look for a GPU
    called ``moorage.dev/view=...``, and refuse the container. In its mode ``cdi`` it looks a bare UUID up under its
    ``default-kind``, which need not be that of the device plug-in.

    Source: nvidia-container-toolkit, internal/modifier/cdi.go, internal/info/auto.go, internal/config/image.
    """
    if not cdi:
        return ",".join(uuids)
    return ",".join([*(names.CDI_DEVICE_PREFIX + uuid for uuid in uuids), *beside])


def _spec(policy: ClusterPolicy | None) -> CdiSpec:
    return (policy.spec.cdi if policy is not None and policy.spec is not None else None) or CdiSpec()


def _says_all(version: str) -> bool:
    """Whether an operator of this version looks at ``enabled`` only. What is no version is older than all."""
    found = _VERSION.fullmatch(version)
    if found is None:
        return False
    number = tuple(int(part or 0) for part in found.groups()[:3])
    return number > _ALONE or (number == _ALONE and not found[4])
