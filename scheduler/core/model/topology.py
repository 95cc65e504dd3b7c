"""What gangs ask of the places of their pods, and the Topology objects that say which places there are."""

from __future__ import annotations

import msgspec


class LevelConstraint(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """Within one domain of which level pods have to be, or had better be; "": not asked. As it was written."""

    topology: str
    required: str = ""
    preferred: str = ""


class TopologyLevel(msgspec.Struct, frozen=True, gc=False):
    """A level: nodes with the same value of the label are one domain. ``alias``: another name of it, "" without one."""

    label: str
    alias: str = ""


class TopologyRecord(msgspec.Struct, frozen=True, gc=False):
    """A Topology: its levels from coarse to fine."""

    name: str
    levels: tuple[TopologyLevel, ...]

    @property
    def key(self) -> str:
        """Topologies are known by their name."""
        return self.name

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of its levels, coarse to fine."""
        return tuple(level.label for level in self.levels)

    def depth_of(self, level: str) -> int | None:
        """How many levels there are down to the one of this label or alias; None if it has no such level."""
        found = (depth for depth, each in enumerate(self.levels, 1) if level in {each.label, each.alias})
        return next(found, None) if level else None
