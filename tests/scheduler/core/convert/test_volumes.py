"""What is read of claims, volumes and what is said of them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.core.convert import volumes
from scheduler.core.convert.volumes import attached_as, attached_by_pod, volume_record
from scheduler.core.model.pod_class import Requirement, Term, VolumeNeed
from scheduler.core.model.records import ClaimUse
from tests.scheduler.core.objects import (
    attachment,
    claim,
    csi_capacity,
    csi_driver,
    csi_node,
    free_volume,
    pod,
    storage_class,
    volume,
)
from wire import names
from wire.storage import PersistentVolume, PersistentVolumeClaim, VolumeAttachment

_BOUND = {"pv.kubernetes.io/bind-completed": "yes"}


def _claim(spec: dict[str, Any], **metadata: Any) -> PersistentVolumeClaim:
    meta = {"namespace": "ns", "name": "data", **metadata}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": {}}, PersistentVolumeClaim)


@pytest.mark.parametrize(
    ("text", "zones"), [("a", ("a",)), ("b__a", ("a", "b")), ("a__ a", ("a",)), ("", ()), ("a__", ())]
)
def test_a_volume_is_of_the_zones_that_its_label_names_if_it_names_none_that_is_empty(
    text: str, zones: tuple[str, ...]
) -> None:
    rule = volumes.volume_record(volume("pv", labels={"topology.kubernetes.io/zone": text})).rule
    assert (rule.zones if rule is not None else ()) == ((("topology.kubernetes.io/zone", zones),) if zones else ())


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (_claim({}), {}),
        (_claim({"volumeName": "pv"}), {"volume": "pv"}),
        (_claim({}, annotations=_BOUND), {}),
        (_claim({"volumeName": "pv"}, annotations=_BOUND), {"volume": "pv", "is_bound": True}),
        (claim("data", phase="Lost"), {"is_lost": True}),
        (claim("data", phase="Pending"), {}),
        (claim("data", deleting=True), {"is_leaving": True}),
        (claim("data", modes=["ReadOnlyMany", "ReadWriteOncePod"]), {"is_alone": True}),
        (_claim({"storageClassName": "new"}), {"storage_class": "new"}),
        (
            _claim({"storageClassName": "new"}, annotations={"volume.beta.kubernetes.io/storage-class": "old"}),
            {"storage_class": "old"},
        ),
        (claim("data", owner="u"), {"owner": "u"}),
        (
            _claim(
                {},
                ownerReferences=[
                    {"kind": "A", "name": "a", "uid": "a"},
                    {"kind": "B", "name": "b", "uid": "b", "controller": True},
                ],
            ),
            {"owner": "b"},
        ),
    ],
)
def test_a_claim_is_read_as_it_is_written(made: PersistentVolumeClaim, expected: dict[str, Any]) -> None:
    read = msgspec.structs.replace(volumes.claim_record(made), uid="", need=None)
    assert read == volumes.ClaimRecord(namespace="ns", name="data", **expected)


def test_a_volume_that_can_be_used_anywhere_has_no_rule() -> None:
    assert volumes.volume_record(volume("pv", labels={"color": "blue"})).rule is None
    assert volumes.volume_record(volume("pv", affinity=[])).rule is not None
    named = volumes.volume_record(volume("pv", csi=("driver", "handle")))
    assert (named.attached, named.claim, named.key) == (("driver", "handle"), ("ns", "data"), "pv")


@pytest.mark.parametrize(("mode", "waits"), [("WaitForFirstConsumer", True), ("Immediate", False), ("", False)])
def test_a_class_waits_for_a_consumer_or_does_not(mode: str, waits: bool) -> None:
    assert volumes.storage_class_record(storage_class("c", mode)) == volumes.StorageClassRecord("c", waits)


def test_a_driver_without_a_count_has_no_limit_and_one_of_none_takes_none() -> None:
    assert volumes.limits_record(csi_node("n", a=0, b=None, c=3)) == volumes.LimitsRecord("n", {"a": 0, "c": 3})


def test_an_inline_volume_that_is_attached_has_no_name() -> None:
    named = volumes.attachment_record(attachment("x", "n", of="pv", driver="d"))
    assert (named.node, named.driver, named.volume) == ("n", "d", "pv")
    spec = {"attacher": "d", "nodeName": "n", "source": {}}
    inline = msgspec.convert({"metadata": {"name": "x"}, "spec": spec}, VolumeAttachment)
    assert volumes.attachment_record(inline).volume == ""


def test_a_pod_uses_each_claim_once_and_ephemeral_ones_are_its_own() -> None:
    mounted = [
        {"name": "a", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "b", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "c", "ephemeral": {"volumeClaimTemplate": {}}},
        {"name": "d", "emptyDir": {}},
    ]
    uses = volumes.claims_of(pod("p", spec={"volumes": mounted}))
    assert uses == (ClaimUse("data"), ClaimUse("p-c", is_own=True))


# What unbound claims ask, and what volumes and capacities offer, as it is written.

_GIB = 1 << 30


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ({"size": "1Gi"}, {"size_bytes": _GIB}),
        # Rounded up: the claim asks no less.
        ({"size": "1500m"}, {"size_bytes": 2}),
        ({"modes": ["ReadWriteMany", "ReadOnlyMany"]}, {"access_modes": ("ReadOnlyMany", "ReadWriteMany")}),
        ({"volumeMode": "Block"}, {"mode": "Block"}),
        ({"volumeAttributesClassName": "gold"}, {"attributes_class": "gold"}),
        ({"node": "n"}, {"node": "n"}),
        (
            {"selector": {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "Exists"}]}},
            {"selector": (Requirement("a", "In", ("b",)), Requirement("c", "Exists", ()))},
        ),
    ],
)
def test_a_claim_says_what_it_needs(written: dict[str, Any], expected: dict[str, Any]) -> None:
    plain = {"storage_class": "c", "size_bytes": _GIB, "access_modes": ("ReadWriteOnce",)}
    assert volumes.need(claim("data", **written), "c") == VolumeNeed(**{**plain, **expected})


@pytest.mark.parametrize(
    "written",
    [
        {"size": "much"},
        {"selector": {"matchExpressions": [{"key": "a", "operator": "Unheard"}]}},
        {"selector": {"matchLabels": {f"k{n}": "v" for n in range(101)}}},
        {"selector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["v"] * 4000}]}},
    ],
)
def test_a_claim_that_nobody_can_read_says_nothing(written: dict[str, Any]) -> None:
    assert volumes.need(claim("data", **written), "c") is None


@pytest.mark.parametrize("phase", ["Bound", "Released", "Failed"])
def test_a_volume_that_is_bound_or_used_up_is_offered_to_nobody(phase: str) -> None:
    assert volumes.offer(free_volume("pv", phase=phase)) is None


def test_a_volume_whose_size_nobody_can_read_is_offered_to_nobody() -> None:
    assert volumes.offer(free_volume("pv", "much")) is None


def test_a_volume_that_names_a_claim_is_available_to_no_other() -> None:
    free, named = free_volume("pv"), free_volume("pv", claim_ref={"namespace": "ns", "name": "data", "uid": "u"})
    assert [(o.is_available, o.claim_uid) for o in map(volumes.offer, (free, named)) if o] == [(True, ""), (False, "u")]


def test_a_class_says_for_which_nodes_it_makes_volumes() -> None:
    assert volumes.topologies(storage_class("c", "")) is None
    zones = {"matchLabelExpressions": [{"key": names.ZONE_LABEL, "values": ["z1", "z2"]}]}
    written = storage_class("c", "", allowedTopologies=[zones, {}])
    zone = Term((Requirement(names.ZONE_LABEL, "In", ("z1", "z2")),), ())
    assert volumes.topologies(written) == (zone, Term((), ()))


def test_a_capacity_is_rounded_down_and_what_nobody_can_read_is_not_said() -> None:
    read = volumes.capacity_record(csi_capacity("c", "fast", None, free="2500m", most="much"))
    assert (read.topology, read.free_bytes, read.most_bytes, read.key) == (None, 2, None, ("csi", "c"))
    assert volumes.capacity_record(csi_capacity("c", "fast", {})).topology == ()
    assert volumes.driver_record(csi_driver("d")).tells_capacity
    assert volumes.driver_record(csi_driver("d")).key == "d"


# Volumes of drivers that were inside Kubernetes, by the names of the CSI drivers that serve them.

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
