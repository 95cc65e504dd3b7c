"""Volumes of drivers that were inside Kubernetes, by the names of the CSI drivers that serve them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.core.convert.volumes import attached_as, attached_by_pod, volume_record
from tests.scheduler.core.objects import pod
from wire.storage import PersistentVolume

_ZONE, _OLD_ZONE = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"
_DISK = "projects/UNSPECIFIED/{}/disks/d"


def _volume(labels: dict[str, str] | None = None, **source: Any) -> PersistentVolume:
    return msgspec.convert({"metadata": {"name": "pv", "labels": labels or {}}, "spec": source}, PersistentVolume)


@pytest.mark.parametrize(
    ("labels", "place"),
    [
        ({}, "zones/UNSPECIFIED"),
        ({_ZONE: "europe-west4-a"}, "zones/europe-west4-a"),
        ({_ZONE: "b", _OLD_ZONE: "a"}, "zones/a"),
        ({_ZONE: "europe-west4-a__europe-west4-b"}, "regions/europe-west4"),
        ({_ZONE: "europe-west4-a__europe-west1-b"}, ""),
        ({_ZONE: "a__b"}, ""),
    ],
)
def test_a_gce_disk_is_named_by_its_zone_or_by_the_region_of_its_zones(labels: dict[str, str], place: str) -> None:
    made = _volume(labels, gcePersistentDisk={"pdName": "d"})
    assert attached_as(made) == (("pd.csi.storage.gke.io", _DISK.format(place)) if place else None)


@pytest.mark.parametrize(
    ("volume_id", "handle"),
    [
        ("vol-1", "vol-1"),
        ("aws://zone/vol-1", "vol-1"),
        ("aws:///vol-1", "vol-1"),
        ("aws:///vol-1/", "vol-1"),
        ("aws://zone/vol-1/x", ""),
        ("aws://zone/disk-1", ""),
        ("aws://vol-1", ""),
    ],
)
def test_an_ebs_volume_is_named_by_its_id_whatever_zone_is_written_before_it(volume_id: str, handle: str) -> None:
    made = _volume(awsElasticBlockStore={"volumeID": volume_id})
    assert attached_as(made) == (("ebs.csi.aws.com", handle) if handle else None)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"azureDisk": {"diskName": "n", "diskURI": "/d"}}, ("disk.csi.azure.com", "/d")),
        ({"azureDisk": {"diskURI": "/d", "kind": "Managed"}}, ("disk.csi.azure.com", "/d")),
        ({"azureDisk": {"diskURI": "/d", "kind": "Dedicated"}}, None),
        ({"cinder": {"volumeID": "c"}}, ("cinder.csi.openstack.org", "c")),
        ({"portworxVolume": {"volumeID": "p"}}, ("pxd.portworx.com", "p")),
        ({"nfs": {"server": "s", "path": "/"}}, None),
    ],
)
def test_others_are_named_as_they_are_written(source: dict[str, Any], expected: tuple[str, str] | None) -> None:
    assert attached_as(_volume(**source)) == expected
    assert attached_by_pod(pod(spec={"volumes": [{"name": "v", **source}]})) == ((expected,) if expected else ())


def test_a_pod_has_each_volume_once_and_those_of_its_claims_not() -> None:
    gce = {"gcePersistentDisk": {"pdName": "d"}}
    claim = {"persistentVolumeClaim": {"claimName": "c"}}
    volumes = [{"name": name, **source} for name, source in (("a", gce), ("b", gce), ("c", claim))]
    assert attached_by_pod(pod(spec={"volumes": volumes})) == (
        ("pd.csi.storage.gke.io", _DISK.format("zones/UNSPECIFIED")),
    )


def test_a_record_of_a_volume_has_the_translated_name() -> None:
    record = volume_record(_volume(cinder={"volumeID": "c"}))
    assert (record.attached, record.is_in_tree) == (("cinder.csi.openstack.org", "c"), True)
    csi = volume_record(_volume(csi={"driver": "d", "volumeHandle": "h"}))
    assert (csi.attached, csi.is_in_tree) == (("d", "h"), False)
