"""Queues on the real control plane: who gets GPUs when many teams want them, and what the others are told.

Some stories begin with a pod that uses all GPUs, so that what is submitted waits, and is decided on together once that
pod is gone.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.e2e.cluster import PATIENCE_S, Pod, eventually, pod, share
from tests.e2e.grouped import group_of, reference
from tests.e2e.teams import SetTeams, bound, teams
from tests.e2e.workloads import owner
from tools.cluster.deployment import GROUPING, Deployment, Options
from tools.cluster.plane import ControlPlane
from wire import names

pytestmark = pytest.mark.cluster

_numbers = itertools.count()


@pytest.fixture(scope="module")
def queue_plane() -> Iterator[ControlPlane]:
    """A control plane of their own: once there is a Queue, pods elsewhere have to name one."""
    with ControlPlane() as plane:
        yield plane


@pytest.fixture(scope="module")
def queueing(queue_plane: ControlPlane) -> Iterator[Deployment]:
    # Who gets what comes free is shown here; who is evicted for others in test_room.py.
    arguments = {"binder": ["--idle-s", "1"], "scheduler": ["--preemption=false"]}
    options = Options(arguments=arguments, components=GROUPING)
    with Deployment(queue_plane, options) as deployment:
        yield deployment
        deployment.check()


@pytest.fixture
def set_teams(queue_plane: ControlPlane, queueing: Deployment) -> SetTeams:
    queueing.check()
    return lambda *shapes: teams(queue_plane, f"teams-{next(_numbers)}", shapes, queueing)


async def test_two_teams_share_two_to_one(set_teams: SetTeams) -> None:
    async with set_teams("1x6x80GiB") as at:
        await at.fill(6)
        await at.queue("a", weight=2)
        await at.queue("b", weight=1)
        await at.submit("b", 6)
        await at.submit("a", 6)
        await at.make_way()
        assert await at.served(6) == {"a": 4, "b": 2}


async def test_who_comes_later_gets_its_part_as_gpus_come_free(set_teams: SetTeams) -> None:
    async with set_teams("1x4x80GiB") as at:
        await at.queue("a")
        await at.queue("b")
        running = await at.submit("a", 4)
        await at.on.running(4)
        await at.submit("a", 4)
        late = await at.submit("b", 4)
        await at.on.says(late[0], "GPUs")
        await at.on.delete(*running[:2])
        await at.on.gone(running[:2])
        assert await at.served(4) == {"a": 2, "b": 2}


async def test_weights_that_change_count_from_then_on(set_teams: SetTeams) -> None:
    async with set_teams("1x4x80GiB") as at:
        await at.fill(4)
        await at.queue("a", weight=1)
        await at.queue("b", weight=1)
        await at.submit("a", 4)
        await at.submit("b", 4)
        await at.change("b", weight=3)
        await at.make_way()
        assert await at.served(4) == {"a": 1, "b": 3}


async def test_departments_divide_first_and_their_teams_divide_what_they_get(set_teams: SetTeams) -> None:
    async with set_teams("1x8x80GiB") as at:
        await at.fill(8)
        await at.queue("left", quota=6)
        await at.queue("right", quota=2)
        await at.queue("a", "left", quota=2)
        await at.queue("b", "left", quota=4)
        await at.queue("c", "right")
        for team in "abc":
            await at.submit(team, 8)
        await at.make_way()
        assert await at.served(8) == {"a": 2, "b": 4, "c": 2}


async def test_a_quota_comes_before_the_weight_of_others(set_teams: SetTeams) -> None:
    async with set_teams("1x4x80GiB") as at:
        await at.fill(4)
        await at.queue("a", quota=3, weight=0)
        await at.queue("b", weight=100)
        await at.submit("b", 4)
        await at.submit("a", 4)
        await at.make_way()
        assert await at.served(4) == {"a": 3, "b": 1}


async def test_a_gang_hits_a_limit_whole_and_starts_whole_when_the_limit_is_raised(set_teams: SetTeams) -> None:
    async with set_teams("1x4x80GiB") as at:
        await at.queue("a", limit=3)
        await at.gang("a", "two", 2)
        await at.on.running(2)
        await at.gang("a", "three", 3)
        text = await at.on.says("three-0", "quota has reached the allowable limit of GPUs")
        assert "Limit is 3 GPUs, currently 2 GPUs allocated and workload requested 3 GPUs" in text
        assert bound(await at.on.pods()) == ["two-0", "two-1"]
        await at.on.delete("two-0", "two-1")
        await at.on.running(3)


async def test_a_limit_of_a_department_holds_for_all_of_its_teams(set_teams: SetTeams) -> None:
    async with set_teams("1x4x80GiB") as at:
        await at.queue("top", limit=2)
        await at.queue("a", "top")
        await at.queue("b", "top")
        first = await at.submit("a", 2)
        await at.on.running(2)
        (late,) = await at.submit("b", 1)
        assert at.name("top") in await at.on.says(late, "has reached the allowable limit")
        await at.on.delete(first[0])
        await at.on.gone(first[:1])
        await at.on.running(2)
        await at.change("top", limit=3)
        await at.submit("a", 1)
        await at.on.running(3)


async def test_halves_of_gpus_count_as_halves_against_a_limit(set_teams: SetTeams) -> None:
    async with set_teams("1x4x80GiB") as at:
        await at.queue("a", limit=1.5)
        await at.on.create(*(at.of("a", share(f"a-{n}", "0.5")) for n in range(3)))
        await at.on.running(3)
        await at.on.create(at.of("a", share("late", "0.5")))
        text = await at.on.says("late", "allowable limit of GPUs")
        assert "Limit is 1.5 GPUs, currently 1.5 GPUs allocated and workload requested 0.5 GPUs" in text


async def test_what_can_not_be_preempted_stays_within_quotas(set_teams: SetTeams) -> None:
    async with set_teams("1x4x80GiB") as at:
        await at.queue("a", quota=1)
        fixed = {names.PREEMPTIBILITY_LABEL: "non-preemptible"}
        await at.submit("a", 1, **fixed)
        await at.on.running(1)
        (over,) = await at.submit("a", 1, **fixed)
        assert "Use a preemptible workload to go over quota" in await at.on.says(over, "is over quota")
        await at.submit("a", 2)
        await at.on.running(3)
        await at.stays(over)


async def test_pods_of_a_queue_that_is_deleted_run_on_and_new_ones_wait_for_it(set_teams: SetTeams) -> None:
    async with set_teams("1x4x80GiB") as at:
        await at.queue("other")
        await at.queue("a")
        await at.submit("a", 1)
        await at.on.running(1)
        await at.remove("a")
        await at.known("a", is_there=False)
        (late,) = await at.submit("a", 1)
        await at.on.says(late, at.name("a"))
        assert len(bound(await at.on.pods())) == 1
        await at.queue("a")
        await at.on.running(2)


async def test_a_queue_below_one_that_is_missing_serves_once_that_is_there(set_teams: SetTeams) -> None:
    async with set_teams("1x4x80GiB") as at:
        await at.queue("other")
        await at.queue("a", "top")
        (waits,) = await at.submit("a", 1)
        await at.on.says(waits, at.name("top"))
        await at.queue("top")
        await at.on.running(1)


async def test_a_pod_in_a_queue_with_children_says_so(set_teams: SetTeams) -> None:
    async with set_teams("1x4x80GiB") as at:
        await at.queue("top")
        await at.queue("a", "top")
        await at.known("a", is_there=True)
        (waits,) = await at.submit("top", 1)
        await at.on.says(waits, at.name("top"))
        await at.submit("a", 1)
        await at.on.running(1)
        await at.stays(waits)


async def test_a_pod_that_is_moved_to_another_queue_is_served_there(set_teams: SetTeams) -> None:
    async with set_teams("1x4x80GiB") as at:
        await at.queue("a", limit=1)
        await at.queue("b")
        await at.submit("a", 1)
        await at.on.running(1)
        (moved,) = await at.submit("a", 1)
        await at.on.says(moved, "allowable limit")
        patch = {"metadata": {"labels": {names.QUEUE_LABEL: at.name("b")}}}
        await at.on.core.patch_namespaced_pod(moved, at.on.namespace, patch)
        await at.on.running(2)


async def test_an_elastic_job_starts_with_its_minimum_and_grows(set_teams: SetTeams) -> None:
    async with set_teams("1x2x80GiB") as at:
        await at.queue("a", limit=1)
        labels = {names.QUEUE_LABEL: at.name("a")}
        await at.job("train", 4, annotations={names.BATCH_MIN_MEMBER: "2"}, labels=labels)
        await at.on.running(2)

        async def two_wait() -> list[str] | None:
            """Its controller makes one pod, then two, then what is left."""
            waiting = [name for name, found in (await at.on.pods()).items() if not found["spec"].get("nodeName")]
            return waiting if len(waiting) == 2 else None

        waiting = await eventually(two_wait, "all four pods of the Job", within_s=PATIENCE_S)
        await at.on.says(waiting[0], "allowable limit")
        await at.change("a", limit=2)
        pods = await at.on.running(4)
        assert len({group_of(each) for each in pods.values()}) == 1


async def test_a_ray_cluster_with_two_worker_groups_starts_whole(set_teams: SetTeams) -> None:
    async with set_teams("1x3x80GiB") as at:
        await at.fill(3)
        await at.define("ray.io", "RayCluster", "rayclusters", "v1")
        await at.queue("a")
        groups = [{"groupName": name, "replicas": 1, "minReplicas": 1} for name in ("small", "large")]
        labels = {names.QUEUE_LABEL: at.name("a")}
        ray = await at.make(owner("ray.io/v1", "RayCluster", "ray", {"workerGroupSpecs": groups}, labels=labels))

        def part(name: str, group: str) -> Pod:
            kind = "head" if group == "headgroup" else "worker"
            of = {"ray.io/group": group, "ray.io/node-type": kind, "ray.io/cluster": "ray"}
            return pod(name, gpus=1, labels=of, ownerReferences=[reference(ray)])

        await at.on.create(part("ray-head", "headgroup"), part("ray-small", "small"), part("ray-large", "large"))
        await at.grouped("ray-head", "ray-small", "ray-large")
        await at.on.says("ray-head", "for gang scheduling")
        assert bound(await at.on.pods()) == ["filler"]
        await at.on.delete("filler")
        await at.on.running(3)


async def test_each_group_of_a_leader_worker_set_starts_whole(set_teams: SetTeams) -> None:
    async with set_teams("1x3x80GiB") as at:
        await at.define("leaderworkerset.x-k8s.io", "LeaderWorkerSet", "leaderworkersets", "v1")
        await at.queue("a")
        spec = {"replicas": 2, "leaderWorkerTemplate": {"size": 2}}
        labels = {names.QUEUE_LABEL: at.name("a")}
        lws = await at.make(owner("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "lws", spec, labels=labels))
        for group in ("0", "1"):
            for worker in ("0", "1"):
                prefix = "leaderworkerset.sigs.k8s.io"
                of = {f"{prefix}/name": "lws", f"{prefix}/group-index": group, f"{prefix}/worker-index": worker}
                made = pod(f"lws-{group}-{worker}", gpus=1, labels=of, ownerReferences=[reference(lws)])
                made["metadata"]["annotations"][f"{prefix}/size"] = "2"
                await at.on.create(made)
        await at.grouped("lws-0-0", "lws-0-1", "lws-1-0", "lws-1-1")
        started = bound(await at.on.running(2))
        assert started in (["lws-0-0", "lws-0-1"], ["lws-1-0", "lws-1-1"])
        (one,) = {"0", "1"} - {started[0][4]}
        await at.on.says(f"lws-{one}-0", "for gang scheduling")
        assert bound(await at.on.pods()) == started


async def test_a_storm_of_jobs_never_passes_the_limit_of_its_queue(set_teams: SetTeams) -> None:
    async with set_teams("1x4x80GiB") as at:
        await at.queue("a", limit=2)
        labels = {names.QUEUE_LABEL: at.name("a")}
        for number in range(10):
            await at.job(f"cron-{number}", 2, annotations={names.BATCH_MIN_MEMBER: "2"}, labels=labels)
        seen = 0
        for _ in range(5):
            running = await at.on.running(4)
            found = [name for name, each in running.items() if each["spec"].get("nodeName")]
            assert len(found) == 4
            job = found[0].rsplit("-", 1)[0]
            await at.end_job(job)
            seen += 1
            mine = [name for name in running if name.startswith(f"{job}-")]
            await at.on.gone(mine)
        assert seen == 5
