"""What people do about node pools: nodes, pods, PodGroups and Queues get another value of the label, or lose it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import override

from kube.client.resources import NODES, POD_GROUPS, PODS, QUEUES
from verification.hostile.acting import Act
from wire import names

if TYPE_CHECKING:
    from simulator.world import World

_NAMESPACE = "team"


def _label(pool: str) -> dict[str, Any]:
    return {"metadata": {"labels": {names.NODE_POOL_LABEL: pool or None}}}


class MoveNode(Act, frozen=True, kw_only=True, tag="move-node"):
    """Give a node to another pool, with the pods that run there or are on their way. "": take the label away."""

    node: str
    pool: str = ""

    @override
    async def _do(self, world: World) -> None:
        await world.api.patch(NODES, self.node, _label(self.pool))


class MovePod(Act, frozen=True, kw_only=True, tag="move-pod"):
    """The same for a pod, which may be on its way."""

    pod: str
    pool: str = ""

    @override
    async def _do(self, world: World) -> None:
        await world.api.patch(PODS, self.pod, _label(self.pool), namespace=_NAMESPACE)


class MoveGroup(Act, frozen=True, kw_only=True, tag="move-group"):
    """The same for a PodGroup, which may be starting."""

    group: str
    pool: str = ""

    @override
    async def _do(self, world: World) -> None:
        await world.api.patch(POD_GROUPS, self.group, _label(self.pool), namespace=_NAMESPACE)


class MoveQueue(Act, frozen=True, kw_only=True, tag="move-queue"):
    """The same for a queue, with what waits and runs in it."""

    queue: str
    pool: str = ""

    @override
    async def _do(self, world: World) -> None:
        await world.api.patch(QUEUES, self.queue, _label(self.pool))
