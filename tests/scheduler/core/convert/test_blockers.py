from __future__ import annotations

import json
from typing import Any

import pytest

from scheduler.core.convert.pods import pod_record
from scheduler.core.model.settings import Settings
from scheduler.core.model.verdict import Code, Verdict
from tests.scheduler.core.convert.reading import read
from tests.scheduler.core.objects import pod
from tests.values import there
from wire import names
from wire.core import Pod

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
ANTI = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}
UNREAD = {**ANTI, "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Newer"}]}}
WORDY = {**ANTI, "labelSelector": {"matchLabels": {str(number): "v" for number in range(501)}}}
MANY = [{**ANTI, "topologyKey": str(number)} for number in range(33)]
PORTS = [{"hostPort": number} for number in range(1, 102)]


def _naming(resources: int) -> dict[str, Any]:
    """A container that names so many extended resources."""
    return {"name": "c", "resources": {"limits": {f"example.com/r{number:05}": "1" for number in range(resources)}}}


TERM = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a"]}]}
EXCESSIVE = "more than 500 expressions, labels, tolerations, products and UUIDs in all"


@pytest.mark.parametrize(
    ("resources", "is_placed"), [({}, False), ({"nvidia.com/gpu": "1"}, False), ({"nvidia.com/mig-1g.5gb": "1"}, True)]
)
def test_a_slice_that_is_asked_by_kais_old_annotation_keeps_the_pod_waiting(
    resources: dict[str, str], is_placed: bool
) -> None:
    blocker = read(pod(annotations={"nvidia.com/mig-1g.5gb": "1"}, extended=resources)).blocker
    assert (blocker is None) == is_placed
    if blocker is not None:
        assert blocker.code is Code.UNSUPPORTED_CONSTRAINT
        assert "annotation nvidia.com/mig-1g.5gb (ask for it in resources.limits)" in blocker.detail


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        (
            {"affinity": {"podAffinity": {REQUIRED: [UNREAD]}}},
            "affinity.podAffinity with a selector that can't be read",
        ),
        (
            {"affinity": {"podAntiAffinity": {REQUIRED: [UNREAD]}}},
            "affinity.podAntiAffinity with a selector that can't be read",
        ),
        (
            {"topologySpreadConstraints": [{"topologyKey": "z", "whenUnsatisfiable": "Perhaps"}]},
            "topologySpreadConstraints that can't be read",
        ),
        ({"affinity": {"podAffinity": {REQUIRED: MANY}}}, "more than 32 terms of pod affinity and spread constraints"),
        ({"containers": [{"name": "c", "ports": PORTS}]}, "more than 100 ports of the host"),
        (
            {"affinity": {"podAffinity": {REQUIRED: [WORDY]}}},
            "more than 1000 expressions and values in selectors of pods",
        ),
        ({"resourceClaims": [{"name": "gpu"}]}, "resourceClaims"),
        ({"tolerations": [{"key": str(n)} for n in range(500)]}, EXCESSIVE),
        ({"nodeSelector": {str(n): "v" for n in range(500)}}, EXCESSIVE),
        ({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [TERM] * 250}}}}, EXCESSIVE),
        ({"containers": [_naming(101)]}, "more than 100 extended resources"),
    ],
)
def test_a_hard_constraint_that_is_not_implemented_keeps_the_pod_waiting(spec: dict[str, Any], named: str) -> None:
    blocker = there(read(pod(spec=spec)).blocker)
    assert (blocker.code, blocker.detail) == (Code.UNSUPPORTED_CONSTRAINT, named)


def _recorded(*, places: int = 0, others: int = 0, uuids: int = 0) -> Pod:
    """A pod with a record of its own making. ``others``: what each place is not, of eight labels each."""
    ask = [{"container": "c0", "nano": 1}]
    said: dict[str, Any] = {"version": 2 if places else 1, "dialect": "kai", "asks": ask}
    if places:
        other = {str(n): "v" for n in range(8)}
        said |= {"places": [{"labels": {"place": str(n)}, "otherThan": [other] * others} for n in range(places)]}
        said |= {"alternatives": [ask] * (places - 1)}
    else:
        said |= {"cards": {"uuids": [str(n) for n in range(uuids - 2)], "notUuids": ["a", "b"]}}
    return pod(annotations={names.GPU_RECORD: json.dumps(said)})


@pytest.mark.parametrize(
    ("obj", "named"),
    [
        (_recorded(uuids=499), ""),
        (_recorded(uuids=500), EXCESSIVE),
        (_recorded(places=17, others=16), ""),
        (_recorded(places=128, others=16), "more than 10000 expressions and labels in all places of its record"),
    ],
)
def test_what_a_record_names_is_counted_too(obj: Pod, named: str) -> None:
    """Each device of each node is compared with all UUIDs, and each node with all places."""
    blocker = read(obj).blocker
    assert (blocker.detail if blocker and blocker.code is Code.UNSUPPORTED_CONSTRAINT else "") == named


@pytest.mark.parametrize(
    "spec",
    [
        {"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}},
        {"topologySpreadConstraints": [{"topologyKey": "z", "whenUnsatisfiable": "ScheduleAnyway"}]},
        {"containers": [{"name": "c", "ports": [{"containerPort": 80}]}]},
        {"volumes": [{"name": "v", "configMap": {"name": "x"}}, {"name": "e"}]},
        {"affinity": {"podAffinity": {REQUIRED: []}}},
        {"containers": [_naming(100)]},
    ],
)
def test_soft_wishes_and_harmless_fields_block_nobody(spec: dict[str, Any]) -> None:
    assert read(pod(spec=spec)).blocker is None


@pytest.mark.parametrize(
    ("owner", "labels", "kind"),
    [
        (("kubeflow.org/v1", "PyTorchJob"), {}, "PyTorchJob"),
        (("kubeflow.org/v2beta1", "MPIJob"), {}, "MPIJob"),
        (("ray.io/v1", "RayCluster"), {}, "RayCluster"),
        (("batch.volcano.sh/v1alpha1", "Job"), {}, "Job"),
        (("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"), {}, "LeaderWorkerSet"),
        (("batch/v1", "Job"), {"jobset.sigs.k8s.io/jobset-name": "js"}, "JobSet"),
        (("apps/v1", "StatefulSet"), {"leaderworkerset.sigs.k8s.io/name": "lws"}, "LeaderWorkerSet"),
        (("batch/v1", "Job"), {}, ""),
        (("apps/v1", "ReplicaSet"), {}, ""),
        (("apps/v1", "StatefulSet"), {}, ""),
        (("example.com/v1", "PyTorchJob"), {}, ""),
        (None, {}, ""),
    ],
)
def test_pods_of_a_gang_kind_are_not_bound_piecemeal(
    owner: tuple[str, str] | None, labels: dict[str, str], kind: str
) -> None:
    blocker = read(pod(owner=owner, labels=labels)).blocker
    assert blocker == (Verdict(code=Code.NO_POD_GROUP, detail=kind) if kind else None)
    assert read(pod(owner=owner, labels=labels, group="g")).blocker is None


GROUPED = Settings(workloads_are_grouped=True)


@pytest.mark.parametrize(
    ("owner", "labels", "code"),
    [
        (("kubeflow.org/v1", "PyTorchJob"), {}, Code.NOT_GROUPED),
        (("batch/v1", "Job"), {"jobset.sigs.k8s.io/jobset-name": "js"}, Code.NOT_GROUPED),
        # Nobody makes a PodGroup of a pod without an owner.
        (None, {"ray.io/cluster": "c"}, Code.NO_POD_GROUP),
        (("apps/v1", "ReplicaSet"), {}, None),
    ],
)
def test_where_workloads_are_grouped_a_pod_of_a_gang_kind_waits_for_that(
    owner: tuple[str, str] | None, labels: dict[str, str], code: Code | None
) -> None:
    record = there(pod_record(pod(owner=owner, labels=labels), GROUPED))
    assert (record.blocker.code if record.blocker else None) is code
    named = there(pod_record(pod(owner=owner, labels=labels, group="g"), GROUPED))
    assert named.blocker is None


@pytest.mark.parametrize(
    ("asked", "code", "detail"),
    [
        (
            {"labels": {"scheduling.x-k8s.io/pod-group": "g"}},
            Code.NOT_GROUPED,
            "gang (label scheduling.x-k8s.io/pod-group)",
        ),
        (
            {"annotations": {"gang.scheduling.koordinator.sh/name": "g"}},
            Code.NOT_GROUPED,
            "gang (annotation gang.scheduling.koordinator.sh/name)",
        ),
        ({"spec": {"schedulingGroup": {"podGroupName": "g"}}}, Code.NOT_GROUPED, "gang (spec.schedulingGroup)"),
        # Nobody translates these.
        (
            {"spec": {"workloadRef": {"name": "w"}}},
            Code.UNSUPPORTED_CONSTRAINT,
            "starting together by spec.workloadRef (without a PodGroup in annotation pod-group-name)",
        ),
        (
            {"annotations": {"yunikorn.apache.org/task-group-name": "g"}},
            Code.UNSUPPORTED_CONSTRAINT,
            "starting together by annotation yunikorn.apache.org/task-group-name (without a PodGroup in annotation "
            "pod-group-name)",
        ),
        (
            {"annotations": {"scheduling.x-k8s.io/pod-group": "g"}},
            Code.UNSUPPORTED_CONSTRAINT,
            "starting together by annotation scheduling.x-k8s.io/pod-group (without a PodGroup in annotation "
            "pod-group-name)",
        ),
    ],
)
def test_where_workloads_are_grouped_a_pod_waits_for_the_pod_group_of_its_foreign_gang(
    asked: dict[str, Any], code: Code, detail: str
) -> None:
    record = there(pod_record(pod(**asked), GROUPED))
    assert record.blocker == Verdict(code=code, detail=detail)
    named = there(pod_record(pod(group="g", **asked), GROUPED))
    assert named.blocker is None


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"spec": {"schedulingGroup": {"podGroupName": "g"}}}, "spec.schedulingGroup"),
        ({"spec": {"workloadRef": {"name": "w", "podGroup": "g"}}}, "spec.workloadRef"),
        ({"annotations": {"scheduling.k8s.io/group-name": "g"}}, "annotation scheduling.k8s.io/group-name"),
        ({"annotations": {"scheduling.volcano.sh/group-name": "g"}}, "annotation scheduling.volcano.sh/group-name"),
        ({"labels": {"scheduling.x-k8s.io/pod-group": "g"}}, "label scheduling.x-k8s.io/pod-group"),
        ({"labels": {"pod-group.scheduling.sigs.k8s.io": "g"}}, "label pod-group.scheduling.sigs.k8s.io"),
        (
            {"annotations": {"gang.scheduling.koordinator.sh/name": "g"}},
            "annotation gang.scheduling.koordinator.sh/name",
        ),
        ({"annotations": {"kai.scheduler/batch-min-member": "6"}}, "annotation kai.scheduler/batch-min-member"),
        ({"annotations": {"kai.scheduler/batch-min-member": "six"}}, "annotation kai.scheduler/batch-min-member"),
        ({"annotations": {"kai.scheduler/segment-size": "4"}}, "annotation kai.scheduler/segment-size"),
        (
            {"annotations": {"kai.scheduler/topology-required-placement": "rack"}},
            "annotation kai.scheduler/topology-required-placement",
        ),
        ({"annotations": {"kai.scheduler/batch-min-member": "1"}}, ""),
        ({"spec": {"schedulingGroup": {}}}, ""),
        (
            {
                "spec": {"schedulingGroup": {"podGroupName": "g"}},
                "annotations": {"kai.scheduler/ignore-workload-api": "true"},
            },
            "",
        ),
        ({"labels": {"scheduling.x-k8s.io/pod-group": ""}}, ""),
    ],
)
def test_a_pod_that_asks_for_a_gang_in_a_way_that_is_not_carried_out_is_not_started_alone(
    asked: dict[str, Any], named: str
) -> None:
    blocker = read(pod(**asked)).blocker
    if not named:
        assert blocker is None
        return
    assert blocker is not None
    assert blocker.code is Code.UNSUPPORTED_CONSTRAINT
    assert blocker.detail.startswith(f"starting together by {named} (")
    assert read(pod(group="g", **asked)).blocker is None


def _env(**source: Any) -> dict[str, Any]:
    env = [{"name": names.ENV_VISIBLE_DEVICES, "valueFrom": source}]
    return {"containers": [{"name": "main", "env": env}]}


FIELD = {"fieldRef": {"fieldPath": "metadata.annotations['moorage.dev/visible-devices.c0']"}}
MAP = {"configMapKeyRef": {"name": "job-x1-shared-gpu-0", "key": "NVIDIA_VISIBLE_DEVICES"}}
PREFIX = {names.SHARED_GPU_CONFIGMAP: "job-x1-shared-gpu"}


@pytest.mark.parametrize(
    ("spec", "annotations", "admitted", "by_map"),
    [
        (_env(**FIELD), {}, True, False),
        (_env(fieldRef={"fieldPath": "metadata.annotations['moorage.dev/visible-devices.c1']"}), {}, False, False),
        (_env(fieldRef={"fieldPath": "metadata.name"}), {}, False, False),
        (_env(**MAP), PREFIX, True, True),
        (_env(**MAP), {}, False, False),
        (_env(**MAP), {names.SHARED_GPU_CONFIGMAP: "another"}, False, False),
        (_env(secretKeyRef={"name": "x"}), {}, False, False),
        ({"containers": [{"name": "main"}]}, {}, False, False),
        (
            {"containers": [{"name": "main", "env": [{"name": names.ENV_VISIBLE_DEVICES, "value": "all"}]}]},
            {},
            False,
            False,
        ),
        # The last entry of a name is what the container gets.
        (
            {
                "containers": [
                    {
                        "name": "main",
                        "env": [
                            {"name": names.ENV_VISIBLE_DEVICES, "valueFrom": FIELD},
                            {"name": names.ENV_VISIBLE_DEVICES, "value": "all"},
                        ],
                    }
                ]
            },
            {},
            False,
            False,
        ),
    ],
)
def test_a_share_pod_is_admitted_iff_its_container_will_see_its_device(
    spec: dict[str, Any], annotations: dict[str, str], admitted: bool, by_map: bool
) -> None:
    record = read(pod(fraction="0.5", admitted=False, spec=spec, annotations=annotations))
    assert (record.blocker is None, record.cls.by_config_map) == (admitted, by_map)
    if record.blocker is not None:
        assert record.blocker.code is Code.NOT_ADMITTED


def test_a_container_that_reads_a_config_map_and_asks_for_nothing_any_more_keeps_its_pod_waiting() -> None:
    """An attempt that failed may have left the ConfigMap, with the device that it was to get."""
    blocker = there(read(pod(admitted=False, spec=_env(**MAP), annotations=PREFIX)).blocker)
    assert blocker.code is Code.INVALID_REQUEST
    assert "container main" in blocker.detail
    assert read(pod(admitted=False, spec=_env(**FIELD))).blocker is None


def test_an_init_container_with_a_share_reads_its_own_key() -> None:
    path = "metadata.annotations['moorage.dev/visible-devices.i0']"
    init = {
        "name": "warm",
        "env": [{"name": names.ENV_VISIBLE_DEVICES, "valueFrom": {"fieldRef": {"fieldPath": path}}}],
    }
    spec = {"initContainers": [init], "containers": [{"name": "main"}]}
    asked = {names.GPU_FRACTION_CONTAINER_NAME: "warm"}
    assert read(pod(fraction="0.5", admitted=False, spec=spec, annotations=asked)).blocker is None


def test_a_request_that_cannot_be_read_says_what_is_wrong() -> None:
    blocker = there(read(pod(fraction="much")).blocker)
    assert blocker.code is Code.INVALID_REQUEST
    assert "positive number smaller than 1.0" in blocker.detail


def test_a_quantity_that_cannot_be_read_says_what_is_wrong() -> None:
    blocker = there(read(pod(cpu="much")).blocker)
    assert blocker.code is Code.INVALID_REQUEST
    assert blocker.detail.startswith("the pod's cpu can't be read: quantity 'much' is not")


def test_a_pod_whose_annotations_leave_no_room_for_the_binding_waits() -> None:
    blocker = there(read(pod(annotations={"note": "x" * 262_000})).blocker)
    assert blocker.code is Code.INVALID_REQUEST
    assert "no room" in blocker.detail


@pytest.mark.parametrize("kind", ["limits", "requests"])
def test_a_slice_that_a_container_asks_one_way_only_is_asked_for(kind: str) -> None:
    containers = [{"name": "c", "resources": {kind: {"nvidia.com/mig-1g.5gb": "1"}}}]
    assert read(pod(annotations={"nvidia.com/mig-1g.5gb": "1"}, spec={"containers": containers})).blocker is None
