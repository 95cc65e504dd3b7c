"""All that a cluster holds, as one value, to see whether something has changed any of it."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Set
from typing import Any, Final

import msgspec
import numpy as np

#: What only keeps the value of a pure function of the rest, so that it is not computed twice. By class and attribute.
_KEPT_VALUES: Final = {
    ("DrawingTerms", "_judged"),
    ("DrawingTerms", "_known"),
    ("Ledger", "_admitted"),
    ("Ledger", "_domain_numbers"),
    ("Ledger", "_domains"),
    ("Ledger", "_eligible"),
    ("Ledger", "_in_order"),
    ("Ledger", "_judged"),
    ("Ledger", "_slice_rows"),
    ("Ledger", "effort_spent"),
    ("Ledger", "labels_version"),
    ("NodeNames", "_at"),
    ("NodeNames", "_positions"),
    ("NodeNumbers", "_changed"),
    ("NodeNumbers", "_first"),
    ("NodeNumbers", "_kept"),
    ("NodeNumbers", "effort_spent"),
    ("OthersTerms", "_judged"),
    ("PodColumns", "_columns"),
    ("PodColumns", "_written"),
    ("PodColumns", "effort_spent"),
    ("PodPlaces", "_asked"),
    ("PodPlaces", "_counts"),
    ("PodPlaces", "_first"),
    ("PodPlaces", "_notes"),
    ("PodPlaces", "_spent"),
    ("Queues", "_amounts_of"),
    ("Queues", "_divisions"),
    ("Queues", "_made"),
    ("Queues", "_tree"),
    ("OthersTerms", "_known"),
    ("OthersTerms", "_places"),
    ("Inventory", "_view"),
    ("Offers", "_view"),
    ("Storage", "_judged"),
    ("Storage", "_wanting"),
    ("Topologies", "_trees"),
    ("Changes", "_helped_since"),
}

_SLOTS: Final[dict[type, frozenset[str]]] = {}


def footprint(thing: object) -> list[object]:
    """Everything reachable from ``thing`` in the order of attributes and items; of objects each once."""
    found: list[object] = []
    _walk(thing, found, set())
    return found


def _walk(thing: object, found: list[object], seen: set[int]) -> None:
    match thing:
        case str() | bytes() | int() | float() | None:
            found.append(thing)
        case np.ndarray():
            found.append(thing.tobytes())
        case msgspec.Struct() if thing.__struct_config__.frozen:
            found += (thing.__class__, msgspec.json.encode(thing, enc_hook=repr))
        case tuple() | frozenset():
            found.append(thing.__class__)
            _inside(thing, found, seen)
        case _ if id(thing) in seen:
            found.append("again")
        case _ if callable(thing):
            found.append("a function")
        case _:
            seen.add(id(thing))
            found.append(thing.__class__)
            _inside(thing, found, seen)


def _inside(thing: Any, found: list[object], seen: set[int]) -> None:
    match thing:
        case dict() | Mapping():
            for key, value in thing.items():
                _walk(key, found, seen)
                _walk(value, found, seen)
        case list() | tuple():
            for item in thing:
                _walk(item, found, seen)
        case Set():
            found.append(frozenset(map(repr, thing)))
        case _:
            for name in sorted(_attributes(thing)):
                if (type(thing).__name__, name) not in _KEPT_VALUES and hasattr(thing, name):
                    found.append(name)
                    _walk(getattr(thing, name), found, seen)


def _attributes(thing: object) -> set[str]:
    return {*_slots(type(thing)), *getattr(thing, "__dict__", {})}


def _slots(of: type) -> frozenset[str]:
    if of not in _SLOTS:
        _SLOTS[of] = frozenset(name for cls in of.__mro__ for name in getattr(cls, "__slots__", ()))
    return _SLOTS[of]


def sizes(thing: object) -> Counter[str]:
    """How many items are in all containers that are reachable from ``thing``, by the attributes on the way there."""
    found: Counter[str] = Counter()
    _count(thing, "", found, set())
    return found


def _count(thing: object, path: str, found: Counter[str], seen: set[int]) -> None:
    if isinstance(thing, np.ndarray | str | bytes | int | float | type) or thing is None or id(thing) in seen:
        return
    if callable(thing) or (isinstance(thing, msgspec.Struct) and thing.__struct_config__.frozen):
        return
    seen.add(id(thing))
    if isinstance(thing, Mapping | Set | list | tuple | deque):
        found[path] += len(thing)
        for item in thing.values() if isinstance(thing, Mapping) else thing:
            _count(item, path, found, seen)
        return
    for name in _attributes(thing):
        if hasattr(thing, name):
            _count(getattr(thing, name), f"{path}.{name}", found, seen)
