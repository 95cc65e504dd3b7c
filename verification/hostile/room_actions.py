"""What users do about evictions: PodDisruptionBudgets that come, change and go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from typing_extensions import override

from kube.client.resources import POD_DISRUPTION_BUDGETS
from verification.hostile.acting import Act

if TYPE_CHECKING:
    from simulator.world import World

_NAMESPACE: Final = "team"


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
