from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from cli.main import main
from cli.manifests.findings import ADVICE
from scheduler.core.convert import constraints
from scheduler.core.convert.pods import pod_record
from scheduler.core.model.settings import Settings
from wire.core import Pod

Raw = dict[str, Any]
HALF = {"gpu-fraction": "0.5"}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
UNREAD = {"matchExpressions": [{"key": "app", "operator": "Newer", "values": ["x"]}]}
TERM = {"topologyKey": "kubernetes.io/hostname", "labelSelector": UNREAD}
SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": UNREAD}
CLAIM: Raw = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
OWN_CLAIM = {"volumes": [{"name": "data", "ephemeral": {"volumeClaimTemplate": {}}}]}
GROUPED = {**HALF, "pod-group-name": "g"}


def pod(annotations: Raw | None = None, *, labels: Raw | None = None, container: Raw | None = None, **spec: Any) -> Raw:
    metadata = {"name": "p", "annotations": annotations or {}, "labels": labels or {}}
    main_container = {"name": "main", "image": "work", **(container or {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"schedulerName": "kai-scheduler", "containers": [main_container], **spec},
    }


def made_by(api_version: str, kind: str, template: Raw, annotations: Raw | None = None) -> Raw:
    spec = {"jobTemplate": {"metadata": {"annotations": annotations or {}}, "spec": {"template": template}}}
    is_cron = kind == "CronJob"
    meta = {"name": "w", "annotations": {} if is_cron else annotations or {}}
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": meta,
        "spec": spec if is_cron else {"template": template},
    }


def group(**spec: Any) -> Raw:
    return {"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": {"name": "g"}, "spec": spec}


def claim(annotations: Raw | None = None, **spec: Any) -> Raw:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "annotations": annotations or {}},
        "spec": spec,
    }


def namespace(name: str, labels: Raw | None = None) -> Raw:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels or {}}}


def findings(tmp_path: Path, capsys: pytest.CaptureFixture[str], *objects: Raw, code: int = 0) -> list[Raw]:
    path = tmp_path / "pods.yaml"
    path.write_text(yaml.safe_dump_all(objects), encoding="utf-8")
    assert main(["lint", "-o", "json", str(path)]) == code
    found: list[Raw] = json.loads(capsys.readouterr().out)
    return found


def told(found: list[Raw]) -> list[tuple[str, str, str]]:
    return [(each["level"], each["code"], each["field"]) for each in found]


OF_A_JOBSET = {"jobset.sigs.k8s.io/jobset-name": "j"}
#: Pods with selectors that only an API server newer than 1.36 takes, and what is found.
NEWER: list[tuple[Raw, str]] = [
    (pod(HALF, affinity={"podAffinity": {REQUIRED: [TERM]}}), "spec.affinity.podAffinity"),
    (pod(HALF, affinity={"podAntiAffinity": {REQUIRED: [TERM]}}), "spec.affinity.podAntiAffinity"),
    (pod(HALF, topologySpreadConstraints=[SPREAD]), "spec.topologySpreadConstraints"),
]
TOLERANT: Raw = {"tolerations": [{"key": f"k{number}", "operator": "Exists"} for number in range(600)]}
#: A pod that the scheduler never places, what is found, and a word of what is said to do.
CONSTRAINTS: list[tuple[Raw, str, str]] = [
    (pod(HALF, resourceClaims=[{"name": "gpu"}]), "resourceClaims", "resources.limits"),
    (pod({"nvidia.com/mig-1g.5gb": "1"}), "a MIG slice by the annotation nvidia.com/mig-1g.5gb", "resources.limits"),
    (pod(**TOLERANT), "spec", "fewer"),
]


@pytest.mark.parametrize(("written", "field"), NEWER, ids=[each[1] for each in NEWER])
def test_a_selector_that_no_api_server_takes_is_an_error(
    written: Raw, field: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (finding,) = findings(tmp_path, capsys, written, code=1)
    assert (finding["level"], finding["code"]) == ("error", "malformed")
    assert finding["field"].startswith(field)
    assert "not a valid selector operator" in finding["text"]


@pytest.mark.parametrize(("written", "field", "advice"), CONSTRAINTS, ids=[each[1] for each in CONSTRAINTS])
def test_a_pod_that_is_never_placed_is_found_with_what_to_do(
    written: Raw, field: str, advice: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (finding,) = findings(tmp_path, capsys, written)
    assert (finding["level"], finding["code"]) == ("warning", "unsupported")
    assert finding["field"].startswith(field)
    assert "never placed" in finding["text"]
    assert advice in finding["text"]


def test_each_constraint_that_the_scheduler_names_has_its_advice() -> None:
    named = {
        name for each, *_ in (*NEWER, *CONSTRAINTS) for name in constraints.each_unsupported(msgspec.convert(each, Pod))
    }
    assert {name for name in named if not name.startswith("a MIG slice")} == set(ADVICE)


def test_all_that_stands_in_the_way_is_told_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    several = pod(HALF, resourceClaims=[{"name": "gpu"}], schedulingGroup={})
    found = findings(tmp_path, capsys, {**several, "metadata": {**several["metadata"], "labels": OF_A_JOBSET}})
    assert [each["field"] for each in found] == [
        "resourceClaims",
        "pod-group-name",
    ]


def torch(**worker: Any) -> Raw:
    spec = {"pytorchReplicaSpecs": {"Worker": {"template": pod(HALF), **worker}}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "w"}, "spec": spec}


def workload(api_version: str, kind: str, spec: Raw) -> Raw:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "w"}, "spec": spec}


LEAST = {"kai.scheduler/batch-min-member": "6"}
#: What the podgrouper makes a PodGroup of.
GROUPED_WORKLOADS: dict[str, Raw] = {
    "PyTorchJob": torch(replicas=2),
    "RayCluster": workload("ray.io/v1", "RayCluster", {"headGroupSpec": {"template": pod(HALF)}}),
    "JobSet": workload(
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        {"replicatedJobs": [{"name": "w", "template": {"spec": {"template": pod(HALF)}}}]},
    ),
    "LeaderWorkerSet": workload(
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
        {"leaderWorkerTemplate": {"workerTemplate": pod(HALF)}},
    ),
    "TrainJob": workload("trainer.kubeflow.org/v1alpha1", "TrainJob", {"template": pod(HALF)}),
    "AppWrapper": workload(
        "workload.codeflare.dev/v1beta2", "AppWrapper", {"components": [{"template": torch(replicas=2)}]}
    ),
    "Job with a minimum": made_by("batch/v1", "Job", pod(HALF), LEAST),
    "CronJob with a minimum": made_by("batch/v1", "CronJob", pod(HALF), LEAST),
    "Deployment with a queue": {
        **made_by("apps/v1", "Deployment", pod(HALF)),
        "metadata": {"name": "w", "labels": {"kai.scheduler/queue": "default-queue"}},
    },
    "a pod of a RayCluster, as it is stored": {
        **pod(HALF),
        "metadata": {
            "name": "p",
            "annotations": HALF,
            "labels": {"ray.io/cluster": "c"},
            "ownerReferences": [{"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "c", "uid": "u"}],
        },
    },
    "PyTorchJob without pods": torch(replicas=0),
    "a kind that is not known": made_by("example.com/v1", "Thing", pod(HALF)),
}


@pytest.mark.parametrize("written", GROUPED_WORKLOADS.values(), ids=GROUPED_WORKLOADS)
def test_what_the_podgrouper_groups_needs_no_pod_group_by_hand(
    written: Raw, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert findings(tmp_path, capsys, written) == []


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (torch(replicas=-1), "Worker.replicas is -1; allowed: a number from 0 to"),
        (made_by("batch/v1", "Job", pod(HALF), {"kai.scheduler/batch-min-member": "two"}), "is 'two'; allowed:"),
        (made_by("batch/v1", "CronJob", pod(HALF), {"kai.scheduler/batch-min-member": "0"}), "is '0'; allowed:"),
    ],
)
def test_what_the_podgrouper_makes_no_pod_group_of_is_told_in_its_words(
    written: Raw, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (finding,) = findings(tmp_path, capsys, written)
    assert (finding["level"], finding["code"], finding["field"]) == ("warning", "not-grouped", "pod-group-name")
    assert said in finding["text"]


def volcano(least: int, scheduler: str = "kai-scheduler") -> Raw:
    template = pod(HALF, schedulerName=scheduler)
    tasks = [{"name": "a", "replicas": 2, "template": template}, {"name": "b", "template": template}]
    return workload("batch.volcano.sh/v1alpha1", "Job", {"minAvailable": least, "tasks": tasks})


def with_minimum(job: Raw, least: int) -> Raw:
    return {**job, "spec": {**job["spec"], "runPolicy": {"schedulingPolicy": {"minAvailable": least}}}}


@pytest.mark.parametrize(
    ("job", "path", "most"),
    [
        (with_minimum(torch(replicas=2), 3), "spec.runPolicy.schedulingPolicy.minAvailable", 2),
        (volcano(4), "spec.minAvailable", 3),
    ],
    ids=["Kubeflow", "Volcano"],
)
def test_a_minimum_above_all_pods_of_a_job_is_named(
    job: Raw, path: str, most: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (finding,) = (each for each in findings(tmp_path, capsys, job) if each["code"] == "min-available")
    assert (finding["level"], finding["field"]) == ("warning", path)
    assert finding["text"] == f"{path} is {most + 1}, and the job has {most} pods: it starts with {most}"


@pytest.mark.parametrize(
    "job", [with_minimum(torch(replicas=2), 2), volcano(3), volcano(4, "volcano")], ids=["Kubeflow", "Volcano", "other"]
)
def test_a_minimum_that_all_pods_reach_or_another_scheduler_reads_is_none(
    job: Raw, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "min-available" not in {each["code"] for each in findings(tmp_path, capsys, job)}


#: Pods that start together and that nobody groups, and a word of why.
GANGS: list[tuple[Raw, str]] = [
    (made_by("kubeflow.org/v1", "PyTorchJob", pod({**HALF, "kai.scheduler/skip-podgrouper": "true"})), "PyTorchJob"),
    (pod({**HALF, "yunikorn.apache.org/task-group-name": "g"}), "yunikorn.apache.org/task-group-name"),
    (pod(HALF, labels={"jobset.sigs.k8s.io/jobset-name": "j"}), "JobSet"),
]


VOLCANO = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "g"}}
BY_VOLCANO = {**HALF, "scheduling.k8s.io/group-name": "g"}


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ([pod(BY_VOLCANO)], ("warning", "pod-group-missing", "PodGroup g of scheduling.volcano.sh")),
        (
            [pod(BY_VOLCANO), {**VOLCANO, "spec": {"subGroupPolicy": [{"name": "a"}]}}],
            ("warning", "no-pod-group", "spec.subGroupPolicy is a; allowed: none"),
        ),
    ],
    ids=["without its PodGroup", "not carried out"],
)
def test_a_gang_in_the_words_of_another_scheduler_is_judged_as_grouping_makes_it(
    objects: list[Raw], expected: tuple[str, str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (finding,) = findings(tmp_path, capsys, *objects)
    assert (finding["level"], finding["code"], finding["field"]) == (*expected[:2], "pod-group-name")
    assert expected[2] in finding["text"]


@pytest.mark.parametrize(
    "objects",
    [
        [pod(BY_VOLCANO), {**VOLCANO, "spec": {"minMember": 2}}],
        # What the workload says of itself counts.
        [made_by("batch/v1", "Job", pod(BY_VOLCANO), LEAST)],
        [workload("ray.io/v1", "RayCluster", {"headGroupSpec": {"template": pod(BY_VOLCANO)}})],
    ],
    ids=["translated", "a Job with a minimum", "a gang kind"],
)
def test_a_gang_that_the_podgrouper_groups_is_not_told(
    objects: list[Raw], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert findings(tmp_path, capsys, *objects) == []


def test_of_the_metadata_of_a_job_template_no_more_counts_than_its_jobs_get(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cron = made_by("batch/v1", "CronJob", pod(HALF))
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "j", "uid": "u"}
    cron["spec"]["jobTemplate"]["metadata"]["ownerReferences"] = [owner]
    assert findings(tmp_path, capsys, cron) == []


@pytest.mark.parametrize(("written", "why"), GANGS, ids=[f"{each['kind']} {why}" for each, why in GANGS])
def test_pods_that_start_together_and_name_no_group_are_found(
    written: Raw, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (finding,) = findings(tmp_path, capsys, written)
    assert (finding["level"], finding["code"], finding["field"]) == ("warning", "no-pod-group", "pod-group-name")
    assert why in finding["text"]
    assert "create" in finding["text"]


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ([], [("warning", "pod-group-missing", "PodGroup default/g")]),
        ([group(minMember=1)], []),
        ([group(minMember="?")], [("error", "type", "spec.minMember")]),
        ([group(minSubGroup=1)], [("warning", "children-too-few", "spec.minSubGroup")]),
        ([group(minMember=1, topologyConstraint={"topology": "t", "requiredTopologyLevel": "rack"})], []),
    ],
)
def test_a_named_group_is_looked_for_in_the_files(
    objects: list[Raw], expected: list[tuple[str, str, str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workload = made_by("kubeflow.org/v1", "PyTorchJob", pod(GROUPED))
    code = 1 if any(level == "error" for level, _, _ in expected) else 0
    assert told(findings(tmp_path, capsys, *objects, workload, code=code)) == expected


PREFERENCE = {"kai.scheduler/topology-preferred-placement": "rack"}
SEGMENTS = {"kai.scheduler/segment-topology-preferred-placement": "rack"}


@pytest.mark.parametrize(
    ("workload", "names"),
    [
        (pod({**HALF, **PREFERENCE}), PREFERENCE),
        (pod({**HALF, **PREFERENCE, **SEGMENTS}), {**PREFERENCE, **SEGMENTS}),
        (made_by("apps/v1", "Deployment", pod(HALF), PREFERENCE), PREFERENCE),
        (pod(HALF), {}),
        (pod({**HALF, "kai.scheduler/topology-preferred-placement": ""}), {}),
    ],
    ids=["on the pod", "of segments too", "on the owner", "none", "empty"],
)
def test_preferred_topology_in_annotations_is_noted(
    workload: Raw, names: Raw, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = sorted(("note", "ignored", f"annotation {name}") for name in names)
    assert sorted(told(findings(tmp_path, capsys, workload))) == expected


LATE = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "late"},
    "volumeBindingMode": "WaitForFirstConsumer",
}
MISSING = [("note", "claim-missing", "PersistentVolumeClaim default/data")]


@pytest.mark.parametrize(
    ("objects", "spec", "expected"),
    [
        ([], CLAIM, MISSING),
        ([{**claim(), "metadata": {"name": "data", "namespace": "other"}}], CLAIM, MISSING),
        ([claim()], CLAIM, []),
        ([claim(volumeName="v")], CLAIM, []),
        ([claim({"pv.kubernetes.io/bind-completed": "yes"}, volumeName="v")], CLAIM, []),
        ([claim(storageClassName="late"), LATE], CLAIM, []),
        ([], OWN_CLAIM, []),
    ],
)
def test_a_claim_that_is_in_none_of_the_files_is_noted(
    objects: list[Raw],
    spec: Raw,
    expected: list[tuple[str, str, str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert told(findings(tmp_path, capsys, *objects, pod(HALF, **spec))) == expected


QUEUE = {
    "apiVersion": "scheduling.run.ai/v2",
    "kind": "Queue",
    "metadata": {"name": "research"},
    "spec": {"resources": {}},
}
PRIORITY = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 9}


def of(queue: str = "", priority: str = "") -> Raw:
    return pod(HALF, labels={"kai.scheduler/queue": queue} if queue else {}, priorityClassName=priority)


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ([of("research")], [("note", "queue-missing", "Queue research")]),
        ([of("research"), QUEUE], []),
        ([of("reserch"), QUEUE], [("warning", "queue-missing", "Queue reserch")]),
        ([of("researhc"), QUEUE], [("note", "queue-missing", "Queue researhc")]),
        ([of("default-queue")], []),
        ([of(priority="urgent")], [("note", "priority-class-missing", "PriorityClass urgent")]),
        ([of(priority="urgent"), PRIORITY], []),
        ([of(priority="train")], []),
        ([group(minMember=1, queue="research")], [("note", "queue-missing", "Queue research")]),
        (
            [group(minMember=1, priorityClassName="urgent")],
            [("note", "priority-class-missing", "PriorityClass urgent")],
        ),
    ],
)
def test_queues_and_priority_classes_are_looked_for_in_the_files(
    objects: list[Raw], expected: list[tuple[str, str, str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told(findings(tmp_path, capsys, *objects)) == expected


def test_only_what_a_cluster_decides_does_not_fail_with_strict(tmp_path: Path) -> None:
    path = tmp_path / "pods.yaml"
    path.write_text(yaml.safe_dump(of("research", "urgent")), encoding="utf-8")
    assert main(["lint", "--strict", str(path)]) == 0
    path.write_text(yaml.safe_dump(pod(HALF, **CLAIM)), encoding="utf-8")
    assert main(["lint", "--strict", str(path)]) == 1


@pytest.mark.parametrize(
    ("part", "spec", "is_found"),
    [
        ("z", {"subGroups": [{"name": "a", "minMember": 1}]}, True),
        ("a", {"subGroups": [{"name": "a"}, {"name": "b", "parent": "a", "minMember": 1}]}, True),
        ("b", {"subGroups": [{"name": "a"}, {"name": "b", "parent": "a", "minMember": 1}]}, False),
        ("z", {"minMember": 1}, False),
    ],
)
def test_a_sub_group_that_the_pod_group_does_not_have_is_named(
    part: str, spec: Raw, is_found: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = pod(GROUPED, labels={"kai.scheduler/subgroup-name": part})
    expected = [("warning", "sub-group-missing", "label kai.scheduler/subgroup-name")]
    assert told(findings(tmp_path, capsys, group(**spec), written)) == (expected if is_found else [])


NO_SCHEDULER = [("warning", "no-scheduler", "spec.schedulerName")]
ADOPTS: Raw = {"moorage.dev/adopt": "true"}
WHOLE: Raw = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
NEVER_PLACED = ("warning", "unsupported", "spec")


@pytest.mark.parametrize(
    ("objects", "written", "expected"),
    [
        ([], pod(HALF, schedulerName=""), NO_SCHEDULER),
        ([], pod(HALF, schedulerName="default-scheduler"), NO_SCHEDULER),
        ([], pod({"gpu-memory": "2000"}, schedulerName=""), NO_SCHEDULER),
        ([namespace("default")], pod(HALF, schedulerName=""), NO_SCHEDULER),
        ([namespace("other", ADOPTS)], pod(HALF, schedulerName=""), NO_SCHEDULER),
        ([namespace("default", ADOPTS)], pod(HALF, schedulerName=""), []),
        ([], pod(HALF, schedulerName="ours-by-another-name"), []),
        ([], pod(schedulerName=""), []),
        ([], pod(schedulerName="", **TOLERANT), []),
        ([], pod(schedulerName="", container=WHOLE, **TOLERANT), []),
        ([namespace("default", ADOPTS)], pod(schedulerName="", container=WHOLE, **TOLERANT), [NEVER_PLACED]),
        ([], pod(HALF, schedulerName="", **TOLERANT), [*NO_SCHEDULER, NEVER_PLACED]),
    ],
)
def test_a_share_needs_a_scheduler_that_gives_it(
    objects: list[Raw],
    written: Raw,
    expected: list[tuple[str, str, str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert told(findings(tmp_path, capsys, *objects, written)) == expected


def test_an_amount_that_the_scheduler_cannot_read_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    large = pod(HALF, container={"resources": {"requests": {"memory": "100E"}}})
    assert told(findings(tmp_path, capsys, large)) == [("warning", "unreadable", "spec")]


@pytest.mark.parametrize(
    "words",
    [{"gpu-fraction": "0.5"}, {"gpu-memory": "2000"}, {"gpu-fraction": "0.25", "gpu-fraction-num-devices": "2"}, {}],
    ids=str,
)
@pytest.mark.parametrize(
    "spec", [{}, *[each["spec"] for each, *_ in CONSTRAINTS]], ids=["none", *[each[1] for each in CONSTRAINTS]]
)
def test_lint_finds_something_exactly_where_the_scheduler_blocks(
    words: Raw, spec: Raw, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {key: value for key, value in spec.items() if key != "containers"}
    asked = pod(words, **given)
    record = pod_record(msgspec.convert(asked, Pod), Settings())
    assert record is not None
    blocks = record.blocker is not None and record.blocker.code.value != "NotAdmitted"
    assert bool(findings(tmp_path, capsys, asked)) == blocks


@pytest.mark.parametrize(
    ("annotations", "spec", "scheduler", "is_found"),
    [
        ({"kai.scheduler/batch-min-member": "4"}, {}, "kai-scheduler", True),
        ({"kai.scheduler/batch-min-member": "4"}, {"podManagementPolicy": "OrderedReady"}, "kai-scheduler", True),
        ({"kai.scheduler/batch-min-member": "4"}, {"podManagementPolicy": "Parallel"}, "kai-scheduler", False),
        ({"kai.scheduler/batch-min-member": "1"}, {}, "kai-scheduler", False),
        ({}, {}, "kai-scheduler", False),
        ({"kai.scheduler/batch-min-member": "4"}, {}, "default-scheduler", False),
    ],
)
def test_a_stateful_set_that_makes_its_gang_one_after_the_other_is_an_error(
    annotations: Raw, spec: Raw, scheduler: str, is_found: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = pod(schedulerName=scheduler)
    made = made_by("apps/v1", "StatefulSet", {"metadata": {}, "spec": written["spec"]}, annotations)
    made["spec"] |= spec
    found = findings(tmp_path, capsys, made, code=int(is_found))
    assert told(found) == ([("error", "in-order", "kai.scheduler/batch-min-member")] if is_found else [])
    assert not is_found or "spec.podManagementPolicy: Parallel" in found[0]["text"]


@pytest.mark.parametrize(("least", "is_found"), [("4", True), ("1", False)])
def test_a_minimum_of_a_deployment_is_told_to_have_no_effect(
    least: str, is_found: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    template = {"metadata": {}, "spec": pod(schedulerName="kai-scheduler")["spec"]}
    made = made_by("apps/v1", "Deployment", template, {"kai.scheduler/batch-min-member": least})
    expected = [("warning", "one-by-one", "kai.scheduler/batch-min-member")] if is_found else []
    assert told(findings(tmp_path, capsys, made)) == expected
