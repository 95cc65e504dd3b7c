"""The door of the core for Topology objects."""

from __future__ import annotations

from typing import Final

from scheduler.core.model.topology import TopologyLevel, TopologyRecord
from wire.crds.topology import Topology

#: More levels than KAI's CRD admits are not looked at: each costs a look at all nodes.
MOST_LEVELS: Final = 16


def topology_record(topology: Topology) -> TopologyRecord:
    """Read a Topology."""
    levels = tuple(TopologyLevel(level.node_label, level.alias or "") for level in topology.spec.levels[:MOST_LEVELS])
    return TopologyRecord(topology.metadata.name, levels)
