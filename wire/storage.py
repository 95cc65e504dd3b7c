"""Claims, volumes, storage classes and what CSI drivers say of nodes, in part: the fields that decisions read."""

from __future__ import annotations

from wire.core import (
    AWSElasticBlockStoreVolumeSource,
    AzureDiskVolumeSource,
    GCEPersistentDiskVolumeSource,
    LabelSelector,
    NamedVolumeSource,
    NodeSelector,
    ObjectMeta,
    ObjectReference,
    ResourceRequirements,
    WireStruct,
)


class PersistentVolumeClaimSpec(WireStruct, frozen=True, gc=False):
    access_modes: list[str] | None = None
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    selector: LabelSelector | None = None
    resources: ResourceRequirements = ResourceRequirements()


class PersistentVolumeClaimStatus(WireStruct, frozen=True, gc=False):
    phase: str = ""


class PersistentVolumeClaim(WireStruct, frozen=True, gc=False):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class CSIVolumeSource(WireStruct, frozen=True, gc=False):
    driver: str = ""
    volume_handle: str = ""


class VolumeNodeAffinity(WireStruct, frozen=True, gc=False):
    required: NodeSelector | None = None


class PersistentVolumeSpec(WireStruct, frozen=True, gc=False):
    csi: CSIVolumeSource | None = None
    gce_persistent_disk: GCEPersistentDiskVolumeSource | None = None
    aws_elastic_block_store: AWSElasticBlockStoreVolumeSource | None = None
    azure_disk: AzureDiskVolumeSource | None = None
    cinder: NamedVolumeSource | None = None
    portworx_volume: NamedVolumeSource | None = None
    node_affinity: VolumeNodeAffinity | None = None
    claim_ref: ObjectReference | None = None
    #: Quantities as written.
    capacity: dict[str, str | int | float] | None = None
    access_modes: list[str] | None = None
    storage_class_name: str = ""
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class PersistentVolumeStatus(WireStruct, frozen=True, gc=False):
    phase: str = ""


class PersistentVolume(WireStruct, frozen=True, gc=False):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


class TopologySelectorLabelRequirement(WireStruct, frozen=True, gc=False):
    key: str = ""
    values: list[str] | None = None


class TopologySelectorTerm(WireStruct, frozen=True, gc=False):
    match_label_expressions: list[TopologySelectorLabelRequirement] | None = None


class StorageClass(WireStruct, frozen=True, gc=False):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    volume_binding_mode: str = ""
    provisioner: str = ""
    allowed_topologies: list[TopologySelectorTerm] | None = None


class VolumeNodeResources(WireStruct, frozen=True, gc=False):
    #: Most volumes of the driver on the node; None: as many as there are.
    count: int | None = None


class CSINodeDriver(WireStruct, frozen=True, gc=False):
    name: str = ""
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(WireStruct, frozen=True, gc=False):
    drivers: list[CSINodeDriver] | None = None


class CSINode(WireStruct, frozen=True, gc=False):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: CSINodeSpec = CSINodeSpec()


class VolumeAttachmentSource(WireStruct, frozen=True, gc=False):
    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(WireStruct, frozen=True, gc=False):
    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()


class VolumeAttachment(WireStruct, frozen=True, gc=False):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()


class CSIDriverSpec(WireStruct, frozen=True, gc=False):
    #: Whether CSIStorageCapacity objects say what the driver can provision.
    storage_capacity: bool | None = None


class CSIDriver(WireStruct, frozen=True, gc=False):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(WireStruct, frozen=True, gc=False):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    storage_class_name: str = ""
    #: Nodes for which it is said; None: none.
    node_topology: LabelSelector | None = None
    #: Quantities as written.
    capacity: str | int | float | None = None
    maximum_volume_size: str | int | float | None = None
