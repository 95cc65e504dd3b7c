"""Foreign gangs of pods in files."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from podgrouper.core import patches, projection
from podgrouper.core.answers import Code, Group, Json, Refusal
from podgrouper.core.files import Gangs
from podgrouper.core.grouping import group
from podgrouper.core.kinds import KINDS
from podgrouper.core.owner_chain import Absent, Read
from podgrouper.core.patches import Change, Create, Keep
from podgrouper.core.rule_input import Makes, Name, Top
from tests.podgrouper.core.foreign.objects import BY_COSCHEDULING, of_koordinator, pod_group
from tests.podgrouper.objects import chained, obj, pod
from wire import gangs, names
from wire.core import ObjectMeta, OwnerReference, Pod
from wire.crds.podgroup import PodGroup, PodGroupSpec, SubGroup, TopologyConstraint

JOB = obj("batch/v1", "Job", "j", spec={"parallelism": 3}, annotations={"a": "b", projection.LAST_APPLIED: "x" * 1000})


def decoded(body: dict[str, Any]) -> dict[str, Any]:
    return projection.pod_as_read(msgspec.convert(body, Pod))


def test_of_a_pod_only_what_rules_read_is_kept() -> None:
    env = [{"name": "AZUREML_NODE_COUNT", "value": "3"}, {"name": "PASSWORD", "value": "secret"}]
    containers = [{"name": "main", "image": "work", "env": env}]
    read = decoded(pod(JOB, spec={"containers": containers, "priorityClassName": "train", "nodeName": "n"}))
    assert read["spec"] == {
        "priorityClassName": "train",
        "nodeName": "n",
        "containers": [{"env": [{"name": "AZUREML_NODE_COUNT", "value": "3"}]}],
    }
    assert read["metadata"]["ownerReferences"] == pod(JOB)["metadata"]["ownerReferences"]


CHANGES = [
    pytest.param({"labels": {"kai.scheduler/queue": "a"}}, {}, True, id="a label"),
    pytest.param({"annotations": {"pod-group-name": "g"}}, {}, True, id="the group"),
    pytest.param({}, {"priorityClassName": "train"}, True, id="the priority class"),
    pytest.param({}, {"nodeName": "n"}, False, id="the node"),
    pytest.param({"annotations": {projection.LAST_APPLIED: "x"}}, {}, False, id="kubectl's copy"),
    pytest.param({"resourceVersion": "7"}, {}, False, id="the version"),
]


@pytest.mark.parametrize(("meta", "spec", "is_new"), CHANGES)
def test_a_pod_is_looked_at_again_when_what_decides_on_its_group_changes(
    meta: dict[str, Any], spec: dict[str, Any], is_new: bool
) -> None:
    plain = pod(JOB)
    changed = {**plain, "metadata": {**plain["metadata"], **meta}, "spec": {**plain["spec"], **spec}}
    assert (projection.fingerprint(decoded(plain)) != projection.fingerprint(decoded(changed))) is is_new


def key_of(body: dict[str, Any]) -> projection.Key:
    return projection.key_of(decoded(body))


def test_pods_of_one_owner_are_grouped_together_and_a_pod_of_nobody_by_itself() -> None:
    assert key_of(pod(JOB, name="a")) == key_of(pod(JOB, name="b")) == ("team", "Job.batch j job-j")
    assert key_of(pod(name="a")) == ("team", "Pod a pod-a")


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param(pod(JOB, name="b", namespace="other"), id="another namespace"),
        pytest.param(pod({**JOB, "kind": "Nothing"}, name="b"), id="another kind"),
        pytest.param(pod({**JOB, "apiVersion": "example.com/v1"}, name="b"), id="another group"),
        pytest.param(
            pod(obj("batch/v1", "Job", "x") | {"metadata": {"name": "x", "uid": "job-j"}}, name="b"), id="name"
        ),
        pytest.param(pod(JOB, obj("batch/v1", "Job", "k"), name="b"), id="two owners"),
    ],
)
def test_a_pod_with_the_uid_of_an_owner_alone_has_nothing_in_common_with_its_pods(forged: dict[str, Any]) -> None:
    assert key_of(forged) != key_of(pod(JOB, name="a"))


@pytest.mark.parametrize("name", ["../../team/jobs/quiet", "j" * 100_000])
def test_a_pod_with_a_reference_that_no_object_has_shares_its_key_with_nobody(name: str) -> None:
    first, second = (pod({**JOB, "metadata": {"name": name, "uid": "u"}}, name=each) for each in ("a", "b"))
    assert (key_of(first), key_of(second)) == (("team", "Pod a pod-a"), ("team", "Pod b pod-b"))


def test_pods_of_one_gang_are_grouped_together_whoever_owns_them() -> None:
    words: dict[str, Any] = {"labels": {"scheduling.x-k8s.io/pod-group": "llm"}}
    keys = {key_of(each) for each in (pod(JOB, name="a", **words), pod(name="b", **words))}
    assert keys == {("team", "coscheduling llm")}
    assert key_of(pod(name="c", namespace="other", **words)) == ("other", "coscheduling llm")


def test_of_the_name_of_a_pod_group_that_is_too_long_to_be_one_no_more_is_kept_than_tells_it() -> None:
    long = decoded(pod(annotations={"pod-group-name": "g" * 200_000}))
    assert projection.group_of(long) == "g" * 254
    assert projection.group_of(decoded(pod(annotations={"pod-group-name": "g" * 253}))) == "g" * 253


SPECS = [
    ("batch/v1", "Job", True),
    ("apps/v1", "ReplicaSet", False),
    ("example.com/v1", "Batch", False),
    ("kubeflow.org/v1", "PyTorchJob", True),
    ("ray.io/v1", "RayCluster", True),
    ("v1", "Pod", True),
    ("scheduler.grove.io/v1alpha1", "PodGang", True),
]


@pytest.mark.parametrize(("version", "kind", "kept"), SPECS)
def test_the_spec_of_an_owner_is_kept_only_where_a_rule_reads_it(version: str, kind: str, kept: bool) -> None:
    read = projection.owner_as_read({**JOB, "apiVersion": version, "kind": kind})
    assert ("spec" in read) is kept
    assert read["metadata"]["annotations"] == {"a": "b"}


def asked(gangs: Gangs, meta: dict[str, Any], namespace: str = "team", owner: Json | None = None) -> object:
    answer = gangs.answer({"metadata": meta, "spec": {}}, namespace, owner=owner)
    if isinstance(answer, Group):
        return answer.pod_group.metadata.name, answer.pod_group.spec.min_member
    return answer.code if isinstance(answer, Refusal) else None


def test_a_pod_group_counts_in_its_own_namespace() -> None:
    gangs = Gangs()
    assert gangs.note(pod_group(minMember=3), "team")
    assert asked(gangs, BY_COSCHEDULING) == ("pg-coscheduling-llm", 3)
    assert asked(gangs, BY_COSCHEDULING, "other") is Code.NOT_FOUND


@pytest.mark.parametrize("other", [pod(), obj("scheduling.run.ai/v2alpha2", "PodGroup", "g"), {}])
def test_other_objects_are_not_noted(other: dict[str, Any]) -> None:
    assert not Gangs().note(other, "team")


def test_the_first_pod_of_a_gang_decides() -> None:
    gangs = Gangs()
    found = [asked(gangs, of_koordinator(least)) for least in ("4", "2", "4")]
    assert found == [("pg-koordinator-llm", 4), Code.GANG_DIFFERS, ("pg-koordinator-llm", 4)]


def test_the_queue_of_the_owner_counts() -> None:
    owner = obj("batch/v1", "Job", "j", labels={"kai.scheduler/queue": "research"})
    answer = Gangs().answer({"metadata": of_koordinator()}, "team", owner=owner)
    assert isinstance(answer, Group)
    assert answer.pod_group.spec.queue == "research"


@pytest.mark.parametrize(
    ("meta", "owner"),
    [
        ({}, None),
        ({"annotations": {**of_koordinator()["annotations"], names.POD_GROUP_NAME: "mine"}}, None),
        (of_koordinator(), obj("batch/v1", "Job", "j", annotations={names.BATCH_MIN_MEMBER: "2"})),
        ({"annotations": {**of_koordinator()["annotations"], names.SKIP_POD_GROUPER: "true"}}, None),
    ],
    ids=["no words", "names a PodGroup", "a Job with a minimum", "skipped"],
)
def test_other_pods_have_no_answer(meta: dict[str, Any], owner: Json | None) -> None:
    assert asked(Gangs(), meta, owner=owner) is None


# What admission tells of a pod's PodGroup is what the table says.

ROWS = [row for row in KINDS if (row.api_group, row.kind) in gangs.NAMED_BY_OWNER]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.kind}.{row.versions[0]}")
def test_a_kind_whose_name_is_told_is_grouped_by_that_name_and_without_parts(row: object) -> None:
    (kind,) = [each for each in ROWS if each is row]
    assert (kind.makes, kind.name, kind.top) == (Makes.ALWAYS, Name.BY_OWNER, Top.OWNER)
    spec = {kind.replicas: {"Launcher": {"replicas": 1}, "Worker": {"replicas": 2}}} if kind.replicas else {}
    bottom, read = chained(pod(), obj(f"{kind.api_group}/{kind.versions[0]}", kind.kind, "top", spec=spec))
    known = Read(owners=read.owners, named={("batch", "Job", "top-launcher"): Absent.NOT_FOUND})
    made = group(bottom, known)
    assert isinstance(made, Group)
    assert (made.pod_group.metadata.name, made.part) == (projection.told_group(bottom), "")


def test_every_kind_whose_name_is_told_is_in_the_table() -> None:
    assert {(row.api_group, row.kind) for row in ROWS} == gangs.NAMED_BY_OWNER


# What is written so that a PodGroup says what the rules say: a table of what is there and what is wanted.

RACK = TopologyConstraint(topology="t", required_topology_level="rack")
ROW = TopologyConstraint(topology="t", required_topology_level="row")
PARTS = [SubGroup(name="a", min_member=2)]


def patches_group(*, owner: str = "u", annotations: Any = None, uid: str = "", **spec: Any) -> PodGroup:
    owners = [OwnerReference(api_version="batch/v1", kind="Job", name="j", uid=owner)]
    meta = ObjectMeta(name="pg", namespace="team", uid=uid, owner_references=owners, annotations=annotations)
    return PodGroup(metadata=meta, spec=PodGroupSpec(**spec))


def stored(wanted: PodGroup) -> PodGroup:
    """A PodGroup as the API server has it once it was created."""
    made = patches.decide(wanted, None)
    assert isinstance(made, Create)
    return msgspec.convert(made.body, PodGroup)


def edited(made: PodGroup, **spec: Any) -> PodGroup:
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, **spec))


def patched(made: PodGroup, wanted: PodGroup) -> PodGroup:
    """What becomes of a PodGroup by the patch that is decided on, as RFC 7396 has it."""
    change = patches.decide(wanted, patches.live(made))
    assert isinstance(change, Change)
    plain = msgspec.to_builtins(made)

    def merge(into: dict[str, Any], patch: Any) -> dict[str, Any]:
        for key, value in patch.items():
            if value is None:
                into.pop(key, None)
            elif isinstance(value, dict):
                into[key] = merge(dict(into.get(key) or {}), value)
            else:
                into[key] = value
        return into

    return msgspec.convert(merge(plain, change.patch), PodGroup)


SHAPES = [
    pytest.param({"min_member": 2}, {"min_member": 3}, id="minimum"),
    pytest.param({"min_member": 2}, {"min_member": 2, "sub_groups": PARTS}, id="parts come"),
    pytest.param({"min_member": 2, "sub_groups": PARTS}, {"min_member": 2}, id="parts go"),
    pytest.param({"min_member": 2}, {"min_sub_group": 1, "sub_groups": PARTS}, id="a tree in place of a number"),
    pytest.param({"min_member": 0}, {"min_member": 1}, id="from none"),
    pytest.param({"topology_constraint": RACK}, {"topology_constraint": ROW}, id="constraint"),
    pytest.param({}, {"topology_constraint": ROW}, id="constraint comes"),
]


@pytest.mark.parametrize(("before", "after"), SHAPES)
def test_a_change_of_the_workload_is_carried_over_once(before: dict[str, Any], after: dict[str, Any]) -> None:
    now = patched(stored(patches_group(**before)), patches_group(**after))
    assert now.spec == patches_group(**after).spec
    assert patches.decide(patches_group(**after), patches.live(now)) == Keep()


KEPT = [
    pytest.param({"min_member": 2}, {"min_member": 1}, {"min_member": 3}, id="minimum"),
    pytest.param({"min_member": 2, "sub_groups": PARTS}, {"sub_groups": None}, {"min_member": 4}, id="parts"),
    pytest.param(
        {"topology_constraint": RACK}, {"topology_constraint": ROW}, {"topology_constraint": None}, id="constraint"
    ),
    pytest.param({}, {"topology_constraint": ROW}, {"topology_constraint": RACK}, id="constraint where none was"),
    pytest.param({"queue": "a"}, {"queue": "b"}, {"queue": "c"}, id="queue"),
    pytest.param({}, {"scheduling_backoff": 1, "mark_unschedulable": False}, {}, id="what is never written"),
    pytest.param({"priority_class_name": "train"}, {}, {"priority_class_name": "build"}, id="priority"),
    pytest.param({}, {}, {"preemptibility": "preemptible"}, id="preemptibility"),
]


@pytest.mark.parametrize(("made", "by_hand", "wanted"), KEPT)
def test_what_somebody_set_is_kept(made: dict[str, Any], by_hand: dict[str, Any], wanted: dict[str, Any]) -> None:
    there = edited(stored(patches_group(**made)), **by_hand)
    assert patches.decide(patches_group(**wanted), patches.live(there)) == Keep()


def test_what_somebody_set_is_kept_when_something_else_follows_the_workload() -> None:
    there = edited(stored(patches_group(min_member=2, topology_constraint=RACK)), min_member=1)
    now = patched(there, patches_group(min_member=3, topology_constraint=ROW))
    assert (now.spec.min_member, now.spec.topology_constraint) == (1, ROW)
    later = patched(now, patches_group(min_member=3, topology_constraint=RACK))
    assert (later.spec.min_member, later.spec.topology_constraint) == (1, RACK)


def test_the_annotation_with_the_least_number_goes_with_the_minimum() -> None:
    least = names.BATCH_MIN_MEMBER
    made = stored(patches_group(min_member=4, annotations={least: "4", "mine": "x"}))
    lower = patched(made, patches_group(min_member=2, annotations={least: "2"}))
    assert ((lower.metadata.annotations or {})[least], lower.spec.min_member) == ("2", 2)
    assert (lower.metadata.annotations or {})["mine"] == "x"
    assert least not in (patched(lower, patches_group(min_member=1)).metadata.annotations or {})


def test_a_pod_group_of_kais_grouper_follows_the_workload() -> None:
    now = patched(patches_group(min_member=2), patches_group(min_member=3))
    assert now.spec.min_member == 3
    assert (now.metadata.annotations or {})[names.GROUPED]


@pytest.mark.parametrize("written", ["", "x", " ", "a b c", "- -"])
def test_a_note_of_what_was_written_that_makes_no_sense_stops_nothing(written: str) -> None:
    there = patches_group(min_member=2, annotations={names.GROUPED: written})
    assert isinstance(patches.decide(patches_group(min_member=3), patches.live(there)), Change | Keep)


def test_the_pod_group_of_somebody_else_is_not_changed() -> None:
    assert (
        patches.decide(patches_group(min_member=3), patches.live(patches_group(min_member=2, owner="other"))) == Keep()
    )


def test_the_same_again_is_no_write() -> None:
    wanted = patches_group(min_member=2, sub_groups=PARTS, topology_constraint=RACK)
    assert patches.decide(wanted, patches.live(stored(wanted))) == Keep()
