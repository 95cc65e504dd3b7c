"""Which versions of Moorage's components a cluster has, as labels and images of pods and leases say. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from wire import names
from wire.api_groups import Lease
from wire.core import Pod

#: Of all pods that Moorage's chart makes.
SELECTOR: Final = "app.kubernetes.io/name=moorage"
COMPONENT: Final = "app.kubernetes.io/component"
_VERSION: Final = "app.kubernetes.io/version"
_LEASES: Final = {f"moorage-{name}": name for name in ("scheduler", "binder", "podgrouper", "admission")}
#: Where a version was read.
LABEL: Final = f"label {_VERSION}"
IMAGE: Final = "tag of the image"
NOWHERE: Final = "lease; no pod of it is seen"


class Component(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Pods of one component and one version. ``leader``: which of them leads; "" where none does, or nobody elects.

    ``source``: where the version was read; it is "" where nothing says it.
    """

    name: str
    version: str
    source: str
    image: str = ""
    pods: int = 0
    ready: int = 0
    leader: str = ""


def components(pods: Iterable[Pod], leases: Iterable[Lease]) -> list[Component]:
    """Count pods by component, version and image. What a lease names and no pod is has no version."""
    held = {_LEASES[lease.metadata.name]: _holder(lease) for lease in leases if lease.metadata.name in _LEASES}
    found: dict[tuple[str, ...], list[Pod]] = {}
    for pod in pods:
        if pod.status.phase not in names.ENDED_PHASES:
            found.setdefault(_key(pod), []).append(pod)
    made = [_counted(key, those, held.get(key[0], "")) for key, those in sorted(found.items())]
    seen = {component.name for component in made}
    outside = (
        Component(name=name, version="", source=NOWHERE, leader=holder)
        for name, holder in sorted(held.items())
        if holder and name not in seen
    )
    return [*made, *outside]


def _key(pod: Pod) -> tuple[str, ...]:
    """Component, version, where that was read, and image."""
    labels = pod.metadata.labels or {}
    image = pod.spec.containers[0].image if pod.spec.containers else ""
    if version := labels.get(_VERSION, ""):
        source = LABEL
    else:
        version = _tag(image)
        source = IMAGE if version else ""
    return labels.get(COMPONENT, ""), version, source, image


def _counted(key: Sequence[str], pods: Sequence[Pod], holder: str) -> Component:
    name, version, source, image = key
    return Component(
        name=name,
        version=version,
        source=source,
        image=image,
        pods=len(pods),
        ready=sum(map(_is_ready, pods)),
        leader=next((pod.metadata.name for pod in pods if holder and pod.metadata.name == holder), ""),
    )


def _is_ready(pod: Pod) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions or ())


def _tag(image: str) -> str:
    """The tag of an image; a port of its registry is none, and a digest says no version."""
    name, _, _digest = image.partition("@")
    return name.rpartition("/")[2].partition(":")[2]


def _holder(lease: Lease) -> str:
    """The host that holds a lease, which is the pod's name in a cluster (kube/lead/lease.py)."""
    return (lease.spec.holder_identity or "").rpartition("_")[0]
