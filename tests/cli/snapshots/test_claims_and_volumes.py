"""ResourceClaims in a snapshot: kept but for parameters of drivers, and decided on as in the cluster."""

from __future__ import annotations

import re
from typing import Any
from zlib import crc32

import msgspec
import pytest

from cli.snapshots.anonymous import anonymized
from cli.snapshots.cluster import cluster_of
from cli.snapshots.fields import kept
from cli.snapshots.file import KIND, VERSION, Saved, read, write
from scheduler.core.cluster import Cluster
from scheduler.core.convert.devices import device_class_record, slice_record
from scheduler.core.convert.pods import pod_record
from scheduler.core.convert.resource_claims import resource_claim_record
from scheduler.core.convert.volumes import (
    capacity_record,
    claim_record,
    driver_record,
    storage_class_record,
    volume_record,
)
from scheduler.core.model.plan import Bind, Explain, Prepare
from scheduler.core.model.settings import Settings
from scheduler.core.model.verdict import Code
from simulator.offline.shell import Shell, settle
from tests.scheduler.core.device_objects import ask, device, written_slice
from tests.scheduler.core.nodes.claiming import claimed, claiming
from tests.scheduler.core.objects import node, pod
from tests.simulator.offline.given import WALL_S, places
from wire import names
from wire.core import Node, Pod
from wire.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from wire.storage import CSIDriver, CSINode, CSIStorageCapacity, PersistentVolume, PersistentVolumeClaim, StorageClass

_DRIVER = "acme.com"
_OPAQUE = {"opaque": {"driver": _DRIVER, "parameters": {"token": "secret"}}}
_RULE = {"matchAttribute": f"{_DRIVER}/model", "requests": ["r"]}


def _class(expression: str = f'device.driver == "{_DRIVER}"', resource: str = "acme.com/gpu") -> DeviceClass:
    spec = {"selectors": [{"cel": {"expression": expression}}], "config": [_OPAQUE], "extendedResourceName": resource}
    return msgspec.convert({"metadata": {"name": "acme-gpu", "uid": "class"}, "spec": spec}, DeviceClass)


def _slice(at: str, model: str, **more: Any) -> ResourceSlice:
    listed = device("acme-d0", attributes={"model": f"acme-{model}", f"{_DRIVER}/rank": 1}, **more)
    made = written_slice(at, listed, driver=_DRIVER, pool=f"acme-pool-{at}")
    named = msgspec.structs.replace(made.metadata, uid=f"uid-slice-{at}")
    return msgspec.structs.replace(made, metadata=named)


def _claim(name: str = "acme-claim", expression: str = "", rules: Any = (), **more: Any) -> ResourceClaim:
    cel = [expression] if expression else []
    made: Any = msgspec.to_builtins(claimed(name, ask(cls="acme-gpu", cel=cel), **more))
    made["spec"]["devices"] |= {"config": [_OPAQUE], "constraints": list(rules)}
    if (allocation := made["status"].get("allocation")) is not None:
        allocation["devices"]["config"] = [{"source": "FromClaim", **_OPAQUE}]
        allocation["devices"]["results"][0] |= {"driver": _DRIVER, "pool": "acme-pool-acme-n1", "device": "acme-d0"}
    return msgspec.convert(made, ResourceClaim)


def _model(name: str) -> str:
    return f'device.attributes["{_DRIVER}"].model == "acme-{name}"'


def _saved(*objects: Any, missing: tuple[str, ...] = ()) -> Saved:
    """A file with these objects, and two nodes with a device each, of models ``small`` and ``large``."""
    nodes = [kept(node(name)) for name in ("acme-n1", "acme-n2")]
    slices = [kept(_slice("acme-n1", "small")), kept(_slice("acme-n2", "large"))]
    lists: dict[type, list[Any]] = {Node: nodes, ResourceSlice: slices, Pod: [], ResourceClaim: [], DeviceClass: []}
    lists[DeviceTaintRule] = []
    for each in (_class(), *objects):
        lists[type(each)].append(kept(each))
    return Saved(
        kind=KIND,
        version=VERSION,
        taken_at="2026-11-27T04:00:00Z",
        missing=list(missing),
        nodes=lists[Node],
        pods=lists[Pod],
        deviceclasses=lists[DeviceClass],
        devicetaintrules=lists[DeviceTaintRule],
        resourceslices=lists[ResourceSlice],
        resourceclaims=lists[ResourceClaim],
    )


def _both(file: Saved) -> tuple[Saved, Saved]:
    return file, anonymized(file)


def _placed(file: Saved, *, follows_taint_rules: bool = False) -> dict[int, int]:
    """Number of each pod in the order of names -> number of its node, 0 for one that waits."""
    cluster, _ = cluster_of(read(write(file)), Settings(), follows_taint_rules=follows_taint_rules)
    shell = Shell(cluster, file.pods, wall_s=WALL_S)
    shell.finish_what_is_under_way()
    assert settle(shell).is_at_rest
    ordered = ["", *sorted(each.metadata.name for each in file.nodes)]
    return {number: ordered.index(at) for number, at in enumerate(places(shell).values(), 1)}


def test_decisions_read_the_same_of_what_is_kept_and_no_parameter_is() -> None:
    held = _claim(
        on=("acme-n1", "acme-d0"), by=("uid-p",), annotations={names.EXTENDED_RESOURCE_CLAIM: "true", "a": "b"}
    )
    for claim in (_claim(expression=_model("large"), rules=[_RULE]), held):
        assert resource_claim_record(kept(claim)) == resource_claim_record(claim)
    assert device_class_record(kept(_class())).selectors == device_class_record(_class()).selectors
    published = _slice("acme-n1", "small", nodeAllocatableResourceMappings={"cpu": {"secret": "secret"}})
    assert slice_record(kept(published)) == slice_record(published)
    for each in (held, _class(), published):
        assert b"secret" not in msgspec.json.encode(kept(each))


def test_a_claim_is_allocated_where_a_device_of_its_model_is() -> None:
    wanted = _claim(expression=_model("large"), rules=[_RULE])
    for file in _both(_saved(wanted, claiming("acme-p", "acme-claim"))):
        assert _placed(file) == {1: 2}


def _rule(effect: str = "NoSchedule", **selector: str) -> DeviceTaintRule:
    """A rule by which a device of ``acme-n1`` is tainted."""
    spec = {
        "deviceSelector": {"driver": _DRIVER, "pool": "acme-pool-acme-n1", "device": "acme-d0", **selector},
        "taint": {"key": "acme.com/ill", "value": "acme-value", "effect": effect},
    }
    return msgspec.convert({"metadata": {"name": "acme-rule", "uid": "uid-rule"}, "spec": spec}, DeviceTaintRule)


@pytest.mark.parametrize(
    ("rule", "tolerated", "follows", "at"),
    [
        (_rule(), "", True, 2),
        (_rule(), "", False, 1),
        (_rule(), "acme.com/ill", True, 1),
        (_rule("None"), "", True, 1),
        (_rule(device="acme-d1"), "", True, 1),
        (_rule(pool="acme-pool-acme-n2"), "", True, 1),
    ],
)
def test_devices_that_rules_taint_are_left_out_where_the_scheduler_follows_rules(
    rule: DeviceTaintRule, tolerated: str, follows: bool, at: int
) -> None:
    wanted: Any = msgspec.to_builtins(_claim())
    tolerations = [{"key": tolerated, "operator": "Equal", "value": "acme-value"}] if tolerated else []
    wanted["spec"]["devices"]["requests"][0]["exactly"]["tolerations"] = tolerations
    claim = msgspec.convert(wanted, ResourceClaim)
    for file in _both(_saved(claim, rule, claiming("acme-p", "acme-claim"))):
        assert _placed(file, follows_taint_rules=follows) == {1: at}


@pytest.mark.parametrize(("follows", "waits"), [(True, True), (False, False)])
def test_rules_that_could_not_be_read_keep_pods_waiting_where_the_scheduler_follows_rules(
    follows: bool, waits: bool
) -> None:
    file = _saved(_claim(), claiming("acme-p", "acme-claim"), missing=("devicetaintrules",))
    cluster, _ = cluster_of(read(write(file)), Settings(), follows_taint_rules=follows)
    verdicts = [entry.verdict for entry in cluster.decide(0).entries if isinstance(entry, Explain)]
    expected = [(Code.NOT_READ, "devicetaintrules.resource.k8s.io")] if waits else []
    assert [(verdict.code, verdict.detail) for verdict in verdicts] == expected


def test_devices_of_pods_that_run_are_taken() -> None:
    held = _claim("acme-held", on=("acme-n1", "acme-d0"), by=("uid-acme-a",))
    runs = claiming("acme-a", "acme-held", bound_to="acme-n1")
    waits = [_claim(f"acme-{name}") for name in ("c", "d")]
    pods = [claiming("acme-b", "acme-c"), claiming("acme-e", "acme-d")]
    for file in _both(_saved(held, runs, *waits, *pods)):
        assert sorted(_placed(file).values()) == [0, 1, 2]


@pytest.mark.parametrize(("group", "at"), [("acme-g", 1), ("acme-other", 0)])
def test_a_claim_that_was_made_for_a_pod_group_of_kubernetes_is_that_of_its_pods(group: str, at: int) -> None:
    owner = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "name": "acme-g", "uid": "u"}
    claim = _claim(ownerReferences=[{**owner, "controller": True}])
    wants = claiming(
        "acme-p",
        template="acme-claim",
        annotations={names.IGNORE_WORKLOAD_API: "true"},
        spec={"schedulingGroup": {"podGroupName": group, "secret": "secret"}},
    )
    for file in _both(_saved(claim, wants)):
        assert b"secret" not in write(file)
        assert _placed(file) == {1: at}


def test_a_pod_whose_claim_was_reserved_when_the_file_was_taken_is_bound_by_it() -> None:
    held = _claim(on=("acme-n1", "acme-d0"), by=("uid-acme-p",))
    waits = claiming("acme-p", "acme-claim")
    assert waits.metadata.uid == "uid-acme-p"
    for file in _both(_saved(held, waits)):
        assert _placed(file) == {1: 1}


def test_devices_stand_for_an_extended_resource() -> None:
    limits = {"resources": {"limits": {"acme.com/gpu": "1"}}}
    pods = [pod(f"acme-{name}", spec={"containers": [{"name": "main", **limits}]}) for name in "abc"]
    for file in _both(_saved(*pods)):
        assert sorted(_placed(file).values()) == [0, 1, 2]


def test_selectors_that_compare_names_by_drivers_of_machines_stay_as_they_are() -> None:
    expression = 'device.attributes["gpu.nvidia.com"].productName.matches("^NVIDIA H100")'
    file = anonymized(_saved(_claim(expression=expression)))
    (request,) = file.resourceclaims[0].spec.devices.requests or []
    assert request.exactly is not None
    (selector,) = request.exactly.selectors or []
    assert selector.cel is not None
    assert selector.cel.expression == expression


def test_no_name_of_claims_devices_and_classes_is_left() -> None:
    selected = "device.attributes['acme.com'].model in ['acme-large', \"acme-small\"] && device.driver != r'acme.com'"
    held = _claim(on=("acme-n1", "acme-d0"), by=("uid-p",))
    capacity = {"acme.com/memory": {"value": "80Gi"}, "cores": {"value": "4"}}
    text = write(
        anonymized(
            msgspec.structs.replace(
                _saved(_claim("acme-c", selected, [_RULE]), held, _rule(), claiming("acme-p", "acme-c")),
                resourceslices=[kept(_slice("acme-n1", "small", capacity=capacity))],
            )
        )
    ).decode()
    found = [each for each in re.findall(r'[^" ]*acme[^" ]*', text) if not each.startswith("uid-")]
    assert found == []
    assert '"cores"' in text
    assert "80Gi" in text


@pytest.mark.parametrize("missing", ["resourceclaims", "resourceslices", "deviceclasses"])
def test_pods_with_claims_wait_where_a_kind_could_not_be_read(missing: str) -> None:
    objects = [] if missing == "resourceclaims" else [_claim()]
    file = _saved(*objects, claiming("acme-p", "acme-claim"), missing=(missing,))
    if missing == "deviceclasses":
        file = msgspec.structs.replace(file, deviceclasses=[])
    cluster, _ = cluster_of(read(write(file)), Settings())
    verdicts = [entry.verdict for entry in cluster.decide(0).entries if isinstance(entry, Explain)]
    assert [(verdict.code, verdict.detail) for verdict in verdicts] == [(Code.NOT_READ, f"{missing}.resource.k8s.io")]


def test_resources_that_a_claim_gives_a_running_pod_are_not_counted_on_its_node() -> None:
    mapping = {"containerName": "main", "resourceName": names.GPU_RESOURCE, "requestName": "r"}
    status = {"resourceClaimName": "c", "requestMappings": [mapping]}
    written = msgspec.to_builtins(pod("p", gpus=2, bound_to="n1"))
    written["status"]["extendedResourceClaimStatus"] = status
    found = kept(msgspec.convert(written, Pod))
    record = pod_record(found, Settings())
    assert record is not None
    assert record.cls.demand.claimed == ((names.GPU_RESOURCE, 2),)


# Volumes in a snapshot: what the scheduler reads of them is kept, and belongs together under other names.

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


def volumes_node(name: str, zone: str) -> Node:
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


def volumes_pod(name: str, claim_name: str = "acme-claim", *, on: str = "") -> Pod:
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
        "nodes": [volumes_node("acme-n1", "acme-z1"), volumes_node("acme-n2", "acme-z2")],
        "pods": [volumes_pod("acme-pod")],
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
        "pods": [volumes_pod("acme-there", "acme-a", on="acme-n1"), volumes_pod("acme-pod", "acme-b")],
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
