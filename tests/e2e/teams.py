"""A scene with queues of its own, and the workloads of teams in them."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

from tests.e2e.cluster import AFTER_FAILURE_S, EMPTY_WITHIN_S, PATIENCE_S, Pod, Scene, eventually, pod, scene
from tests.e2e.grouped import Workloads
from tests.e2e.shown import total
from tests.e2e.workloads import Json
from tools.cluster.deployment import SCHEDULER, Deployment
from tools.cluster.plane import ControlPlane
from wire import names

_QUEUES: Final = ("scheduling.run.ai", "v2", "queues")
_FREE: Final = {"quota": -1, "limit": -1, "overQuotaWeight": 1}

_numbers = itertools.count()


class Teams(Workloads):
    """A scene with queues of its own."""

    def __init__(self, on: Scene, moorage: Deployment) -> None:
        super().__init__(on)
        self._moorage = moorage

    def name(self, queue: str) -> str:
        """The queue's name in the cluster."""
        return f"{self.on.namespace}-{queue}" if queue else ""

    async def queue(self, queue: str, parent: str = "", *, more: Json | None = None, **gpu: float) -> None:
        """Create a queue; ``gpu``: quota, limit and weight of GPUs; ``more``: further fields of its spec."""
        body = {
            "apiVersion": "scheduling.run.ai/v2",
            "kind": "Queue",
            "metadata": {"name": self.name(queue)},
            "spec": {"parentQueue": self.name(parent), "resources": _resources(**gpu), **(more or {})},
        }
        await self.on.custom.create_cluster_custom_object(*_QUEUES, body)

    async def change(self, queue: str, **gpu: float) -> None:
        """Change what a queue may use of GPUs."""
        patch = [{"op": "replace", "path": "/spec/resources", "value": _resources(**gpu)}]
        await self.on.custom.patch_cluster_custom_object(*_QUEUES, self.name(queue), patch)

    async def remove(self, queue: str) -> None:
        """Delete a queue."""
        await self.on.custom.delete_cluster_custom_object(*_QUEUES, self.name(queue))

    async def known(self, queue: str, *, is_there: bool) -> None:
        """Wait until the scheduler has heard that a queue is there, or has gone: it watches pods apart from these."""

        async def is_known() -> bool | None:
            shown = await total(self._moorage, SCHEDULER, "kai_queue_info", queue_metadata_name=self.name(queue))
            return bool(shown) is is_there or None

        await eventually(is_known, f"the scheduler to know of {queue}", within_s=PATIENCE_S)

    async def take_down(self, *, within_s: float = EMPTY_WITHIN_S) -> None:
        """Delete the scene's workloads and wait until they are gone; then its queues, children first."""
        await self.end_owners()
        await self.on.empty(within_s=within_s)
        while mine := [
            each for each in await self._queues() if each["metadata"]["name"].startswith(self.name("x")[:-1])
        ]:
            parents = {each["spec"].get("parentQueue") for each in mine}
            for each in mine:
                if each["metadata"]["name"] not in parents:
                    await self.on.custom.delete_cluster_custom_object(*_QUEUES, each["metadata"]["name"])

    async def _queues(self) -> list[Json]:
        found: list[Json] = (await self.on.custom.list_cluster_custom_object(*_QUEUES))["items"]
        return found

    def of(self, queue: str, made: Pod) -> Pod:
        """A pod that waits in a queue."""
        labels = made["metadata"].setdefault("labels", {})
        labels[names.QUEUE_LABEL] = self.name(queue)
        return made

    async def submit(self, queue: str, count: int, **labels: str) -> list[str]:
        """Create pods of one GPU, named after their queue."""
        pods = [self.of(queue, pod(f"{queue}-{next(_numbers)}", gpus=1, labels=dict(labels))) for _ in range(count)]
        await self.on.create(*pods)
        return [each["metadata"]["name"] for each in pods]

    async def gang(self, queue: str, name: str, minimum: int) -> None:
        """Create a PodGroup in a queue, and its pods of one GPU."""
        group = {
            "apiVersion": "scheduling.run.ai/v2alpha2",
            "kind": "PodGroup",
            "metadata": {"name": name},
            "spec": {"minMember": minimum, "queue": self.name(queue)},
        }
        await self.on.custom.create_namespaced_custom_object(
            "scheduling.run.ai", "v2alpha2", self.on.namespace, "podgroups", group
        )
        annotations = {names.POD_GROUP_NAME: name}
        await self.on.create(*(pod(f"{name}-{n}", gpus=1, annotations=dict(annotations)) for n in range(minimum)))

    async def fill(self, gpus: int) -> None:
        """Use all GPUs, in a queue of its own, by a pod that nobody may evict."""
        await self.queue("filler", quota=gpus)
        labels = {names.PREEMPTIBILITY_LABEL: "non-preemptible"}
        await self.on.create(self.of("filler", pod("filler", gpus=gpus, labels=labels)))
        await self.on.running(1)

    async def make_way(self) -> None:
        """Have all GPUs come free, once everything that was submitted says that it waits."""

        async def all_wait() -> bool | None:
            waiting = [found for name, found in (await self.on.pods()).items() if name != "filler"]
            told = [each for each in waiting if each["status"].get("conditions")]
            return len(told) == len(waiting) or None

        await eventually(all_wait, "all pods to say why they wait", within_s=PATIENCE_S)
        await self.on.delete("filler")

    async def served(self, count: int) -> Counter[str]:
        """Wait until so many pods run; return how many of each queue."""
        return Counter(name.split("-")[0] for name in bound(await self.on.running(count)))

    async def stays(self, *waiting: str) -> None:
        """See that these pods name no node."""
        pods = await self.on.pods()
        assert not [name for name in waiting if pods[name]["spec"].get("nodeName")]


SetTeams = Callable[..., AbstractAsyncContextManager[Teams]]


@asynccontextmanager
async def teams(
    plane: ControlPlane, namespace: str, shapes: Sequence[str], moorage: Deployment
) -> AsyncIterator[Teams]:
    """Set a scene for teams; its queues go with it."""
    async with scene(plane, namespace, shapes) as on:
        made = Teams(on, moorage)
        try:
            yield made
        except BaseException:
            with contextlib.suppress(AssertionError):  # it would hide what failed first
                await made.take_down(within_s=AFTER_FAILURE_S)
            raise
        await made.take_down()


def _resources(quota: float = 0, limit: float = -1, weight: float = 1) -> Json:
    gpu = {"quota": quota, "limit": limit, "overQuotaWeight": weight}
    return {"cpu": _FREE, "memory": _FREE, "gpu": gpu}


def bound(pods: dict[str, Pod]) -> list[str]:
    return sorted(name for name, found in pods.items() if found["spec"].get("nodeName"))
