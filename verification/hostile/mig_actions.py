"""What administrators do with MIG slices: ask for layouts past the scheduler, withdraw, and offer nodes or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import override

from kube.client.resources import GPU_NODES, NODES
from verification.hostile.acting import Act
from wire import names

if TYPE_CHECKING:
    from simulator.world import World


class AskLayout(Act, frozen=True, kw_only=True, tag="ask-layout"):
    """Ask a node for a layout of its GPU number ``card``, each slice as ``1g.10gb@3``, past the scheduler."""

    node: str
    attempt: str
    slices: tuple[str, ...]
    card: int = 0

    @override
    async def _do(self, world: World) -> None:
        found = await world.api.get(GPU_NODES, self.node)
        cards = [each.uuid for each in found.status.cards or ()]
        if not cards:
            return
        uuid = cards[self.card % len(cards)]
        places = [each.split("@") for each in self.slices]
        layout = [{"profile": profile, "start": int(start)} for profile, start in places]
        kept: list[dict[str, Any]] = [
            {
                "uuid": each.uuid,
                "attempt": each.attempt,
                "layout": [{"profile": place.profile, "start": place.start} for place in each.layout],
            }
            for each in found.spec.mig or ()
            if each.uuid != uuid
        ]
        body = {"spec": {"mig": [*kept, {"uuid": uuid, "attempt": self.attempt, "layout": layout}]}}
        await world.api.patch(GPU_NODES, self.node, body, resource_version=found.metadata.resource_version)


class WithdrawLayouts(Act, frozen=True, kw_only=True, tag="withdraw-layouts"):
    """Take back all that is asked of a node."""

    node: str

    @override
    async def _do(self, world: World) -> None:
        await world.api.patch(GPU_NODES, self.node, {"spec": {"mig": None}})


class OfferGpus(Act, frozen=True, kw_only=True, tag="offer-gpus"):
    """Offer the GPUs of a node to be cut, or do so no longer."""

    node: str
    is_offered: bool = True

    @override
    async def _do(self, world: World) -> None:
        value = names.MIG_DYNAMIC if self.is_offered else None
        await world.api.patch(NODES, self.node, {"metadata": {"labels": {names.NODE_MIG: value}}})


#: Everything that is done with slices.
MigAction = AskLayout | WithdrawLayouts | OfferGpus
