"""Claims, volumes, storage classes and limits of nodes, as decisions know them: wire objects in, slim records out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

import msgspec

from scheduler.core.convert import bounds, constraints, in_tree_volumes, volume_needs
from scheduler.core.convert.controllers import controller_uid
from scheduler.core.convert.volume_needs import VolumeOffer
from scheduler.core.filters.volume_places import ZONE_LABELS
from scheduler.core.model.pod_class import Term, VolumeRule
from scheduler.core.model.records import ClaimUse
from scheduler.core.model.volume_need import VolumeNeed
from wire import names
from wire.core import Pod
from wire.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeAttachment

#: Namespace and name of a claim.
ClaimKey = tuple[str, str]

_LOST: Final = "Lost"
_ALONE: Final = "ReadWriteOncePod"
_WHEN_USED: Final = "WaitForFirstConsumer"
#: Between the zones of one label of a volume (Kubernetes, volume/helpers).
_ZONES_APART: Final = "__"


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
        need=None if spec.volume_name else volume_needs.need(claim, storage_class),
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
        attached=in_tree_volumes.of_volume(volume) if spec.csi is None else (spec.csi.driver, spec.csi.volume_handle),
        is_in_tree=spec.csi is None,
        claim=None if ref is None else (ref.namespace, ref.name),
        offer=volume_needs.offer(volume),
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
        volume_needs.topologies(storage_class) if waits else None,
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
