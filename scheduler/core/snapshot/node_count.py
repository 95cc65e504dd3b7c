"""Nodes as a search may use them, and as a decision counts them: from all that is known, or if it had its way.

Each restriction of a search is a mask, one bool a position (None: all nodes), and masks are joined by ``both``: nodes
where a pod failed, nodes that owe an answer, and what else comes (a domain, a pool, a node kept for somebody).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Final, TypeAlias, TypeVar

import msgspec
import numpy as np

from gpu.book import Book
from gpu.reservation import Reservation
from scheduler.core.assumed.commits import Commits
from scheduler.core.model.records import NodeRecord
from scheduler.core.model.seen_pods import Pods
from scheduler.core.model.settings import Settings
from scheduler.core.nodes.ledger import Ledger
from scheduler.core.nodes.node_usage import Charge, NominatedPlace, Occupancy, count_kept, occupancy
from scheduler.core.nodes.table import Bools

NodeMask: TypeAlias = Bools | None


def all_but(names: Iterable[str], position_of: Mapping[str, int]) -> NodeMask:
    """All nodes but these; names that are no node's are passed over."""
    out = [position_of[name] for name in names if name in position_of]
    if not out:
        return None
    mask = np.ones(len(position_of), np.bool_)
    mask[out] = False
    return mask


def only(names: Iterable[str], position_of: Mapping[str, int]) -> Bools:
    """These nodes and no others; names that are no node's are passed over."""
    mask = np.zeros(len(position_of), np.bool_)
    mask[[position_of[name] for name in names if name in position_of]] = True
    return mask


def both(one: NodeMask, other: NodeMask) -> NodeMask:
    """Nodes that both let through."""
    if one is None or other is None:
        return other if one is None else one
    joined: Bools = one & other
    return joined


class Supposed(msgspec.Struct, frozen=True):
    """What a decision supposes of a node, beside the pods that it places there. ``evicted``: UIDs of pods.

    ``retired``: groups whose reservations are on their way out, idle devices that it gives back. ``lifted``: ids of
    nominations that charge nothing, as it places their nominated pods.
    """

    placed: tuple[Charge, ...] = ()
    evicted: Set[str] = frozenset()
    retired: Set[str] = frozenset()
    lifted: Set[str] = frozenset()

    @property
    def only_evicts(self) -> bool:
        """Whether it is nothing but that pods go."""
        return bool(self.evicted) and not (self.placed or self.retired or self.lifted)

    def reservation(self, held: Reservation) -> Reservation:
        """A reservation as it would be."""
        gone = held.group in self.retired
        if held.book is not None and not self.evicted.isdisjoint(held.book.entries):
            left = {uid: entry for uid, entry in held.book.entries.items() if uid not in self.evicted}
            held = msgspec.structs.replace(held, book=Book(left))
        return msgspec.structs.replace(held, deleting=True) if gone else held

    def charges(self, under_way: Iterable[Charge]) -> Iterable[Charge]:
        """What would be under way."""
        return (*(charge for charge in under_way if charge.pod_uid not in self.evicted), *self.placed)

    def kept(self, rooms: Iterable[NominatedPlace]) -> list[NominatedPlace]:
        """What nominations would keep."""
        return [room for room in rooms if room.nomination_id not in self.lifted]


#: Nothing is supposed.
AS_IT_IS: Final = Supposed()


def count_node(
    node: NodeRecord | None,
    name: str,
    *,
    pods: Pods,
    commits: Commits,
    settings: Settings,
    supposed: Supposed = AS_IT_IS,
) -> Occupancy:
    """Count what is used of a node. ``node``: its record; None where it is not known."""
    bound = [pod for pod in pods.bound_to(name) if pod.uid not in supposed.evicted]
    used = occupancy(
        node,
        pods=bound,
        reservations=map(supposed.reservation, pods.reserved_on(name)),
        charges=supposed.charges(commits.charges_at(name)),
        settings=settings,
    )
    kept = supposed.kept(commits.nominations.kept_at(name))
    return count_kept(used, kept, pods=bound, node=node, settings=settings)


T = TypeVar("T")


def differences(
    ledger: Ledger, nodes: Mapping[str, NodeRecord], *, pods: Pods, commits: Commits, settings: Settings
) -> list[str]:
    """Say where the ledger differs from what is known of nodes and pods.

    It recounts all nodes from all records, without the indexes that the ledger is kept by (invariant S12).
    """
    problems: list[str] = []
    if ledger.row_of.keys() != nodes.keys():
        problems.append(f"the ledger has nodes {sorted(ledger.row_of)}, known are {sorted(nodes)}")
    if pods.unbound.keys() != {uid for uid, pod in pods.records.items() if not (pod.node or pod.is_elsewhere)}:
        problems.append("the pods kept as unbound are not those without a node that are decided on here")
    bound = _by_node((pod.node, pod) for pod in pods.records.values())
    reserved = _by_node((r.node, r) for r in pods.reservations.values())
    charges = _by_node((charge.node, charge) for charge in commits.all_charges())
    kept = _by_node(commits.nominations.all_kept())
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
