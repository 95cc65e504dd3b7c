"""Claims, volumes, storage classes and limits of nodes, as decisions know them: wire objects in, slim records out.

What unbound claims ask of volumes, and what volumes, classes and drivers offer them, follows kube-scheduler's
VolumeBinding and the PV controller's search for a volume. Sizes are whole bytes, rounded against the claim. What can't
be read offers nothing; a claim that can't be read keeps its pod waiting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

import msgspec

from scheduler.core.convert import bounds, constraints
from scheduler.core.convert.owners import controller_uid
from scheduler.core.convert.selectors import can_be_read, requirements
from scheduler.core.filters.node_affinity import effort_of_all, meets
from scheduler.core.filters.volume_places import ZONE_LABELS
from scheduler.core.model.pod_class import Requirement, Term, VolumeNeed, VolumeRule
from scheduler.core.model.records import ClaimUse
from wire import names
from wire.core import Pod, Volume
from wire.quantity import MalformedQuantity, bytes_down, bytes_up
from wire.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeSpec,
    StorageClass,
    VolumeAttachment,
)

#: A CSI driver and its handle of a volume.
Attached = tuple[str, str]

_GCE: Final = "pd.csi.storage.gke.io"
_EBS: Final = "ebs.csi.aws.com"
_AZURE: Final = "disk.csi.azure.com"
_CINDER: Final = "cinder.csi.openstack.org"
_PORTWORX: Final = "pxd.portworx.com"
#: The names of these drivers.
DRIVERS: Final = frozenset({_GCE, _EBS, _AZURE, _CINDER, _PORTWORX})
#: What storage classes name as provisioner, for these drivers.
_PROVISIONERS: Final = {
    "kubernetes.io/gce-pd": _GCE,
    "kubernetes.io/aws-ebs": _EBS,
    "kubernetes.io/azure-disk": _AZURE,
    "kubernetes.io/cinder": _CINDER,
    "kubernetes.io/portworx-volume": _PORTWORX,
}
#: Stands for the project, and for a zone that is not known.
_UNSPECIFIED: Final = "UNSPECIFIED"
_ZONES_APART: Final = "__"
_EBS_URL: Final = "aws://"
#: Azure disks of other kinds have no CSI driver.
_MANAGED: Final = "managed"
#: Parts of a zone's name: locale, region, zone.
_PARTS: Final = 3


def attached_by_pod(pod: Pod) -> tuple[Attached, ...]:
    """The volumes that a pod names without a claim, each once, one more than it may have at most."""
    inline = (volume for volume in pod.spec.volumes or () if not _is_claim(volume))
    found = (each for volume in inline for each in _translated(volume, {}))
    return tuple(
        dict.fromkeys((driver, bounds.name(handle)) for driver, handle in islice(found, bounds.MOST_VOLUMES + 1))
    )


def attached_as(volume: PersistentVolume) -> Attached | None:
    """The driver and the handle of a PersistentVolume; None if it is none of these.

    Volumes of drivers that were inside Kubernetes count as their CSI drivers know them, which serve them since the
    migration: a node limits the volumes of a CSI driver in either form. The drivers' names and handles are those of
    Kubernetes' csi-translation-lib 0.36: of GCE, EBS, Azure disks, Cinder and Portworx, for which kube-scheduler 1.36
    takes the migration for granted. A volume that can't be translated counts nowhere.
    """
    return next(_translated(volume.spec, volume.metadata.labels or {}), None)


def driver_of(provisioner: str) -> str:
    """The CSI driver that makes the volumes of a storage class with this provisioner."""
    return _PROVISIONERS.get(provisioner, provisioner)


def _is_claim(volume: Volume) -> bool:
    return volume.persistent_volume_claim is not None or volume.ephemeral is not None


def _translated(source: Volume | PersistentVolumeSpec, labels: Mapping[str, str]) -> Iterator[Attached]:
    """What a source names; ``labels``: those of its PersistentVolume."""
    if (gce := source.gce_persistent_disk) is not None and (place := _gce_place(labels)):
        yield _GCE, f"projects/{_UNSPECIFIED}/{place}/disks/{gce.pd_name}"
    if (ebs := source.aws_elastic_block_store) is not None and (handle := _ebs_handle(ebs.volume_id)):
        yield _EBS, handle
    if (azure := source.azure_disk) is not None and azure.disk_uri and (azure.kind or _MANAGED).lower() == _MANAGED:
        yield _AZURE, azure.disk_uri
    if source.cinder is not None and source.cinder.volume_id:
        yield _CINDER, source.cinder.volume_id
    if source.portworx_volume is not None and source.portworx_volume.volume_id:
        yield _PORTWORX, source.portworx_volume.volume_id


def _gce_place(labels: Mapping[str, str]) -> str:
    """Where a disk is: in a zone, or in the region that its zones share; "" if these have none in common."""
    zones = (labels.get(names.OLD_ZONE_LABEL) or labels.get(names.ZONE_LABEL) or _UNSPECIFIED).split(_ZONES_APART)
    if len(zones) == 1:
        return f"zones/{zones[0]}"
    parts = [zone.split("-") for zone in zones]
    regions = {"-".join(each[:2]) for each in parts}
    is_known = len(regions) == 1 and all(len(each) == _PARTS for each in parts)
    return f"regions/{regions.pop()}" if is_known else ""


def _ebs_handle(volume_id: str) -> str:
    """``vol-...``, of which ``aws://ZONE/vol-...`` is another form; "" if it is none."""
    if not volume_id.startswith(_EBS_URL):
        return volume_id
    _, _, path = volume_id.removeprefix(_EBS_URL).partition("/")
    handle = path.strip("/")
    return handle if handle.startswith("vol-") and "/" not in handle else ""


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


#: Namespace and name of a claim.
ClaimKey = tuple[str, str]

_LOST: Final = "Lost"
_ALONE: Final = "ReadWriteOncePod"
_WHEN_USED: Final = "WaitForFirstConsumer"


class ClaimRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A PersistentVolumeClaim. ``is_bound``: the PV controller is done; ``volume`` alone may be a wish.

    ``is_alone``: one pod may use it at a time (ReadWriteOncePod). ``owner``: UID of the object that controls it.
    ``need``: what it asks of a volume while it is not bound, as far as the claim itself says; None: nobody can tell.
    """

    namespace: str
    name: str
    volume: str = ""
    is_bound: bool = False
    is_lost: bool = False
    is_leaving: bool = False
    is_alone: bool = False
    storage_class: str = ""
    owner: str = ""
    uid: str = ""
    need: VolumeNeed | None = None

    @property
    def key(self) -> ClaimKey:
        """What pods name it by."""
        return self.namespace, self.name


class VolumeRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A PersistentVolume. ``rule`` None: it can be used anywhere. ``attached``: (CSI driver, handle), if it has one.

    ``is_in_tree``: it is written as one of a driver that was inside Kubernetes. ``claim``: whom it is for.
    ``offer``: what it is to a claim that looks for a volume; None if it is none for anybody.
    """

    name: str
    rule: VolumeRule | None = None
    attached: tuple[str, str] | None = None
    is_in_tree: bool = False
    claim: ClaimKey | None = None
    offer: VolumeOffer | None = None

    @property
    def key(self) -> str:
        """Its name."""
        return self.name


class StorageClassRecord(msgspec.Struct, frozen=True, gc=False):
    """A StorageClass. ``waits``: it binds claims when a pod that uses them has a node.

    ``provisioner`` "": none makes volumes of it. ``topologies``: terms of nodes for which it does, None: all.
    """

    name: str
    waits: bool
    provisioner: str = ""
    topologies: tuple[Term, ...] | None = None

    @property
    def key(self) -> str:
        """Its name."""
        return self.name


class LimitsRecord(msgspec.Struct, frozen=True, gc=False):
    """How many volumes of a CSI driver a node takes at most, by driver; those without a limit are left out."""

    node: str
    most: dict[str, int]

    @property
    def key(self) -> str:
        """Its node."""
        return self.node


class AttachmentRecord(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """A VolumeAttachment: a volume that a driver has on a node, or is to have there, for any pod."""

    name: str
    node: str
    driver: str
    volume: str

    @property
    def key(self) -> str:
        """Its name."""
        return self.name


def claims_of(pod: Pod) -> tuple[ClaimUse, ...]:
    """The claims that a pod mounts, each once, one more than it may have at most."""
    return tuple(dict.fromkeys(islice(_claims_of(pod), bounds.MOST_VOLUMES + 1)))


def _claims_of(pod: Pod) -> Iterator[ClaimUse]:
    for volume in pod.spec.volumes or ():
        if volume.persistent_volume_claim is not None:
            yield ClaimUse(str(volume.persistent_volume_claim.get("claimName", "")))
        elif volume.ephemeral is not None:
            yield ClaimUse(f"{pod.metadata.name}-{volume.name}", is_own=True)


def claim_record(claim: PersistentVolumeClaim) -> ClaimRecord:
    """Read a claim."""
    meta, spec = claim.metadata, claim.spec
    owner = controller_uid(meta)
    is_bound = bool(spec.volume_name) and names.BIND_COMPLETED in (meta.annotations or {})
    storage_class = (meta.annotations or {}).get(names.OLD_STORAGE_CLASS) or spec.storage_class_name or ""
    return ClaimRecord(
        namespace=meta.namespace,
        name=meta.name,
        volume=spec.volume_name,
        is_bound=is_bound,
        is_lost=claim.status.phase == _LOST,
        is_leaving=meta.deletion_timestamp is not None,
        is_alone=_ALONE in (spec.access_modes or ()),
        storage_class=storage_class,
        owner=owner,
        uid=meta.uid,
        need=None if spec.volume_name else need(claim, storage_class),
    )


def volume_record(volume: PersistentVolume) -> VolumeRecord:
    """Read a volume."""
    spec, ref = volume.spec, volume.spec.claim_ref
    required = spec.node_affinity.required if spec.node_affinity is not None else None
    rule = VolumeRule(
        terms=None if required is None else constraints.terms(required), zones=_zones(volume.metadata.labels or {})
    )
    return VolumeRecord(
        name=volume.metadata.name,
        rule=None if rule == VolumeRule() else rule,
        attached=attached_as(volume) if spec.csi is None else (spec.csi.driver, spec.csi.volume_handle),
        is_in_tree=spec.csi is None,
        claim=None if ref is None else (ref.namespace, ref.name),
        offer=offer(volume),
    )


def _zones(labels: Mapping[str, str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """What the labels say of zones and regions; one that names an empty zone says nothing, as at kube-scheduler."""
    listed = ((key, labels[key].split(_ZONES_APART)) for key in sorted(ZONE_LABELS & labels.keys()))
    read = ((key, tuple(sorted({zone.strip() for zone in zones}))) for key, zones in listed)
    return tuple((key, zones) for key, zones in read if all(zones))


def storage_class_record(storage_class: StorageClass) -> StorageClassRecord:
    """Read a storage class."""
    waits = storage_class.volume_binding_mode == _WHEN_USED
    provisioner = storage_class.provisioner
    return StorageClassRecord(
        storage_class.metadata.name,
        waits,
        "" if provisioner == names.NO_PROVISIONER else provisioner,
        topologies(storage_class) if waits else None,
    )


def attachment_record(attachment: VolumeAttachment) -> AttachmentRecord:
    """Read what is attached where; an inline volume has no name, and so counts nowhere."""
    spec = attachment.spec
    return AttachmentRecord(
        attachment.metadata.name, spec.node_name, spec.attacher, spec.source.persistent_volume_name or ""
    )


def limits_record(node: CSINode) -> LimitsRecord:
    """Read what the CSI drivers of a node say."""
    found = ((driver.name, driver.allocatable) for driver in node.spec.drivers or ())
    return LimitsRecord(
        node.metadata.name, {name: has.count for name, has in found if has is not None and has.count is not None}
    )
