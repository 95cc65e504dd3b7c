"""Gangs start whole or not at all (invariant S4)."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.convert.owners import (
    asked_by,
    asks_more_than,
    gang_kind_of,
    is_gang_kind,
    kais_structure,
    preferences,
)
from scheduler.core.model.plan import Attempt, Bind, Explain, Gang, Join
from scheduler.core.model.verdict import Code, NodeReason, Verdict
from tests.scheduler.core.objects import (
    NANO,
    bind_request,
    bound,
    cluster,
    feed,
    node,
    pod,
    pod_group,
    reservation,
)
from wire import names
from wire.core import ObjectMeta, OwnerReference


def _members(count: int, **asked: Any) -> list[Any]:
    return [pod(f"m{i:03}", group="g", **asked) for i in range(count)]


def _verdict(made: Cluster, now_ns: int = 0) -> Verdict:
    (entry,) = made.decide(now_ns).entries
    assert isinstance(entry, Explain)
    assert entry.pod_group == ("ns", "g")
    return entry.verdict


def test_a_gang_is_placed_whole() -> None:
    group = pod_group("g", 8)
    made = cluster(node(gpus=4), group, *_members(8, fraction="0.5"))
    (entry,) = made.decide(0).entries
    assert isinstance(entry, Gang)
    assert (entry.pod_group, entry.rv, entry.by_binder) == (("ns", "g"), group.metadata.resource_version, True)
    assert [placement.name for placement in entry.placements] == [f"m{i:03}" for i in range(8)]


def test_a_gang_with_room_for_all_but_one_gets_nothing_and_hears_why() -> None:
    half = reservation("x", book={"stranger": NANO // 2})
    made = cluster(node(gpus=4), half, pod_group("g", 8), *_members(8, fraction="0.5"))
    verdict = _verdict(made)
    assert (verdict.code, verdict.placed, verdict.required) == (Code.GANG_INCOMPLETE, 7, 8)
    assert verdict.node_reasons == (NodeReason("insufficient", "gpu-share", 1),)
    assert verdict.shortfall == ("nano_gpu", NANO // 2)


def test_what_a_gang_could_not_use_is_there_for_the_next_pod() -> None:
    later = pod("later", gpus=4, created="2026-02-01T00:00:00Z")
    made = cluster(node(gpus=4), pod_group("g", 8), *_members(8, gpus=1), later)
    kinds = [type(entry) for entry in made.decide(0).entries]
    assert kinds == [Bind, Explain]


def test_a_class_that_failed_within_a_gang_is_judged_anew_outside_of_it() -> None:
    same_class = pod("alone", gpus=1, created="2026-02-01T00:00:00Z")
    made = cluster(node(gpus=4), pod_group("g", 8), *_members(8, gpus=1), same_class)
    assert [type(entry) for entry in made.decide(0).entries] == [Bind, Explain]


def test_a_gang_of_whole_gpus_is_bound_directly() -> None:
    made = cluster(*(node(f"n{i}") for i in range(8)), pod_group("g", 64), *_members(64, gpus=1))
    (entry,) = made.decide(0).entries
    assert isinstance(entry, Gang)
    assert not entry.by_binder
    per_node = [placement.node for placement in entry.placements]
    assert {name: per_node.count(name) for name in per_node} == {f"n{i}": 8 for i in range(8)}


def test_one_member_that_needs_the_binder_takes_all_of_them_there() -> None:
    mixed = [pod("a", group="g", gpus=1), pod("b", group="g", fraction="0.5")]
    (entry,) = cluster(node(), pod_group("g", 2), *mixed).decide(0).entries
    assert isinstance(entry, Gang)
    assert entry.by_binder


@pytest.mark.parametrize(
    ("members", "present", "gated"),
    [
        (_members(2, gpus=1), 2, 0),
        ([], 0, 0),
        ([*_members(2, gpus=1), pod("z", group="g", gated=True)], 2, 1),
        ([*_members(1, gpus=1), bound(pod("b", group="g"), "n1")], 2, 0),
        ([*_members(2, gpus=1), bound(pod("b", group="g", deleting=True), "n1")], 2, 0),
        ([*_members(2, gpus=1), pod("d", group="g", deleting=True)], 2, 0),
        ([*_members(2, gpus=1), pod("d", group="g", namespace="other")], 2, 0),
    ],
)
def test_a_gang_waits_until_its_members_are_there(members: list[Any], present: int, gated: int) -> None:
    made = cluster(node(), pod_group("g", 3), *members)
    explained = [e for e in made.decide(0).entries if isinstance(e, Explain) and e.pod_group]
    if not members:
        assert explained == []
        return
    verdict = explained[0].verdict
    assert (verdict.code, verdict.present, verdict.required, verdict.gated) == (Code.GANG_NOT_READY, present, 3, gated)


def test_members_beyond_the_minimum_wait_until_it_is_bound_and_then_come_one_at_a_time() -> None:
    members = _members(4, gpus=1)
    made = cluster(node(gpus=3), pod_group("g", 2), *members)
    (gang,) = made.decide(0).entries
    assert isinstance(gang, Gang)
    for placement in gang.placements:
        made.commits.assume(placement)
    assert made.decide(0).entries == ()
    feed(made, bound(members[0], "n1"))
    assert made.decide(0).entries == ()
    feed(made, bound(members[1], "n1"))
    plan = made.decide(0)
    assert [type(entry) for entry in plan.entries] == [Bind, Explain]


def test_one_member_that_completes_the_minimum_needs_no_plan() -> None:
    made = cluster(node(), pod_group("g", 2), bound(pod("b", group="g"), "n1"), *_members(1, gpus=1))
    assert [type(entry) for entry in made.decide(0).entries] == [Bind]


@pytest.mark.parametrize("minimum", [0, 1, None])
def test_a_gang_of_one_is_a_pod_alone(minimum: int | None) -> None:
    made = cluster(node(gpus=1), pod_group("g", minimum), *_members(1, gpus=1))
    assert [type(entry) for entry in made.decide(0).entries] == [Bind]
    made = cluster(node(gpus=0), pod_group("g", minimum), *_members(1, gpus=1))
    (entry,) = made.decide(0).entries
    assert isinstance(entry, Explain)
    assert entry.verdict.code is Code.NO_NODE_FITS


def test_nobody_is_placed_while_a_member_is_handed_over_already() -> None:
    members = _members(3, fraction="0.5")
    made = cluster(node(), pod_group("g", 3), *members, bind_request(members[0], "n1", ("x", 5)))
    assert made.decide(0).entries == ()


def test_nobody_is_placed_while_a_written_plan_has_members_that_wait() -> None:
    members = _members(2, gpus=1)
    plan = '{"id":"x","members":{"uid-m000":{"node":"n1"},"uid-m001":{"node":"n1"}}}'
    made = cluster(node(), pod_group("g", 2, annotations={names.PLAN: plan}), *members)
    assert made.decide(0).entries == ()
    for member in members:
        made.remove_pod(member.metadata.uid)
    feed(made, pod("m7", group="g", gpus=1), pod("m8", group="g", gpus=1))
    assert [type(entry) for entry in made.decide(0).entries] == [Gang]


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"fraction": "2"}, Code.INVALID_REQUEST),
        ({"fraction": "0.5", "admitted": False}, Code.NOT_ADMITTED),
        ({"spec": {"resourceClaims": [{"name": "x"}]}}, Code.UNSUPPORTED_CONSTRAINT),
    ],
)
def test_a_gang_that_one_member_holds_up_says_what_holds_it_up(asked: dict[str, Any], code: Code) -> None:
    made = cluster(node(), pod_group("g", 2), *_members(1, gpus=1), pod("bad", group="g", **asked))
    assert _verdict(made).code is code


def test_a_gang_goes_on_without_a_member_that_it_does_not_need() -> None:
    made = cluster(node(), pod_group("g", 2), *_members(2, gpus=1), pod("bad", group="g", fraction="2"))
    assert [type(entry) for entry in made.decide(0).entries] == [Gang]


def test_a_pod_group_that_is_not_there_is_named() -> None:
    (entry,) = cluster(node(), *_members(2, gpus=1)).decide(0).entries
    assert isinstance(entry, Explain)
    assert entry.pods == ("uid-m000", "uid-m001")
    assert (entry.verdict.code, entry.verdict.detail) == (Code.POD_GROUP_NOT_FOUND, "g")


def test_an_unsupported_pod_group_is_never_started() -> None:
    made = cluster(node(), pod_group("g", 2, annotations={"kai.scheduler/segment-size": "1"}), *_members(2, gpus=1))
    verdict = _verdict(made)
    assert verdict.code is Code.UNSUPPORTED_CONSTRAINT
    assert verdict.detail == "annotation kai.scheduler/segment-size"


SUBGROUPS = [{"name": "head", "minMember": 1}, {"name": "worker", "minMember": 2}]


def test_a_minimum_above_the_sum_of_the_subgroups_is_filled_by_anybody() -> None:
    members = [
        pod(f"m{i}", group="g", subgroup=name, gpus=1) for i, name in enumerate(["head", "worker", "worker", ""])
    ]
    (entry,) = cluster(node(), pod_group("g", 4, subGroups=SUBGROUPS), *members).decide(0).entries
    assert isinstance(entry, Gang)
    assert len(entry.placements) == 4


def test_a_member_that_fits_nowhere_is_passed_over_for_one_that_does() -> None:
    members = [pod("a", group="g", gpus=9), pod("b", group="g", gpus=1), pod("c", group="g", gpus=1)]
    (entry,) = cluster(node(), pod_group("g", 2), *members).decide(0).entries
    assert isinstance(entry, Gang)
    assert [placement.name for placement in entry.placements] == ["b", "c"]


def test_members_are_decided_by_task_priority() -> None:
    members = [pod(f"m{i}", group="g", gpus=1, labels={names.TASK_PRIORITY_LABEL: str(i)}) for i in range(3)]
    (entry,) = cluster(node(), pod_group("g", 3), *members).decide(0).entries
    assert isinstance(entry, Gang)
    assert [placement.name for placement in entry.placements] == ["m2", "m1", "m0"]


def test_a_gang_on_verified_devices_joins_them_directly() -> None:
    witness = bound(pod("v", fraction="0.1"), "n1", ("x", NANO // 10), reservation="r-x", uuid="GPU-1")
    made = cluster(node(), reservation("x"), witness, pod_group("g", 2), *_members(2, fraction="0.4"))
    (entry,) = made.decide(0).entries
    assert isinstance(entry, Gang)
    assert not entry.by_binder
    assert {d.group for placement in entry.placements for d in placement.devices} == {"x"}


def test_an_older_pod_group_event_is_ignored() -> None:
    old, new = pod_group("g", 2), pod_group("g", 1)
    made = cluster(node(), new, old, *_members(1, gpus=1))
    assert [type(entry) for entry in made.decide(0).entries] == [Bind]


def test_members_that_came_in_are_joined_one_at_a_time_when_the_minimum_runs() -> None:
    witness = bound(pod("v", fraction="0.1"), "n1", ("x", NANO // 10), reservation="r-x", uuid="GPU-1")
    running = bound(pod("r", group="g"), "n1")
    made = cluster(node(), reservation("x"), witness, running, pod_group("g", 1), *_members(2, fraction="0.4"))
    assert [type(entry) for entry in made.decide(0).entries] == [Join, Join]


def test_a_gang_is_by_binder_only_where_it_has_to_be() -> None:
    made = cluster(node(), pod_group("g", 1), *_members(1, fraction="0.4"))
    assert [type(entry) for entry in made.decide(0).entries] == [Attempt]


@pytest.mark.parametrize(
    ("running", "first"), [(1, "young"), (2, "young"), (0, "m000")], ids=["at its minimum", "above it", "below it"]
)
def test_the_minimum_of_a_younger_one_comes_before_what_an_older_one_has_beyond_its_own(
    running: int, first: str
) -> None:
    bound_ones = [bound(pod(f"b{i}", group="g"), "n1") for i in range(running)]
    young = pod("young", gpus=1, created="2026-02-01T00:00:00Z")
    made = cluster(node(gpus=1), pod_group("g", 1), *bound_ones, *_members(1, gpus=1), young)
    (placed,) = [entry for entry in made.decide(0).entries if isinstance(entry, Bind)]
    assert placed.placement.name == first


@pytest.mark.parametrize(
    ("group", "kinds"),
    [
        ("kubeflow.org", "PyTorchJob TFJob XGBoostJob PaddleJob MPIJob JAXJob"),
        ("trainer.kubeflow.org", "TrainJob"),
        ("ray.io", "RayCluster RayJob RayService"),
        ("jobset.x-k8s.io", "JobSet"),
        ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"),
        ("batch.volcano.sh", "Job"),
        ("workload.codeflare.dev", "AppWrapper"),
        ("grove.io", "PodCliqueSet PodGangSet PodClique PodCliqueScalingGroup"),
        ("sparkoperator.k8s.io", "SparkApplication"),
        ("amlarc.azureml.com", "AmlJob"),
    ],
)
def test_pods_of_these_kinds_start_together_wherever_among_their_owners_the_kind_stands(group: str, kinds: str) -> None:
    other = OwnerReference(api_version="example.com/v1", kind="Other", name="o", uid="o")
    for kind in kinds.split():
        owner = OwnerReference(api_version=f"{group}/v1", kind=kind, name="o", uid="o")
        assert is_gang_kind(group, kind)
        assert not is_gang_kind("example.com", kind)
        assert not is_gang_kind(group, "Notebook")
        assert gang_kind_of(ObjectMeta(owner_references=[owner])) == kind
        assert gang_kind_of(ObjectMeta(owner_references=[other, owner])) == kind


@pytest.mark.parametrize(
    ("label", "kind"),
    [
        ("jobset.sigs.k8s.io/jobset-name", "JobSet"),
        ("leaderworkerset.sigs.k8s.io/name", "LeaderWorkerSet"),
        ("training.kubeflow.org/job-name", "Kubeflow job"),
        ("ray.io/cluster", "RayCluster"),
        ("volcano.sh/job-name", "Volcano Job"),
        ("grove.io/podgang", "PodGang"),
        ("spark-app-selector", "Spark application"),
    ],
)
def test_pods_with_these_labels_start_together(label: str, kind: str) -> None:
    assert gang_kind_of(ObjectMeta(labels={"app": "x", label: "one"})) == kind
    assert gang_kind_of(ObjectMeta(labels={label: ""})) == ""


@pytest.mark.parametrize(
    "name",
    [
        "scheduling.k8s.io/group-name",
        "scheduling.volcano.sh/group-name",
        "scheduling.volcano.sh/group-min-member",
        "gang.scheduling.koordinator.sh/name",
        "gang.scheduling.koordinator.sh/min-available",
        "pod-group.scheduling.sigs.k8s.io",
        "pod-group.scheduling.sigs.k8s.io/name",
        "pod-group.scheduling.sigs.k8s.io/min-available",
        "scheduling.x-k8s.io/pod-group",
        "yunikorn.apache.org/task-group-name",
    ],
)
def test_a_gang_of_another_scheduler_is_asked_for_by_label_or_annotation(name: str) -> None:
    assert asked_by(ObjectMeta(labels={name: "g"})) == f"label {name}"
    assert asked_by(ObjectMeta(annotations={name: "g"})) == f"annotation {name}"
    assert asked_by(ObjectMeta(labels={name: ""}, annotations={name: ""})) == ""


@pytest.mark.parametrize(
    ("text", "minimum", "asks_more"),
    [
        (None, 0, False),
        ("1", 0, False),
        ("0", 1, False),
        ("2", 1, True),
        ("2", 2, False),
        ("3", 2, True),
        ("123456789", 123_456_789, False),
        ("1234567890", 1_234_567_890, True),
        ("²", 5, True),
        ("-1", 5, True),
        ("", 5, True),
    ],
)
def test_an_annotation_asks_for_more_than_a_minimum_or_cannot_be_read(
    text: str | None, minimum: int, asks_more: bool
) -> None:
    written = None if text is None else {names.BATCH_MIN_MEMBER: text}
    assert asks_more_than(written, minimum) is asks_more


@pytest.mark.parametrize("annotations", [None, {}, {"team": "a"}, {"kai.scheduler/topology-preferred-placement": ""}])
def test_other_annotations_prefer_nothing_and_ask_for_no_structure(annotations: dict[str, str] | None) -> None:
    assert preferences(annotations) == kais_structure(annotations) == []
