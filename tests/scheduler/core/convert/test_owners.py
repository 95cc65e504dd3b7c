from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.conditions.messages import told
from scheduler.core.cluster import Cluster
from scheduler.core.convert.bounds import LONGEST_NAME
from scheduler.core.convert.owners import controller_of, controller_uid, identity, job_record, plain_record
from scheduler.core.decide.allowance import Limits
from scheduler.core.model.plan import Bind, Explain
from scheduler.core.model.settings import Settings
from scheduler.core.model.verdict import Code, Verdict
from tests.scheduler.core.objects import changed, cluster, node, pod, pod_group
from wire import names
from wire.core import Job, Named, ObjectMeta, OwnerReference, Pod

OWNER = OwnerReference(api_version="batch/v1", kind="Job", name="j", uid="u", controller=True)


def meta(*owners: dict[str, Any], namespace: str = "ns") -> ObjectMeta:
    return msgspec.convert({"name": "p", "namespace": namespace, "ownerReferences": owners}, ObjectMeta)


def test_of_several_owners_the_one_that_controls_is_named() -> None:
    owners = [{"kind": "Job", "name": name, "uid": f"uid-{name}", "controller": name == "b"} for name in "abc"]
    assert controller_uid(meta(*owners)) == "uid-b"
    assert controller_of(meta(*owners)) == controller_of(meta(owners[1])) != ""
    for read in (controller_uid, controller_of):
        assert read(meta(owners[0])) == ""
        assert read(meta()) == ""


@pytest.mark.parametrize("other", [{"kind": "K"}, {"name": "k"}, {"uid": "v"}, {"api_version": "example.com/v1"}])
def test_an_owner_is_told_by_all_of_its_identity(other: dict[str, str]) -> None:
    forged = msgspec.structs.replace(OWNER, **other)
    assert identity("ns", forged) != identity("ns", OWNER) != identity("other", OWNER)


def test_the_version_of_its_api_is_not_of_its_identity() -> None:
    assert identity("ns", msgspec.structs.replace(OWNER, api_version="batch/v2")) == identity("ns", OWNER)


@pytest.mark.parametrize("length", [1, 500, 1_000_000])
def test_an_identity_has_the_same_length_whatever_a_reference_says(length: int) -> None:
    long = msgspec.structs.replace(OWNER, name="n" * length)
    assert len(identity("ns", long)) == len(identity("ns", OWNER)) == 32
    assert identity("ns", long) == identity("ns", long)


def test_parts_that_run_into_each_other_are_two_identities() -> None:
    first = msgspec.structs.replace(OWNER, kind="ab", name="c")
    assert identity("ns", first) != identity("ns", msgspec.structs.replace(OWNER, kind="a", name="bc"))


# Pods of a Job that asks for several pods at once are not started one by one.
_S = 1_000_000_000


def _job(*, uid: str = "o", owner: dict[str, str] | None = None, **metadata: Any) -> Job:
    owners = [{"name": "above", "uid": "a", **owner}] if owner else None
    return msgspec.convert(
        {"metadata": {"namespace": "ns", "name": "o", "uid": uid, "ownerReferences": owners, **metadata}}, Job
    )


def _pod(**asked: Any) -> Pod:
    return pod("m", gpus=1, owner=("batch/v1", "Job"), **asked)


def _seen(made: Cluster, job: Job) -> Cluster:
    made.owners.jobs.put(job_record(job))
    return made


_SIX = {"kai.scheduler/batch-min-member": "6"}


@pytest.mark.parametrize(
    ("job", "code", "named"),
    [
        (_job(annotations=_SIX), Code.UNSUPPORTED_CONSTRAINT, "annotation kai.scheduler/batch-min-member of Job o"),
        (
            _job(annotations={"scheduling.k8s.io/group-name": "g"}),
            Code.UNSUPPORTED_CONSTRAINT,
            "annotation scheduling.k8s.io/group-name of Job o",
        ),
        (_job(owner={"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}), Code.NO_POD_GROUP, "JobSet"),
        (_job(owner={"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob"}), Code.NO_POD_GROUP, "MPIJob"),
        (_job(owner={"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper"}), Code.NO_POD_GROUP, "AppW"),
        (_job(labels={"jobset.sigs.k8s.io/jobset-name": "js"}), Code.NO_POD_GROUP, "JobSet"),
        (_job(), None, ""),
        (_job(annotations={"kai.scheduler/batch-min-member": "1"}), None, ""),
        (_job(owner={"apiVersion": "batch/v1", "kind": "CronJob"}), None, ""),
    ],
)
def test_a_pod_is_started_as_its_job_says(job: Job, code: Code | None, named: str) -> None:
    (entry,) = _seen(cluster(node(), _pod()), job).decide(0).entries
    if code is None:
        assert isinstance(entry, Bind)
        return
    assert isinstance(entry, Explain)
    assert entry.verdict.code is code
    assert named in entry.verdict.detail


@pytest.mark.parametrize("other", [{"namespace": "other"}, {"name": "other"}, {"uid": "other"}])
def test_a_pod_goes_by_no_job_of_another_namespace_name_or_uid(other: dict[str, Any]) -> None:
    made = _seen(cluster(node(), _pod()), _job(annotations=_SIX, **other))
    (entry,) = made.decide(60 * _S).entries
    assert isinstance(entry, Explain)
    assert entry.verdict.code is Code.OWNER_NOT_SEEN
    assert [type(entry) for entry in made.decide(120 * _S).entries] == [Bind]


def test_a_pod_that_names_a_pod_group_goes_by_that_whatever_its_job_says() -> None:
    made = _seen(cluster(node(), pod_group("g", 1), _pod(group="g")), _job(annotations=_SIX))
    assert [type(entry) for entry in made.decide(0).entries] == [Bind]


def test_where_workloads_are_grouped_a_pod_of_any_job_waits_until_it_names_a_pod_group() -> None:
    grouped = Settings(workloads_are_grouped=True)
    made = _seen(cluster(node(), _pod(), settings=grouped), _job())
    (entry,) = made.decide(0).entries
    assert isinstance(entry, Explain)
    assert (entry.verdict.code, entry.verdict.detail) == (Code.NOT_GROUPED, "Job")
    made = _seen(cluster(node(), pod_group("g", 1), _pod(group="g"), settings=grouped), _job())
    assert [type(entry) for entry in made.decide(0).entries] == [Bind]


@pytest.mark.parametrize("written", [names.SKIP_POD_GROUPER, names.ALONE])
@pytest.mark.parametrize(("job", "code"), [(_job(), None), (_job(annotations=_SIX), Code.UNSUPPORTED_CONSTRAINT)])
def test_a_pod_of_a_job_for_which_no_pod_group_is_made_waits_for_none(
    written: str, job: Job, code: Code | None
) -> None:
    grouped = Settings(workloads_are_grouped=True)
    (entry,) = _seen(cluster(node(), _pod(annotations={written: "true"}), settings=grouped), job).decide(0).entries
    assert (entry.verdict.code if isinstance(entry, Explain) else None) is code


def test_a_pod_waits_for_its_job_to_be_seen_and_no_longer_than_that() -> None:
    made = cluster(node(), _pod())
    plan = made.decide(0)
    (entry,) = plan.entries
    assert isinstance(entry, Explain)
    assert (entry.verdict.code, entry.verdict.detail, plan.wake_at_ns) == (Code.OWNER_NOT_SEEN, "Job o", 10 * _S)
    _seen(made, _job())
    assert [type(entry) for entry in made.decide(1).entries] == [Bind]


def test_a_pod_whose_job_is_never_seen_is_one_alone_after_a_time() -> None:
    made = cluster(node(), _pod())
    waiting = _pod()
    assert [type(entry) for entry in made.decide(5 * _S).entries] == [Explain]
    made.upsert_pod(changed(waiting, annotations={"note": "x"}))
    assert [type(entry) for entry in made.decide(15 * _S - 1).entries] == [Explain]
    assert [type(entry) for entry in made.decide(15 * _S).entries] == [Bind]


def test_a_job_that_comes_to_ask_for_a_gang_keeps_its_next_pods() -> None:
    made = _seen(cluster(node(gpus=0), _pod()), _job())
    made.decide(0)
    _seen(made, _job(annotations=_SIX))
    made.upsert_node(node())
    (entry,) = made.decide(1).entries
    assert isinstance(entry, Explain)
    assert entry.verdict.code is Code.UNSUPPORTED_CONSTRAINT


@pytest.mark.parametrize("owner", [("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet"), None])
def test_pods_of_other_kinds_wait_for_no_owner(owner: tuple[str, str] | None) -> None:
    made = cluster(node(), pod("m", gpus=1, owner=owner))
    assert [type(entry) for entry in made.decide(0).entries] == [Bind]


def test_a_pod_says_what_its_job_asks_also_where_its_class_is_known_to_fit_nowhere() -> None:
    """A class has no Job: the verdict on pods of the same class that stand alone is not the one on this pod."""
    alone, member = pod("alone", gpus=99), pod("m", gpus=99, owner=("batch/v1", "Job"))
    made = _seen(cluster(node(), alone, member), _job(annotations=_SIX))
    for turn in range(3):
        made.upsert_pod(pod(f"other-{turn}", gpus=50 + turn))
        entries = [e for e in made.decide(0, Limits(retold=0)).entries if isinstance(e, Explain)]
        codes = {uid: entry.verdict.code for entry in entries for uid in entry.pods}
        assert (codes["uid-alone"], codes["uid-m"]) == (Code.NO_NODE_FITS, Code.UNSUPPORTED_CONSTRAINT)


def test_once_jobs_can_be_read_a_pod_waits_for_its_own_for_a_time_only() -> None:
    made = cluster(node(), _pod())
    made.owners.jobs.expect()
    (entry,) = made.decide(0).entries
    assert isinstance(entry, Explain)
    assert entry.verdict.code is Code.NOT_READ
    made.owners.jobs.note_in_step(True)
    plan = made.decide(5 * _S)
    (entry,) = plan.entries
    assert isinstance(entry, Explain)
    assert (entry.verdict.code, plan.wake_at_ns) == (Code.OWNER_NOT_SEEN, 15 * _S)
    assert [type(entry) for entry in made.decide(15 * _S).entries] == [Bind]


# Pods of ReplicaSets, StatefulSets and unknown controllers start alone only where nobody says more of their group.
S = 1_000_000_000
GROUPED = Settings(workloads_are_grouped=True)
GANG = {names.BATCH_MIN_MEMBER: "3"}
QUEUE = {names.QUEUE_LABEL: "research"}
SKIPPED = {names.SKIP_POD_GROUPER: "true"}
TOP = ("apps/v1", "Deployment")
WAITS_FOR_SET = (Code.NOT_GROUPED, "StatefulSet")


def of(kind: str, **asked: Any) -> Pod:
    return pod("m", gpus=1, owner=("apps/v1", kind), **asked)


def owner(name: str = "o", *, above: tuple[str, str] | None = None, **meta: Any) -> Named:
    owners = [{"apiVersion": above[0], "kind": above[1], "name": "top", "uid": "top"}] if above else None
    return msgspec.convert(
        {"metadata": {"namespace": "ns", "name": name, "uid": name, "ownerReferences": owners, **meta}}, Named
    )


def seen(made: Cluster, kind: str, found: Named) -> Cluster:
    made.owners.plain[kind].put(plain_record(kind)(found))
    return made


def said(made: Cluster, at_ns: int = 0) -> tuple[Code, str] | None:
    """Why the pod waits; None: it is bound."""
    (entry,) = made.decide(at_ns).entries
    if isinstance(entry, Bind):
        return None
    assert isinstance(entry, Explain)
    verdict: Verdict = entry.verdict
    return verdict.code, verdict.detail


@pytest.mark.parametrize(
    ("found", "asked", "expected"),
    [
        pytest.param(owner(annotations=GANG), {}, WAITS_FOR_SET, id="a gang"),
        pytest.param(owner(labels=QUEUE), {}, WAITS_FOR_SET, id="a queue"),
        pytest.param(owner(labels=QUEUE), {"labels": {names.QUEUE_LABEL: "other"}}, WAITS_FOR_SET, id="another queue"),
        pytest.param(owner(labels=QUEUE), {"labels": QUEUE}, None, id="the pod's own queue"),
        pytest.param(owner(), {"labels": QUEUE}, None, id="nothing"),
        pytest.param(owner(labels={names.QUEUE_LABEL: ""}), {}, None, id="an empty queue"),
        pytest.param(owner(annotations={**GANG, **SKIPPED}), {}, None, id="skipped"),
        pytest.param(owner(annotations=GANG), {"annotations": SKIPPED}, None, id="skipped by the pod"),
        pytest.param(owner(above=("kubeflow.org/v1", "Notebook")), {}, (Code.NOT_GROUPED, "Notebook"), id="Notebook"),
        pytest.param(owner(above=TOP), {}, (Code.NOT_GROUPED, "Deployment"), id="a Deployment"),
        pytest.param(
            owner(above=("kubeflow.org/v1", "Notebook")), {"annotations": {names.ALONE: "true"}}, None, id="told alone"
        ),
    ],
)
def test_a_pod_of_a_stateful_set_starts_alone_if_that_says_no_more_than_the_pod(
    found: Named, asked: dict[str, Any], expected: tuple[Code, str] | None
) -> None:
    made = seen(cluster(node(), of("StatefulSet", **asked), settings=GROUPED), "StatefulSet", found)
    assert said(made) == expected


@pytest.mark.parametrize(
    ("deployment", "expected"),
    [
        pytest.param(owner("top", labels=QUEUE), (Code.NOT_GROUPED, "Deployment"), id="a queue"),
        pytest.param(owner("top"), None, id="nothing"),
        pytest.param(owner("top", labels=QUEUE, annotations=SKIPPED), None, id="skipped"),
        pytest.param(
            owner("top", above=("serving.knative.dev/v1", "Revision")), (Code.NOT_GROUPED, "Revision"), id="Knative"
        ),
        pytest.param(owner("top", above=TOP), (Code.NOT_GROUPED, "Deployment"), id="itself"),
    ],
)
def test_a_pod_of_a_deployment_goes_by_that_and_not_by_its_replica_set(
    deployment: Named, expected: tuple[Code, str] | None
) -> None:
    made = cluster(node(), of("ReplicaSet"), settings=GROUPED)
    seen(made, "ReplicaSet", owner(above=("apps/v1", "Deployment"), labels={names.QUEUE_LABEL: "ignored"}))
    assert said(made) == (Code.OWNER_NOT_SEEN, "Deployment top")
    assert said(seen(made, "Deployment", deployment)) == expected


def test_a_pod_waits_for_its_stateful_set_to_be_seen_and_no_longer_than_that() -> None:
    made = cluster(node(), of("StatefulSet"), settings=GROUPED)
    assert said(made) == (Code.OWNER_NOT_SEEN, "StatefulSet o")
    assert said(made, 10 * S - 1) == (Code.OWNER_NOT_SEEN, "StatefulSet o")
    assert said(made, 10 * S) is None


def test_while_stateful_sets_can_not_be_read_their_pods_wait() -> None:
    made = cluster(node(), of("StatefulSet"), settings=GROUPED)
    made.owners.plain["StatefulSet"].expect()
    assert said(made, 3600 * S) == (Code.NOT_READ, "statefulsets.apps")
    (entry,) = made.decide(3601 * S).entries
    assert isinstance(entry, Explain)
    assert "needs the rights list and watch on them" in told(entry.verdict).message


def test_a_pod_that_names_its_pod_group_goes_by_that() -> None:
    made = cluster(node(), pod_group("g", 1), of("StatefulSet", group="g"), settings=GROUPED)
    assert said(seen(made, "StatefulSet", owner(annotations=GANG))) is None


def test_where_nothing_is_grouped_pods_start_as_they_come() -> None:
    assert said(seen(cluster(node(), of("StatefulSet")), "StatefulSet", owner(annotations=GANG))) is None
    assert said(cluster(node(), pod("m", gpus=1, owner=("example.com/v1", "Batch")))) is None


@pytest.mark.parametrize(
    ("kind", "annotations", "expected"),
    [
        (("example.com/v1", "Batch"), {}, (Code.NOT_GROUPED, "Batch")),
        (("tekton.dev/v1", "TaskRun"), {}, (Code.NOT_GROUPED, "TaskRun")),
        (("example.com/v1", "Batch"), {names.ALONE: "true"}, None),
        (("example.com/v1", "Batch"), SKIPPED, None),
        (("apps/v1", "DaemonSet"), {}, None),
        (("v1", "ReplicationController"), {}, None),
        (("kubeflow.org/v1", "PyTorchJob"), {}, (Code.NOT_GROUPED, "PyTorchJob")),
        (("kubeflow.org/v1", "PyTorchJob"), {names.ALONE: "true"}, (Code.NO_POD_GROUP, "PyTorchJob")),
        (("kubeflow.org/v1", "PyTorchJob"), SKIPPED, (Code.NO_POD_GROUP, "PyTorchJob")),
    ],
)
def test_a_pod_of_a_controller_that_nobody_knows_waits_for_the_podgroupers_word(
    kind: tuple[str, str], annotations: dict[str, str], expected: tuple[Code, str] | None
) -> None:
    made = cluster(node(), pod("m", gpus=1, owner=kind, annotations=annotations), settings=GROUPED)
    assert said(made) == expected


def test_deployments_and_replica_sets_without_waiting_pods_have_nobody_decided_on_again() -> None:
    made = seen(cluster(node(gpus=0), of("ReplicaSet"), settings=GROUPED), "ReplicaSet", owner(above=TOP))
    seen(made, "Deployment", owner("top"))
    before = made.generation
    for number in range(3):
        seen(made, "ReplicaSet", owner(f"r{number}", above=("apps/v1", "Deployment"), labels=QUEUE))
        seen(made, "Deployment", owner(f"d{number}", labels=QUEUE))
        seen(made, "StatefulSet", owner(f"s{number}", labels=QUEUE))
    assert made.generation == before
    seen(made, "Deployment", owner("top", labels=QUEUE))
    assert made.generation > before


def test_a_pod_is_decided_on_again_when_its_deployment_says_something_else_or_goes() -> None:
    made = seen(cluster(node(), of("ReplicaSet"), settings=GROUPED), "ReplicaSet", owner(above=TOP))
    top = owner("top", labels=QUEUE)
    assert said(seen(made, "Deployment", top)) == (Code.NOT_GROUPED, "Deployment")
    made.owners.plain["Deployment"].drop(plain_record("Deployment")(top))
    assert said(made) == (Code.OWNER_NOT_SEEN, "Deployment top")
    assert said(seen(made, "Deployment", owner("top"))) is None


@pytest.mark.parametrize(("end", "expected"), [("", None), ("x", WAITS_FOR_SET)])
def test_long_annotations_are_told_apart_and_not_kept(end: str, expected: tuple[Code, str] | None) -> None:
    long = "a" * 200_000
    made = cluster(node(), of("StatefulSet", annotations={names.TOPOLOGY: long}), settings=GROUPED)
    found = plain_record("StatefulSet")(owner(annotations={names.TOPOLOGY: long + end}))
    record = made.pod("uid-m")
    assert record is not None
    assert all(len(value) <= LONGEST_NAME for _, value in (*record.stated, *found.stated))
    made.owners.plain["StatefulSet"].put(found)
    assert said(made) == expected


def test_a_deployment_is_waited_for_from_when_its_replica_set_was_seen() -> None:
    made = cluster(node(), of("ReplicaSet"), settings=GROUPED)
    assert said(made) == (Code.OWNER_NOT_SEEN, "ReplicaSet o")
    seen(made, "ReplicaSet", owner(above=TOP))
    for at_ns in (9 * S, 19 * S - 1):
        assert said(made, at_ns) == (Code.OWNER_NOT_SEEN, "Deployment top")
    assert said(made, 19 * S) is None
