"""What administrators do to queues, node pools and budgets, and what else such runs need: priority classes and owners.

Nodes, pods, PodGroups and Queues get another value of the label of node pools, or lose it; PodDisruptionBudgets come,
change and go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from typing_extensions import override

from kube.client.resources import CONFIG_MAPS, NODES, POD_DISRUPTION_BUDGETS, POD_GROUPS, PODS, PRIORITY_CLASSES, QUEUES
from verification.hostile.acting import Act
from wire import names

if TYPE_CHECKING:
    from simulator.world import World

_NAMESPACE: Final = "team"

#: By resource: ``quota``, ``limit`` and ``overQuotaWeight``, right or wrong.
Amounts = dict[str, dict[str, float]]


class _OfAmounts(Act, frozen=True, kw_only=True):
    """Writes amounts. They are floats however they were made, so that a script that was read writes the same bytes."""

    resources: Amounts = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        amounts = {name: {key: float(value) for key, value in each.items()} for name, each in self.resources.items()}
        msgspec.structs.force_setattr(self, "resources", amounts)


class CreateQueue(_OfAmounts, frozen=True, kw_only=True, tag="create-queue"):
    """Create a queue. ``preempt_min``, ``reclaim_min``: its minimum run times as it says them; "" says none.

    ``pool``: its node pool.
    """

    name: str
    parent: str = ""
    priority: int | None = None
    preempt_min: str = ""
    reclaim_min: str = ""
    pool: str = ""

    @override
    async def _do(self, world: World) -> None:
        spec: dict[str, Any] = {"resources": self.resources, **_minimums(self.preempt_min, self.reclaim_min)}
        if self.parent:
            spec["parentQueue"] = self.parent
        if self.priority is not None:
            spec["priority"] = self.priority
        labels = {"labels": {names.NODE_POOL_LABEL: self.pool}} if self.pool else {}
        await world.api.create(QUEUES, {"metadata": {"name": self.name, **labels}, "spec": spec})


class EditQueue(_OfAmounts, frozen=True, kw_only=True, tag="edit-queue"):
    """Change a queue: amounts, its parent ("" moves it to the top), its priority, or its minimum run times."""

    name: str
    parent: str | None = None
    priority: int | None = None
    preempt_min: str = ""
    reclaim_min: str = ""

    @override
    async def _do(self, world: World) -> None:
        fields = {"parentQueue": self.parent, "priority": self.priority, "resources": self.resources or None}
        spec: dict[str, Any] = {field: value for field, value in fields.items() if value is not None}
        spec.update(_minimums(self.preempt_min, self.reclaim_min))
        await world.api.patch(QUEUES, self.name, {"spec": spec})


def _minimums(preempt: str, reclaim: str) -> dict[str, str]:
    said = {"preemptMinRuntime": preempt, "reclaimMinRuntime": reclaim}
    return {field: value for field, value in said.items() if value}


class DeleteQueue(Act, frozen=True, kw_only=True, tag="delete-queue"):
    """Delete a queue, even with pods in it."""

    name: str

    @override
    async def _do(self, world: World) -> None:
        await world.api.delete(QUEUES, self.name)


class CreatePriorityClass(Act, frozen=True, kw_only=True, tag="create-priority-class"):
    """Create a priority class."""

    name: str
    value: int

    @override
    async def _do(self, world: World) -> None:
        await world.api.create(PRIORITY_CLASSES, {"metadata": {"name": self.name}, "value": self.value})


class CreateOwner(Act, frozen=True, kw_only=True, tag="create-owner"):
    """Create what owns pods, as an operator's object does: a ConfigMap, of which nobody knows anything."""

    name: str

    @override
    async def _do(self, world: World) -> None:
        await world.api.create(CONFIG_MAPS, {"metadata": {"name": self.name}}, namespace=_NAMESPACE)


class DeleteOwner(Act, frozen=True, kw_only=True, tag="delete-owner"):
    """Delete an owner: its pods are collected."""

    name: str

    @override
    async def _do(self, world: World) -> None:
        await world.api.delete(CONFIG_MAPS, self.name, namespace=_NAMESPACE)


if TYPE_CHECKING:
    from simulator.world import World

_POOLS_NAMESPACE = "team"


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
        await world.api.patch(PODS, self.pod, _label(self.pool), namespace=_POOLS_NAMESPACE)


class MoveGroup(Act, frozen=True, kw_only=True, tag="move-group"):
    """The same for a PodGroup, which may be starting."""

    group: str
    pool: str = ""

    @override
    async def _do(self, world: World) -> None:
        await world.api.patch(POD_GROUPS, self.group, _label(self.pool), namespace=_POOLS_NAMESPACE)


class MoveQueue(Act, frozen=True, kw_only=True, tag="move-queue"):
    """The same for a queue, with what waits and runs in it."""

    queue: str
    pool: str = ""

    @override
    async def _do(self, world: World) -> None:
        await world.api.patch(QUEUES, self.queue, _label(self.pool))


if TYPE_CHECKING:
    from simulator.world import World


class CreateBudget(Act, frozen=True, kw_only=True, tag="create-budget"):
    """Create a PodDisruptionBudget of which ``least`` pods stay. Without ``labels`` it is for all of the namespace."""

    name: str
    least: int
    labels: dict[str, str] = msgspec.field(default_factory=dict)

    @override
    async def _do(self, world: World) -> None:
        selector: dict[str, Any] = {"matchLabels": self.labels} if self.labels else {}
        body = {"metadata": {"name": self.name}, "spec": {"minAvailable": self.least, "selector": selector}}
        await world.api.create(POD_DISRUPTION_BUDGETS, body, namespace=_NAMESPACE)


class EditBudget(Act, frozen=True, kw_only=True, tag="edit-budget"):
    """Change how many pods of a budget have to stay."""

    name: str
    least: int

    @override
    async def _do(self, world: World) -> None:
        body = {"spec": {"minAvailable": self.least}}
        await world.api.patch(POD_DISRUPTION_BUDGETS, self.name, body, namespace=_NAMESPACE)


class DeleteBudget(Act, frozen=True, kw_only=True, tag="delete-budget"):
    """Delete a budget."""

    name: str

    @override
    async def _do(self, world: World) -> None:
        await world.api.delete(POD_DISRUPTION_BUDGETS, self.name, namespace=_NAMESPACE)
