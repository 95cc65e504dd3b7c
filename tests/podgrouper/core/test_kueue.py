"""Kueue: slices of workloads and topology of pod sets."""

from __future__ import annotations

from typing import Any

import pytest

from podgrouper.core.answers import Group, Json, Refusal, told
from podgrouper.core.grouping import group
from podgrouper.core.projection import owner_as_read
from tests.podgrouper.objects import chained, obj, pod
from wire.crds.podgroup import PodGroupSpec

# Slices that templates ask for in Kueue's annotations, as parts of the PodGroup of their workload.

BLOCK, RACK = "example.com/block", "example.com/rack"
LEVEL, SIZE = "kueue.x-k8s.io/podset-slice-required-topology", "kueue.x-k8s.io/podset-slice-size"
IN_BLOCK = {"kueue.x-k8s.io/podset-required-topology": BLOCK}
TOGETHER = {"kueue.x-k8s.io/podset-group-name": "all"}
INDEX = "batch.kubernetes.io/job-completion-index"
QUEUE = {"kai.scheduler/queue": "q"}
GATES = [{"name": "kueue.x-k8s.io/topology"}]
#: Name, parent, minimum of pods, minimum of parts, required level.
Part = tuple[str, str | None, int | None, int | None, str]


def template(annotations: dict[str, str], **spec: Any) -> dict[str, Any]:
    return {"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "main"}], **spec}}


def jobset(of_template: dict[str, str], *, parallelism: int = 2, of_spec: Any = None, **of: Any) -> dict[str, Any]:
    job_spec = {"parallelism": parallelism, "template": template(of_template, **(of_spec or {}))}
    jobs = [
        {"name": "leader", "template": {"spec": {"template": template({})}}},
        {"name": "workers", "replicas": 2, "template": {"spec": job_spec}},
    ]
    return obj("jobset.x-k8s.io/v1alpha2", "JobSet", "set", spec={"replicatedJobs": jobs}, **of)


def pytorch(
    worker: dict[str, str], *, replicas: int = 6, least: int | None = None, role: str = "Worker", **of: Any
) -> dict[str, Any]:
    specs = {
        "Master": {"replicas": 1, "template": template({})},
        "Worker": {"replicas": replicas, "template": template({})},
    }
    specs.setdefault(role, {"replicas": 1})["template"] = template(worker)
    elastic = {} if least is None else {"elasticPolicy": {"minReplicas": least}}
    return obj("kubeflow.org/v1", "PyTorchJob", "job", spec={"pytorchReplicaSpecs": specs, **elastic}, **of)


def indexed(of_template: dict[str, str], *, least: str | None = "6", **of_spec: Any) -> dict[str, Any]:
    spec = {"parallelism": 6, "completions": 6, "completionMode": "Indexed", "template": template(of_template)}
    annotations = {} if least is None else {"kai.scheduler/batch-min-member": least}
    return obj("batch/v1", "Job", "job", spec={**spec, **of_spec}, annotations=annotations)


def replica(index: int, role: str = "worker") -> dict[str, str]:
    return {"training.kubeflow.org/replica-type": role, "training.kubeflow.org/replica-index": str(index)}


def answer(owner: Json, labels: dict[str, str] | None = None) -> Group | Refusal:
    found = group(*chained(pod(labels=labels or {}), dict(owner)))
    assert isinstance(found, Group | Refusal)
    return found


def grouped(owner: Json, labels: dict[str, str] | None = None) -> Group:
    found = answer(owner, labels)
    assert isinstance(found, Group), told(found)
    return found


def parts(owner: Json, labels: dict[str, str] | None = None) -> list[Part]:
    listed = grouped(owner, labels).pod_group.spec.sub_groups or ()
    levels = [each.topology_constraint.required_topology_level if each.topology_constraint else "" for each in listed]
    return [
        (each.name, each.parent, each.min_member, each.min_sub_group, level)
        for each, level in zip(listed, levels, strict=True)
    ]


@pytest.mark.parametrize("of_template", [{LEVEL: RACK}, {LEVEL: RACK, SIZE: "2"}])
def test_a_slice_of_a_jobset_is_the_pods_of_a_job(of_template: dict[str, str]) -> None:
    assert parts(jobset(of_template)) == [
        ("leader", None, None, 1, ""),
        ("leader-replica-0", "leader", 1, None, ""),
        ("workers", None, None, 2, ""),
        ("workers-replica-0", "workers", 2, None, RACK),
        ("workers-replica-1", "workers", 2, None, RACK),
    ]


def test_slices_are_inside_the_domain_of_their_template() -> None:
    found = parts(jobset({LEVEL: RACK, **IN_BLOCK}))
    assert [(name, level) for name, _, _, _, level in found if level] == [
        ("workers", BLOCK),
        ("workers-replica-0", RACK),
        ("workers-replica-1", RACK),
    ]


def test_slices_of_a_pytorchjob_are_replicas_by_their_index() -> None:
    owner = pytorch({LEVEL: RACK, SIZE: "2", **IN_BLOCK})
    assert parts(owner, replica(0)) == [
        ("master", None, 1, None, ""),
        ("worker", None, None, 3, BLOCK),
        ("worker-0", "worker", 2, None, RACK),
        ("worker-1", "worker", 2, None, RACK),
        ("worker-2", "worker", 2, None, RACK),
    ]
    assert grouped(owner, replica(0)).pod_group.spec.min_member is None
    named = [grouped(owner, labels).part for labels in (replica(0), replica(1), replica(5), replica(0, "master"))]
    assert named == ["worker-0", "worker-0", "worker-2", "master"]


def test_the_first_slices_have_the_minimum_of_an_elastic_job() -> None:
    found = parts(pytorch({LEVEL: RACK, SIZE: "2"}, least=4), replica(0))
    assert [(name, pods, least) for name, _, pods, least, _ in found] == [
        ("master", 1, None),
        ("worker", None, 2),
        ("worker-0", 2, None),
        ("worker-1", 1, None),
        ("worker-2", 0, None),
    ]


def test_slices_of_an_indexed_job_are_pods_by_their_index() -> None:
    owner = owner_as_read(indexed({LEVEL: RACK, SIZE: "3", **IN_BLOCK}))
    found = grouped(owner, {INDEX: "4"})
    assert found.part == "slice-1"
    assert parts(owner, {INDEX: "0"}) == [(f"slice-{number}", None, 3, None, RACK) for number in range(2)]
    spec = found.pod_group.spec
    assert (spec.min_member, spec.min_sub_group) == (None, None), "all slices start together"
    assert spec.topology_constraint is not None
    assert spec.topology_constraint.required_topology_level == BLOCK


def test_the_topology_is_that_of_kais_annotation_or_the_one_that_has_the_level() -> None:
    for of_owner, topology in (({}, "*"), ({"kai.scheduler/topology": "hall"}, "hall")):
        listed = grouped(jobset({LEVEL: RACK}, annotations=of_owner)).pod_group.spec.sub_groups or ()
        assert {each.topology_constraint.topology for each in listed if each.topology_constraint} == {topology}


def test_kais_segments_win() -> None:
    segments = {"kai.scheduler/segment-size": "3", "kai.scheduler/segment-topology-required-placement": "row"}
    of_job = {"kai.scheduler/topology": "hall"}
    found = parts(pytorch({LEVEL: RACK, SIZE: "2", **segments}, annotations=of_job), replica(0))
    assert [(name, level) for name, _, _, _, level in found] == [
        ("master", ""),
        ("worker", ""),
        ("worker-0", "row"),
        ("worker-1", "row"),
    ]


def test_slices_that_kueue_has_placed_are_no_parts_with_a_level() -> None:
    assert not any(level for *_, level in parts(jobset({LEVEL: RACK}, of_spec={"schedulingGates": GATES})))
    managed = {"kueue.x-k8s.io/managed": "true", **replica(0)}
    assert [name for name, *_ in parts(pytorch({LEVEL: RACK, SIZE: "2"}), managed)] == ["master", "worker"]


@pytest.mark.parametrize(
    ("owner", "said"),
    [
        (jobset({LEVEL: RACK, SIZE: "1"}), f"annotations[{SIZE}] is 1; allowed: 2, the Job's parallelism"),
        (jobset({LEVEL: RACK, SIZE: "4"}), f"annotations[{SIZE}] is 4; allowed: 2, the Job's parallelism"),
        (jobset({LEVEL: RACK, SIZE: "two"}), f"annotations[{SIZE}] is 'two'; allowed: a number from 1"),
        (jobset({LEVEL: "r" * 317}), "allowed: the label of a level of a Topology"),
        (jobset({LEVEL: RACK, **IN_BLOCK, **TOGETHER}), "allowed: without kueue.x-k8s.io/podset-group-name"),
        (pytorch({LEVEL: RACK}), f"Worker.template.metadata.annotations[{SIZE}] is absent; allowed: a divisor of 6"),
        (pytorch({LEVEL: RACK, SIZE: "4"}), f"annotations[{SIZE}] is 4; allowed: a divisor of 6"),
        (pytorch({LEVEL: RACK, SIZE: "1"}, role="Chief"), "allowed: in a JobSet or PyTorchJob or Job"),
        (pytorch({LEVEL: RACK, SIZE: "1"}, replicas=100_000), "allowed: at most"),
        (indexed({LEVEL: RACK}), f"spec.template.metadata.annotations[{SIZE}] is absent; allowed: a divisor of 6"),
        (indexed({LEVEL: RACK, SIZE: "4"}), f"annotations[{SIZE}] is 4; allowed: a divisor of 6"),
        (indexed({LEVEL: RACK, SIZE: "2"}, completions=8), "spec.completions is 8; allowed: 6, the parallelism"),
        (
            indexed({LEVEL: RACK, SIZE: "2"}, completionMode="NonIndexed"),
            "spec.completionMode is 'NonIndexed'; allowed",
        ),
        (indexed({LEVEL: RACK, SIZE: "2"}, least=None), "batch-min-member] is absent; allowed: 6, the parallelism"),
        (indexed({LEVEL: RACK, SIZE: "2"}, least="4"), "batch-min-member] is '4'; allowed: 6, the parallelism"),
        (
            indexed({LEVEL: RACK, SIZE: "1"}, least="100000", parallelism=100_000, completions=100_000),
            "allowed: at most",
        ),
        (indexed({LEVEL: RACK, SIZE: "2"}), f"metadata.labels[{INDEX}] is absent; allowed: a number of 0 or more"),
        (
            obj("apps/v1", "StatefulSet", "set", spec={"template": template({LEVEL: RACK, SIZE: "2"})}, labels=QUEUE),
            f"spec.template.metadata.annotations[{LEVEL}] is example.com/rack; allowed: in a JobSet or PyTorchJob",
        ),
    ],
)
def test_other_slices_are_refused_with_their_field(owner: Json, said: str) -> None:
    found = answer(owner, replica(0))
    assert isinstance(found, Refusal)
    assert said in told(found)


@pytest.mark.parametrize("is_of_a_job", [False, True])
def test_slices_are_refused_in_another_schedulers_gang(is_of_a_job: bool) -> None:
    words = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "2"}
    slices = {LEVEL: RACK, SIZE: "2"}
    owners = [indexed(slices, least=None)] if is_of_a_job else []
    found = group(*chained(pod(annotations={**words, **slices}), *owners))
    assert isinstance(found, Refusal)
    assert "allowed: in a JobSet or PyTorchJob or Job, without another scheduler's gang" in told(found)


# What templates ask for in Kueue's annotations, in the PodGroup of their workload.

REQUIRED, PREFERRED, UNCONSTRAINED = (
    f"kueue.x-k8s.io/podset-{kind}-topology" for kind in ("required", "preferred", "unconstrained")
)
IN_RACK, KUEUE_TOPOLOGY_IN_BLOCK = {REQUIRED: RACK}, {REQUIRED: BLOCK}


def kueue_topology_template(annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    written = {"containers": [{"name": "main", "image": "work"}], **spec}
    return {"metadata": {"annotations": annotations or {}}, "spec": written}


def job(of_template: dict[str, str], **of: Any) -> dict[str, Any]:
    return obj("batch/v1", "Job", "job", spec={"template": kueue_topology_template(of_template)}, **of)


def kueue_topology_pytorch(master: dict[str, str], worker: dict[str, str]) -> dict[str, Any]:
    specs = {"Master": {"replicas": 1, "template": kueue_topology_template(master)}}
    specs["Worker"] = {"replicas": 3, "template": kueue_topology_template(worker)}
    return obj("kubeflow.org/v1", "PyTorchJob", "job", spec={"pytorchReplicaSpecs": specs})


def mpi(launcher: dict[str, str], worker: dict[str, str]) -> dict[str, Any]:
    specs = {"Launcher": {"replicas": 1, "template": kueue_topology_template(launcher)}}
    specs["Worker"] = {"replicas": 3, "template": kueue_topology_template(worker)}
    return obj("kubeflow.org/v1", "MPIJob", "job", spec={"mpiReplicaSpecs": specs})


def kueue_topology_jobset(waits: str = "", **jobs: dict[str, str]) -> dict[str, Any]:
    """``waits``: the one that is made after all others."""
    listed = [
        {
            "name": name,
            "replicas": 2,
            "template": {"spec": {"parallelism": 2, "template": kueue_topology_template(annotations)}},
            "dependsOn": [{"name": other, "status": "Complete"} for other in jobs if waits == name != other],
        }
        for name, annotations in jobs.items()
    ]
    return obj("jobset.x-k8s.io/v1alpha2", "JobSet", "set", spec={"replicatedJobs": listed})


def kueue_topology_answer(owner: Json, **of: Any) -> Group | Refusal:
    found = group(*chained(pod(**of), dict(owner)))
    assert isinstance(found, Group | Refusal)
    return found


def constraints(owner: Json, **of: Any) -> dict[str, tuple[str, str, str]]:
    """Topology, required and preferred level of the group ("") and of each part that asks for one."""
    found = kueue_topology_answer(owner, **of)
    assert isinstance(found, Group)
    spec: PodGroupSpec = found.pod_group.spec
    asked = {"": spec.topology_constraint, **{part.name: part.topology_constraint for part in spec.sub_groups or ()}}
    return {
        name: (each.topology, each.required_topology_level, each.preferred_topology_level)
        for name, each in asked.items()
        if each is not None
    }


def refused(owner: Json) -> str:
    found = kueue_topology_answer(owner)
    assert isinstance(found, Refusal)
    return told(found)


@pytest.mark.parametrize(
    ("annotations", "asked"),
    [
        ({REQUIRED: RACK}, {"": ("*", RACK, "")}),
        ({PREFERRED: RACK}, {"": ("*", "", RACK)}),
        ({UNCONSTRAINED: "true"}, {}),
        ({REQUIRED: ""}, {}),
        ({}, {}),
    ],
)
def test_a_job_asks_by_the_annotations_of_its_template(annotations: Any, asked: Any) -> None:
    assert constraints(job(annotations)) == asked


@pytest.mark.parametrize(
    ("of_owner", "asked"),
    [
        pytest.param({"kai.scheduler/topology": "hall"}, ("hall", RACK, ""), id="only-the-topology"),
        pytest.param(
            {"kai.scheduler/topology": "hall", "kai.scheduler/topology-preferred-placement": "row"},
            ("hall", "", "row"),
            id="a-level",
        ),
        pytest.param({"kai.scheduler/topology-required-placement": "row"}, ("", "row", ""), id="no-topology"),
    ],
)
def test_a_level_in_kais_annotations_wins_and_a_topology_that_they_name_counts(of_owner: Any, asked: Any) -> None:
    assert constraints(job(IN_RACK, annotations=of_owner)) == {"": asked}


def test_templates_of_parts_ask_for_their_parts() -> None:
    in_rack, in_block = ("*", RACK, ""), ("*", BLOCK, "")
    assert constraints(kueue_topology_pytorch({}, IN_RACK)) == {"worker": in_rack}
    assert constraints(kueue_topology_pytorch(KUEUE_TOPOLOGY_IN_BLOCK, IN_RACK)) == {
        "master": in_block,
        "worker": in_rack,
    }
    assert constraints(kueue_topology_pytorch(IN_RACK, IN_RACK)) == {"master": in_rack, "worker": in_rack}
    assert constraints(kueue_topology_jobset(leader={}, workers=IN_RACK)) == {"workers": in_rack}, (
        "all replicas are in one rack"
    )
    assert constraints(kueue_topology_jobset(workers=IN_RACK)) == {"": in_rack}


def test_a_job_of_a_jobset_that_is_made_later_asks_for_itself() -> None:
    waits = kueue_topology_jobset(waits="workers", data={}, workers=IN_RACK)
    assert constraints(waits, labels={"jobset.sigs.k8s.io/replicatedjob-name": "data"}) == {}
    assert constraints(waits, labels={"jobset.sigs.k8s.io/replicatedjob-name": "workers"}) == {"": ("*", RACK, "")}


def test_templates_of_one_group_ask_for_all_pods_together() -> None:
    assert constraints(kueue_topology_pytorch({**IN_RACK, **TOGETHER}, {**IN_RACK, **TOGETHER})) == {
        "": ("*", RACK, "")
    }


def test_templates_without_parts_can_ask_for_the_same_only() -> None:
    assert constraints(mpi(IN_RACK, IN_RACK)) == {"": ("*", RACK, "")}
    assert refused(mpi({}, IN_RACK)) == (
        "MPIJob job asks for what is not carried out: topology in Kueue's annotations is required example.com/rack "
        "for worker, none for launcher; allowed: the same in all templates"
    )


@pytest.mark.parametrize(
    ("owner", "said"),
    [
        (
            job({REQUIRED: RACK, PREFERRED: BLOCK}),
            f"spec.template.metadata.annotations[{REQUIRED}] is 'example.com/rack'; allowed: without {PREFERRED}",
        ),
        (job({PREFERRED: RACK, UNCONSTRAINED: "true"}), f"allowed: without {UNCONSTRAINED}"),
        (job({REQUIRED: "r" * 317}), "allowed: the label of a level of a Topology"),
        (job({"kueue.x-k8s.io/podset-slice-required-topology-constraints": "[]"}), "allowed: none"),
        (
            kueue_topology_jobset(leader={**IN_RACK, **TOGETHER}, workers={**IN_RACK, **TOGETHER}, others=IN_RACK),
            "annotation kueue.x-k8s.io/podset-group-name is all; allowed: the same in all templates",
        ),
    ],
)
def test_what_is_not_allowed_or_not_carried_out_is_refused_with_its_field(owner: Json, said: str) -> None:
    assert said in refused(owner)


def test_templates_that_kueue_has_placed_ask_for_nothing() -> None:
    slices = {**IN_RACK, "kueue.x-k8s.io/podset-slice-required-topology": BLOCK}
    admitted = obj("batch/v1", "Job", "job", spec={"template": kueue_topology_template(slices, schedulingGates=GATES)})
    assert constraints(admitted) == {}
    assert constraints(job(slices), labels={"kueue.x-k8s.io/managed": "true"}) == {}


@pytest.mark.parametrize("gates", [[], GATES])
def test_of_a_job_no_more_is_kept_than_what_its_template_asks_for(gates: list[Any]) -> None:
    written = kueue_topology_template({**IN_RACK, "note": "n"}, schedulingGates=[*gates, {"name": "theirs"}])
    read = owner_as_read(obj("batch/v1", "Job", "job", spec={"parallelism": 3, "template": written}))
    template = {"metadata": {"annotations": IN_RACK}, "spec": {"schedulingGates": gates}}
    assert read["spec"] == {"template": template, "parallelism": 3}
    assert constraints(read) == ({} if gates else {"": ("*", RACK, "")})
    assert "spec" not in owner_as_read(job({"note": "n"}))


def test_a_pod_of_another_schedulers_gang_asks_for_itself() -> None:
    words = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "2"}
    found = group(*chained(pod(annotations={**words, **IN_RACK})))
    assert isinstance(found, Group)
    constraint = found.pod_group.spec.topology_constraint
    assert constraint is not None
    assert (constraint.topology, constraint.required_topology_level) == ("*", RACK)
