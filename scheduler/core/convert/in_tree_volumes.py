"""Volumes of drivers that were inside Kubernetes, as their CSI drivers know them: these serve them since the migration.

A node limits the volumes of a CSI driver, whichever way they were written. The drivers' names and handles are those of
Kubernetes' csi-translation-lib 0.36: of GCE, EBS, Azure disks, Cinder and Portworx, for which kube-scheduler 1.36 takes
the migration for granted. One that can't be translated counts nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from scheduler.core.convert import bounds
from wire import names
from wire.core import Pod, Volume
from wire.storage import PersistentVolume, PersistentVolumeSpec

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


def of_pod(pod: Pod) -> tuple[Attached, ...]:
    """The volumes that a pod names without a claim, each once, one more than it may have at most."""
    inline = (volume for volume in pod.spec.volumes or () if not _is_claim(volume))
    found = (each for volume in inline for each in _translated(volume, {}))
    return tuple(
        dict.fromkeys((driver, bounds.name(handle)) for driver, handle in islice(found, bounds.MOST_VOLUMES + 1))
    )


def of_volume(volume: PersistentVolume) -> Attached | None:
    """The driver and the handle of a PersistentVolume; None if it is none of these."""
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
