"""Volumes in a snapshot: what the scheduler reads of them is kept, and belongs together under other names."""

from __future__ import annotations

import re
from typing import Any
from zlib import crc32

import msgspec

from cli.snapshots.anonymous import anonymized
from cli.snapshots.cluster import cluster_of
from cli.snapshots.fields import kept
from cli.snapshots.file import KIND, VERSION, Saved, read, write
from scheduler.core.cluster import Cluster
from scheduler.core.convert.volumes import (
    capacity_record,
    claim_record,
    driver_record,
    storage_class_record,
    volume_record,
)
from scheduler.core.model.plan import Bind, Prepare
from scheduler.core.model.settings import Settings
from wire import names
from wire.core import Node, Pod
from wire.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)

_ZONE = "topology.acme.com/zone"


def meta(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "uid": f"{crc32(name.encode())}", "resourceVersion": "1", **more}


def claim(name: str = "acme-claim", **annotations: str) -> PersistentVolumeClaim:
    raw = {
        "metadata": meta(name, namespace="acme-team", annotations={"example.com/token": "secret", **annotations}),
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "acme-fast",
            "volumeMode": "Filesystem",
            "resources": {"requests": {"storage": "10Gi"}},
        },
    }
    return msgspec.convert(raw, PersistentVolumeClaim)


def volume(annotations: dict[str, str], storage_class: str = "") -> PersistentVolume:
    raw = {
        "metadata": meta("acme-volume", annotations=annotations),
        "spec": {"capacity": {"storage": "20Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": storage_class},
        "status": {"phase": "Available"},
    }
    return msgspec.convert(raw, PersistentVolume)


def storage_class() -> StorageClass:
    raw = {
        "metadata": meta("acme-fast"),
        "provisioner": "csi.acme.com",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": _ZONE, "values": ["acme-z1", "acme-z2"]}]}],
    }
    return msgspec.convert(raw, StorageClass)


def driver() -> CSIDriver:
    return msgspec.convert({"metadata": meta("csi.acme.com"), "spec": {"storageCapacity": True}}, CSIDriver)


def capacity(zone: str, amount: str, **more: str) -> CSIStorageCapacity:
    raw = {
        "metadata": meta(f"acme-capacity-{zone}", namespace="acme-storage"),
        "storageClassName": "acme-fast",
        "nodeTopology": {"matchLabels": {_ZONE: zone}},
        "capacity": amount,
        **more,
    }
    return msgspec.convert(raw, CSIStorageCapacity)


def node(name: str, zone: str) -> Node:
    raw = {
        "metadata": meta(name, labels={names.HOSTNAME_LABEL: name, _ZONE: zone}),
        "status": {
            "allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    return msgspec.convert(raw, Node)


def limits(name: str, count: int) -> CSINode:
    drivers = [{"name": "csi.acme.com", "allocatable": {"count": count}}]
    return msgspec.convert({"metadata": meta(name), "spec": {"drivers": drivers}}, CSINode)


def pod(name: str, claim_name: str = "acme-claim", *, on: str = "") -> Pod:
    raw = {
        "metadata": meta(name, namespace="acme-team"),
        "spec": {
            "schedulerName": names.SCHEDULER_NAME,
            "nodeName": on,
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim_name}}],
        },
    }
    return msgspec.convert(raw, Pod)


def saved(**lists: list[Any]) -> Saved:
    everything: dict[str, list[Any]] = {
        "nodes": [node("acme-n1", "acme-z1"), node("acme-n2", "acme-z2")],
        "pods": [pod("acme-pod")],
        "storageclasses": [storage_class()],
        "csidrivers": [driver()],
        "csistoragecapacities": [capacity("acme-z1", "1Gi"), capacity("acme-z2", "50Gi")],
        "persistentvolumeclaims": [claim()],
    }
    found: dict[str, Any] = {
        plural: [kept(each) for each in objects] for plural, objects in (everything | lists).items()
    }
    return Saved(kind=KIND, version=VERSION, taken_at="2026-11-27T04:00:00Z", **found)


def placed(file: Saved) -> list[str]:
    """Nodes, by their place among the nodes, to which the pods of a file go."""
    cluster: Cluster = cluster_of(read(write(file)), Settings())[0]
    ordered = sorted(each.metadata.name for each in file.nodes)
    found: list[str] = []
    for entry in cluster.decide(1).entries:
        if isinstance(entry, Prepare):
            found += [placement.node for placement in entry.placements]
        elif isinstance(entry, Bind):
            found.append(entry.placement.node)
    return [f"n{1 + ordered.index(name)}" for name in found]


def test_what_claims_and_volumes_say_is_read_the_same_of_what_is_kept() -> None:
    chosen = claim(**{names.SELECTED_NODE: "acme-n1"})
    assert claim_record(kept(chosen)) == claim_record(chosen)
    assert claim_record(chosen) != claim_record(claim())
    assert "secret" not in str(kept(chosen))
    old = volume({names.OLD_STORAGE_CLASS: "acme-fast"})
    assert volume_record(kept(old)) == volume_record(old)
    assert volume_record(old) != volume_record(volume({}))
    assert storage_class_record(kept(storage_class())) == storage_class_record(storage_class())
    assert driver_record(kept(driver())) == driver_record(driver())
    assert capacity_record(kept(capacity("acme-z1", "1Gi"))) == capacity_record(capacity("acme-z1", "1Gi"))


def test_a_pod_goes_where_a_driver_has_the_space() -> None:
    for file in (saved(), anonymized(saved())):
        assert placed(file) == ["n2"]
    assert placed(saved(csistoragecapacities=[capacity("acme-z1", "50Gi")])) == ["n1"]


def test_a_pod_stays_with_the_node_that_its_claim_was_prepared_for() -> None:
    chosen = [claim(**{names.SELECTED_NODE: "acme-n1"})]
    for file in (saved(persistentvolumeclaims=chosen), anonymized(saved(persistentvolumeclaims=chosen))):
        assert placed(file) == ["n1"]


def test_limits_of_a_driver_count_under_other_names() -> None:
    def bound(name: str) -> tuple[PersistentVolumeClaim, PersistentVolume]:
        made = claim(f"acme-{name}", **{names.BIND_COMPLETED: "yes"})
        spec = msgspec.structs.replace(made.spec, volume_name=f"acme-v-{name}")
        raw = {
            "metadata": meta(f"acme-v-{name}"),
            "spec": {
                "csi": {"driver": "csi.acme.com", "volumeHandle": f"acme-h-{name}"},
                "capacity": {"storage": "10Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "acme-fast",
                "claimRef": {"namespace": "acme-team", "name": f"acme-{name}", "uid": made.metadata.uid},
            },
            "status": {"phase": "Bound"},
        }
        return msgspec.structs.replace(made, spec=spec), msgspec.convert(raw, PersistentVolume)

    (one, its), (other, others) = bound("a"), bound("b")
    full: dict[str, list[Any]] = {
        "pods": [pod("acme-there", "acme-a", on="acme-n1"), pod("acme-pod", "acme-b")],
        "persistentvolumeclaims": [one, other],
        "persistentvolumes": [its, others],
    }
    for most, expected in ((1, "n2"), (2, "n1")):
        file = saved(**full, csinodes=[limits("acme-n1", most), limits("acme-n2", 9)])
        assert placed(file) == placed(anonymized(file)) == [expected]


def test_amounts_stay_and_no_name_is_left() -> None:
    old = volume({names.OLD_STORAGE_CLASS: "acme-fast"})
    space = capacity("acme-z1", "1Gi", maximumVolumeSize="1Ti")
    found = anonymized(saved(persistentvolumes=[old], csistoragecapacities=[space]))
    text = msgspec.json.encode(found).decode()
    assert re.findall('[^"]*acme[^"]*', text) == []
    assert found.csistoragecapacities[0].capacity == "1Gi"
    assert found.csistoragecapacities[0].maximum_volume_size == "1Ti"
    assert found.storageclasses[0].provisioner == found.csidrivers[0].metadata.name
