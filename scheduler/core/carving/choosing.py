"""On which node slices are made for pods that wait: where it costs least, and where the pods start then.

Whether they start is a decision on a changed snapshot, in which the node has the slices: by the same rules, queues and
gangs as any. So nothing is cut for a pod that something else keeps waiting.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from scheduler.core.carving.cutting import CardCut, cuts
from scheduler.core.carving.wanting import SliceWant
from scheduler.core.cluster import Cluster
from scheduler.core.decide.allowance import Limits
from scheduler.core.decide.as_if import decide_as_if
from scheduler.core.decide.changes import AnotherNode, Change, NoRoomMade, OnlyThese
from scheduler.core.model.mig_card import MigCard, MigNode
from scheduler.core.model.plan import placements
from scheduler.core.model.records import NodeRecord
from wire import names

#: Groups that are looked at, and nodes that are tried for one.
_MOST_WANTS: Final = 16
_MOST_TRIES: Final = 8
#: Operations of about a microsecond that one try may do, as decisions count them.
_MOST_OPERATIONS: Final = 60_000


class Carve(msgspec.Struct, frozen=True):
    """Ask a node to cut a GPU so, for these pods (UIDs)."""

    node: str
    cut: CardCut
    uids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Chosen:
    """``carves`` for those that get slices; ``none``: those for which nothing can be cut now."""

    carves: tuple[Carve, ...]
    none: tuple[SliceWant, ...]


@dataclass(frozen=True, slots=True)
class _Offer:
    """What could be cut on one node for one group."""

    node: NodeRecord
    cuts: tuple[CardCut, ...]
    left: Counter[str]

    @property
    def cost(self) -> tuple[int, tuple[int, ...], str]:
        """Fewest slices missing, then fewest destroyed, least lost, fullest GPUs."""
        costs = [each.cost for each in self.cuts]
        return self.left.total(), tuple(map(sum, zip(*costs, strict=True))), self.node.name


def choose(
    cluster: Cluster, wants: Sequence[SliceWant], nodes: Mapping[str, MigNode], *, busy: Container[str], now_ns: int
) -> Chosen:
    """Choose for the first of these. ``busy``: UUIDs of GPUs that are cut now or rest. Leaves the cluster unchanged."""
    offered = sorted(name for name in nodes if _is_offered(cluster.node(name)))
    taken, carves, none = set[str](), list[Carve](), list[SliceWant]()
    for want in wants[:_MOST_WANTS] if offered else ():
        there = {name: _free_cards(nodes[name], busy, taken) for name in offered}
        found = _for_one(cluster, want, there, now_ns)
        if not found:
            none.append(want)
        taken |= {carve.cut.uuid for carve in found}
        carves += found
    return Chosen(tuple(carves), tuple(none))


def _is_offered(node: NodeRecord | None) -> bool:
    """Whether its administrator offers its GPUs, and its device plug-in names slices by their profile."""
    if node is None or node.labels.get(names.NODE_MIG) != names.MIG_DYNAMIC:
        return False
    return node.labels.get(names.NODE_MIG_STRATEGY) == _MIXED


_MIXED: Final = "mixed"


def _free_cards(node: MigNode, busy: Container[str], taken: Container[str]) -> list[MigCard]:
    return [card for card in node.cards if card.is_ready and card.uuid not in busy and card.uuid not in taken]


def _for_one(cluster: Cluster, want: SliceWant, there: Mapping[str, list[MigCard]], now_ns: int) -> list[Carve]:
    offers = sorted((one for name, cards in there.items() if (one := _offer(cluster, name, cards, want))), key=_cost)
    whole = list[tuple[_Offer, ...]]((one,) for one in offers if not one.left)[:_MOST_TRIES]
    if not whole and want.pod_group is not None:
        whole = [_together(offers, want)]
    for tried in whole:
        if len(tried) > 0 and _starts(cluster, want, tried, now_ns):
            return [Carve(one.node.name, each, want.uids) for one in tried for each in one.cuts]
    return []


def _cost(offer: _Offer) -> tuple[int, tuple[int, ...], str]:
    return offer.cost


def _offer(cluster: Cluster, name: str, cards: list[MigCard], want: SliceWant) -> _Offer | None:
    node = cluster.node(name)
    if node is None or not cards:
        return None
    free = cluster.free_slices(name)
    missing = Counter(dict(want.resources))
    missing -= Counter({resource: max(0, number) for resource, number in free.items()})
    shown = Counter(each.resource for card in cards for each in card.slices if not each.in_use)
    spoken = {resource: number for resource, number in (shown - Counter(free)).items() if number > 0}
    found, left = cuts(cards, missing, spoken)
    return _Offer(node, tuple(found), left) if found else None


def _together(offers: Sequence[_Offer], want: SliceWant) -> tuple[_Offer, ...]:
    """Nodes that have all slices of a gang together, as far as their sum tells."""
    missing, found = Counter(dict(want.resources)), list[_Offer]()
    for one in offers:
        if missing:
            found.append(one)
            missing -= Counter({name: number for each in one.cuts for name, number in each.new})
    return tuple(found)


def _starts(cluster: Cluster, want: SliceWant, offers: Iterable[_Offer], now_ns: int) -> bool:
    """Whether pods of the group are placed where these nodes have the slices."""
    changed: list[Change] = [OnlyThese(frozenset(want.uids)), NoRoomMade()]
    changed += [AnotherNode(_with(one.node, one.cuts)) for one in offers]
    limits = Limits(most=_MOST_OPERATIONS)
    decision = decide_as_if(cluster.snapshot(), *changed, now_ns=now_ns, limits=limits)
    return any(placed.pod_uid in want.uids for placed in placements(decision.entries))


def _with(node: NodeRecord, found: Iterable[CardCut]) -> NodeRecord:
    """The node after these cuts."""
    amounts = Counter(dict(node.capacity.extended))
    for each in found:
        amounts.update(dict(each.new))
        amounts.subtract(dict(each.gone))
    extended = tuple(sorted((name, amount) for name, amount in amounts.items() if amount > 0))
    return msgspec.structs.replace(node, capacity=msgspec.structs.replace(node.capacity, extended=extended))
