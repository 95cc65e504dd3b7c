"""The node agent: tells which device kubelet gave to a reservation, before its process runs (protocol.md, Told early).

It asks kubelet by name. Until kubelet has heard that a predecessor was deleted by force, the name means that one.
"""

from __future__ import annotations

from collections.abc import Iterator

from verification.model import server
from verification.model.config import Config
from verification.model.rules import Rules
from verification.model.state import DEVICE, ENDED, PENDING, Late, Resv, Step, World


class Witness:
    """The agent of the node, if it has one."""

    def __init__(self, config: Config, rules: Rules) -> None:
        self._config = config
        self._rules = rules

    def steps(self, world: World, group: int, resv: Resv) -> Iterator[Step]:
        """What it may tell of one reservation: at once, or by a patch that lands later, if at all."""
        if not self._config.witness or (resv.uuid and not resv.witnessed):
            return
        for device in self._named(world, group, resv):
            if device == resv.uuid:
                continue
            told = Late("witness", (group, resv.uid, resv.rv, device))
            after = server.tell_early(world, told, self._rules)
            if after is not None:
                yield ("agent", "tells early", group, device), after
            if world.left.late_words:
                left = world.left._replace(late_words=world.left.late_words - 1)
                label = ("!agent", "tells early, but later", group, device)
                yield label, world._replace(late=(*world.late, told), left=left)

    def _named(self, world: World, group: int, resv: Resv) -> tuple[int, ...]:
        """What kubelet answers to the reservation's name."""
        if resv.phase == ENDED and not self._rules.witness_of_living:
            # The one that it had, and that others may have by now.
            return tuple(range(DEVICE, DEVICE + self._config.devices))
        if resv.phase != PENDING or (self._rules.witness_after_start and not resv.dev):
            return ()
        before = tuple(device for behind, device in world.left_behind if behind == group)
        return before or ((resv.dev,) if resv.dev else ())
