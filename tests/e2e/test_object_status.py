"""The status of Queues and PodGroups on the real control plane: written under the scheduler's own rights."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.e2e.cluster import PATIENCE_S, Scene, eventually, pod
from tests.e2e.conftest import SetScene
from wire import names

pytestmark = pytest.mark.cluster

GROUP = ("scheduling.run.ai", "v2", "queues")


@asynccontextmanager
async def queues(scene: Scene, *created: tuple[str, str]) -> AsyncIterator[None]:
    """Queues without limits; pods of other queues wait meanwhile."""
    free = {"quota": 0, "limit": -1, "overQuotaWeight": 1}
    for name, parent in created:
        spec = {"parentQueue": parent, "resources": {"cpu": free, "memory": free, "gpu": free}}
        queue = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name}, "spec": spec}
        await scene.custom.create_cluster_custom_object(*GROUP, queue)
    try:
        yield
    finally:
        for name, _ in reversed(created):
            await scene.custom.delete_cluster_custom_object(*GROUP, name)


async def shows(scene: Scene, name: str, gpus: str) -> dict[str, Any]:
    """Wait until a Queue shows this amount of allocated GPUs, and return its status."""

    async def found() -> dict[str, Any] | None:
        status: dict[str, Any] = (await scene.custom.get_cluster_custom_object(*GROUP, name)).get("status") or {}
        return status if (status.get("allocated") or {}).get(names.GPU_RESOURCE) == gpus else None

    return await eventually(found, f"queue {name} to show {gpus} GPUs", within_s=PATIENCE_S)


async def test_queues_show_what_their_pods_hold(set_scene: SetScene) -> None:
    async with set_scene(["1x4x80GiB"]) as scene, queues(scene, ("status-top", ""), ("status-leaf", "status-top")):
        labels = {names.QUEUE_LABEL: "status-leaf"}
        await scene.create(pod("a", gpus=1, labels=labels), pod("b", gpus=2, labels=labels))
        await scene.running(2)
        top, leaf = await shows(scene, "status-top", "3"), await shows(scene, "status-leaf", "3")
        assert top["childQueues"] == ["status-leaf"]
        assert leaf["requested"] == {"cpu": "0", "memory": "0", names.GPU_RESOURCE: "3"}
        assert {each["type"]: each["status"] for each in leaf["conditions"]} == {
            names.CONDITION_QUEUE_ORPHAN: "False",
            names.CONDITION_QUEUE_OVER_QUOTA: "True",
            names.CONDITION_QUEUE_CLOSED: "False",
        }
        await scene.delete("b")
        await shows(scene, "status-top", "1")


async def test_parts_of_gpus_are_shown_in_nano_where_that_is_needed(set_scene: SetScene) -> None:
    async with set_scene(["1x1x80GiB"]) as scene, queues(scene, ("status-parts", "")):
        annotations, labels = {names.GPU_FRACTION: "0.333333333"}, {names.QUEUE_LABEL: "status-parts"}
        await scene.create(pod("third", annotations=annotations, labels=labels))
        await scene.running(1)
        await shows(scene, "status-parts", "333333333n")


async def of_group(scene: Scene, name: str, gpus: str, *, requested: str, says: str = "") -> dict[str, Any]:
    """Wait until a PodGroup shows these amounts of GPUs, and why it waits, if it does; return its status.

    Its pods come one after the other: of the first one alone it says that others are missing.
    """

    async def found() -> dict[str, Any] | None:
        group = await scene.custom.get_namespaced_custom_object(
            "scheduling.run.ai", "v2alpha2", scene.namespace, "podgroups", name
        )
        status: dict[str, Any] = group.get("status") or {}
        amounts = status.get("resourcesStatus") or {}
        shown = [(amounts.get(kind) or {}).get(names.GPU_RESOURCE) for kind in ("allocated", "requested")]
        conditions = status.get("schedulingConditions") or ()
        told = [reason["message"] for condition in conditions for reason in condition["reasons"]]
        is_told = any(says in message for message in told) if says else not conditions
        return status if shown == [gpus, requested] and is_told else None

    return await eventually(found, f"PodGroup {name} to show {gpus} GPUs", within_s=PATIENCE_S)


async def test_a_gang_says_why_it_waits_until_it_has_started(set_scene: SetScene) -> None:
    async with set_scene(["1x4x80GiB"]) as scene:
        await scene.create(pod("first", gpus=4))
        await scene.running(1)
        await scene.create_gang("gang", 2, pod("a", gpus=2), pod("b", gpus=2))
        status = await of_group(scene, "gang", "0", requested="4", says="while 2 are required")
        (condition,) = status["schedulingConditions"]
        assert (condition["type"], condition["nodePool"]) == ("UnschedulableOnNodePool", "default")
        (reason,) = condition["reasons"]
        assert reason["reason"] == "PodSchedulingErrors"
        await scene.delete("first")
        await of_group(scene, "gang", "4", requested="4")
