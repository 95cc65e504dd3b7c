"""A recount of all nodes from all records, without the indexes that the ledger is kept by (invariant S12)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from scheduler.core.assumed.assumed import Commits
from scheduler.core.model.records import NodeRecord
from scheduler.core.model.seen_pods import Pods
from scheduler.core.model.settings import Settings
from scheduler.core.nodes.kept_room import count_kept
from scheduler.core.nodes.ledger import Ledger
from scheduler.core.nodes.node_usage import occupancy

T = TypeVar("T")


def differences(
    ledger: Ledger, nodes: Mapping[str, NodeRecord], *, pods: Pods, commits: Commits, settings: Settings
) -> list[str]:
    """Say where the ledger differs from what is known of nodes and pods."""
    problems: list[str] = []
    if ledger.row_of.keys() != nodes.keys():
        problems.append(f"the ledger has nodes {sorted(ledger.row_of)}, known are {sorted(nodes)}")
    if pods.unbound.keys() != {uid for uid, pod in pods.records.items() if not (pod.node or pod.is_elsewhere)}:
        problems.append("the pods kept as unbound are not those without a node that are decided on here")
    bound = _by_node((pod.node, pod) for pod in pods.records.values())
    reserved = _by_node((r.node, r) for r in pods.reservations.values())
    charges = _by_node((charge.node, charge) for charge in commits.all_charges())
    kept = _by_node(commits.intents.all_kept())
    for name, node in sorted(nodes.items()):
        here = bound.get(name, ())
        reservations, under_way = reserved.get(name, ()), charges.get(name, ())
        used = occupancy(node, pods=here, reservations=reservations, charges=under_way, settings=settings)
        count_kept(used, kept.get(name, ()), pods=here, node=node, settings=settings)
        problems += ledger.differences(name, used)
    return problems


def _by_node(pairs: Iterable[tuple[str, T]]) -> dict[str, list[T]]:
    found: dict[str, list[T]] = {}
    for node, item in pairs:
        found.setdefault(node, []).append(item)
    return found
