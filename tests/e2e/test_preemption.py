"""Pods are evicted for others on the real control plane: its Eviction API, its budgets, a scheduler that is killed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kubernetes_asyncio.client import ApiException

from scheduler.core.preemption.eviction_history import KEY, Hour, piece_names
from scheduler.core.preemption.nomination_record import read
from tests.e2e.cluster import PATIENCE_S, Pod, Scene, eventually, pod, share
from tests.e2e.conftest import SetScene
from tools.cluster.deployment import SCHEDULER, Deployment
from tools.cluster.plane import ControlPlane
from wire import names

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest.fixture
def preemption(control_plane: ControlPlane, moorage: Deployment) -> Deployment:
    """A deployment beside a class of urgent pods."""
    priority_class = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "urgent"},
        "value": 90,
    }
    control_plane.apply(json.dumps(priority_class))
    return moorage


def urgent(wanted: Pod) -> Pod:
    wanted["spec"]["priorityClassName"] = "urgent"
    return wanted


async def until_they_run(scene: Scene, *wanted: str) -> None:
    """Wait until exactly these pods are there, and run."""

    async def they_do() -> bool | None:
        phases = {name: found["status"]["phase"] for name, found in (await scene.pods()).items()}
        return phases == dict.fromkeys(wanted, "Running") or None

    await eventually(they_do, f"{wanted} to run, and nobody else to be there", within_s=60)


async def record(scene: Scene) -> Any:
    """What stands of the record."""
    found = await scene.core.read_namespaced_config_map(names.NOMINATIONS, names.SYSTEM_NAMESPACE)
    reading = read(found.data["nominations"])
    assert not reading.unread
    return reading.record


async def hour(scene: Scene) -> Hour:
    """Evictions of the last hour, as they are written."""
    texts = list[str]()
    for name in piece_names(None):
        try:
            found = await scene.core.read_namespaced_config_map(name, names.SYSTEM_NAMESPACE)
        except ApiException as error:
            if error.status != 404:
                raise
            texts.append("")
        else:
            texts.append(found.data[KEY])
    read_hour, unread = Hour.of(texts)
    assert not unread
    return read_hour


async def test_an_urgent_pod_runs_in_the_place_of_another_one(set_scene: SetScene, preemption: Deployment) -> None:
    async with set_scene(["1x1x80GiB"]) as scene:
        await scene.create(pod("old", gpus=1))
        await scene.running(1)
        await scene.create(urgent(pod("h", gpus=1)))
        await until_they_run(scene, "h")

        async def told() -> list[str] | None:
            listed = await scene.core.list_namespaced_event(scene.namespace, field_selector="reason=Evict")
            return [event.message for event in listed.items] or None

        workload = f"{scene.namespace}/h"
        said = f"Pod {scene.namespace}/old was preempted by higher priority workload {workload}"
        assert await eventually(told, "the event", within_s=PATIENCE_S) == [said]

        async def is_over() -> bool | None:
            return not (await record(scene)).nominations or None

        await eventually(is_over, "the nomination to leave the record", within_s=PATIENCE_S)
        assert any(taken.evicted for piece in (await hour(scene)).pieces for taken in piece.of.values())


async def test_a_gang_is_as_urgent_as_the_class_of_its_pod_group(set_scene: SetScene, preemption: Deployment) -> None:
    async with set_scene(["1x2x80GiB"]) as scene:
        await scene.create(pod("old", gpus=1))
        await scene.running(1)
        members = [pod(f"m{number}", gpus=1) for number in range(2)]
        await scene.create_gang("g", 2, *members, priorityClassName="urgent")
        await until_they_run(scene, "m0", "m1")
        charged = json.loads((await scene.pod("m0"))["metadata"]["annotations"][names.CHARGED])
        assert charged["priority"] == 90


async def test_nobody_goes_for_a_pod_that_never_preempts(
    control_plane: ControlPlane, set_scene: SetScene, preemption: Deployment
) -> None:
    polite = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "polite"},
        "value": 90,
        "preemptionPolicy": "Never",
    }
    control_plane.apply(json.dumps(polite))
    async with set_scene(["1x1x80GiB"]) as scene:
        await scene.create(pod("old", gpus=1))
        await scene.running(1)
        waits = pod("polite", gpus=1)
        waits["spec"]["priorityClassName"] = "polite"
        await scene.create(waits)
        await scene.says("polite", "The best node lacks 1 GPU(s)")
        assert (await scene.pod("old"))["status"]["phase"] == "Running"
        await scene.delete("old")
        await until_they_run(scene, "polite")


async def test_a_whole_gpu_takes_the_shares_of_one(set_scene: SetScene, preemption: Deployment) -> None:
    async with set_scene(["1x1x80GiB"]) as scene:
        await scene.create(share("old0", "0.5"), share("old1", "0.5"))
        await scene.running(2)
        await scene.create(urgent(pod("h", gpus=1)))
        await until_they_run(scene, "h")


async def test_a_pod_whose_budget_is_spent_stays(
    control_plane: ControlPlane, set_scene: SetScene, preemption: Deployment
) -> None:
    async with set_scene(["1x2x80GiB"]) as scene:
        kept, goes = pod("kept", gpus=1, labels={"app": "a"}), pod("goes", gpus=1)
        await scene.create(kept, goes)
        await scene.running(2)
        budget = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "b", "namespace": scene.namespace},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}},
        }
        control_plane.apply(json.dumps(budget))
        await scene.create(urgent(pod("h", gpus=1)))
        await until_they_run(scene, "h", "kept")


async def test_what_is_freed_is_kept_for_its_holder_while_the_scheduler_restarts(
    set_scene: SetScene, preemption: Deployment
) -> None:
    async with set_scene(["1x1x80GiB"]) as scene:
        old = pod("old", gpus=1)
        old["spec"]["terminationGracePeriodSeconds"] = 20
        old["metadata"]["finalizers"] = ["moorage.test/stays"]
        await scene.create(old)
        await scene.running(1)
        await scene.create(urgent(pod("h", gpus=1)))

        async def is_going() -> bool | None:
            return "deletionTimestamp" in (await scene.pod("old"))["metadata"] or None

        await eventually(is_going, "the victim to be evicted", within_s=PATIENCE_S)
        preemption.kill(SCHEDULER)
        await scene.create(urgent(pod("late", gpus=1)))
        preemption.start(SCHEDULER)
        patch = {"metadata": {"finalizers": None}}
        await scene.core.patch_namespaced_pod("old", scene.namespace, patch)

        async def only_the_holder_runs() -> bool | None:
            phases = {name: found["status"]["phase"] for name, found in (await scene.pods()).items()}
            return phases == {"h": "Running", "late": "Pending"} or None

        await eventually(only_the_holder_runs, "the holder to run, and the late one to wait", within_s=60)
