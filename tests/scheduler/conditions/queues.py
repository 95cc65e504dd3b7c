"""Queues in a whole simulated cluster: created, used, and read."""

from __future__ import annotations

from typing import Any

from kube.client.resources import QUEUES
from simulator.world import World
from tests.scheduler.stage import create, pod
from wire import names
from wire.crds.podgroup import NON_PREEMPTIBLE
from wire.crds.queue import QueueStatus

#: Nothing is guaranteed, nothing is limited.
FREE = {"quota": 0, "limit": -1, "overQuotaWeight": 1}


def gpus(quota: float = 0, limit: float = -1) -> dict[str, Any]:
    """``spec.resources`` of a queue."""
    return {"cpu": FREE, "memory": FREE, "gpu": {"quota": quota, "limit": limit, "overQuotaWeight": 1}}


async def create_queue(world: World, name: str, parent: str = "", **spec: Any) -> None:
    """Create a Queue; without limits, unless ``resources`` says otherwise."""
    wanted = {
        "apiVersion": QUEUES.api_version,
        "kind": QUEUES.kind,
        "metadata": {"name": name},
        "spec": {"parentQueue": parent, "resources": gpus(), **spec},
    }
    await world.api.create(QUEUES, wanted)


async def use(world: World, queue: str, *pod_names: str, gpu_count: int = 1, is_fixed: bool = False) -> None:
    """Create pods of a queue. ``is_fixed``: they can't be preempted."""
    labels = {names.QUEUE_LABEL: queue, **({names.PREEMPTIBILITY_LABEL: NON_PREEMPTIBLE} if is_fixed else {})}
    for name in pod_names:
        wanted = pod(name, gpus=gpu_count)
        wanted["metadata"]["labels"] = labels
        await create(world, wanted)


async def status(world: World, name: str) -> QueueStatus:
    """The status of a Queue as the API server has it."""
    return (await world.api.get(QUEUES, name)).status


async def says(world: World, name: str) -> dict[str, tuple[str, str]]:
    """Status and reason of each condition of a Queue."""
    return {each.type: (each.status, each.reason) for each in (await status(world, name)).conditions or ()}
