"""Pods of a list, of which those of equal content are read once: each comes out as if it had been read alone."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
import pytest

from gpu.grant import DeviceGrant, Grant
from scheduler.core.convert.bounds import MOST_LABELS
from scheduler.core.convert.pod_lists import AlikePods
from scheduler.core.convert.pods import seen_pod
from scheduler.core.filters.registry import FILTERS
from scheduler.core.model.records import PodRecord
from scheduler.core.model.settings import NodePool, Settings
from tests.scheduler.core.objects import pod
from tests.whole import seeds
from wire import names
from wire.core import ObjectMeta, Pod, PodSpec, PodStatus

SETTINGS = Settings(preemption=True)
_TERM: Final = {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": "zone"}
_INDEX: Final = "batch.kubernetes.io/job-completion-index"
_NUMBERED: Final = {
    "labelSelector": {"matchExpressions": [{"key": _INDEX, "operator": "Exists"}]},
    "matchLabelKeys": [_INDEX],
    "topologyKey": "zone",
}
_GRANT: Final = msgspec.json.encode(Grant("1", (DeviceGrant("g", "r", "GPU-1", 5 * 10**8),))).decode()


def _container(**fields: Any) -> dict[str, Any]:
    return {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}, **fields}


#: By field: what it may say, in JSON. What is not here makes no difference to any record.
META: Final[dict[str, list[Any]]] = {
    "name": ["a", "b", "c"],
    "generateName": ["", "a-"],
    "namespace": ["ns", "other", names.RESERVATION_NAMESPACE],
    "uid": ["u1", "u2"],
    "resourceVersion": ["1", "2"],
    "generation": [0, 2],
    "labels": [
        {"app": "a", "job-name": "j"}, {"app": "a", "job-name": "k"}, {"training.kubeflow.org/job-name": "k"},
        None, {}, {"app": "a"}, {"app": "a", names.QUEUE_LABEL: "team"}, {"app": "a", _INDEX: "0"},
        {"app": "a", _INDEX: "1"}, {names.SUBGROUP_LABEL: "s"}, {names.APP_LABEL: names.RESERVATION_APP},
    ],
    "annotations": [
        None, {names.GPU_FRACTION: "0.5"}, {names.GPU_FRACTION: "nonsense"}, {names.GPU_MEMORY: "100"}, {_INDEX: "3"},
        {names.POD_GROUP_NAME: "g"}, {names.POD_GROUP_NAME: "h"}, {names.POD_GROUP_NAME: ""},
        {names.GRANT: _GRANT}, {names.DO_NOT_DISRUPT: "true"},
    ],
    "finalizers": [None, ["f"]],
    "ownerReferences": [
        None, [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j1", "controller": True}],
        [{"apiVersion": "batch/v1", "kind": "Job", "name": "k", "uid": "j2", "controller": True}],
        [{"apiVersion": "batch/v1", "kind": "Job", "name": "k", "uid": "j2"}],
        [{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "k", "uid": "p2", "controller": True}],
        [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "", "controller": True}],
        [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r1", "controller": True}],
    ],
    "creationTimestamp": [None, "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"],
    "deletionTimestamp": [None, "2026-01-03T00:00:00Z"],
    "deletionGracePeriodSeconds": [None, 30],
}  # fmt: skip
SPEC: Final[dict[str, list[Any]]] = {
    "nodeName": ["", "", "n1", "n2"],
    "schedulerName": [names.SCHEDULER_NAME, names.SCHEDULER_NAME, "default-scheduler"],
    "serviceAccountName": ["", "s"],
    "priority": [None, 5],
    "preemptionPolicy": [None, "Never"],
    "priorityClassName": ["", "high"],
    "runtimeClassName": [None, "nvidia"],
    "restartPolicy": ["", "Never"],
    "terminationGracePeriodSeconds": [None, 5],
    "activeDeadlineSeconds": [None, 60],
    "hostNetwork": [False, True],
    "hostUsers": [None, False],
    "hostPID": [False, True],
    "containers": [
        [_container()], [_container(resources={"limits": {"cpu": "nonsense"}})],
        [_container(), _container(name="more", resources={})],
        [_container(ports=[{"hostPort": 80}])], [_container(ports=[{"containerPort": 81}])],
        [_container(env=[{"name": "RANK", "value": "1"}])],
    ],
    "initContainers": [None, [_container(name="first", restartPolicy="Always")]],
    "ephemeralContainers": [None, [{"name": "debug"}]],
    "nodeSelector": [None, {"zone": "a"}],
    "affinity": [
        None, {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_TERM]}},
        {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": _TERM}]}},
    ],
    "tolerations": [None, [{"key": "t", "operator": "Exists"}]],
    "topologySpreadConstraints": [
        None, [{"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 1, "matchLabelKeys": [_INDEX]}],
    ],
    "schedulingGates": [None, [{"name": "gate"}]],
    "overhead": [None, {"cpu": "1"}],
    "volumes": [
        None, [{"name": "kube-api-access-1"}], [{"name": "kube-api-access-2"}],
        [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}], [{"name": "v", "ephemeral": {}}],
        [{"name": "v", "awsElasticBlockStore": {"volumeID": "v"}}],
    ],
    "resourceClaims": [None, [{"name": "r", "resourceClaimTemplateName": "t"}]],
    "workloadRef": [None, {"name": "w"}],
    "schedulingGroup": [None, {"podGroupName": "w"}],
    "resources": [None, {"requests": {"cpu": "3"}}],
    "automountServiceAccountToken": [None, False],
    "securityContext": [None, {"runAsUser": 1}],
}  # fmt: skip
STATUS: Final[dict[str, list[Any]]] = {
    "phase": ["Pending", "Running", "Succeeded", "Failed"],
    "reason": ["", "Evicted"],
    "message": ["", "m"],
    "conditions": [
        None, [{"type": "PodScheduled", "status": "False"}],
        [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}],
    ],
    "containerStatuses": [
        None, [{"name": "main", "state": {"running": {}}}], [{"name": "main", "resources": {"requests": {"cpu": "9"}}}],
        [{"name": "main", "allocatedResources": {"memory": "9Gi"}}],
    ],
    "initContainerStatuses": [None, [{"name": "first", "resources": {"requests": {"cpu": "7"}}}]],
    "resources": [None, {"requests": {"cpu": "8"}}],
    "allocatedResources": [None, {"cpu": "8"}],
    "nominatedNodeName": ["", "n1"],
    "resourceClaimStatuses": [None, [{"name": "r", "resourceClaimName": "r-1"}]],
    "extendedResourceClaimStatus": [None, *({
        "resourceClaimName": name,
        "requestMappings": [{"containerName": "main", "resourceName": resource, "requestName": "r0"}],
    } for name, resource in [("c-1", "nvidia.com/gpu"), ("c-2", "nvidia.com/gpu"), ("c-1", "example.com/nic")])],
    "startTime": [None, "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"],
}  # fmt: skip


TABLES: Final = {"metadata": META, "spec": SPEC, "status": STATUS}


def _drawn(rng: random.Random) -> dict[str, dict[str, Any]]:
    """A pod that says something in about a third of its fields."""
    made = {part: _first(table) for part, table in TABLES.items()}
    for part, table in TABLES.items():
        made[part].update({name: rng.choice(values) for name, values in table.items() if rng.random() < 1 / 3})
    return made


def _variants(base: dict[str, dict[str, Any]]) -> Iterator[dict[str, dict[str, Any]]]:
    """The same pod with another value of one field, for each value of each."""
    for part, table in TABLES.items():
        for name, values in table.items():
            yield from ({**base, part: {**base[part], name: value}} for value in values)


def _first(table: dict[str, list[Any]]) -> dict[str, Any]:
    return {name: values[0] for name, values in table.items()}


@pytest.mark.parametrize(
    ("struct", "table"), [(ObjectMeta, META), (PodSpec, SPEC), (PodStatus, STATUS)], ids=lambda each: str(each)[:24]
)
def test_the_tables_have_every_field_that_is_decoded(struct: type[msgspec.Struct], table: dict[str, list[Any]]) -> None:
    assert {each.encode_name for each in msgspec.structs.fields(struct)} == table.keys()


@pytest.mark.parametrize("seed", seeds(16))
def test_pods_of_one_list_are_what_each_is_alone(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(3):
        base = _drawn(rng)
        assert _misread(made for each in _variants(base) for made in (base, each)) == []


@pytest.mark.parametrize(
    "spec",
    [
        {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_NUMBERED]}}},
        {"topologySpreadConstraints": [{**_NUMBERED, "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 1}]},
    ],
    ids=lambda spec: next(iter(spec)),
)
def test_numbers_of_pods_that_their_rules_read_tell_them_apart(spec: dict[str, Any]) -> None:
    made = [pod(f"p{number}", gpus=1, labels={_INDEX: str(number)}) for number in range(2)]
    raw = [msgspec.to_builtins(each) for each in made]
    assert _misread({**each, "spec": {**each["spec"], **spec}} for each in raw) == []


@pytest.mark.parametrize("own", [{}, {"controller-uid": "u"}, {"controller-uid": "u", "job-name": "j"}], ids=len)
@pytest.mark.parametrize("placed", ["", "n1"])
def test_labels_that_are_too_many_are_cut_of_each_pod_alone(own: dict[str, str], placed: str) -> None:
    pool = NodePool(value="a")
    settings = Settings(pool=pool)
    few: dict[str, str] = {pool.key: "a", **{f"k{number}": "" for number in range(MOST_LABELS - 2)}}
    alike = AlikePods(settings)
    for labels in (few, {**few, **own}, {**few, "job-name": "k"}, {**few, "more": "", **own}, {**few, "more": ""}):
        made = pod("p", labels=labels, bound_to=placed)
        assert alike.read(made) == seen_pod(made, settings)


def test_volumes_that_are_too_many_are_told_of_each_pod_alone() -> None:
    made = [pod(spec={"volumes": [{"name": f"v{number}"} for number in range(count)]}) for count in (1, 257, 2)]
    assert _misread(msgspec.to_builtins(each) for each in made) == []


def _misread(pods: Iterable[dict[str, Any]]) -> list[Pod]:
    """Pods of one list that come out otherwise than alone."""
    alike = AlikePods(SETTINGS)
    made = (msgspec.convert(each, Pod) for each in pods)
    return [each for each in made if alike.read(each) != seen_pod(each, SETTINGS)]


def _records(*pods: Pod) -> list[PodRecord]:
    alike = AlikePods(SETTINGS)
    return [record for each in pods if (record := alike.read(each).record) is not None]


def _named(name: str, **fields: Any) -> Pod:
    made = pod(name, gpus=2, labels={"app": "a"})
    spec = msgspec.structs.replace(made.spec, **fields)
    return msgspec.structs.replace(made, spec=spec)


def test_what_pods_of_one_template_share_is_one_object() -> None:
    one, other = _records(_named("a"), _named("b"))
    assert (one.name, other.name) == ("a", "b")
    assert one.uid != other.uid
    assert one.cls is other.cls
    assert one.labels is other.labels


def test_pods_that_are_numbered_are_read_once_and_keep_their_numbers() -> None:
    one, other = _records(pod("a", gpus=1, labels={_INDEX: "0"}), pod("b", gpus=1, labels={_INDEX: "1"}))
    assert one.cls is other.cls
    assert (one.labels, other.labels) == ({_INDEX: "0"}, {_INDEX: "1"})


def test_long_contents_and_contents_beyond_a_number_are_read_as_well() -> None:
    long = [_named(name, node_selector={f"key-{number}": "x" * 60 for number in range(80)}) for name in "ab"]
    many = [pod(f"p{number % 1500}", gpus=1, cpu=str(number % 1500)) for number in range(3000)]
    alike = AlikePods(SETTINGS)
    for each in [*long, *many]:
        assert alike.read(each) == seen_pod(each, SETTINGS, FILTERS)
