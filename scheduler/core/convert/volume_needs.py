"""What unbound claims ask of volumes, what volumes, classes and drivers offer them: wire objects in, slim records out.

The semantics are kube-scheduler's (VolumeBinding) and those of the PV controller's search for a volume. Sizes are whole
bytes, rounded against the claim. What can't be read offers nothing; a claim that can't be read keeps its pod waiting.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from scheduler.core.convert.selectors import can_be_read, requirements
from scheduler.core.filters.requirements import effort_of_all, meets
from scheduler.core.model.pod_class import Requirement, Term
from scheduler.core.model.volume_need import VolumeNeed
from wire import names
from wire.quantity import MalformedQuantity, bytes_down, bytes_up
from wire.storage import CSIDriver, CSIStorageCapacity, PersistentVolume, PersistentVolumeClaim, StorageClass

_STORAGE: Final = "storage"
_FILESYSTEM: Final = "Filesystem"
#: Phases of volumes that are somebody's, or nobody's any more. Of others a claim may have one.
_TAKEN: Final = frozenset({"Bound", "Released", "Failed"})
_AVAILABLE: Final = "Available"
#: Each volume of the class is compared with a claim's selector. Nobody means that many expressions and values.
_MOST_SELECTED: Final = 100


class VolumeOffer(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a PersistentVolume is to a claim. ``is_available``: to any; else to the one that it names only.

    ``claim_uid``: that of the claim that it names, "" if it names none or any of that name.
    """

    storage_class: str
    size_bytes: int
    access_modes: frozenset[str] = frozenset()
    mode: str = _FILESYSTEM
    attributes_class: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    is_available: bool = False
    claim_uid: str = ""


class DriverRecord(msgspec.Struct, frozen=True, gc=False):
    """A CSI driver. ``tells_capacity``: CSIStorageCapacity objects say how much it can provision where."""

    name: str
    tells_capacity: bool

    @property
    def key(self) -> str:
        """Its name."""
        return self.name


class CapacityRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """How much can be provisioned of a class, on nodes for whose labels ``topology`` holds (None: nowhere).

    ``most_bytes``: the largest volume; ``free_bytes``: of all together. None: not said.
    """

    namespace: str
    name: str
    storage_class: str
    topology: tuple[Requirement, ...] | None
    free_bytes: int | None = None
    most_bytes: int | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name


def need(claim: PersistentVolumeClaim, storage_class: str) -> VolumeNeed | None:
    """Read what a claim asks; None if its size or its selector can't be read, or is more than anybody means."""
    spec, selector = claim.spec, claim.spec.selector
    selected = requirements(selector) or ()
    if not can_be_read(selector) or effort_of_all(selected) > _MOST_SELECTED:
        return None
    try:
        size = bytes_up((spec.resources.requests or {}).get(_STORAGE, 0))
    except MalformedQuantity:
        return None
    return VolumeNeed(
        storage_class=storage_class,
        size_bytes=size,
        access_modes=tuple(sorted(set(spec.access_modes or ()))),
        mode=spec.volume_mode or _FILESYSTEM,
        attributes_class=spec.volume_attributes_class_name or "",
        selector=selected,
        node=(claim.metadata.annotations or {}).get(names.SELECTED_NODE, ""),
    )


def offer(volume: PersistentVolume) -> VolumeOffer | None:
    """Read what a volume offers; None if it is bound, used up or being deleted, or if its size can't be read."""
    meta, spec, ref = volume.metadata, volume.spec, volume.spec.claim_ref
    if meta.deletion_timestamp is not None or volume.status.phase in _TAKEN:
        return None
    size = _bytes((spec.capacity or {}).get(_STORAGE))
    if size is None:
        return None
    return VolumeOffer(
        storage_class=(meta.annotations or {}).get(names.OLD_STORAGE_CLASS) or spec.storage_class_name,
        size_bytes=size,
        access_modes=frozenset(spec.access_modes or ()),
        mode=spec.volume_mode or _FILESYSTEM,
        attributes_class=spec.volume_attributes_class_name or "",
        labels=tuple(sorted((meta.labels or {}).items())),
        is_available=ref is None and volume.status.phase == _AVAILABLE,
        claim_uid="" if ref is None else ref.uid,
    )


def topologies(storage_class: StorageClass) -> tuple[Term, ...] | None:
    """Read for which nodes a class makes volumes; a term without any expression holds nowhere."""
    if not storage_class.allowed_topologies:
        return None
    return tuple(
        Term(tuple(Requirement(e.key, "In", tuple(e.values or ())) for e in term.match_label_expressions or ()), ())
        for term in storage_class.allowed_topologies
    )


def driver_record(driver: CSIDriver) -> DriverRecord:
    """Read a CSI driver."""
    return DriverRecord(driver.metadata.name, bool(driver.spec.storage_capacity))


def capacity_record(capacity: CSIStorageCapacity) -> CapacityRecord:
    """Read a capacity. A topology that can't be read takes no node."""
    topology = capacity.node_topology
    return CapacityRecord(
        namespace=capacity.metadata.namespace,
        name=capacity.metadata.name,
        storage_class=capacity.storage_class_name,
        topology=requirements(topology) if can_be_read(topology) else None,
        free_bytes=_bytes(capacity.capacity),
        most_bytes=_bytes(capacity.maximum_volume_size),
    )


def matches(asked: VolumeNeed, offered: VolumeOffer, *, is_for_it: bool) -> bool:
    """Whether a volume can be the one of a claim, as far as its node does not matter.

    ``is_for_it``: the volume names the claim, so that its labels and access modes need not match.
    """
    if offered.size_bytes < asked.size_bytes or offered.mode != asked.mode:
        return False
    if offered.storage_class != asked.storage_class or offered.attributes_class != asked.attributes_class:
        return False
    if is_for_it:
        return True
    if not offered.is_available or not offered.access_modes.issuperset(asked.access_modes):
        return False
    return all_meet(asked.selector, dict(offered.labels))


def all_meet(selector: Iterable[Requirement], labels: dict[str, str]) -> bool:
    """Whether all expressions hold on these labels."""
    return all(meets(requirement, labels) for requirement in selector)


def _bytes(value: str | float | None) -> int | None:
    try:
        return None if value is None else max(0, bytes_down(value))
    except MalformedQuantity:
        return None
