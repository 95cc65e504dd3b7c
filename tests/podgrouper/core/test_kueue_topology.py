"""What templates ask for in Kueue's annotations, in the PodGroup of their workload."""

from __future__ import annotations

from typing import Any

import pytest

from podgrouper.core.answers import Group, Json, Refusal, told
from podgrouper.core.grouping import group
from podgrouper.core.projection import owner_as_read
from tests.podgrouper.objects import chained, obj, pod
from wire.crds.podgroup import PodGroupSpec

BLOCK, RACK = "example.com/block", "example.com/rack"
REQUIRED, PREFERRED, UNCONSTRAINED = (
    f"kueue.x-k8s.io/podset-{kind}-topology" for kind in ("required", "preferred", "unconstrained")
)
IN_RACK, IN_BLOCK = {REQUIRED: RACK}, {REQUIRED: BLOCK}
TOGETHER = {"kueue.x-k8s.io/podset-group-name": "all"}
GATES = [{"name": "kueue.x-k8s.io/topology"}]


def template(annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    written = {"containers": [{"name": "main", "image": "work"}], **spec}
    return {"metadata": {"annotations": annotations or {}}, "spec": written}


def job(of_template: dict[str, str], **of: Any) -> dict[str, Any]:
    return obj("batch/v1", "Job", "job", spec={"template": template(of_template)}, **of)


def pytorch(master: dict[str, str], worker: dict[str, str]) -> dict[str, Any]:
    specs = {"Master": {"replicas": 1, "template": template(master)}}
    specs["Worker"] = {"replicas": 3, "template": template(worker)}
    return obj("kubeflow.org/v1", "PyTorchJob", "job", spec={"pytorchReplicaSpecs": specs})


def mpi(launcher: dict[str, str], worker: dict[str, str]) -> dict[str, Any]:
    specs = {"Launcher": {"replicas": 1, "template": template(launcher)}}
    specs["Worker"] = {"replicas": 3, "template": template(worker)}
    return obj("kubeflow.org/v1", "MPIJob", "job", spec={"mpiReplicaSpecs": specs})


def jobset(**jobs: dict[str, str]) -> dict[str, Any]:
    listed = [
        {"name": name, "replicas": 2, "template": {"spec": {"parallelism": 2, "template": template(annotations)}}}
        for name, annotations in jobs.items()
    ]
    return obj("jobset.x-k8s.io/v1alpha2", "JobSet", "set", spec={"replicatedJobs": listed})


def answer(owner: Json, **of: Any) -> Group | Refusal:
    found = group(*chained(pod(**of), dict(owner)))
    assert isinstance(found, Group | Refusal)
    return found


def constraints(owner: Json, **of: Any) -> dict[str, tuple[str, str, str]]:
    """Topology, required and preferred level of the group ("") and of each part that asks for one."""
    found = answer(owner, **of)
    assert isinstance(found, Group)
    spec: PodGroupSpec = found.pod_group.spec
    asked = {"": spec.topology_constraint, **{part.name: part.topology_constraint for part in spec.sub_groups or ()}}
    return {
        name: (each.topology, each.required_topology_level, each.preferred_topology_level)
        for name, each in asked.items()
        if each is not None
    }


def refused(owner: Json) -> str:
    found = answer(owner)
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
    assert constraints(pytorch({}, IN_RACK)) == {"worker": in_rack}
    assert constraints(pytorch(IN_BLOCK, IN_RACK)) == {"master": in_block, "worker": in_rack}
    assert constraints(pytorch(IN_RACK, IN_RACK)) == {"master": in_rack, "worker": in_rack}
    assert constraints(jobset(leader={}, workers=IN_RACK)) == {"workers": in_rack}, "all replicas are in one rack"
    assert constraints(jobset(workers=IN_RACK)) == {"": in_rack}


def test_templates_of_one_group_ask_for_all_pods_together() -> None:
    assert constraints(pytorch({**IN_RACK, **TOGETHER}, {**IN_RACK, **TOGETHER})) == {"": ("*", RACK, "")}


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
            jobset(leader={**IN_RACK, **TOGETHER}, workers={**IN_RACK, **TOGETHER}, others=IN_RACK),
            "annotation kueue.x-k8s.io/podset-group-name is all; allowed: the same in all templates",
        ),
    ],
)
def test_what_is_not_allowed_or_not_carried_out_is_refused_with_its_field(owner: Json, said: str) -> None:
    assert said in refused(owner)


def test_templates_that_kueue_has_placed_ask_for_nothing() -> None:
    slices = {**IN_RACK, "kueue.x-k8s.io/podset-slice-required-topology": BLOCK}
    admitted = obj("batch/v1", "Job", "job", spec={"template": template(slices, schedulingGates=GATES)})
    assert constraints(admitted) == {}
    assert constraints(job(slices), labels={"kueue.x-k8s.io/managed": "true"}) == {}


@pytest.mark.parametrize("gates", [[], GATES])
def test_of_a_job_no_more_is_kept_than_what_its_template_asks_for(gates: list[Any]) -> None:
    written = template({**IN_RACK, "note": "n"}, schedulingGates=[*gates, {"name": "theirs"}])
    read = owner_as_read(obj("batch/v1", "Job", "job", spec={"parallelism": 3, "template": written}))
    assert read["spec"] == {"template": {"metadata": {"annotations": IN_RACK}, "spec": {"schedulingGates": gates}}}
    assert constraints(read) == ({} if gates else {"": ("*", RACK, "")})
    assert "spec" not in owner_as_read(job({"note": "n"}))


def test_a_pod_of_another_schedulers_gang_asks_for_itself() -> None:
    words = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "2"}
    found = group(*chained(pod(annotations={**words, **IN_RACK})))
    assert isinstance(found, Group)
    constraint = found.pod_group.spec.topology_constraint
    assert constraint is not None
    assert (constraint.topology, constraint.required_topology_level) == ("*", RACK)
