"""Gangs in the words of other schedulers: how they are read, and the PodGroups that are made of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from podgrouper.core import answers, patches
from podgrouper.core import answers as telling
from podgrouper.core.answers import Code, Nothing, Refusal, Refused, Why
from podgrouper.core.foreign import gangs
from podgrouper.core.grouping import group
from podgrouper.core.owner_chain import Absent, Read
from tests.podgrouper.core.foreign.objects import (
    BY_COSCHEDULING,
    BY_SIGS,
    BY_VOLCANO,
    COSCHEDULING,
    SIGS,
    UPSTREAM,
    VOLCANO,
    grouped,
    made,
    of_koordinator,
    pod_group,
    refused,
)
from tests.podgrouper.objects import obj, pod
from wire import names
from wire.crds.podgroup import TopologyConstraint


def said(least: str = "4", **meta: Any) -> str:
    return patches.gang_of(made(pod(**of_koordinator(least), **meta)).pod_group)


def queue(name: str) -> dict[str, Any]:
    return {"labels": {"kai.scheduler/queue": name}}


@pytest.mark.parametrize(
    ("own", "first", "told"),
    [
        (said("2"), said("4"), "metadata.annotations[gang.scheduling.koordinator.sh/min-available] is 2; allowed: 4"),
        (said(**queue("b")), said(**queue("a")), "queue is b; allowed: a"),
        (said(), said(**queue("a")), "queue is absent; allowed: a"),
        (said(spec={"containers": [], "priorityClassName": "high"}), said(), "priorityClass is high; allowed: absent"),
    ],
)
def test_a_pod_that_says_something_else_is_refused_by_field(own: str, first: str, told: str) -> None:
    refusal = gangs.difference(pod(**of_koordinator()), own, first)
    assert refusal is not None
    assert refusal.code is Code.GANG_DIFFERS
    expected = f"Pod p differs from the other pods of its gang: {told}, as the gang's first pod says"
    assert answers.told(refusal) == expected


def test_it_does_not_matter_by_which_word_they_say_it() -> None:
    light = {"pod-group.scheduling.sigs.k8s.io/name": "llm", "pod-group.scheduling.sigs.k8s.io/min-available": "4"}
    assert patches.gang_of(made(pod(labels=light)).pod_group) == said("4")


def test_pods_that_agree_are_of_one_gang() -> None:
    assert gangs.difference(pod(), said(**queue("a")), said(**queue("a"))) is None


@pytest.mark.parametrize("spoilt", ["", "{", "[]", "7"])
def test_a_text_that_somebody_has_spoilt_agrees_with_nothing(spoilt: str) -> None:
    assert gangs.difference(pod(), said(), spoilt) is not None


@pytest.mark.parametrize(
    ("spec", "minimum"),
    [
        ({"minMember": 3}, 3),
        ({"minMember": 0}, 1),
        ({}, 1),
        # Other ways to wait, of which there is no need here.
        ({"minMember": 2, "minResources": {"cpu": "9"}, "scheduleTimeoutSeconds": 5}, 2),
    ],
)
def test_the_minimum_is_that_of_the_pod_group(spec: dict[str, Any], minimum: int) -> None:
    answer = made(pod(**BY_COSCHEDULING), pod_group(**spec))
    assert (answer.pod_group.spec.min_member, answer.pod_group.spec.sub_groups, answer.part) == (minimum, None, "")


@pytest.mark.parametrize("wrong", [-1, "3", 2**31, True])
def test_a_minimum_that_is_no_count_is_refused(wrong: object) -> None:
    refusal = refused(pod(**BY_COSCHEDULING), pod_group(minMember=wrong))
    assert (refusal.code, refusal.about, refusal.field) == (Code.MALFORMED, "PodGroup llm", "spec.minMember")


PREFIX = "gang.scheduling.koordinator.sh"


def test_pods_state_the_minimum_themselves() -> None:
    answer = made(pod(**of_koordinator("4", total_number="6", waiting_time="60s", mode="NonStrict")))
    assert (answer.pod_group.metadata.name, answer.pod_group.spec.min_member) == ("pg-koordinator-llm", 4)


def test_a_name_without_a_minimum_is_that_of_a_pod_group() -> None:
    bottom = pod(annotations={f"{PREFIX}/name": "llm"})
    assert made(bottom, pod_group(SIGS, minMember=5)).pod_group.spec.min_member == 5
    assert refused(bottom).code is Code.NOT_FOUND


def test_a_label_names_a_pod_group() -> None:
    assert made(pod(**BY_SIGS), pod_group(SIGS, minMember=2)).pod_group.spec.min_member == 2


ASKED = [
    pytest.param({"match-policy": "only-waiting"}, Code.NOT_CARRIED_OUT, id="only waiting pods count"),
    pytest.param({"groups": '["team/llm","team/other"]'}, Code.NOT_CARRIED_OUT, id="gangs that start together"),
    pytest.param({"groups": '{"a": 1}'}, Code.NOT_CARRIED_OUT, id="no list of gangs"),
    pytest.param({"groups": "["}, Code.MALFORMED, id="no JSON"),
    pytest.param(
        {"network-topology-spec": '{"gatherStrategy":[{"layer":"rack","strategy":"MustGather"}]}'},
        Code.NOT_CARRIED_OUT,
        id="one rack",
    ),
    pytest.param({"match-policy": "once-satisfied"}, None, id="the default"),
    pytest.param({"match-policy": "waiting-and-running"}, None, id="bound pods count"),
    pytest.param({"groups": '["team/llm"]'}, None, id="no other gang"),
    pytest.param({"groups": "[]"}, None, id="no gangs"),
    pytest.param(
        {"network-topology-spec": '{"gatherStrategy":[{"layer":"rack","strategy":"PreferGather"}]}'},
        None,
        id="one rack if possible",
    ),
]


@pytest.mark.parametrize("place", ["pod", "PodGroup"])
@pytest.mark.parametrize(("written", "code"), ASKED)
def test_what_annotations_ask_beyond_a_minimum_is_refused(
    written: dict[str, str], code: Code | None, place: str
) -> None:
    annotations = {f"{PREFIX}/{key}": text for key, text in written.items()}
    if place == "pod":
        bottom = pod(annotations={**of_koordinator("4")["annotations"], **annotations})
        there: list[dict[str, Any]] = []
    else:
        bottom = pod(**BY_SIGS)
        there = [obj(SIGS, "PodGroup", "llm", spec={"minMember": 4}, annotations=annotations)]
    if code is None:
        assert made(bottom, *there).pod_group.spec.min_member == 4
        return
    refusal = refused(bottom, *there)
    (name,) = annotations
    assert (refusal.code, refusal.field) == (code, f"metadata.annotations[{name}]")


# The PodGroup of a foreign gang: its name, owner and labels, and which workloads have one.

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
        (("batch/v1", "Job"), {"annotations": {names.BATCH_MIN_MEMBER: "2"}, "spec": {"parallelism": 2}}),
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


MEMBER: dict[str, Any] = {"spec": {"schedulingGroup": {"podGroupName": "llm"}}}


def upstream_group(**spec: Any) -> dict[str, Any]:
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
    answer = made(pod(**MEMBER), upstream_group(**spec))
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
    answer = made(pod(**MEMBER), upstream_group(schedulingConstraints=constraints))
    assert answer.pod_group.spec.topology_constraint == topology


def test_the_topology_constraint_of_the_pod_group_wins_over_annotations_of_a_template() -> None:
    template = {"metadata": {"annotations": {names.KUEUE_REQUIRED: "example.com/block"}}}
    job = obj("batch/v1", "Job", "j", spec={"template": template})
    asked = upstream_group(schedulingConstraints={"topology": [{"key": "example.com/rack"}]})
    topology = made(pod(job, **MEMBER), asked, owners=(job,)).pod_group.spec.topology_constraint
    assert topology is not None
    assert (topology.topology, topology.required_topology_level) == (names.LABEL_ALONE, "example.com/rack")


def test_the_priority_class_is_that_of_the_pod_group() -> None:
    assert made(pod(**MEMBER), upstream_group(priorityClassName="high")).pod_group.spec.priority_class_name == "high"


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
    refusal = refused(pod(**MEMBER), upstream_group(**spec))
    assert (refusal.code, refusal.about, refusal.field) == (code, "PodGroup llm", field)


def test_a_job_whose_pods_are_in_a_group_is_grouped_by_that() -> None:
    job = obj("batch/v1", "Job", "j")
    assert made(pod(job, **MEMBER), upstream_group(), owners=(job,)).pod_group.metadata.name == "pg-kubernetes-llm"


@pytest.mark.parametrize("asked", [{}, {names.IGNORE_WORKLOAD_API: "false"}])
def test_the_group_counts_unless_kais_annotation_passes_over_it(asked: dict[str, str]) -> None:
    assert refused(pod(annotations=asked, **MEMBER)).code is Code.NOT_FOUND
    assert grouped(pod(annotations={names.IGNORE_WORKLOAD_API: "true"}, **MEMBER)) == Nothing(Why.ALONE)


def test_a_group_that_stands_in_its_workload_is_refused() -> None:
    refusal = refused(pod(spec={"workloadRef": {"name": "w", "podGroup": "g"}}))
    assert (refusal.code, refusal.field) == (Code.NOT_CARRIED_OUT, "spec.workloadRef.name")


TASK = "volcano.sh/task-spec"


def of_task(task: str, **labels: str) -> dict[str, Any]:
    return pod(annotations={**BY_VOLCANO["annotations"], TASK: task}, labels=labels)


def test_minimum_queue_and_priority_class_are_those_of_the_pod_group() -> None:
    group = pod_group(VOLCANO, minMember=3, queue="research", priorityClassName="high", minResources={"cpu": "1"})
    spec = made(pod(**BY_VOLCANO), group).pod_group.spec
    assert (spec.min_member, spec.queue, spec.priority_class_name) == (3, "research", "high")


@pytest.mark.parametrize(
    ("queue", "label", "expected"),
    [
        ("research", "", "research"),
        # A label of ours is more to the point.
        ("research", "mine", "mine"),
        # What Volcano's CRD fills in.
        ("default", "", "default-queue"),
        ("", "", "default-queue"),
    ],
)
def test_the_queue_is_that_of_our_label_then_the_pod_groups_then_the_default(
    queue: str, label: str, expected: str
) -> None:
    labels = {"kai.scheduler/queue": label} if label else {}
    answer = made(pod(labels=labels, **BY_VOLCANO), pod_group(VOLCANO, queue=queue))
    assert answer.pod_group.spec.queue == expected


@pytest.mark.parametrize(
    ("bottom", "part"),
    [
        (of_task("worker"), "worker"),
        (pod(labels={TASK: "ps"}, **BY_VOLCANO), "ps"),
        # A task without a minimum: its pods count for that of the group.
        (of_task("other"), ""),
        (pod(**BY_VOLCANO), ""),
    ],
)
def test_each_task_with_a_minimum_is_a_part(bottom: dict[str, Any], part: str) -> None:
    answer = made(bottom, pod_group(VOLCANO, minMember=4, minTaskMember={"worker": 2, "ps": 1}))
    parts = [(each.name, each.min_member) for each in answer.pod_group.spec.sub_groups or ()]
    assert (answer.pod_group.spec.min_member, parts, answer.part) == (4, [("ps", 1), ("worker", 2)], part)


def test_a_soft_topology_keeps_no_pod_waiting() -> None:
    answer = made(pod(**BY_VOLCANO), pod_group(VOLCANO, minMember=2, networkTopology={"mode": "soft"}))
    assert answer.pod_group.spec.min_member == 2


@pytest.mark.parametrize(
    ("spec", "code", "field"),
    [
        ({"networkTopology": {"mode": "hard"}}, Code.NOT_CARRIED_OUT, "spec.networkTopology.mode"),
        ({"networkTopology": {"highestTierAllowed": 1}}, Code.NOT_CARRIED_OUT, "spec.networkTopology.mode"),
        ({"subGroupPolicy": [{"name": "a", "subGroupSize": 2}]}, Code.NOT_CARRIED_OUT, "spec.subGroupPolicy"),
        ({"minMember": -1}, Code.MALFORMED, "spec.minMember"),
        ({"minTaskMember": {"worker": "2"}}, Code.MALFORMED, "spec.minTaskMember.worker"),
        ({"minTaskMember": {"Worker": 2}}, Code.MALFORMED, "subGroups.name"),
        ({"minTaskMember": 2}, Code.MALFORMED, "spec.minTaskMember"),
        ({"minTaskMember": {f"t{n}": 1 for n in range(10_001)}}, Code.TOO_MANY_PARTS, "subGroups"),
    ],
)
def test_what_has_no_counterpart_is_refused_in_volcano(spec: dict[str, Any], code: Code, field: str) -> None:
    refusal = refused(pod(**BY_VOLCANO), pod_group(VOLCANO, **spec))
    assert (refusal.code, refusal.about, refusal.field) == (code, "PodGroup llm", field)


# Which gang a pod names, and words that name none that is carried out.

LIGHT = {"pod-group.scheduling.sigs.k8s.io/name": "llm", "pod-group.scheduling.sigs.k8s.io/min-available": "3"}
OWN = {"annotations": {"scheduling.volcano.sh/group-name": "llm"}}

NAMED = [
    pytest.param(BY_COSCHEDULING, "coscheduling", None, id="coscheduling"),
    pytest.param(BY_VOLCANO, "volcano", None, id="Volcano"),
    pytest.param(OWN, "volcano", None, id="Volcano's own annotation"),
    pytest.param(BY_SIGS, "koordinator", None, id="older coscheduling, Koordinator"),
    pytest.param({"labels": LIGHT}, "koordinator", 3, id="lightweight coscheduling"),
    pytest.param(of_koordinator("4"), "koordinator", 4, id="Koordinator"),
    pytest.param({**of_koordinator("4"), **BY_SIGS}, "koordinator", 4, id="Koordinator, by two words"),
    pytest.param(
        {"annotations": {**BY_VOLCANO["annotations"], "scheduling.volcano.sh/group-min-member": "2"}},
        "volcano",
        None,
        id="Volcano's minimum of owners says nothing on a pod",
    ),
]


@pytest.mark.parametrize(("meta", "system", "least"), NAMED)
def test_a_gang_is_read_from_the_words_of_each_system(meta: dict[str, Any], system: str, least: int | None) -> None:
    gang = gangs.gang_of(pod(**meta))
    assert gang is not None
    assert (gang.form.system, gang.name, gang.least) == (system, "llm", least)
    assert gangs.key_of(pod(**meta)) == f"{system} llm"


@pytest.mark.parametrize("meta", [{}, {"labels": {"scheduling.x-k8s.io/pod-group": ""}}, {"annotations": {"a": "b"}}])
def test_a_pod_without_such_words_is_of_no_gang(meta: dict[str, Any]) -> None:
    assert (gangs.gang_of(pod(**meta)), gangs.key_of(pod(**meta))) == (None, "")


REFUSED = [
    pytest.param(
        {**BY_COSCHEDULING, **BY_VOLCANO},
        Code.NOT_CARRIED_OUT,
        "metadata.annotations[scheduling.k8s.io/group-name]",
        id="two systems",
    ),
    pytest.param(
        {"annotations": {"yunikorn.apache.org/task-group-name": "g"}},
        Code.NOT_CARRIED_OUT,
        "metadata.annotations[yunikorn.apache.org/task-group-name]",
        id="YuniKorn",
    ),
    pytest.param(
        {"annotations": {"scheduling.x-k8s.io/pod-group": "g"}},
        Code.NOT_CARRIED_OUT,
        "metadata.annotations[scheduling.x-k8s.io/pod-group]",
        id="an annotation in place of a label",
    ),
    pytest.param(
        {"annotations": {"scheduling.volcano.sh/group-min-member": "2"}},
        Code.NOT_CARRIED_OUT,
        "metadata.annotations[scheduling.volcano.sh/group-min-member]",
        id="Volcano's minimum alone",
    ),
    pytest.param(
        {**of_koordinator("4", name="a"), **BY_SIGS},
        Code.MALFORMED,
        "metadata.labels[pod-group.scheduling.sigs.k8s.io]",
        id="two names",
    ),
    pytest.param(
        of_koordinator("4", name="Not A Name"),
        Code.MALFORMED,
        "metadata.annotations[gang.scheduling.koordinator.sh/name]",
        id="no name of an object",
    ),
    pytest.param(
        of_koordinator("4", name="a" * 254),
        Code.MALFORMED,
        "metadata.annotations[gang.scheduling.koordinator.sh/name]",
        id="a name that is too long",
    ),
    *(
        pytest.param(
            of_koordinator(least),
            Code.MALFORMED,
            "metadata.annotations[gang.scheduling.koordinator.sh/min-available]",
            id=f"min-available {least}",
        )
        for least in ("0", "-1", "four", "2147483648")
    ),
]


@pytest.mark.parametrize(("meta", "code", "field"), REFUSED)
def test_words_that_are_not_carried_out_are_refused_by_field(meta: dict[str, Any], code: Code, field: str) -> None:
    with pytest.raises(Refused) as caught:
        gangs.gang_of(pod(**meta))
    assert (caught.value.refusal.code, caught.value.refusal.field) == (code, field)
    assert gangs.key_of(pod(**meta)) == ""
