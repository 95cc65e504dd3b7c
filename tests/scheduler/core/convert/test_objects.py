from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from gpu.handover import PlannedDevice
from scheduler.core.convert import objects, written_plan
from scheduler.core.model.plan import Placement
from scheduler.core.model.records import Demand, NodeRecord, PlannedMember, PodRecord
from scheduler.core.model.settings import Settings
from scheduler.core.model.verdict import Code, Verdict
from tests.scheduler.core.objects import NANO, changed, ended, node, pod, pod_group, reservation
from wire import names
from wire.core import Node, Pod

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
ANTI = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}


def _read(obj: Pod) -> PodRecord:
    record = objects.pod_record(obj, Settings())
    assert record is not None
    return record


@pytest.mark.parametrize(
    ("obj", "matters"),
    [
        (pod(), True),
        (pod(scheduler="default-scheduler"), False),
        (pod(scheduler="default-scheduler", bound_to="n1"), True),
        (pod(bound_to="n1", phase="Running", deleting=True), True),
        (ended(pod(bound_to="n1")), False),
        (ended(pod(bound_to="n1"), "Failed"), False),
        (ended(pod()), False),
    ],
)
def test_a_pod_matters_if_it_holds_something_or_waits_for_us(obj: Pod, matters: bool) -> None:
    assert (objects.pod_record(obj, Settings()) is not None) == matters


def test_an_evicted_pod_holds_its_place_until_its_containers_have_ended() -> None:
    status = {"phase": "Failed", "containerStatuses": [{"name": "main", "state": {"running": {}}}]}
    evicted = msgspec.structs.replace(pod(bound_to="n1"), status=msgspec.convert(status, type(pod().status)))
    assert objects.pod_record(evicted, Settings()) is not None


def _naming(resources: int) -> dict[str, Any]:
    """A container that names so many extended resources."""
    return {"name": "c", "resources": {"limits": {f"example.com/r{number:05}": "1" for number in range(resources)}}}


TERM = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a"]}]}
EXCESSIVE = "more than 500 expressions, labels, tolerations, products and UUIDs in all"


@pytest.mark.parametrize(
    ("resources", "is_placed"),
    [({}, False), ({"nvidia.com/gpu": "1"}, False), ({"nvidia.com/mig-1g.5gb": "1"}, True)],
)
def test_a_slice_that_is_asked_by_kais_old_annotation_keeps_the_pod_waiting(
    resources: dict[str, str], is_placed: bool
) -> None:
    blocker = _read(pod(annotations={"nvidia.com/mig-1g.5gb": "1"}, extended=resources)).blocker
    assert (blocker is None) == is_placed
    if blocker is not None:
        assert blocker.code is Code.UNSUPPORTED_CONSTRAINT
        assert "annotation nvidia.com/mig-1g.5gb (ask for it in resources.limits)" in blocker.detail


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ({"affinity": {"podAffinity": {REQUIRED: [ANTI]}}}, "affinity.podAffinity"),
        ({"affinity": {"podAntiAffinity": {REQUIRED: [ANTI]}}}, "affinity.podAntiAffinity"),
        (
            {"topologySpreadConstraints": [{"topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}]},
            "topologySpreadConstraints",
        ),
        ({"containers": [{"name": "c", "ports": [{"hostPort": 80}]}]}, "hostPort"),
        ({"hostNetwork": True, "containers": [{"name": "c", "ports": [{"containerPort": 80}]}]}, "hostPort"),
        ({"initContainers": [{"name": "i", "ports": [{"hostPort": 80}]}]}, "hostPort"),
        ({"resourceClaims": [{"name": "gpu"}]}, "resourceClaims"),
        ({"tolerations": [{"key": str(n)} for n in range(500)]}, EXCESSIVE),
        ({"nodeSelector": {str(n): "v" for n in range(500)}}, EXCESSIVE),
        ({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [TERM] * 250}}}}, EXCESSIVE),
        ({"containers": [{"name": "c", "resources": {"claims": [{"name": "gpu"}]}}]}, "resourceClaims"),
        ({"containers": [_naming(101)]}, "more than 100 extended resources"),
    ],
)
def test_a_hard_constraint_that_is_not_implemented_keeps_the_pod_waiting(spec: dict[str, Any], named: str) -> None:
    blocker = _read(pod(spec=spec)).blocker
    assert blocker is not None
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
    blocker = _read(obj).blocker
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
    assert _read(pod(spec=spec)).blocker is None


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
    blocker = _read(pod(owner=owner, labels=labels)).blocker
    assert blocker == (Verdict(code=Code.NO_POD_GROUP, detail=kind) if kind else None)
    assert _read(pod(owner=owner, labels=labels, group="g")).blocker is None


GROUPED = Settings(are_grouped=True)


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
    record = objects.pod_record(pod(owner=owner, labels=labels), GROUPED)
    assert record is not None
    assert (record.blocker.code if record.blocker else None) is code
    named = objects.pod_record(pod(owner=owner, labels=labels, group="g"), GROUPED)
    assert named is not None
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
    record = objects.pod_record(pod(**asked), GROUPED)
    assert record is not None
    assert record.blocker == Verdict(code=code, detail=detail)
    named = objects.pod_record(pod(group="g", **asked), GROUPED)
    assert named is not None
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
    blocker = _read(pod(**asked)).blocker
    if not named:
        assert blocker is None
        return
    assert blocker is not None
    assert blocker.code is Code.UNSUPPORTED_CONSTRAINT
    assert blocker.detail.startswith(f"starting together by {named} (")
    assert _read(pod(group="g", **asked)).blocker is None


@pytest.mark.parametrize(
    ("annotations", "unsupported"),
    [
        ({"kai.scheduler/batch-min-member": "3"}, "annotation kai.scheduler/batch-min-member above minMember"),
        ({"kai.scheduler/batch-min-member": "?"}, "annotation kai.scheduler/batch-min-member above minMember"),
        ({"kai.scheduler/batch-min-member": "2"}, ""),
        ({"kai.scheduler/segment-size": "2"}, "annotation kai.scheduler/segment-size"),
        ({"kai.scheduler/preemption-delay": "1m"}, ""),
        ({}, ""),
    ],
)
def test_annotations_of_a_pod_group_that_ask_for_another_structure_are_named(
    annotations: dict[str, str], unsupported: str
) -> None:
    assert objects.pod_group_record(pod_group("g", 2, annotations=annotations)).unsupported == unsupported


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
    record = _read(pod(fraction="0.5", admitted=False, spec=spec, annotations=annotations))
    assert (record.blocker is None, record.cls.by_config_map) == (admitted, by_map)
    if record.blocker is not None:
        assert record.blocker.code is Code.NOT_ADMITTED


def test_a_container_that_reads_a_config_map_and_asks_for_nothing_any_more_keeps_its_pod_waiting() -> None:
    """An attempt that failed may have left the ConfigMap, with the device that it was to get."""
    blocker = _read(pod(admitted=False, spec=_env(**MAP), annotations=PREFIX)).blocker
    assert blocker is not None
    assert blocker.code is Code.INVALID_REQUEST
    assert "container main" in blocker.detail
    assert _read(pod(admitted=False, spec=_env(**FIELD))).blocker is None


def test_an_init_container_with_a_share_reads_its_own_key() -> None:
    path = "metadata.annotations['moorage.dev/visible-devices.i0']"
    init = {
        "name": "warm",
        "env": [{"name": names.ENV_VISIBLE_DEVICES, "valueFrom": {"fieldRef": {"fieldPath": path}}}],
    }
    spec = {"initContainers": [init], "containers": [{"name": "main"}]}
    asked = {names.GPU_FRACTION_CONTAINER_NAME: "warm"}
    assert _read(pod(fraction="0.5", admitted=False, spec=spec, annotations=asked)).blocker is None


def test_a_request_that_cannot_be_read_says_what_is_wrong() -> None:
    blocker = _read(pod(fraction="much")).blocker
    assert blocker is not None
    assert blocker.code is Code.INVALID_REQUEST
    assert "positive number smaller than 1.0" in blocker.detail


def test_a_quantity_that_cannot_be_read_says_what_is_wrong() -> None:
    blocker = _read(pod(cpu="much")).blocker
    assert blocker is not None
    assert blocker.code is Code.INVALID_REQUEST
    assert blocker.detail.startswith("the pod's cpu can't be read: quantity 'much' is not")


def test_a_pod_whose_annotations_leave_no_room_for_the_binding_waits() -> None:
    blocker = _read(pod(annotations={"note": "x" * 262_000})).blocker
    assert blocker is not None
    assert blocker.code is Code.INVALID_REQUEST
    assert "no room" in blocker.detail


def test_a_bound_pod_with_an_unreadable_request_still_takes_its_slot() -> None:
    assert _read(pod(cpu="much", bound_to="n1")).node == "n1"


GPUS = {"cpu": "2", "memory": "1Gi", names.GPU_RESOURCE: 2, "example.com/nic": 1}
ALL_OF_IT = Demand(cpu_milli=2000, mem_mib=1024, gpus=2, extended=(("example.com/nic", 1),))


@pytest.mark.parametrize(
    ("unreadable", "counted"),
    [
        ({}, ALL_OF_IT),
        ({"memory": "100E"}, msgspec.structs.replace(ALL_OF_IT, mem_mib=0)),
        ({"cpu": "much"}, msgspec.structs.replace(ALL_OF_IT, cpu_milli=0)),
        ({"example.com/nic": "100E"}, msgspec.structs.replace(ALL_OF_IT, extended=())),
        ({names.GPU_RESOURCE: "many"}, msgspec.structs.replace(ALL_OF_IT, gpus=0)),
    ],
)
def test_of_a_bound_pod_all_amounts_count_that_can_be_read(unreadable: dict[str, str], counted: Demand) -> None:
    """Its GPUs counted as free where its memory could not be read, and were given to others as well."""
    spec = {"containers": [{"name": "main", "resources": {"limits": {**GPUS, **unreadable}}}]}
    assert _read(pod("p", bound_to="n1", spec=spec)).cls.demand == counted


def test_of_an_unreadable_amount_in_one_container_the_others_count() -> None:
    limits = [{"memory": "100E", names.GPU_RESOURCE: 1}, {"memory": "1Gi", names.GPU_RESOURCE: 1}]
    spec = {"containers": [{"name": f"c{n}", "resources": {"limits": each}} for n, each in enumerate(limits)]}
    assert _read(pod("p", bound_to="n1", spec=spec)).cls.demand == Demand(mem_mib=1024, gpus=2)


@pytest.mark.parametrize(
    ("of_node", "cards"),
    [
        ({"mem_mib": 46068}, (46068, 46068)),
        ({"labels": {names.NODE_GPU_MEMORY: str(46068 * 2**20)}}, (46068, 46068)),
        ({"labels": {names.NODE_GPU_MEMORY: "lots"}}, (0, 0)),
        ({"labels": {names.NODE_GPU_MEMORY: "-5"}}, (0, 0)),
        ({"labels": {names.NODE_GPU_MEMORY: "9" * 18}}, (0, 0)),
        ({}, (0, 0)),
        ({"annotations": {names.NODE_CARDS: "81920, 24576,81920"}}, (24576, 81920)),
        ({"annotations": {names.NODE_CARDS: "81920,many"}, "mem_mib": 24576}, (24576, 24576)),
        ({"annotations": {names.NODE_CARDS: "0,24576"}, "mem_mib": 81920}, (81920, 81920)),
        ({"annotations": {names.NODE_CARDS: "9" * 18}, "mem_mib": 81920}, (81920, 81920)),
    ],
)
def test_card_memory_comes_from_the_annotation_or_the_label(of_node: dict[str, Any], cards: tuple[int, int]) -> None:
    record = objects.node_record(node(**of_node))
    assert (record.smallest_card_mib, record.largest_card_mib) == cards


@pytest.mark.parametrize(
    ("of_node", "is_mig"),
    [
        ({}, False),
        ({"labels": {names.NODE_MIG_STRATEGY: "single"}}, True),
        ({"labels": {names.NODE_MIG_STRATEGY: "mixed"}}, False),
        ({"extended": {"nvidia.com/mig-1g.5gb": 2}}, True),
        ({"extended": {"nvidia.com/mig-1g.5gb": 0}}, False),
        ({"extended": {"nvidia.com/mig-1g.5gb": 2}, "labels": {"node-role.kubernetes.io/mig-enabled": "false"}}, False),
        ({"labels": {"node-role.kubernetes.io/mig-enabled": "true"}}, True),
    ],
)
def test_a_node_with_slices_is_known_as_such(of_node: dict[str, Any], is_mig: bool) -> None:
    assert objects.node_record(node(**of_node)).is_mig == is_mig


@pytest.mark.parametrize(
    ("strategy", "enabled", "profile"),
    [("single", "true", "1g.10gb"), ("mixed", "true", ""), ("", "true", ""), ("single", "false", "")],
)
def test_the_gpus_of_a_node_are_slices_only_under_the_strategy_single(
    strategy: str, enabled: str, profile: str
) -> None:
    labels = {
        names.NODE_MIG_STRATEGY: strategy,
        "node-role.kubernetes.io/mig-enabled": enabled,
        names.NODE_GPU_PRODUCT: "NVIDIA-H100-MIG-1g.10gb",
    }
    assert objects.node_record(node(labels=labels)).single_profile == profile


def test_what_a_node_says_wrongly_counts_as_none() -> None:
    record = objects.node_record(node(cpu="fast", extended={"example.com/nic": "two"}))
    assert (record.capacity.cpu_milli, record.capacity.extended) == (0, ())


def _heartbeats() -> tuple[NodeRecord, NodeRecord]:
    return objects.node_record(node("n1")), objects.node_record(node("n1"))


def test_a_heartbeat_reads_as_the_same_record() -> None:
    first, second = _heartbeats()
    assert first == second


@pytest.mark.parametrize(
    ("spec", "minimum", "unsupported"),
    [
        ({"minimum": 3}, 3, ""),
        ({}, 1, ""),
        ({"minimum": 0}, 0, ""),
        ({"subGroups": [{"name": "a", "minMember": 2}, {"name": "b", "minMember": 1}]}, 3, ""),
        ({"minimum": 5, "subGroups": [{"name": "a", "minMember": 2}]}, 5, ""),
        ({"minSubGroup": 1, "subGroups": [{"name": "a", "minMember": 2}]}, 2, ""),
        (
            {"subGroups": [{"name": "a", "minSubGroup": 1}, {"name": "b", "parent": "a", "minMember": 1}]},
            1,
            "",
        ),
        (
            {"minimum": 1, "topologyConstraint": {"topology": "t", "requiredTopologyLevel": "rack"}},
            1,
            "topologyConstraint.requiredTopologyLevel",
        ),
        ({"minimum": 1, "topologyConstraint": {"topology": "t", "preferredTopologyLevel": "rack"}}, 1, ""),
        (
            {
                "subGroups": [
                    {"name": "a", "minMember": 1},
                    {"name": "b", "minMember": 1, "topologyConstraint": {"requiredTopologyLevel": "rack"}},
                ]
            },
            2,
            "topologyConstraint.requiredTopologyLevel",
        ),
    ],
)
def test_a_pod_group_says_its_minimum_and_what_is_not_supported(
    spec: dict[str, Any], minimum: int, unsupported: str
) -> None:
    record = objects.pod_group_record(pod_group("g", **spec))
    assert (record.minimum, record.unsupported) == (minimum, unsupported)


@pytest.mark.parametrize(
    ("text", "planned"),
    [
        ('{"id":"x","members":{"u2":{"node":"n"},"u1":{"node":"n"}}}', ("u1", "u2")),
        ("not json", ()),
        ("[]", ()),
        ('{"id":"x","members":7}', ()),
        ('{"id":"x","members":{"u":{"node":7}}}', ()),
        ('{"id":"x","members":{"u":{"node":"n","devices":[{"group":"g","nano":-1}]}}}', ()),
        ('{"id":"x","members":{"u":{"node":"n","devices":[{"group":"g","nano":1000000001}]}}}', ()),
        ("", ()),
    ],
)
def test_a_plan_names_its_members(text: str, planned: tuple[str, ...]) -> None:
    assert tuple(objects.pod_group_record(pod_group("g", 1, annotations={names.PLAN: text})).planned) == planned


def test_a_plan_is_read_as_it_was_written() -> None:
    devices = (PlannedDevice("g1", 5), PlannedDevice("g2", NANO, mem_mib=7))
    placement = Placement(pod_uid="u", namespace="ns", name="p", rv="1", node="n", devices=devices)
    text = written_plan.render(written_plan.make("x", [placement]))
    assert written_plan.members(text) == {"u": PlannedMember("n", devices)}


def test_a_plan_that_is_nested_deep_names_nobody() -> None:
    assert written_plan.members('{"id": "x", "members": {}, "y": ' + "[" * 50_000 + "]" * 50_000 + "}") == {}


def test_a_reservation_pod_is_one_only_in_its_own_namespace() -> None:
    real = reservation("g")
    assert _read(real).is_reservation
    assert not _read(changed(real, namespace="tenant")).is_reservation


def test_a_node_whose_device_plugin_has_registered_nothing_offers_no_gpu() -> None:
    said = node(gpus=0)
    assert objects.offered_gpus(said) == 0
    nothing = msgspec.structs.replace(said.status, capacity=None, allocatable=None)
    assert objects.offered_gpus(msgspec.structs.replace(said, status=nothing)) == 0


def test_what_nobody_has_written_counts_as_none() -> None:
    bare = msgspec.convert({"metadata": {"name": "n", "uid": "u"}, "status": {}}, Node)
    record = objects.node_record(bare)
    assert (record.capacity, record.pods, record.uuids) == (Demand(), 0, ())
    assert (record.smallest_card_mib, record.largest_card_mib, record.is_ready) == (0, 0, False)
    waiting = pod("p")
    spec = msgspec.structs.replace(waiting.spec, priority=None)
    assert _read(msgspec.structs.replace(waiting, spec=spec)).priority == 0
    assert _read(waiting).cls.demand == Demand()


@pytest.mark.parametrize(("length", "kept"), [(5, 5), (64, 64), (65, 65), (4_000, 65)])
def test_of_a_time_as_much_is_kept_as_shows_that_it_is_none(length: int, kept: int) -> None:
    record = objects.pod_group_record(pod_group("g", annotations={names.STALE_SINCE: "2" * length}))
    assert len(record.stale_since) == kept


@pytest.mark.parametrize("preferring", [0, 1])
def test_what_one_part_of_a_pod_group_prefers_is_named(preferring: int) -> None:
    prefers = {"topologyConstraint": {"preferredTopologyLevel": "rack"}}
    subgroups = [{"name": name, "minMember": 1} | (prefers if at == preferring else {}) for at, name in enumerate("ab")]
    assert "preferred" in objects.ignored_in(pod_group("g", subGroups=subgroups))
    assert objects.ignored_in(pod_group("g", 2)) == ""


@pytest.mark.parametrize("kind", ["limits", "requests"])
def test_a_slice_that_a_container_asks_one_way_only_is_asked_for(kind: str) -> None:
    containers = [{"name": "c", "resources": {kind: {"nvidia.com/mig-1g.5gb": "1"}}}]
    assert _read(pod(annotations={"nvidia.com/mig-1g.5gb": "1"}, spec={"containers": containers})).blocker is None


@pytest.mark.parametrize(
    ("written", "ns"),
    [(None, 0), ("90s", 90 * 10**9), ("-1s", 0), ("soon", 0)],
    ids=["absent", "said", "below", "none"],
)
def test_how_long_a_gang_waits_before_others_are_evicted_for_it(written: str | None, ns: int) -> None:
    assert objects.pod_group_record(pod_group("g", preemptionDelay=written)).delay_ns == ns


@pytest.mark.parametrize(
    ("written", "started_s"),
    [("2026-01-01T00:00:10Z", 1_767_225_610), (None, 0), ("today", 0), ("1960-01-01T00:00:00Z", 0)],
)
def test_a_bound_pod_says_since_when_its_node_runs_it(written: str | None, started_s: int) -> None:
    seen = pod("p", bound_to="n1")
    seen = msgspec.structs.replace(seen, status=msgspec.structs.replace(seen.status, start_time=written))
    assert _read(seen).started_s == started_s
