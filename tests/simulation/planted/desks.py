"""A faulty desk: it joins whatever reservation has the group's name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typing_extensions import override

from binder.bind.join_batches import JoinBatcher
from gpu.reservation import Reservation
from sharing.outcome import Failed


class LooksUpWithoutNode(JoinBatcher):
    """R1 once more: a reservation is looked up by its group, and not by its node."""

    @override
    async def _held(self, group: str, node: str, batch: Sequence[Any]) -> Reservation | Failed:
        return self._view.reservations.get(group) or await super()._held(group, node, batch)
