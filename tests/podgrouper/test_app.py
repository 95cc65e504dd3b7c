"""Grouping as a process: pods of workloads get PodGroups, and nothing is written that need not be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from kube.client.resources import POD_GROUPS, PODS
from podgrouper.work.scaled_away import EVERY_S, MOST
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault, once
from simulator.apiserver.types import custom
from tests.podgrouper.cluster import LEAST, USER, Cluster, cluster, is_read_of, is_write_of
from tests.podgrouper.objects import NAMESPACE, obj, pod
from wire import names

JOB: dict[str, Any] = {"parallelism": 4}
WORKFLOWS = custom("argoproj.io", "v1alpha1", "workflows", "Workflow", namespaced=True)


def job(name: str = "train", *above: Any, least: str = "4", **meta: Any) -> dict[str, Any]:
    return obj("batch/v1", "Job", name, *above, spec=JOB, annotations={LEAST: least}, **meta)


def pytorch(workers: int = 2) -> dict[str, Any]:
    replicas = {"Master": {"replicas": 1}, "Worker": {"replicas": workers}}
    return obj("kubeflow.org/v1", "PyTorchJob", "llm", spec={"pytorchReplicaSpecs": replicas})


def of_role(role: str) -> dict[str, str]:
    return {"training.kubeflow.org/job-name": "llm", "training.kubeflow.org/replica-type": role}


def of_worker(number: int) -> dict[str, str]:
    """Labels of a pod of a LeaderWorkerSet; 0: the leader."""
    return {
        "leaderworkerset.sigs.k8s.io/name": "llm",
        "leaderworkerset.sigs.k8s.io/group-index": "0",
        "leaderworkerset.sigs.k8s.io/worker-index": str(number),
    }


async def test_pods_of_a_job_name_one_pod_group_with_its_least_number() -> None:
    async with cluster() as on:
        owner = await on.owner(job(labels={"kai.scheduler/queue": "research"}))
        for number in range(4):
            await on.pod(pod(owner, name=f"p{number}"))
        await on.settle()
        group = await on.group()
        assert group.metadata.name == f"pg-train-{owner['metadata']['uid']}"
        assert (group.spec.min_member, group.spec.queue) == (4, "research")
        assert {await on.group_of(f"p{number}") for number in range(4)} == {group.metadata.name}
        # One read of the Job, one PodGroup, one write a pod.
        assert sorted(on.did()) == ["create podgroups", "get jobs", *["patch pods"] * 4]


ALONE = [
    pytest.param(None, {}, {}, id="of nobody"),
    pytest.param(("apps/v1", "ReplicaSet"), {}, {}, id="of a ReplicaSet"),
    pytest.param(
        ("apps/v1", "StatefulSet"), {"kai.scheduler/queue": "a"}, {"kai.scheduler/queue": "a"}, id="same queue"
    ),
]


@pytest.mark.parametrize(("above", "said", "own"), ALONE)
async def test_nothing_is_written_for_pods_that_are_scheduled_alone(
    above: tuple[str, str] | None, said: dict[str, str], own: dict[str, str]
) -> None:
    async with cluster() as on:
        owners = [] if above is None else [await on.owner(obj(*above, "web", spec={}, labels=said))]
        await on.pod(pod(*owners, labels=own))
        await on.settle(60)
        assert on.writes() == []


async def alone(on: Cluster, name: str = "p") -> str | None:
    return ((await on.get(name)).metadata.annotations or {}).get(names.ALONE)


SKIPPED = {names.SKIP_POD_GROUPER: "true"}
TOLD = [
    pytest.param(("argoproj.io/v1alpha1", "Workflow"), {}, {}, "true", id="skipped kind"),
    pytest.param(("example.com/v1", "Batch"), SKIPPED, {}, "true", id="skipped owner"),
    pytest.param(("strange.dev/v1", "Thing"), {}, SKIPPED, None, id="skipped pod"),
    pytest.param(("strange.dev/v1", "Thing"), {}, {}, "true", id="a kind that is not served"),
    pytest.param(("strange.dev/v1", "Thing"), {}, {names.ALONE: "true"}, "true", id="told before"),
    pytest.param(("strange.dev/v1", "Thing"), {}, {names.POD_GROUP_NAME: "mine"}, None, id="grouped by hand"),
    pytest.param(("example.com/v1", "Batch"), {}, {}, None, id="grouped"),
    pytest.param(("apps/v1", "ReplicaSet"), {}, {}, None, id="known to the scheduler"),
]


@pytest.mark.parametrize(("above", "said", "own", "told"), TOLD)
async def test_a_pod_without_a_pod_group_is_told_so_where_the_scheduler_can_not_know(
    above: tuple[str, str], said: dict[str, str], own: dict[str, str], told: str | None
) -> None:
    async with cluster(types=[WORKFLOWS]) as on:
        top = obj(*above, "t", spec={}, annotations=said)
        owner = top if above[1] == "Thing" else await on.owner(top)
        await on.pod(pod(owner, annotations=own))
        await on.settle(60)
        assert await alone(on) == told
        assert on.writes().count("patch pods") <= 1


async def test_pods_of_a_stateful_set_below_an_owner_that_may_not_be_read_are_told_that_they_are_alone() -> None:
    async with cluster() as on:
        refusing(on, is_read_of("Batch"))
        top = await on.owner(obj("example.com/v1", "Batch", "b", spec={}))
        await on.pod(pod(await on.owner(obj("apps/v1", "StatefulSet", "s", top, spec={}))))
        await on.settle()
        assert await alone(on) == "true"


@pytest.mark.parametrize(
    ("kinds", "told"),
    [
        (("Deployment", "ReplicaSet"), None),
        (("Deployment", "StatefulSet"), "true"),
        (("ReplicaSet", "ReplicaSet"), "true"),
        (("Deployment", "Deployment", "ReplicaSet"), "true"),
    ],
)
async def test_of_plain_owners_the_scheduler_knows_a_replica_set_of_a_deployment_only(
    kinds: tuple[str, ...], told: str | None
) -> None:
    async with cluster() as on:
        above: list[dict[str, Any]] = []
        for number, kind in enumerate(kinds):
            above = [await on.owner(obj("apps/v1", kind, f"o{number}", *above, spec={}))]
        await on.pod(pod(*above))
        await on.settle()
        assert await alone(on) == told


@pytest.mark.parametrize(
    ("spec", "least", "note"),
    [
        (
            {},
            "4",
            "StatefulSet s asks for what is not carried out: metadata.annotations[kai.scheduler/batch-min-member]",
        ),
        ({"podManagementPolicy": "Parallel", "replicas": 4}, "4", None),
        ({"podManagementPolicy": "OrderedReady"}, "1", None),
    ],
)
async def test_a_stateful_set_that_makes_its_pods_one_after_the_other_is_no_gang_and_says_so(
    spec: dict[str, Any], least: str, note: str | None
) -> None:
    async with cluster() as on:
        owner = await on.owner(obj("apps/v1", "StatefulSet", "s", spec=spec, annotations={LEAST: least}))
        await on.pod(pod(owner))
        await on.settle()
        if note is None:
            assert (await on.group()).spec.min_member == int(least)
            return
        (said,) = await on.notes()
        assert said.startswith(f"{note} is 4; allowed: 1, or spec.podManagementPolicy: Parallel")
        assert await on.groups() == {}


async def test_a_pod_that_names_another_pod_group_keeps_it() -> None:
    async with cluster() as on:
        owner = await on.owner(job())
        await on.pod(pod(owner, annotations={names.POD_GROUP_NAME: "mine"}))
        await on.settle()
        assert on.writes() == []


async def test_pods_that_admission_has_named_their_pod_group_cost_no_write() -> None:
    async with cluster() as on:
        owner = await on.owner(job())
        name = f"pg-train-{owner['metadata']['uid']}"
        for number in range(4):
            await on.pod(pod(owner, name=f"p{number}", annotations={names.POD_GROUP_NAME: name}))
        await on.settle()
        assert on.did() == ["get jobs", "create podgroups"]
        assert list(await on.groups()) == [name]


async def test_a_name_that_admission_could_not_know_to_be_wrong_is_put_right() -> None:
    async with cluster() as on:
        top = await on.owner(obj("example.com/v1", "Batch", "b", spec={}))
        owner = await on.owner(job("train", top))
        await on.pod(pod(owner, annotations={names.POD_GROUP_NAME: f"pg-train-{owner['metadata']['uid']}"}))
        await on.settle()
        group = await on.group()
        assert group.metadata.name == f"pg-b-{top['metadata']['uid']}" == await on.group_of("p")


async def test_a_name_that_admission_wrote_on_a_pod_of_a_skipped_job_is_taken_away() -> None:
    async with cluster() as on:
        owner = await on.owner(obj("batch/v1", "Job", "train", spec={"parallelism": 1}, annotations=SKIPPED))
        own = f"pg-train-{owner['metadata']['uid']}"
        for name, group in (("told", own), ("by-hand", "mine")):
            await on.pod(pod(owner, name=name, annotations={names.POD_GROUP_NAME: group}))
        await on.settle()
        assert [await on.group_of(name) for name in ("told", "by-hand")] == ["", "mine"]
        assert (await on.get("told")).metadata.annotations == {names.ALONE: "true"}
        assert await on.groups() == {}


async def test_workers_that_are_made_after_their_leader_runs_start_whole_beside_it() -> None:
    async with cluster() as on:
        waits = {"startupPolicy": "LeaderReady", "leaderWorkerTemplate": {"size": 3}}
        top = await on.owner(obj("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "llm", spec=waits))
        leaders = await on.owner(obj("apps/v1", "StatefulSet", "llm", top))
        leader = await on.pod(pod(leaders, name="llm-0", labels=of_worker(0)))
        await on.settle()
        assert (await on.group()).spec.min_member == 1
        await on.bind("llm-0")
        owner = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "llm-0", "uid": leader.metadata.uid}}
        workers = await on.owner(obj("apps/v1", "StatefulSet", "llm-0", owner))
        for number in (1, 2):
            await on.pod(pod(workers, name=f"llm-0-{number}", labels=of_worker(number)))
        await on.settle()
        spec = (await on.group()).spec
        assert spec.min_member == 3
        assert {each.name: each.min_member for each in spec.sub_groups or ()} == {"leader": 1, "workers": 2}
        assert [await on.part_of(f"llm-0{end}") for end in ("", "-1", "-2")] == ["leader", "workers", "workers"]


async def test_a_job_of_a_jobset_waits_for_no_more_pods_than_it_has_left() -> None:
    async with cluster() as on:
        replicated = {"name": "map", "template": {"spec": {"parallelism": 4, "completions": 10}}}
        top = await on.owner(obj("jobset.x-k8s.io/v1alpha2", "JobSet", "set", spec={"replicatedJobs": [replicated]}))
        owner = await on.owner(obj("batch/v1", "Job", "set-map-0", top, spec=JOB))
        labels = {"jobset.sigs.k8s.io/replicatedjob-name": "map", "jobset.sigs.k8s.io/job-index": "0"}
        await on.pod(pod(owner, name="p0", labels=labels))
        await on.settle(90)
        assert [each.min_member for each in (await on.group()).spec.sub_groups or ()] == [None, 4]
        await on.status(owner, {"succeeded": 8})
        await on.pod(pod(owner, name="p1", labels=labels))
        await on.settle()
        assert [each.min_member for each in (await on.group()).spec.sub_groups or ()] == [None, 2]


async def test_the_pod_group_of_a_group_that_was_scaled_away_is_deleted_once_its_pods_are_gone() -> None:
    async with cluster() as on:
        has_two = {"replicas": 2, "leaderWorkerTemplate": {"size": 1}}
        top = await on.owner(obj("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "llm", spec=has_two))
        leaders = await on.owner(obj("apps/v1", "StatefulSet", "llm", top))
        for number in (0, 1):
            labels = {**of_worker(0), "leaderworkerset.sigs.k8s.io/group-index": str(number)}
            held = {"finalizers": ["example.com/held"]} if number else {}
            await on.pod(pod(leaders, name=f"llm-{number}", labels=labels, **held))
        await on.settle()
        first, second = (f"pg-llm-{top['metadata']['uid']}-group-{number}" for number in (0, 1))
        for name in ("llm-0", "llm-1"):
            await on.api.delete(PODS, name, namespace=NAMESPACE)
        await on.settle(90)
        assert sorted(await on.groups()) == [first, second], "a set that has both makes its pods again"
        await on.edit(top, {"spec": {"replicas": 1}})
        await on.settle(90)
        assert sorted(await on.groups()) == [first, second], "a pod is there that ends"
        await on.api.patch(PODS, "llm-1", {"metadata": {"finalizers": None}}, namespace=NAMESPACE)
        await on.settle(90)
        assert list(await on.groups()) == [first]
        assert [each for each in on.did() if each.startswith("delete")] == ["delete podgroups"]


async def test_pod_groups_without_pods_are_looked_at_in_turns_and_each_set_is_read_once() -> None:
    async with cluster() as on:
        has_all = {"replicas": 3 * MOST, "leaderWorkerTemplate": {"size": 1}}
        top = await on.owner(obj("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "llm", spec=has_all))
        leaders = await on.owner(obj("apps/v1", "StatefulSet", "llm", top))
        for number in range(2 * MOST):
            labels = {**of_worker(0), "leaderworkerset.sigs.k8s.io/group-index": str(number)}
            await on.pod(pod(leaders, name=f"llm-{number}", labels=labels))
        await on.settle()
        for number in range(2 * MOST):
            await on.api.delete(PODS, f"llm-{number}", namespace=NAMESPACE)
        await on.settle(2 * EVERY_S)
        before = on.did().count("get leaderworkersets")
        await on.settle(2 * EVERY_S)
        assert on.did().count("get leaderworkersets") - before == 2
        await on.edit(top, {"spec": {"replicas": 0}})
        await on.settle(EVERY_S + 1)
        assert len(await on.groups()) == MOST
        await on.settle(EVERY_S)
        assert await on.groups() == {}


async def test_pods_of_other_schedulers_are_not_even_read() -> None:
    async with cluster() as on:
        owner = await on.owner(job())
        body = pod(owner)
        await on.pod({**body, "spec": {**body["spec"], "schedulerName": "default-scheduler"}})
        await on.settle()
        assert on.did() == []


async def test_a_bound_pod_without_a_group_was_started_alone_and_stays_so() -> None:
    async with cluster(started=False) as on:
        owner = await on.owner(job(least="1"))
        await on.pod(pod(owner))
        await on.bind("p")
        await on.start()
        await on.settle()
        assert on.did() == []


@pytest.mark.parametrize(("least", "is_grouped"), [("1", True), ("2", False)])
async def test_a_pod_that_is_bound_while_it_is_grouped_still_joins_a_group_of_single_pods(
    least: str, is_grouped: bool
) -> None:
    async with cluster() as on:
        on.server.faults.on_request.append(once(Fault(delay_s=5.0), when=is_read_of("APIResourceList")))
        await on.pod(pod(await on.owner(job(least=least))))
        await on.settle(1)
        await on.bind("p")
        await on.settle(30)
        assert await on.is_grouped("p") is is_grouped


async def test_status_changes_of_a_grouped_pod_cost_nothing() -> None:
    async with cluster() as on:
        await on.pod(pod(await on.owner(job())))
        await on.settle()
        done = on.did()
        for number in range(5):
            status = {"conditions": [{"type": "PodScheduled", "status": "False", "message": str(number)}]}
            await on.api.patch(PODS, "p", {"status": status}, namespace=NAMESPACE, subresource="status")
        await on.settle(300)
        assert on.did() == done


# --- a workload that changes


async def test_a_pod_that_comes_after_its_workload_was_edited_brings_the_change_into_the_pod_group() -> None:
    async with cluster(reread_s=60) as on:
        owner = await on.owner(pytorch(workers=2))
        await on.pod(pod(owner, name="w0", labels=of_role("worker")))
        await on.settle(61)
        await on.edit(owner, {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 3}}}})
        await on.pod(pod(owner, name="w2", labels=of_role("worker")))
        await on.settle()
        group = await on.group()
        assert (group.spec.min_member, [part.min_member for part in group.spec.sub_groups or ()]) == (4, [1, 3])


async def test_what_a_person_sets_on_a_pod_group_is_kept() -> None:
    async with cluster(reread_s=1) as on:
        owner = await on.owner(job())
        await on.pod(pod(owner, name="p0"))
        await on.settle()
        name = (await on.group()).metadata.name
        spec = {"minMember": 2, "queue": "theirs", "markUnschedulable": False, "schedulingBackoff": 1}
        patch = {"spec": spec, "metadata": {"labels": {"kai.scheduler/node-pool": "a100"}}}
        await on.api.patch(POD_GROUPS, name, patch, namespace=NAMESPACE)
        await on.edit(owner, {"metadata": {"annotations": {LEAST: "6"}, "labels": {"kai.scheduler/queue": "ours"}}})
        await on.pod(pod(owner, name="p1"))
        await on.settle()
        group = await on.group()
        kept = group.spec
        assert (kept.min_member, kept.queue, kept.mark_unschedulable, kept.scheduling_backoff) == (
            2,
            "theirs",
            False,
            1,
        )
        assert group.metadata.labels == {"kai.scheduler/node-pool": "a100"}
        assert await on.group_of("p1") == name


async def test_a_pod_group_that_is_deleted_under_its_pods_is_made_again() -> None:
    async with cluster() as on:
        await on.pod(pod(await on.owner(job())))
        await on.settle()
        name = (await on.group()).metadata.name
        await on.api.delete(POD_GROUPS, name, namespace=NAMESPACE)
        await on.settle()
        assert list(await on.groups()) == [name]


async def test_a_group_of_that_name_that_is_not_of_the_workload_is_not_changed() -> None:
    async with cluster(started=False) as on:
        owner = await on.owner(job())
        name = f"pg-train-{owner['metadata']['uid']}"
        theirs = {
            "apiVersion": "scheduling.run.ai/v2alpha2",
            "kind": "PodGroup",
            "metadata": {"name": name},
            "spec": {},
        }
        await on.api.create(POD_GROUPS, theirs, namespace=NAMESPACE)
        await on.pod(pod(owner))
        await on.start()
        await on.settle()
        assert on.writes() == ["patch pods"]
        assert (await on.group()).spec.min_member is None


# --- starting over


async def test_a_new_leader_finds_nothing_to_do_and_reads_no_owner() -> None:
    async with cluster(started=False) as on:
        first = await on.start()
        owner = await on.owner(job())
        for number in range(3):
            await on.pod(pod(owner, name=f"p{number}"))
        await on.pod(pod(name="alone"))
        await on.settle()
        first.kill()
        await on.start()
        await on.settle()
        assert on.did(f"{USER}-2") == []


MOMENTS = [("create", "PodGroup"), ("patch", "Pod")]


@pytest.mark.parametrize(("verb", "kind"), MOMENTS)
@pytest.mark.parametrize("lost", ["request", "answer"])
async def test_a_leader_that_dies_in_the_middle_of_a_write_leaves_it_to_the_next(
    verb: str, kind: str, lost: Any
) -> None:
    async with cluster(started=False) as on:
        first = await on.start()
        on.server.faults.on_request.append(once(Fault(lost=lost), when=is_write_of(kind, verb)))
        owner = await on.owner(job())
        for number in range(2):
            await on.pod(pod(owner, name=f"p{number}"))
        await on.settle(0.5)
        first.kill()
        await on.start()
        await on.settle()
        name = (await on.group()).metadata.name
        assert [await on.group_of(f"p{number}") for number in range(2)] == [name, name]


async def test_two_leaders_make_one_pod_group() -> None:
    async with cluster() as on:
        await on.start()
        owner = await on.owner(pytorch(workers=8))
        for number in range(9):
            role = "worker" if number else "master"
            await on.pod(pod(owner, name=f"p{number}", labels=of_role(role)))
        await on.settle()
        name = (await on.group()).metadata.name
        assert {await on.group_of(f"p{number}") for number in range(9)} == {name}
        created = [each for user in (USER, f"{USER}-2") for each in on.writes(user) if each == "create podgroups"]
        assert created == ["create podgroups"]


# --- an API server that answers late, wrongly, or not at all

TROUBLES = [
    Fault(name="refused", refuse_with=500),
    Fault(name="overloaded", refuse_with=429),
    Fault(name="lost on the way", lost="request", breaks=True),
    Fault(name="answer lost", lost="answer", breaks=True),
    Fault(name="no answer", lost="answer"),
    Fault(name="late", answer_delay_s=5.0),
    Fault(name="lied", refuse_with=500, carried_out=True),
]
CALLS = [
    is_read_of("APIResourceList"),
    is_read_of("Job"),
    is_write_of("PodGroup", "create"),
    is_write_of("Pod", "patch"),
]


@pytest.mark.parametrize("picked", CALLS, ids=["discovery", "owner", "pod-group", "pod"])
@pytest.mark.parametrize("fault", TROUBLES, ids=lambda fault: fault.name)
async def test_one_request_that_goes_wrong_is_made_good(picked: Any, fault: Fault) -> None:
    async with cluster() as on:
        on.server.faults.on_request.append(once(fault, when=picked))
        owner = await on.owner(job())
        for number in range(2):
            await on.pod(pod(owner, name=f"p{number}"))
        await on.settle(60)
        name = (await on.group()).metadata.name
        assert [await on.group_of(f"p{number}") for number in range(2)] == [name, name]


def refusing(on: Cluster, picked: Callable[[Call], bool]) -> list[Call]:
    """Have these requests refused with 403; what was refused is added to what is returned."""
    struck: list[Call] = []

    def rule(call: Call) -> Fault | None:
        if not picked(call):
            return None
        struck.append(call)
        return Fault(refuse_with=403)

    on.server.faults.on_request.append(rule)
    return struck


async def test_events_that_come_late_and_twice_change_nothing() -> None:
    async with cluster() as on:
        on.server.faults.on_watch_line.append(lambda call, _: 3.0 if call.kind.kind == "PodGroup" else 0.5)
        on.server.faults.on_watch_repeat.append(lambda *_: 2)
        owner = await on.owner(job())
        for number in range(3):
            await on.pod(pod(owner, name=f"p{number}"))
        await on.settle(60)
        assert on.writes().count("create podgroups") == 1
        assert {await on.group_of(f"p{number}") for number in range(3)} == {(await on.group()).metadata.name}


async def test_watches_that_break_off_lose_nothing() -> None:
    async with cluster() as on:
        owner = await on.owner(job())
        for number in range(6):
            on.server.cut_watches()
            await on.pod(pod(owner, name=f"p{number}"))
            await on.settle(1)
        await on.settle(60)
        name = (await on.group()).metadata.name
        assert [await on.group_of(f"p{number}") for number in range(6)] == [name] * 6


async def test_an_owner_that_may_not_be_read_ends_the_walk_and_is_not_asked_for_again_and_again() -> None:
    async with cluster() as on:
        struck = refusing(on, is_read_of("Batch"))
        top = await on.owner(obj("example.com/v1", "Batch", "b", spec={}))
        below = await on.owner(obj("batch/v1", "Job", "j", top, spec=JOB))
        for number in range(3):
            await on.pod(pod(below, name=f"p{number}"))
        await on.settle(30)
        assert (await on.group()).metadata.name.startswith("pg-j-")
        # Nor is another owner of that kind, for ten minutes.
        other = await on.owner(obj("example.com/v1", "Batch", "c", spec={}))
        await on.pod(pod(await on.owner(obj("batch/v1", "Job", "k", other, spec=JOB)), name="q"))
        await on.settle(300)
        assert [name.split("-")[1] for name in sorted(await on.groups())] == ["j", "k"]
        assert len(struck) == 1
        await on.settle(400)
        await on.pod(pod(other, name="r"))
        await on.settle()
        assert len(struck) == 2


async def test_a_kind_that_nobody_knows_and_that_is_not_served_ends_the_walk() -> None:
    async with cluster() as on:
        below = await on.owner(obj("batch/v1", "Job", "j", obj("strange.dev/v1", "Thing", "t"), spec=JOB))
        await on.pod(pod(below))
        await on.settle()
        assert (await on.group()).metadata.name.startswith("pg-j-")


async def test_a_kind_of_the_table_that_is_not_served_is_looked_for_until_its_definition_is_there() -> None:
    def absent(call: Call) -> Fault | None:
        is_late = call.kind.kind == "APIResourceList" and call.kind.group == "jobset.x-k8s.io"
        return Fault(refuse_with=404) if is_late and anyio.current_time() < 40 else None

    async with cluster() as on:
        on.server.faults.on_request.append(absent)
        top = await on.owner(obj("jobset.x-k8s.io/v1alpha2", "JobSet", "s", spec={"replicatedJobs": [{"name": "a"}]}))
        below = await on.owner(obj("batch/v1", "Job", "j", top, spec=JOB))
        await on.pod(pod(below))
        await on.settle(30)
        assert on.writes() == []
        await on.settle(90)
        assert (await on.group()).metadata.name.startswith("pg-s-")


async def test_a_pod_of_several_owners_is_told_why_and_asked_about_once_a_minute_at_most() -> None:
    async with cluster() as on:
        await on.pod(pod(await on.owner(job("one")), await on.owner(job("two"))))
        await on.settle(3600)
        assert on.writes() == []
        (note,) = await on.notes()
        assert note.startswith("Pod p has several owners")


async def test_an_owner_that_is_mended_is_read_again() -> None:
    async with cluster(reread_s=3600) as on:
        broken = pytorch()
        owner = await on.owner({**broken, "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 0}}}})
        await on.pod(pod(owner, labels=of_role("master")))
        await on.settle(120)
        assert await on.groups() == {}
        await on.edit(owner, {"spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1}}}})
        await on.settle(61)
        assert (await on.group()).spec.min_member == 1


async def test_a_pod_group_that_is_refused_is_told_on_the_pod_and_tried_ever_more_rarely() -> None:
    async with cluster() as on:
        struck = refusing(on, is_write_of("PodGroup", "create"))
        await on.pod(pod(await on.owner(job())))
        await on.settle(3600)
        # 7 tries until the longest wait of 60 s, of which jitter takes up to half.
        assert 60 <= len(struck) <= 130
        assert await on.notes() == ["injected: Forbidden"]


async def test_a_workload_in_trouble_holds_up_no_other() -> None:
    async with cluster(at_once=2) as on:

        def silent(call: Call) -> Fault | None:
            return Fault(lost="answer") if is_read_of("Job")(call) and call.name.startswith("bad") else None

        on.server.faults.on_request.append(silent)
        for number in range(2):
            await on.pod(pod(await on.owner(job(f"bad{number}")), name=f"b{number}"))
        for number in range(10):
            await on.pod(pod(await on.owner(job(f"good{number}")), name=f"g{number}"))
        await on.settle(60)
        assert all([await on.is_grouped(f"g{number}") for number in range(10)])


async def test_a_pod_that_is_replaced_by_another_of_its_name_is_not_mistaken_for_it() -> None:
    async with cluster() as on:
        on.server.faults.on_request.append(once(Fault(delay_s=4.0), when=is_write_of("Pod", "patch")))
        first, second = await on.owner(job("one")), await on.owner(job("two"))
        await on.pod(pod(first))
        await on.settle(1)
        await on.api.delete(PODS, "p", namespace=NAMESPACE, grace_s=0)
        await on.pod(pod(second))
        await on.settle(30)
        assert (await on.group_of("p")).startswith("pg-two-")
