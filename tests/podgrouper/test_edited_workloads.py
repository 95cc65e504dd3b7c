"""PodGroups follow the workloads that they were made of: when these are edited, and when pods come or go."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kube.client.resources import POD_GROUPS, PODS
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from simulator.apiserver.types import custom
from tests.podgrouper.cluster import LEAST, USER, Cluster, cluster, is_read_of, is_write_of
from tests.podgrouper.objects import NAMESPACE, obj, pod
from wire import names

RAY = custom("ray.io", "v1", "rayclusters", "RayCluster", namespaced=True)


def groups_of(workers: int, **more: Any) -> dict[str, Any]:
    return {"workerGroupSpecs": [{"groupName": "gpu", "replicas": workers, "minReplicas": 0, "maxReplicas": 4, **more}]}


def ray(workers: int, **more: Any) -> dict[str, Any]:
    return obj("ray.io/v1", "RayCluster", "auto", spec={**groups_of(workers), **more})


async def rays(on: Cluster, owner: dict[str, Any], workers: int) -> None:
    await on.pod(pod(owner, name="head", labels={"ray.io/cluster": "auto", "ray.io/group": "headgroup"}))
    for number in range(workers):
        await worker(on, owner, f"w{number}")
    await on.settle()


async def worker(on: Cluster, owner: dict[str, Any], name: str) -> None:
    await on.pod(pod(owner, name=name, labels={"ray.io/cluster": "auto", "ray.io/group": "gpu"}))


async def minimum(on: Cluster) -> int | None:
    return (await on.group()).spec.min_member


async def delete(on: Cluster, *pods: str) -> None:
    for name in pods:
        await on.api.delete(PODS, name, namespace=NAMESPACE, grace_s=0)


def watched(call: Call) -> bool:
    return call.verb in {"list", "watch"} and call.kind.kind == "RayCluster"


async def test_a_workload_that_is_edited_is_followed_at_once_though_no_pod_comes_or_goes() -> None:
    async with cluster(types=[RAY]) as on:
        owner = await on.owner(ray(2))
        await rays(on, owner, 2)
        assert await minimum(on) == 3
        for workers in (0, 3, 1):
            await on.edit(owner, {"spec": groups_of(workers)})
            await on.settle(3)
            assert await minimum(on) == 1 + workers


async def test_the_minimum_of_an_autoscaled_cluster_stays_as_its_replicas_go_up_and_down() -> None:
    async with cluster(types=[RAY]) as on:
        owner = await on.owner(ray(2, enableInTreeAutoscaling=True))
        await rays(on, owner, 2)
        for workers in (4, 0, 2):
            await on.edit(owner, {"spec": groups_of(workers)})
            await on.settle(3)
            assert await minimum(on) == 1
        await on.edit(owner, {"spec": groups_of(2, minReplicas=2)})
        await on.settle(3)
        assert await minimum(on) == 3
        assert [await on.part_of(name) for name in ("head", "w0", "w1")] == ["headgroup", "gpu", "gpu"]


@pytest.mark.parametrize(
    ("edit", "least"),
    [
        pytest.param({"metadata": {"annotations": {LEAST: "2"}}}, 2, id="annotation"),
        pytest.param({"metadata": {"annotations": {LEAST: None}}}, 1, id="annotation taken away"),
    ],
)
async def test_a_job_whose_annotation_is_edited_is_followed(edit: dict[str, Any], least: int) -> None:
    async with cluster() as on:
        owner = await on.owner(obj("batch/v1", "Job", "j", spec={"parallelism": 4}, annotations={LEAST: "4"}))
        await on.pod(pod(owner))
        await on.settle()
        await on.edit(owner, edit)
        await on.settle(3)
        assert await minimum(on) == least


async def test_where_owners_may_not_be_watched_a_pod_that_goes_or_comes_has_its_owner_read_again() -> None:
    async with cluster(types=[RAY], reread_s=3600) as on:
        on.server.faults.on_request.append(lambda call: Fault(refuse_with=403) if watched(call) else None)
        owner = await on.owner(ray(2))
        await rays(on, owner, 2)
        await on.edit(owner, {"spec": groups_of(0)})
        await on.settle(30)
        assert await minimum(on) == 3
        await delete(on, "w0", "w1")
        await on.settle(3)
        assert await minimum(on) == 1


async def test_a_pod_that_is_being_deleted_is_gone_for_its_pod_group() -> None:
    async with cluster(types=[RAY], reread_s=3600) as on:
        on.server.faults.on_request.append(lambda call: Fault(refuse_with=403) if watched(call) else None)
        owner = await on.owner(ray(1))
        await rays(on, owner, 1)
        await on.bind("w0")
        await on.edit(owner, {"spec": groups_of(0)})
        await on.api.delete(PODS, "w0", namespace=NAMESPACE, grace_s=600)
        await on.settle(3)
        assert await minimum(on) == 1


async def test_a_status_that_is_written_again_and_again_costs_no_read() -> None:
    async with cluster(types=[RAY]) as on:
        owner = await on.owner(ray(2))
        await rays(on, owner, 2)
        before = on.did()
        for number in range(20):
            await on.api.patch(
                on._resource(owner), "auto", {"status": {"n": number}}, namespace=NAMESPACE, subresource="status"
            )
            await on.settle(3)
        assert on.did() == before


async def test_what_was_edited_while_nobody_led_is_followed_and_nothing_else_is_read() -> None:
    async with cluster(started=False, types=[RAY]) as on:
        first = await on.start()
        owner = await on.owner(ray(2))
        await rays(on, owner, 2)
        await on.pod(pod(await on.owner(obj("batch/v1", "Job", "j", spec={"parallelism": 1})), name="p"))
        await on.settle()
        first.kill()
        await on.edit(owner, {"spec": groups_of(0)})
        await on.start()
        await on.settle(5)
        assert sorted(on.did(f"{USER}-2")) == ["get podgroups", "get pods", "get rayclusters", "patch podgroups"]


async def test_an_annotation_that_was_edited_while_nobody_led_is_followed_and_costs_the_next_leader_nothing() -> None:
    async with cluster(started=False) as on:
        first = await on.start()
        owner = await on.owner(obj("batch/v1", "Job", "j", spec={"parallelism": 4}, annotations={LEAST: "4"}))
        await on.pod(pod(owner))
        await on.settle()
        first.kill()
        await on.edit(owner, {"metadata": {"annotations": {LEAST: "2"}}})
        second = await on.start()
        await on.settle(5)
        assert await minimum(on) == 2
        second.kill()
        await on.start()
        await on.settle(5)
        assert on.did(f"{USER}-3") == []


async def test_many_pods_that_go_together_cost_one_look() -> None:
    async with cluster(types=[RAY]) as on:
        owner = await on.owner(ray(20))
        await rays(on, owner, 20)
        before = len(on.did())
        await delete(on, *(f"w{number}" for number in range(20)))
        await on.settle(5)
        assert on.did()[before:] == ["get pods", "get rayclusters"]


async def test_an_owner_that_is_read_while_it_is_edited_is_read_again() -> None:
    async with cluster(types=[RAY]) as on:
        owner = await on.owner(ray(2))
        slow = [Fault(answer_delay_s=10.0)]
        is_read = is_read_of("RayCluster")
        on.server.faults.on_request.append(lambda call: slow.pop() if slow and is_read(call) else None)
        await on.pod(pod(owner, name="head", labels={"ray.io/cluster": "auto", "ray.io/group": "headgroup"}))
        await on.settle(2)
        await on.edit(owner, {"spec": groups_of(4)})
        await worker(on, owner, "w0")
        await on.settle(20)
        assert await minimum(on) == 5


async def test_an_owner_that_is_edited_while_its_pod_group_is_written_is_read_again() -> None:
    async with cluster(types=[RAY]) as on:
        owner = await on.owner(ray(2))
        await rays(on, owner, 2)
        slow = [Fault(answer_delay_s=10.0)]
        is_write = is_write_of("PodGroup", "patch")
        on.server.faults.on_request.append(lambda call: slow.pop() if slow and is_write(call) else None)
        await on.edit(owner, {"spec": groups_of(3)})
        await on.settle(3)
        assert not slow
        await on.edit(owner, {"spec": groups_of(0)})
        await on.settle(20)
        assert await minimum(on) == 1


async def test_a_pod_group_that_is_deleted_while_its_only_pod_is_written_is_made_again() -> None:
    async with cluster() as on:
        owner = await on.owner(obj("batch/v1", "Job", "j", spec={"parallelism": 4}))
        slow = [Fault(answer_delay_s=10.0)]
        is_write = is_write_of("Pod", "patch")
        on.server.faults.on_request.append(lambda call: slow.pop() if slow and is_write(call) else None)
        await on.pod(pod(owner))
        await on.settle(3)
        await on.api.delete(POD_GROUPS, (await on.group()).metadata.name, namespace=NAMESPACE)
        await on.settle(20)
        assert list(await on.groups()) == [await on.group_of("p")]


async def test_the_minimum_of_a_jobset_is_the_same_whichever_of_its_jobs_is_looked_at() -> None:
    async with cluster() as on:
        replicated = {"name": "map", "replicas": 2, "template": {"spec": {"parallelism": 4, "completions": 10}}}
        top = await on.owner(obj("jobset.x-k8s.io/v1alpha2", "JobSet", "set", spec={"replicatedJobs": [replicated]}))
        jobs = [await on.owner(obj("batch/v1", "Job", f"set-map-{n}", top, spec={})) for n in range(2)]

        async def comes(number: int, name: str) -> None:
            index = {"jobset.sigs.k8s.io/replicatedjob-name": "map", "jobset.sigs.k8s.io/job-index": str(number)}
            await on.pod(pod(jobs[number], name=name, labels=index))
            await on.settle(62)

        async def minimums() -> list[int | None]:
            return [each.min_member for each in (await on.group()).spec.sub_groups or ()]

        for number in range(2):
            await on.status(jobs[number], {"succeeded": 8 + number})
            await comes(number, f"p{number}")
        assert await minimums() == [None, 2, 1]
        await comes(0, "p2")
        assert await minimums() == [None, 2, 1]
        await on.status(jobs[0], {"succeeded": 0})
        await comes(1, "p3")
        assert await minimums() == [None, 2, 1]
        await comes(0, "p4")
        assert await minimums() == [None, 4, 1]


async def test_a_pod_that_a_person_put_into_a_pod_group_does_not_keep_that_from_following_its_owner() -> None:
    async with cluster(reread_s=3600) as on:
        replicated = [{"name": name, "template": {"spec": {"parallelism": 1}}} for name in ("a", "b")]
        owner = await on.owner(obj("jobset.x-k8s.io/v1alpha2", "JobSet", "set", spec={"replicatedJobs": replicated}))
        job = await on.owner(obj("batch/v1", "Job", "set-a-0", owner, spec={}))
        await on.pod(
            pod(job, labels={"jobset.sigs.k8s.io/replicatedjob-name": "a", "jobset.sigs.k8s.io/job-index": "0"})
        )
        await on.settle()
        other = await on.owner(obj("batch/v1", "Job", "other", spec={"parallelism": 1}))
        name = (await on.group()).metadata.name
        for guest, above in (("bare", ()), ("of-a-job", (other,))):
            await on.pod(pod(*above, name=guest, annotations={names.POD_GROUP_NAME: name}))
        await on.settle()
        await on.edit(owner, {"metadata": {"annotations": {LEAST: "1"}}})
        await on.settle(3)
        assert (await on.groups())[name].spec.min_sub_group == 1


async def test_an_edit_that_mends_a_refused_workload_is_tried_at_once() -> None:
    async with cluster(reread_s=3600) as on:
        broken = {"pytorchReplicaSpecs": {"Master": {"replicas": 0}}}
        owner = await on.owner(obj("kubeflow.org/v1", "PyTorchJob", "p", spec=broken))
        await on.pod(pod(owner, labels={"training.kubeflow.org/replica-type": "master"}))
        await on.settle(3600)
        assert await on.groups() == {}
        await on.edit(owner, {"spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1}}}})
        await on.settle(3)
        assert await minimum(on) == 1


async def test_an_edit_that_mends_a_refused_pod_group_is_tried_at_once() -> None:
    async with cluster(reread_s=3600) as on:
        refused = [True]
        is_write = is_write_of("PodGroup", "create")
        on.server.faults.on_request.append(
            lambda call: Fault(refuse_with=403) if refused[0] and is_write(call) else None
        )
        owner = await on.owner(obj("batch/v1", "Job", "j", spec={"parallelism": 4}, annotations={LEAST: "3"}))
        await on.pod(pod(owner))
        await on.settle(3600)
        refused[0] = False
        await on.edit(owner, {"metadata": {"annotations": {LEAST: "2"}}})
        await on.settle(3)
        assert await minimum(on) == 2


async def kept(on: Cluster) -> Any:
    text = ((await on.group()).metadata.annotations or {}).get(names.KEPT_MINIMUM)
    return None if text is None else msgspec.json.decode(text)


async def test_a_pod_group_whose_minimum_rises_under_running_pods_says_what_these_have() -> None:
    """A scheduler that does not see it rise can't tell it from a member that was lost."""
    async with cluster(types=[RAY]) as on:
        owner = await on.owner(ray(2))
        await rays(on, owner, 2)
        await on.edit(owner, {"spec": groups_of(3)})
        await on.settle(3)
        assert await kept(on) is None, "none runs"
        for name in ("head", "w0", "w1"):
            await on.bind(name)
        for workers in (1, 4, 5):
            await on.edit(owner, {"spec": groups_of(workers)})
            await on.settle(3)
            parts = [{"name": "headgroup", "minMember": 1}, {"name": "gpu", "minMember": 1}]
            assert await kept(on) == (None if workers == 1 else {"minMember": 2, "subGroups": parts})


async def test_a_pod_group_that_is_made_again_under_running_pods_says_how_many_they_are() -> None:
    async with cluster(types=[RAY]) as on:
        owner = await on.owner(ray(3))
        await rays(on, owner, 3)
        for name in ("head", "w0"):
            await on.bind(name)
        await on.api.delete(POD_GROUPS, (await on.group()).metadata.name, namespace=NAMESPACE)
        await on.settle()
        assert await kept(on) == {"minMember": 2}


STATEFUL = obj("apps/v1", "StatefulSet", "s", spec={"podManagementPolicy": "Parallel", "replicas": 3})
QUEUE = "kai.scheduler/queue"


async def test_a_stateful_set_whose_pods_start_alone_is_followed_when_it_asks_for_a_gang() -> None:
    async with cluster() as on:
        owner = await on.owner(STATEFUL)
        await on.pod(pod(owner, name="p0"))
        await on.settle()
        await on.edit(owner, {"metadata": {"annotations": {LEAST: "3"}}})
        await on.pod(pod(owner, name="p1"))
        await on.settle(5)
        assert await minimum(on) == 3
        assert await on.group_of("p0") == await on.group_of("p1") != ""


async def test_a_deployment_that_names_a_queue_has_its_waiting_pods_grouped() -> None:
    async with cluster() as on:
        deployment = await on.owner(obj("apps/v1", "Deployment", "d"))
        replica_set = await on.owner(obj("apps/v1", "ReplicaSet", "r", deployment))
        for name in ("waits", "runs"):
            await on.pod(pod(replica_set, name=name))
        await on.settle()
        await on.bind("runs")
        await on.edit(deployment, {"metadata": {"labels": {QUEUE: "research"}}})
        await on.settle(5)
        assert (await on.group()).spec.queue == "research"
        assert [bool(await on.group_of(name)) for name in ("waits", "runs")] == [True, False]


async def test_owners_of_pods_that_start_alone_are_forgotten_with_the_last_of_these() -> None:
    async with cluster(started=False) as on:
        replica = await on.start()
        owner = await on.owner(STATEFUL)
        for name in ("p0", "p1"):
            await on.pod(pod(owner, name=name))
        await on.settle()
        uid = owner["metadata"]["uid"]
        assert replica.app.view.has_ungrouped(uid)
        await delete(on, "p0", "p1")
        await on.settle()
        assert not replica.app.view.has_ungrouped(uid)


async def test_an_edit_that_says_nothing_of_a_group_costs_pods_that_start_alone_no_read() -> None:
    async with cluster() as on:
        owner = await on.owner(STATEFUL)
        for number in range(5):
            await on.pod(pod(owner, name=f"p{number}"))
        await on.settle()
        before = on.did()
        for number in range(3):
            await on.edit(owner, {"metadata": {"annotations": {"revision": str(number)}}})
            await on.settle(3)
        assert on.did() == before
