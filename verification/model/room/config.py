"""A configuration of the model of making room: how much of everything there is, and what may go wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from verification.model.room.state import Leader, Left, Pod, World

NOTHING: Final = Left()
#: What a group may do: have room made, be evicted for others, or neither.
TAKES: Final = "takes"
GIVES: Final = "gives"
PLAIN: Final = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """``nodes``: places of each. ``groups``: what each may do. ``pods``: (group, node) of each, NOWHERE if it waits.

    ``leaders``: schedulers that take themselves for the leader, all the time. ``stayers``: pods that never end once
    they are evicted. ``refused``: pods of which every eviction is refused. ``rests``: whether it is checked that all
    comes to an end.
    """

    nodes: tuple[int, ...]
    groups: tuple[str, ...]
    pods: tuple[tuple[int, int], ...]
    leaders: int = 1
    stayers: tuple[int, ...] = ()
    refused: tuple[int, ...] = ()
    left: Left = NOTHING
    rests: bool = True

    @property
    def is_fenced(self) -> bool:
        """Whether one leader acts at a time: each request is over before its lease is (kube/client/fence.py)."""
        return self.leaders == 1

    def members(self, group: int) -> tuple[int, ...]:
        """Slots of a group's pods."""
        return tuple(slot for slot, (of, _) in enumerate(self.pods) if of == group)

    def world(self) -> World:
        """The first state: nobody has decided anything."""
        return World(
            pods=tuple(Pod(node) for _, node in self.pods),
            foreign=(0,) * len(self.nodes),
            plans=((),) * len(self.groups),
            record=(),
            leaders=(Leader(),) * self.leaders,
            late=(),
            left=self.left,
        )
