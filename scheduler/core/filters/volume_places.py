"""Where the bound volumes of a pod can be used: by the zones of their labels, and by their own node affinity."""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from scheduler.core.filters.filter import Filter
from scheduler.core.filters.node_affinity import effort_of, holds
from scheduler.core.model.pod_class import Constraints, Term, VolumeRule
from scheduler.core.model.records import NodeRecord
from wire import names

#: Label of a zone or a region -> the one that has replaced it.
NEW_LABELS: Final = {names.OLD_ZONE_LABEL: names.ZONE_LABEL, names.OLD_REGION_LABEL: names.REGION_LABEL}
ZONE_LABELS: Final = frozenset({*NEW_LABELS, *NEW_LABELS.values()})

Rules = tuple[VolumeRule, ...]


class VolumeZone(Filter):
    """Zone and region labels of volumes. It comes before their affinity, as at kube-scheduler."""

    kind = "volume-zone"
    words = "node(s) had no available volume zone"

    @override
    def asked(self, constraints: Constraints) -> Rules | None:
        """What each volume asks."""
        return constraints.volumes or None

    @override
    def admits(self, node: NodeRecord, asked: Rules) -> bool:
        """Whether the node is in each volume's zone. One without any label of a zone or a region is in all of them."""
        if ZONE_LABELS.isdisjoint(node.labels):
            return True
        zones = (zone for rule in asked for zone in rule.zones)
        return all(node.labels.get(key, node.labels.get(NEW_LABELS.get(key, key))) in values for key, values in zones)

    @override
    def effort(self, asked: Rules) -> int:
        """Each zone is compared."""
        return sum(1 + len(rule.zones) for rule in asked)

    @override
    def reads(self, node: NodeRecord) -> object:
        """The labels."""
        return node.labels


class VolumeAffinity(Filter):
    """``spec.nodeAffinity`` of PersistentVolumes."""

    kind = "volume-affinity"
    words = "node(s) didn't match PersistentVolume's node affinity"

    @override
    def asked(self, constraints: Constraints) -> tuple[tuple[Term, ...], ...] | None:
        """The terms of each volume that has some."""
        return tuple(rule.terms for rule in constraints.volumes if rule.terms is not None) or None

    @override
    def admits(self, node: NodeRecord, asked: tuple[tuple[Term, ...], ...]) -> bool:
        """Whether a term of each volume holds."""
        return all(any(holds(term, node) for term in terms) for terms in asked)

    @override
    def effort(self, asked: tuple[tuple[Term, ...], ...]) -> int:
        """Each expression is compared."""
        return sum(map(effort_of, asked))

    @override
    def reads(self, node: NodeRecord) -> object:
        """Labels and name."""
        return (node.name, node.labels)
