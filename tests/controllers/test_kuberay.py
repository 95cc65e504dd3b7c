"""The life of Ray's workloads: the real KubeRay (tools/controllers/kuberay), a real control plane, simulated nodes.

Nothing answers as Ray's dashboard, so a RayJob never succeeds: KubeRay fails it once its submitter has ended.
"""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from tests.controllers import stories
from tests.controllers.conftest import SetWorkloads
from tests.controllers.workloads import Json, Workloads, bound, busy, uids
from tests.e2e.cluster import Pod, scheduled_message
from tests.e2e.grouped import group_of
from tools.controllers.catalogue import KUBERAY, RAY_JOB, RAY_SERVICE
from wire import names

pytestmark = [pytest.mark.cluster, pytest.mark.controllers, pytest.mark.nightly]

CONTROLLERS = (KUBERAY,)
NAME_LABEL = "ray.io/cluster"
_GROUP = "ray.io/group"
_HEAD = "headgroup"
#: Of pods of a RayJob or RayService, whose RayCluster has a name that KubeRay makes.
_MARK = "tests/of"
#: So short that an eviction shows in a test that waits a little longer.
_GRACE_S = 3


def template(at: Workloads, of: str = "", **asked: Any) -> Json:
    made = at.pod(**asked)
    made["metadata"]["labels"] = {_MARK: of} if of else {}
    return made


def workers(at: Workloads, replicas: int, *, least: int = 0, most: int = 4, hosts: int = 1, **asked: Any) -> Json:
    """A group of workers, a GPU each."""
    numbers = {"replicas": replicas, "minReplicas": least, "maxReplicas": most, "numOfHosts": hosts}
    return {"groupName": "gpu", "rayStartParams": {}, **numbers, "template": template(at, **{"gpus": 1, **asked})}


def ray(at: Workloads, group: Json, **more: Any) -> Json:
    """A RayCluster's spec: a head with a GPU and a group of workers."""
    asked = {key: more.pop(key) for key in ("of", "restartPolicy") if key in more}
    head = {"rayStartParams": {}, "template": template(at, gpus=1, **asked)}
    return {"rayVersion": "2.46.0", "headGroupSpec": head, "workerGroupSpecs": [group], **more}


async def serve(at: Workloads, replicas: int, **numbers: Any) -> None:
    """A RayCluster that restarts its containers."""
    await at.create("rays", ray(at, workers(at, replicas, **numbers)))


def of_group(pods: dict[str, Pod], group: str) -> dict[str, Pod]:
    return {name: found for name, found in pods.items() if found["metadata"]["labels"].get(_GROUP) == group}


async def test_it_waits_whole_where_a_part_has_room_and_starts_whole(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x4x80GiB") as at:
        await busy(at, 2)
        await serve(at, 2)
        await at.wait_whole("rays", 3)
        (group,) = (await at.groups()).values()
        assert {part["name"]: part.get("minMember") for part in group["spec"]["subGroups"]} == {_HEAD: 1, "gpu": 2}
        await at.on.delete("other")
        await at.run_whole("rays", 3)


@pytest.mark.parametrize(
    ("numbers", "pods"),
    [
        ({"replicas": 2, "hosts": 2}, 5),
        ({"replicas": 4, "most": 2}, 3),
        ({"replicas": 1, "least": 2}, 3),
    ],
    ids=["several hosts each", "above the maximum", "below the minimum"],
)
async def test_the_gang_is_what_kuberay_makes(set_workloads: SetWorkloads, numbers: Any, pods: int) -> None:
    async with set_workloads("1x6x80GiB") as at:
        await busy(at, 7 - pods)
        await serve(at, **numbers)
        await stories.starts_whole(at, "rays", pods)


async def test_suspended_it_gives_its_place_back_and_resumed_it_waits_whole_for_it(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x4x80GiB") as at:
        await serve(at, 2)
        await stories.gives_its_place_back(at, "rays", 3, to=2)


async def test_a_container_that_died_is_started_again_in_its_pod(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x3x80GiB") as at:
        await serve(at, 2)
        before = await at.run_whole("rays", 3)
        (victim, *_) = of_group(before, "gpu")
        await stories.restarts_in_its_pod(at, "rays", victim, before)


@pytest.mark.parametrize("group", ["gpu", _HEAD])
async def test_a_pod_that_may_not_restart_is_replaced_and_the_others_run_on(
    set_workloads: SetWorkloads, group: str
) -> None:
    async with set_workloads("1x3x80GiB") as at:
        never: Json = {"restartPolicy": "Never"}
        await at.create("rays", ray(at, workers(at, 2, **never), **never))
        before = await at.run_whole("rays", 3)
        (victim, *_) = of_group(before, group).values()
        at.kill(victim)
        after = await at.run_whole("rays", 3, without=[victim["metadata"]["uid"]])
        assert uids(before) - uids(after) == {victim["metadata"]["uid"]}


async def test_scaled_up_new_workers_join_and_scaled_down_their_gpus_are_free(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x4x80GiB") as at:
        await serve(at, 1)
        first = await at.run_whole("rays", 2)
        await at.patch("rays", {"workerGroupSpecs": [workers(at, 3)]})
        assert uids(first) < uids(await at.run_whole("rays", 4))
        await at.patch("rays", {"workerGroupSpecs": [workers(at, 0)]})
        await at.run_whole("rays", 1)
        await stories.frees(at, 3)


async def test_the_head_runs_on_while_rays_autoscaler_scales_to_none_and_up_without_room(
    set_workloads: SetWorkloads,
) -> None:
    async with set_workloads("1x3x80GiB") as at:
        spec = ray(at, workers(at, 2), enableInTreeAutoscaling=True)
        await at.create("rays", spec, annotations={names.STALENESS_GRACE_PERIOD: f"{_GRACE_S}s"})
        before = await at.run_whole("rays", 3)
        head = of_group(before, _HEAD)
        await autoscale(at, 0, *of_group(before, "gpu"))
        assert uids(await at.run_whole("rays", 1)) == uids(head)
        await autoscale(at, 0)
        await busy(at, 2)
        await autoscale(at, 2)

        def wait(pods: dict[str, Pod]) -> bool:
            return len(pods) == 3 and all(scheduled_message(each) for each in of_group(pods, "gpu").values())

        await at.until("rays", wait, "new workers to say why they wait")
        await anyio.sleep(2 * _GRACE_S)
        assert bound(await at.pods_of("rays")) == [*head]
        await at.on.delete("other")
        assert uids(head) < uids(await at.run_whole("rays", 3))


async def autoscale(at: Workloads, replicas: int, *gone: str) -> None:
    """What the autoscaler beside the head calls (Ray's KubeRayProvider): a JSON patch of its RayCluster."""
    group = "/spec/workerGroupSpecs/0"
    patch = [
        {"op": "replace", "path": f"{group}/replicas", "value": replicas},
        {"op": "add", "path": f"{group}/scaleStrategy", "value": {"workersToDelete": [*gone]}},
    ]
    place = ("ray.io", "v1", at.on.namespace, "rayclusters", "rays")
    await at.on.custom.patch_namespaced_custom_object(*place, patch, _content_type="application/json-patch+json")


def job_of(at: Workloads, *, submitter: tuple[float, int] | None = None, **more: Any) -> Json:
    """A RayJob with two workers; ``submitter``: after how many seconds its submitter ends, and with what code."""
    submits = template(at, of="train", ends=submitter, restartPolicy="Never")
    cluster = ray(at, workers(at, 2, of="train"), of="train")
    return {"entrypoint": "python train.py", "rayClusterSpec": cluster, "submitterPodTemplate": submits, **more}


def jobs(at: Workloads) -> Workloads:
    return at.of(RAY_JOB, name_label=_MARK)


async def test_a_ray_job_waits_whole_and_its_submitter_follows_its_cluster(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x4x80GiB") as on:
        at = jobs(on)
        await busy(at, 2)
        await at.create("train", job_of(at))
        pods = await stories.starts_whole(at, "train", 4, waiting=3)
        assert len({group_of(each) for each in pods.values()}) == 1


async def test_a_ray_job_gives_its_place_back_while_it_is_suspended(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x4x80GiB") as on:
        at = jobs(on)
        # KubeRay suspends no other.
        await at.create("train", job_of(at, shutdownAfterJobFinishes=True))
        await stories.gives_its_place_back(at, "train", 4, to=2, waiting=3)


async def test_a_ray_job_that_failed_starts_again_with_a_new_cluster_until_it_may_no_more(
    set_workloads: SetWorkloads,
) -> None:
    async with set_workloads("1x4x80GiB") as on:
        at = jobs(on)
        failing = job_of(
            at, submitter=(1.0, 1), submitterConfig={"backoffLimit": 0}, backoffLimit=1, shutdownAfterJobFinishes=True
        )
        await at.create("train", failing)
        clusters: set[str] = set()

        def again(pods: dict[str, Pod]) -> bool:
            clusters.update(each["metadata"]["labels"].get(NAME_LABEL, "") for each in pods.values())
            return len(clusters - {""}) == 2

        await at.until("train", again, "pods of a second RayCluster")
        # Its RayCluster goes with the second failure; its GPUs are free, though the RayJob is still there.
        await at.until("train", lambda pods: not of_group(pods, "gpu"), "the pods of the last RayCluster to go")
        await stories.frees(at, 4)
        assert (await at.get("train"))["status"]["jobDeploymentStatus"] == "Failed"


async def test_the_submitter_of_a_ray_job_starts_on_a_cluster_that_is_there(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x3x80GiB") as on:
        await serve(on, 2)
        await on.run_whole("rays", 3)
        at = jobs(on)
        spec = {**job_of(at), "clusterSelector": {NAME_LABEL: "rays"}}
        del spec["rayClusterSpec"]
        await at.create("train", spec)
        await at.run_whole("train", 1)


async def test_the_cluster_of_a_ray_service_waits_whole_and_starts_whole(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x4x80GiB") as on:
        at = on.of(RAY_SERVICE, name_label=_MARK)
        await busy(at, 2)
        await at.create("llm", {"rayClusterConfig": ray(at, workers(at, 2, of="llm"), of="llm")})
        await stories.starts_whole(at, "llm", 3)


async def test_shares_of_one_device_are_taken_and_given_back(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x3x80GiB") as at:
        await serve(at, 4, gpus=0, fraction="0.5")
        pods = await at.run_whole("rays", 5)
        await stories.shares_devices(at, "rays", pods, [1, 2, 2])


@pytest.mark.parametrize("state", ["runs", "waits", "suspended"])
async def test_deleted_nothing_is_left(set_workloads: SetWorkloads, state: str) -> None:
    async with set_workloads("1x3x80GiB" if state == "runs" else "1x2x80GiB") as at:
        await serve(at, 2)
        await stories.ends_deleted(at, "rays", 3, state)


@pytest.mark.parametrize("gpus", [3, 2], ids=["runs", "waits"])
async def test_of_a_deleted_ray_job_nothing_is_left(set_workloads: SetWorkloads, gpus: int) -> None:
    async with set_workloads(f"1x{gpus}x80GiB") as on:
        at = jobs(on)
        await at.create("train", job_of(at))
        await (at.run_whole("train", 4) if gpus == 3 else at.wait_whole("train", 3))
        await stories.leaves_nothing(at, "train")
