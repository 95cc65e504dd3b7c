from __future__ import annotations

from typing import Any

import pytest

from podgrouper.core.answers import Code, Nothing, Why
from tests.podgrouper.core.foreign.objects import UPSTREAM, grouped, made, pod_group, refused
from tests.podgrouper.objects import obj, pod
from wire import names
from wire.crds.podgroup import TopologyConstraint

MEMBER: dict[str, Any] = {"spec": {"schedulingGroup": {"podGroupName": "llm"}}}


def group(**spec: Any) -> dict[str, Any]:
    return pod_group(UPSTREAM, **{"schedulingPolicy": {"gang": {"minCount": 3}}, **spec})


@pytest.mark.parametrize(
    ("spec", "minimum"),
    [
        ({}, 3),
        ({"schedulingPolicy": {"basic": {}}}, 1),
        ({"resourceClaims": [{"name": "a", "resourceClaimTemplateName": "b"}]}, 3),
        ({"disruptionMode": "Pod", "podGroupTemplateRef": {"workload": {"workloadName": "w"}}}, 3),
    ],
)
def test_the_minimum_is_that_of_the_policy(spec: dict[str, Any], minimum: int) -> None:
    answer = made(pod(**MEMBER), group(**spec))
    assert (answer.pod_group.metadata.name, answer.pod_group.spec.min_member) == ("pg-kubernetes-llm", minimum)


@pytest.mark.parametrize(
    ("constraints", "topology"),
    [
        (
            {"topology": [{"key": "example.com/rack"}]},
            TopologyConstraint(topology="(label)", required_topology_level="example.com/rack"),
        ),
        ({"topology": []}, None),
        ({}, None),
    ],
)
def test_a_topology_constraint_is_a_required_level_without_a_topology(
    constraints: dict[str, Any], topology: TopologyConstraint | None
) -> None:
    answer = made(pod(**MEMBER), group(schedulingConstraints=constraints))
    assert answer.pod_group.spec.topology_constraint == topology


def test_the_topology_constraint_of_the_pod_group_wins_over_annotations_of_a_template() -> None:
    template = {"metadata": {"annotations": {names.KUEUE_REQUIRED: "example.com/block"}}}
    job = obj("batch/v1", "Job", "j", spec={"template": template})
    asked = group(schedulingConstraints={"topology": [{"key": "example.com/rack"}]})
    topology = made(pod(job, **MEMBER), asked, owners=(job,)).pod_group.spec.topology_constraint
    assert topology is not None
    assert (topology.topology, topology.required_topology_level) == (names.LABEL_ALONE, "example.com/rack")


def test_the_priority_class_is_that_of_the_pod_group() -> None:
    assert made(pod(**MEMBER), group(priorityClassName="high")).pod_group.spec.priority_class_name == "high"


@pytest.mark.parametrize(
    ("spec", "code", "field"),
    [
        (
            {"schedulingConstraints": {"topology": [{"key": "rack"}, {"key": "row"}]}},
            Code.NOT_CARRIED_OUT,
            "spec.schedulingConstraints.topology",
        ),
        ({"schedulingConstraints": {"power": []}}, Code.NOT_CARRIED_OUT, "spec.schedulingConstraints"),
        (
            {"schedulingConstraints": {"topology": [{"key": ""}]}},
            Code.MALFORMED,
            "spec.schedulingConstraints.topology[0].key",
        ),
        ({"disruptionMode": "PodGroup"}, Code.NOT_CARRIED_OUT, "spec.disruptionMode"),
        ({"disruptionMode": {"all": {}}}, Code.NOT_CARRIED_OUT, "spec.disruptionMode"),
        ({"schedulingPolicy": {"gang": {"minCount": 0}}}, Code.MALFORMED, "spec.schedulingPolicy.gang.minCount"),
        ({"schedulingPolicy": {}}, Code.MALFORMED, "spec.schedulingPolicy.gang.minCount"),
    ],
)
def test_what_has_no_counterpart_is_refused(spec: dict[str, Any], code: Code, field: str) -> None:
    refusal = refused(pod(**MEMBER), group(**spec))
    assert (refusal.code, refusal.about, refusal.field) == (code, "PodGroup llm", field)


def test_a_job_whose_pods_are_in_a_group_is_grouped_by_that() -> None:
    job = obj("batch/v1", "Job", "j")
    assert made(pod(job, **MEMBER), group(), owners=(job,)).pod_group.metadata.name == "pg-kubernetes-llm"


@pytest.mark.parametrize("asked", [{}, {names.IGNORE_WORKLOAD_API: "false"}])
def test_the_group_counts_unless_kais_annotation_passes_over_it(asked: dict[str, str]) -> None:
    assert refused(pod(annotations=asked, **MEMBER)).code is Code.NOT_FOUND
    assert grouped(pod(annotations={names.IGNORE_WORKLOAD_API: "true"}, **MEMBER)) == Nothing(Why.ALONE)


def test_a_group_that_stands_in_its_workload_is_refused() -> None:
    refusal = refused(pod(spec={"workloadRef": {"name": "w", "podGroup": "g"}}))
    assert (refusal.code, refusal.field) == (Code.NOT_CARRIED_OUT, "spec.workloadRef.name")
