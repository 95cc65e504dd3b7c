from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from cli.main import main
from cli.manifests.obstacles import ADVICE
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
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "annotations": annotations or {}},
        "spec": spec,
    }


def namespace(name: str, labels: Raw | None = None) -> Raw:
    return {"kind": "Namespace", "metadata": {"name": name, "labels": labels or {}}}


def findings(tmp_path: Path, capsys: pytest.CaptureFixture[str], *objects: Raw, code: int = 0) -> list[Raw]:
    path = tmp_path / "pods.yaml"
    path.write_text(yaml.safe_dump_all(objects), encoding="utf-8")
    assert main(["lint", "-o", "json", str(path)]) == code
    found: list[Raw] = json.loads(capsys.readouterr().out)
    return found


def told(found: list[Raw]) -> list[tuple[str, str, str]]:
    return [(each["level"], each["code"], each["field"]) for each in found]


#: A pod that the scheduler never places, what is found, and a word of what is said to do.
CONSTRAINTS: list[tuple[Raw, str, str]] = [
    (pod(HALF, affinity={"podAffinity": {REQUIRED: [TERM]}}), "affinity.podAffinity", "NotIn"),
    (pod(HALF, affinity={"podAntiAffinity": {REQUIRED: [TERM]}}), "affinity.podAntiAffinity", "NotIn"),
    (pod(HALF, topologySpreadConstraints=[SPREAD]), "topologySpreadConstraints", "DoNotSchedule"),
    (pod(HALF, resourceClaims=[{"name": "gpu"}]), "resourceClaims", "resources.limits"),
    (pod({"nvidia.com/mig-1g.5gb": "1"}), "a MIG slice by the annotation nvidia.com/mig-1g.5gb", "resources.limits"),
    (pod(tolerations=[{"key": f"k{number}", "operator": "Exists"} for number in range(600)]), "spec", "fewer"),
]


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
    named = {name for each, *_ in CONSTRAINTS for name in constraints.each_unsupported(msgspec.convert(each, Pod))}
    assert {name for name in named if not name.startswith("a MIG slice")} == set(ADVICE)


def test_all_that_stands_in_the_way_is_told_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    several = pod(
        HALF, affinity={"podAntiAffinity": {REQUIRED: [TERM]}}, resourceClaims=[{"name": "gpu"}], schedulingGroup={}
    )
    found = findings(tmp_path, capsys, made_by("kubeflow.org/v1", "PyTorchJob", several))
    assert [each["field"] for each in found] == [
        "affinity.podAntiAffinity with a selector that can't be read",
        "resourceClaims",
        "pod-group-name",
    ]


#: A workload whose pods start together, and a word of why.
GANGS: list[tuple[Raw, str]] = [
    (made_by("kubeflow.org/v1", "PyTorchJob", pod(HALF)), "PyTorchJob"),
    (made_by("ray.io/v1", "RayCluster", pod(HALF)), "RayCluster"),
    (made_by("batch/v1", "Job", pod(HALF), {"kai.scheduler/batch-min-member": "6"}), "batch-min-member"),
    (made_by("batch/v1", "CronJob", pod(HALF), {"kai.scheduler/batch-min-member": "6"}), "batch-min-member"),
    (pod({**HALF, "yunikorn.apache.org/task-group-name": "g"}), "yunikorn.apache.org/task-group-name"),
    (pod(HALF, labels={"jobset.sigs.k8s.io/jobset-name": "j"}), "JobSet"),
]


VOLCANO = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "g"}}
BY_VOLCANO = {**HALF, "scheduling.k8s.io/group-name": "g"}


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        (
            [pod(BY_VOLCANO), {**VOLCANO, "spec": {"minMember": 2}}],
            ("note", "no-pod-group", "Grouping of workloads names PodGroup pg-volcano-g"),
        ),
        ([pod(BY_VOLCANO)], ("warning", "pod-group-missing", "PodGroup g of scheduling.volcano.sh")),
        (
            [pod(BY_VOLCANO), {**VOLCANO, "spec": {"subGroupPolicy": [{"name": "a"}]}}],
            ("warning", "no-pod-group", "spec.subGroupPolicy is a; allowed: none"),
        ),
        # What the workload says of itself counts.
        (
            [made_by("batch/v1", "Job", pod(BY_VOLCANO), {"kai.scheduler/batch-min-member": "6"})],
            ("warning", "no-pod-group", "starting together by annotation scheduling.k8s.io/group-name"),
        ),
        ([made_by("kubeflow.org/v1", "PyTorchJob", pod(BY_VOLCANO))], ("warning", "no-pod-group", "PyTorchJob")),
    ],
    ids=["translated", "without its PodGroup", "not carried out", "a Job with a minimum", "a gang kind"],
)
def test_a_gang_in_the_words_of_another_scheduler_is_judged_as_grouping_makes_it(
    objects: list[Raw], expected: tuple[str, str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (finding,) = findings(tmp_path, capsys, *objects)
    assert (finding["level"], finding["code"], finding["field"]) == (*expected[:2], "pod-group-name")
    assert expected[2] in finding["text"]


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
        (
            [group(minSubGroup=1)],
            [("warning", "children-too-few", "spec.minSubGroup")],
        ),
        (
            [group(minMember=1, topologyConstraint={"topology": "t", "requiredTopologyLevel": "rack"})],
            [],
        ),
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


LATE = {"kind": "StorageClass", "metadata": {"name": "late"}, "volumeBindingMode": "WaitForFirstConsumer"}
BOUND = claim({"pv.kubernetes.io/bind-completed": "yes"}, volumeName="v")
OF_DATA = "PersistentVolumeClaim default/data"


@pytest.mark.parametrize(
    ("objects", "spec", "expected"),
    [
        ([], CLAIM, [("note", "claim", OF_DATA)]),
        ([claim()], CLAIM, [("note", "claim", OF_DATA)]),
        ([claim(volumeName="v")], CLAIM, [("note", "claim", OF_DATA)]),
        ([BOUND], CLAIM, []),
        ([claim(storageClassName="late"), LATE], CLAIM, [("warning", "claim", OF_DATA)]),
        ([], OWN_CLAIM, [("note", "claim", "a generic ephemeral volume")]),
    ],
)
def test_claims_are_said_to_have_to_be_bound(
    objects: list[Raw],
    spec: Raw,
    expected: list[tuple[str, str, str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert told(findings(tmp_path, capsys, *objects, pod(HALF, **spec))) == expected


NO_SCHEDULER = [("warning", "no-scheduler", "spec.schedulerName")]
BLOCKED: Raw = {"topologySpreadConstraints": [SPREAD]}
ADOPTS: Raw = {"moorage.dev/adopt": "true"}
WHOLE: Raw = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
FOUND_SPREAD = ("warning", "unsupported", "topologySpreadConstraints that can't be read")


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
        ([], pod(schedulerName="", **BLOCKED), []),
        ([], pod(schedulerName="", container=WHOLE, **BLOCKED), []),
        (
            [namespace("default", ADOPTS)],
            pod(schedulerName="", container=WHOLE, **BLOCKED),
            [FOUND_SPREAD],
        ),
        ([], pod(HALF, schedulerName="", **BLOCKED), [*NO_SCHEDULER, FOUND_SPREAD]),
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
    [
        {"gpu-fraction": "0.5"},
        {"gpu-memory": "2000"},
        {"gpu-fraction": "0.25", "gpu-fraction-num-devices": "2"},
        {},
    ],
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
