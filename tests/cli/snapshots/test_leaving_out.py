"""What a snapshot keeps of objects: no field that may hold a secret, and all that the scheduler reads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from cli.snapshots import file
from cli.snapshots.fields import kept
from cli.snapshots.file import KIND, VERSION, Refused, Saved
from scheduler.core.convert.nodes import node_record
from scheduler.core.convert.pods import seen_pod
from scheduler.core.model.pod_class import Weights
from scheduler.core.model.settings import Settings
from wire import names
from wire.core import Container, Node, ObjectMeta, Pod, PodSpec, Volume

ROOT = Path(__file__).parents[3]
MARK = re.compile(r"secret:([A-Za-z0-9.]+)")

#: Fields of pods whose texts are kept, by path without numbers.
KEPT = {
    *(f"metadata.{name}" for name in ("name", "namespace", "uid", "resourceVersion", "labels")),
    *("metadata.creationTimestamp", "metadata.deletionTimestamp", "spec.nodeName", "spec.schedulerName"),
    *(f"metadata.ownerReferences.{name}" for name in ("apiVersion", "kind", "name", "uid")),
    "spec.nodeSelector",
    "spec.schedulingGates.name",
    *(f"spec.tolerations.{name}" for name in ("key", "operator", "value", "effect")),
    *(
        f"spec.{kind}.{name}"
        for kind in ("containers", "initContainers")
        for name in ("name", "image", "restartPolicy", "restartPolicyRules.action", "ports.protocol", "ports.hostIP")
    ),
    "spec.volumes.persistentVolumeClaim.claimName",
    *(f"spec.resourceClaims.{name}" for name in ("name", "resourceClaimName", "resourceClaimTemplateName")),
    *(f"status.resourceClaimStatuses.{name}" for name in ("name", "resourceClaimName")),
    "status.extendedResourceClaimStatus.requestMappings.resourceName",
    "status.extendedResourceClaimStatus.resourceClaimName",
    "status.phase",
    "status.startTime",
    "status.containerStatuses.state.terminated.finishedAt",
    "status.initContainerStatuses.state.terminated.finishedAt",
}
#: Parts of pods of which all is kept: terms of affinity, amounts, disks, and health of devices.
KEPT_WHOLE = (
    "spec.affinity.",
    "spec.topologySpreadConstraints.",
    "spec.volumes.",
    "status.containerStatuses.name",
    "status.initContainerStatuses.name",
    "status.containerStatuses.allocatedResourcesStatus.",
    "status.initContainerStatuses.allocatedResourcesStatus.",
)
#: Amounts by resource, which the API server checks.
AMOUNTS = ("resources.limits", "resources.requests", "allocatedResources", "overhead")
#: Of volumes nothing of these.
SECRET_VOLUMES = ("configMap", "secret", "projected", "csi", "ephemeral", "hostPath", "nfs", "azureFile", "cephfs")


def marked(kind: Any, path: str) -> Any:
    """A value of a type in which each text says where it stands."""
    while isinstance(kind, msgspec.inspect.UnionType):
        kind = next(each for each in kind.types if not isinstance(each, msgspec.inspect.NoneType))
    if isinstance(kind, msgspec.inspect.StructType):
        return {each.encode_name: marked(each.type, f"{path}.{each.encode_name}".lstrip(".")) for each in kind.fields}
    if isinstance(kind, msgspec.inspect.ListType):
        return [marked(kind.item_type, path)]
    if isinstance(kind, msgspec.inspect.DictType):
        is_open = isinstance(kind.value_type, msgspec.inspect.AnyType)
        return {f"secret:{path}": {"deep": f"secret:{path}"} if is_open else f"secret:{path}"}
    plain: dict[Any, Any] = {msgspec.inspect.BoolType: True, msgspec.inspect.IntType: 1}
    return plain.get(type(kind), f"secret:{path}")


def secretive() -> dict[str, Any]:
    """A pod with a text of its own in each field that we know, and in others that Kubernetes has."""
    pod: dict[str, Any] = marked(msgspec.inspect.type_info(Pod), "")
    spec = pod["spec"]
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        container = spec[kind][0]
        for field in ("workingDir", "lifecycle", "livenessProbe", "stdin", "volumeMounts", "volumeDevices"):
            container[field] = {"exec": f"secret:spec.{kind}.{field}"}
        for name in (names.ENV_VISIBLE_DEVICES, names.ENV_MEMORY_LIMIT):
            key = {"name": "secret:env", "key": "secret:env"}
            read = {"secretKeyRef": key, "fieldRef": {"fieldPath": "secret:env"}}
            container["env"] += [{"name": name, "value": "secret:env"}, {"name": name, "valueFrom": read}]
    for field in ("imagePullSecrets", "hostAliases", "dnsConfig", "serviceAccount", "hostname", "subdomain"):
        spec[field] = [{"name": f"secret:spec.{field}"}]
    claim = {"claimName": "secret:spec.volumes.persistentVolumeClaim.claimName", "other": "secret:spec.volumes.secret"}
    spec["volumes"][0]["persistentVolumeClaim"] = claim
    spec["volumes"] += [{"name": "v", kind: {"secretName": f"secret:spec.volumes.{kind}"}} for kind in SECRET_VOLUMES]
    pod["metadata"]["managedFields"] = [{"manager": "secret:metadata.managedFields"}]
    for annotation in ("kubectl.kubernetes.io/last-applied-configuration", "example.com/token", "prometheus.io/auth"):
        pod["metadata"]["annotations"][annotation] = f"secret:metadata.annotations.{annotation.replace('/', '.')}"
    return pod


def test_no_secret_of_a_pod_gets_into_the_file() -> None:
    raw = secretive()
    written = {found for text in texts(raw) for found in MARK.findall(text)}
    assert len(written) > 150  # so it is no empty walk
    obj = kept(msgspec.convert(raw, Pod))
    found = set(MARK.findall(msgspec.json.encode(obj).decode()))
    expected = {each for each in found if each in KEPT or each.startswith(KEPT_WHOLE) or each.endswith(AMOUNTS)}
    surprising = found - expected
    assert surprising == set()
    assert not any(each.startswith(tuple(f"spec.volumes.{kind}" for kind in SECRET_VOLUMES)) for each in found)
    assert found >= KEPT - {"status.startTime"}


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from texts(each)


def test_what_may_be_secret_is_named_by_no_type_that_is_copied_whole() -> None:
    """Volumes are copied but for some fields: a field that is added to the type has to be thought about here."""
    assert set(Volume.__struct_fields__) == {
        *("name", "image", "config_map", "projected", "persistent_volume_claim", "ephemeral", "gce_persistent_disk"),
        *("aws_elastic_block_store", "azure_disk", "cinder", "portworx_volume", "iscsi", "rbd"),
    }


# --- what decisions read is kept -------------------------------------------------------------------------------------
SETTINGS = [
    Settings(),
    Settings(scheduler_name="default-scheduler"),
    Settings(preemption=False, weights=Weights(images=1, node_affinity=1)),
]


def pods() -> list[Pod]:
    files = sorted((ROOT / "examples").rglob("*.yaml"))
    return [pod for file in files for document in yaml.safe_load_all(file.read_text()) for pod in of(document)]


def of(document: Any) -> Iterator[Pod]:
    """A pod, the pods of a template, and each as if it had a node."""
    if not isinstance(document, dict):
        return
    if document.get("kind") == "Pod":
        pod = msgspec.convert(document, Pod, strict=False)
        yield pod
        yield msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name="n"))
    spec = document.get("spec")
    template = spec.get("template") if isinstance(spec, dict) else None
    if isinstance(template, dict) and "containers" in (template.get("spec") or {}):
        yield from of({"kind": "Pod", **template})


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_scheduler_reads_the_same_of_what_is_kept(settings: Settings) -> None:
    found = pods()
    assert len(found) > 30
    for pod in found:
        named = msgspec.structs.replace(pod.spec, scheduler_name=settings.scheduler_name)
        whole = msgspec.structs.replace(pod, spec=named)
        assert seen_pod(kept(whole), settings) == seen_pod(whole, settings)


def test_a_pod_with_a_share_is_read_the_same_by_its_record_its_variables_and_its_grant() -> None:
    path = f"metadata.annotations['{names.VISIBLE_DEVICES_PREFIX}c0']"
    cap = f"metadata.annotations['{names.ENV_PREFIX}c0.{names.ENV_MEMORY_LIMIT}']"
    env = [
        {"name": "TOKEN", "value": "t"},
        {"name": names.ENV_VISIBLE_DEVICES, "value": "all"},
        {"name": names.ENV_MEMORY_LIMIT, "valueFrom": {"fieldRef": {"fieldPath": cap}}},
        {"name": names.ENV_VISIBLE_DEVICES, "valueFrom": {"fieldRef": {"fieldPath": path}}},
    ]
    by_map = {"name": "x-0", "key": names.ENV_VISIBLE_DEVICES}
    record = '{"version":1,"dialect":"kai","asks":[{"container":"c0","name":"main","nano":500000000}]}'
    for variables in (env, env[:2], [{"name": names.ENV_VISIBLE_DEVICES, "valueFrom": {"configMapKeyRef": by_map}}]):
        raw = {
            "metadata": {
                "name": "p",
                "namespace": "a",
                "uid": "u",
                "annotations": {"gpu-fraction": "0.5", names.GPU_RECORD: record, names.SHARED_GPU_CONFIGMAP: "x"},
            },
            "spec": {"schedulerName": names.SCHEDULER_NAME, "containers": [{"name": "main", "env": variables}]},
        }
        pod = msgspec.convert(raw, Pod)
        assert seen_pod(kept(pod), Settings()) == seen_pod(pod, Settings())


def test_when_a_member_of_a_gang_has_succeeded_is_read_the_same() -> None:
    ended = {"name": "main", "state": {"terminated": {"exitCode": 0, "finishedAt": "2026-01-01T00:00:47Z"}}}
    raw = {
        "metadata": {"name": "p", "namespace": "a", "uid": "u", "annotations": {names.POD_GROUP_NAME: "g"}},
        "spec": {"schedulerName": names.SCHEDULER_NAME, "containers": [{"name": "main"}], "nodeName": "n"},
        "status": {"phase": "Succeeded", "containerStatuses": [ended]},
    }
    pod = msgspec.convert(raw, Pod)
    seen = seen_pod(pod, Settings())
    assert seen.succeeded is not None
    assert seen.succeeded.ended_s > 0
    assert seen_pod(kept(pod), Settings()) == seen


def test_a_node_is_read_the_same() -> None:
    raw = {
        "metadata": {
            "name": "n",
            "uid": "u",
            "labels": {"a": "b", names.NODE_GPU_MEMORY: "81920"},
            "annotations": {names.NODE_CARDS: "24576,81920", names.NODE_ENFORCES: "memory", "csi.volume/id": "secret"},
        },
        "spec": {"unschedulable": True, "taints": [{"key": "k", "effect": "NoSchedule"}], "providerID": "secret"},
        "status": {
            "addresses": [{"type": "InternalIP", "address": "secret"}],
            "capacity": {"nvidia.com/gpu": "2"},
            "allocatable": {"nvidia.com/gpu": "2", "cpu": "96"},
            "conditions": [{"type": "Ready", "status": "True", "message": "secret"}, {"type": "secret"}],
            "images": [{"names": ["img"], "sizeBytes": 5}],
        },
    }
    node = msgspec.convert(raw, Node)
    assert node_record(kept(node), with_images=True) == node_record(node, with_images=True)
    assert b"secret" not in msgspec.json.encode(kept(node))


def test_nothing_of_a_container_is_kept_by_chance() -> None:
    bare = Pod(spec=PodSpec(containers=[Container(name="c", command=["x"], args=["y"])]))
    assert kept(bare).spec.containers == [Container(name="c")]


# The file of a snapshot: written and read the same, and refused by field, value and what is allowed.

HEAD: dict[str, Any] = {"kind": KIND, "version": VERSION, "takenAt": "2026-11-27T04:00:00Z"}


def test_what_is_written_is_read_again() -> None:
    found = Saved(
        kind=KIND,
        version=VERSION,
        taken_at="2026-11-27T04:00:00Z",
        missing=["jobs"],
        nominations='{"nominations":[],"evicted":{}}',
        nodes=[Node(metadata=ObjectMeta(name="n", uid="1"))],
        pods=[Pod(metadata=ObjectMeta(name="p", namespace="a", uid="2"))],
    )
    assert file.read(file.write(found)) == found
    assert found.wall_s == 1_795_752_000


def pod(**meta: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p", "namespace": "a", "uid": "u", **meta}}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([], "file: []; allowed: Expected `object`, got `array`"),
        ({"apiVersion": "v1", "kind": "List"}, f"kind: List; allowed: {KIND}"),
        ({**HEAD, "version": 1}, "version: 1; allowed: 2; take the snapshot with this version of moorage"),
        ({**HEAD, "version": None}, "version: null; allowed: 2"),
        ({**HEAD, "takenAt": "yesterday"}, "takenAt: yesterday; allowed: a time in RFC 3339"),
        ({"kind": KIND, "version": VERSION}, "Object missing required field `takenAt`"),
        ({**HEAD, "missing": ["pods"]}, "missing[0]: pods; allowed: bindrequests, "),
        ({**HEAD, "pods": [pod(uid=7)]}, "pods[0].metadata.uid: 7; allowed: Expected `str`, got `int`"),
        ({**HEAD, "pods": [{**pod(), "spec": {"priority": "high"}}]}, "pods[0].spec.priority: high; allowed: "),
        ({**HEAD, "pods": {}}, "pods: {}; allowed: Expected `array`, got `object`"),
        ({**HEAD, "pods": [pod(uid="")]}, 'pods[0].metadata.uid: ""; allowed: a text that is not empty'),
        ({**HEAD, "nodes": [{}]}, 'nodes[0].metadata.name: ""; allowed: a text that is not empty'),
        ({**HEAD, "pods": [pod(), pod(name="q")]}, "pods[1].metadata.uid: u; allowed: each UID once"),
        ({**HEAD, "pods": [pod(), pod(uid="v")]}, "pods[1].metadata.name: a/p; allowed: each name once in "),
        ({**HEAD, "nominations": "{}"}, "nominations: nothing can be read: "),
        ({**HEAD, "queueUse": "7"}, "queueUse: "),
    ],
)
def test_a_file_that_is_none_is_refused(given: Any, told: str) -> None:
    with pytest.raises(Refused) as refused:
        file.read(msgspec.json.encode(given))
    assert told in str(refused.value)


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"[" * 100_000, b'{"kind": ' + b"[" * 100_000])
def test_what_is_no_json_is_refused(text: bytes) -> None:
    with pytest.raises(Refused, match=r"file: .*; allowed: one JSON object, as moorage snapshot writes it"):
        file.read(text)


def test_a_value_is_shown_in_part() -> None:
    with pytest.raises(Refused) as refused:
        file.read(msgspec.json.encode({**HEAD, "takenAt": "x" * 10_000}))
    assert len(str(refused.value)) < 300
