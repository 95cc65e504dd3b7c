"""Pods of a Job that asks for several pods at once are not started one by one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.convert.owners import job_record
from scheduler.core.decide.allowance import Limits
from scheduler.core.model.plan import Bind, Explain
from scheduler.core.model.settings import Settings
from scheduler.core.model.verdict import Code
from tests.scheduler.core.objects import changed, cluster, node, pod, pod_group
from wire import names
from wire.core import Job, Pod

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
