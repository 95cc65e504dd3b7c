"""Nodes of one kind: more of one are as good for a group as more of another, as far as is seen at a glance.

Devices count where claims of the group need some. Drivers publish much that differs between machines of one kind:
UUIDs, addresses, names of interfaces. So of their attributes those are compared that the claims' selectors and rules
name. The cost is linear in nodes, devices, attributes, and the text of selectors.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

import msgspec

from scheduler.core.claims import copied_slices
from scheduler.core.claims.inventory import InventoryView, NodePool
from scheduler.core.filters.registry import OK
from scheduler.core.filters.resource_claims import ResourceSource
from scheduler.core.model.device_requests import DeviceNeed
from scheduler.core.model.devices import DeviceKind, Value
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.records import NodeRecord
from scheduler.core.what_if.trying import Trying

#: More kinds than that are not tried.
_MOST_KINDS: Final = 4
#: Names in an expression: among them those of the attributes that it reads.
_NAME: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*")

#: Name and value.
_Attribute: TypeAlias = tuple[str, Value]
_SOURCE: Final = ResourceSource()


def kinds(trying: Trying) -> list[str]:
    """Name a node of each kind on which pods of the group may be, by their constraints.

    Kinds of which there are most come first. Where pods need devices, kinds that have none for them come last.
    """
    snapshot, subject = trying.snapshot, trying.subject
    filters, view = snapshot.ledger.filters, snapshot.devices
    judges = [filters.judging(each) for cls in subject.classes() for each in cls.all_constraints()]
    claiming = subject.claiming(snapshot)
    compared = _compared(view, claiming)
    found: dict[tuple[object, object], list[NodeRecord]] = {}
    for node in snapshot.ledger.nodes:
        if node is not None and any(judge(opened(node)) == OK for judge in judges):
            devices = compared.of(_own_pools(view, node)) if claiming else frozenset()
            found.setdefault((_kind(node), devices), []).append(node)
    order = sorted(
        (bool(claiming) and not devices and not _offers(nodes[0], claiming), -len(nodes), _first(nodes))
        for (_, devices), nodes in found.items()
    )
    return [name for *_, name in order[:_MOST_KINDS]]


def opened(node: NodeRecord) -> NodeRecord:
    """Return the node as it would be if it were ready and not cordoned."""
    return msgspec.structs.replace(node, is_ready=True, is_cordoned=False)


def _first(nodes: Iterable[NodeRecord]) -> str:
    return min(node.name for node in nodes)


def _kind(node: NodeRecord) -> object:
    cards = node.smallest_card_mib, node.largest_card_mib, node.is_mig, node.is_multiplied, node.single_profile
    return node.capacity, node.pods, node.taints, cards


def _offers(node: NodeRecord, claiming: Iterable[PodClass]) -> bool:
    """Whether device plugins of the node serve one of these classes, which needs no claim then."""
    sources = (way.constraints.sources for cls in claiming for way in cls.ways() if not way.devices)
    return any(_SOURCE.admits(node, each) for each in sources)


# --- devices ---------------------------------------------------------------------------------------------------------
def _own_pools(view: InventoryView, node: NodeRecord) -> Iterable[NodePool]:
    """Pools that this node alone reaches: a further node has copies of these."""
    return (pool for pool in view.pools_on(node) if pool.pool.runs_at.keys() == {node.name})


class _Named(dict[str, bool]):
    """By the name of an attribute as drivers write it: whether it is one of these, which have no domain."""

    def __init__(self, names: Iterable[str]) -> None:
        super().__init__()
        self._names = frozenset(names)

    def __missing__(self, name: str) -> bool:
        is_one = self[name] = name.rpartition("/")[2] in self._names
        return is_one


class _Compared(NamedTuple):
    """Attributes whose ``values`` count, and those of rules, by which devices agree or differ (``agreeing``)."""

    values: _Named
    agreeing: _Named | None

    def of(self, pools: Iterable[NodePool]) -> frozenset[object]:
        """What tells these devices from those of another node, with their numbers."""
        is_read, found, numbers = self.values, defaultdict[object, int](int), dict[_Attribute, int]()
        for pool in pools:
            is_wrong = bool(pool.wrong)
            for device in pool.devices:
                kind = device.kind
                read = tuple([each for each in kind.attributes if is_read[each[0]]])
                agreed = () if self.agreeing is None else _agreed(kind, self.agreeing, numbers)
                said = kind.driver, kind.capacity, kind.is_shared, device.taints, device.unsupported
                found[is_wrong, said, read, agreed] += 1
        return frozenset(found.items())


def _agreed(kind: DeviceKind, is_ruled: _Named, numbers: dict[_Attribute, int]) -> tuple[tuple[str, int], ...]:
    """Attributes of rules, with a number in place of the value: devices of a node agree that have the same."""
    return tuple((each[0], numbers.setdefault(each, len(numbers))) for each in kind.attributes if is_ruled[each[0]])


def _compared(view: InventoryView, claiming: Iterable[PodClass]) -> _Compared:
    """The attributes that selectors of needs and of their DeviceClasses name, and those of rules between devices."""
    needs = {need for cls in claiming for need in _needs(cls)}
    asks = {ask for need in needs for ask in need.asks()}
    classes = (view.device_class(name) for name in {ask.device_class for ask in asks})
    texts = {text for ask in asks for text in ask.selectors}
    texts.update(text for each in classes if each is not None for text in each.selectors)
    names = {name for text in texts for name in _NAME.findall(text)}
    ruled = {rule.attribute.rpartition("/")[2] for need in needs for rule in need.rules}
    values = _Named(name for name in names if not copied_slices.names_one(name))
    return _Compared(values, _Named(ruled) if ruled else None)


def _needs(cls: PodClass) -> tuple[DeviceNeed, ...]:
    return (*cls.devices, *(way.need for way in cls.backed))
