"""What administrators do to queues, and what else pods of a run with queues need: priority classes and owners."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from typing_extensions import override

from kube.client.resources import CONFIG_MAPS, PRIORITY_CLASSES, QUEUES
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
