"""The PodGroup of a foreign gang: its name, owner and labels, and which workloads have one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from podgrouper.core import answers as telling
from podgrouper.core.answers import Code, Nothing, Refusal, Why
from podgrouper.core.grouping import group
from podgrouper.core.owner_chain import Absent, Read
from tests.podgrouper.core.foreign.objects import (
    BY_COSCHEDULING,
    BY_VOLCANO,
    COSCHEDULING,
    VOLCANO,
    grouped,
    made,
    of_koordinator,
    pod_group,
    refused,
)
from tests.podgrouper.objects import obj, pod
from wire import names

QUEUE = {"kai.scheduler/queue": "research"}


def test_the_pod_group_is_owned_by_that_of_the_other_scheduler() -> None:
    there = pod_group(minMember=3)
    meta = made(pod(**BY_COSCHEDULING), there).pod_group.metadata
    assert (meta.name, meta.namespace) == ("pg-coscheduling-llm", "team")
    assert [(one.api_version, one.kind, one.uid) for one in meta.owner_references or ()] == [
        (COSCHEDULING, "PodGroup", "podgroup-llm")
    ]


def test_a_gang_that_its_pods_define_is_owned_by_the_workload_of_the_first_one() -> None:
    job = obj("batch/v1", "Job", "j", labels=QUEUE)
    answer = made(pod(job, **of_koordinator()), owners=(job,))
    assert [one.uid for one in answer.pod_group.metadata.owner_references or ()] == ["job-j"]
    assert answer.pod_group.spec.queue == "research"


def test_pods_of_several_owners_share_one_pod_group() -> None:
    owners = [obj("batch/v1", "Job", name) for name in ("a", "b")]
    there = pod_group(minMember=3)
    names_of = {made(pod(one, **BY_COSCHEDULING), there, owners=(one,)).pod_group.metadata.name for one in owners}
    assert names_of == {"pg-coscheduling-llm"}


def test_pods_of_a_deployment_share_one_pod_group_too() -> None:
    top = obj("apps/v1", "Deployment", "d")
    answers = [made(pod(top, name=name, **BY_COSCHEDULING), pod_group(), owners=(top,)) for name in ("a", "b")]
    assert {each.pod_group.metadata.name for each in answers} == {"pg-coscheduling-llm"}
    # The kind of the workload decides on the class, as for each of its pods.
    assert answers[0].pod_group.spec.priority_class_name == "inference"


@pytest.mark.parametrize(
    ("kind", "meta"),
    [
        (("kubeflow.org/v1", "PyTorchJob"), {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}}),
        (("batch/v1", "Job"), {"annotations": {names.BATCH_MIN_MEMBER: "2"}}),
    ],
)
def test_a_workload_that_says_by_itself_how_many_start_together_is_grouped_by_that(
    kind: tuple[str, str], meta: dict[str, Any]
) -> None:
    top = obj(*kind, "t", **meta)
    answer = made(pod(top, **BY_COSCHEDULING), owners=(top,))
    assert answer.pod_group.metadata.name == f"pg-t-{top['metadata']['uid']}"
    assert answer.pod_group.spec.min_member == 2


def test_a_pod_that_names_a_pod_group_is_left_to_that() -> None:
    words = {**of_koordinator()["annotations"], names.POD_GROUP_NAME: "mine"}
    assert grouped(pod(annotations=words)) == Nothing(Why.GROUPED_BY_HAND)
    job = obj("batch/v1", "Job", "j")
    assert grouped(pod(job, annotations=words), owners=(job,)) == Nothing(Why.GROUPED_BY_HAND)
    untranslated = {"yunikorn.apache.org/task-group-name": "g", names.POD_GROUP_NAME: "mine"}
    assert grouped(pod(job, annotations=untranslated), owners=(job,)) == Nothing(Why.GROUPED_BY_HAND)


def test_a_pod_of_a_job_is_not_started_alone_for_words_that_are_not_carried_out() -> None:
    job = obj("batch/v1", "Job", "j")
    refusal = refused(pod(job, annotations={"yunikorn.apache.org/task-group-name": "g"}), owners=(job,))
    assert telling.told(refusal) == (
        "Pod p asks for what is not carried out: metadata.annotations[yunikorn.apache.org/task-group-name] is g; "
        "allowed: one gang, in words of one of kubernetes, coscheduling, volcano, koordinator"
    )


@pytest.mark.parametrize("absent", [Absent.NOT_FOUND, Absent.FORBIDDEN])
def test_a_pod_waits_for_the_pod_group_that_it_names(absent: Absent) -> None:
    key = ("scheduling.volcano.sh", "PodGroup", "llm")
    refusal = group(pod(**BY_VOLCANO), Read(named={key: absent}))
    assert isinstance(refusal, Refusal)
    assert (refusal.code, telling.told(refusal)) == (
        Code.NOT_FOUND,
        "PodGroup llm of scheduling.volcano.sh, metadata.annotations[scheduling.k8s.io/group-name], does not exist",
    )


def test_the_pod_group_to_read_is_asked_for_by_name() -> None:
    refusal = group(pod(**BY_VOLCANO), Read())
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.needed and refusal.needed.api_version) == (Code.NOT_READ, VOLCANO)


def test_a_name_beyond_the_limit_is_shortened_and_stays_distinct() -> None:
    found = {
        made(pod(**of_koordinator(name="a" * 250 + end))).pod_group.metadata.name for end in ("", "b", "c", ".c")[1:]
    }
    assert len(found) == 3
    assert max(map(len, found)) <= 253


def test_what_the_first_of_several_pods_bears_beside_is_not_that_of_the_group() -> None:
    words = {**of_koordinator()["annotations"], "gpu-fraction": "0.5"}
    meta = made(pod(annotations=words, labels={"index": "0"})).pod_group.metadata
    assert (meta.labels, {*(meta.annotations or {})}) == (None, {names.TOP_OWNER_METADATA, names.FOREIGN_GANG})
    job = obj("batch/v1", "Job", "j", labels={"team": "a"}, annotations={"note": "b"})
    meta = made(pod(job, annotations=words), owners=(job,)).pod_group.metadata
    assert (meta.labels, (meta.annotations or {}).get("note")) == ({"team": "a"}, "b")


def test_what_the_pods_say_stands_on_the_pod_group() -> None:
    meta = made(pod(labels=QUEUE, **of_koordinator("4"))).pod_group.metadata
    assert json.loads((meta.annotations or {})[names.FOREIGN_GANG]) == {
        "minimum": 4,
        "name": "llm",
        "queue": "research",
    }


def test_of_a_gang_without_an_owner_the_node_pool_alone_is_taken_from_its_first_pod() -> None:
    labels = {names.NODE_POOL_LABEL: "a", "index": "0"}
    meta = made(pod(labels={**QUEUE, **labels}, **of_koordinator("4"))).pod_group.metadata
    assert meta.labels == {names.NODE_POOL_LABEL: "a"}
