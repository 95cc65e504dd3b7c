"""Makes a failing scenario smaller: fewer faults, fewer actions, fewer and smaller nodes, the same thing still wrong.

Delta debugging (Zeller and Hildebrandt 2002): leave out ever smaller parts, and keep what still fails. A smaller
scenario is another run altogether, so nothing is assumed of it but what ``fails`` says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

import msgspec

from verification.hostile.scenario import Scenario

T = TypeVar("T")

Fails = Callable[[Scenario], bool]

_GROUP: Final = re.compile(r"(?P<nodes>[0-9]+)x(?P<count>[0-9]+)x(?P<memory>[0-9]+[A-Za-z]+)")


class OutOfTries(Exception):
    """Raised inside when as many runs were made as may be."""


class _Counted:
    """Asks ``fails`` at most ``tries`` times, and keeps the smallest scenario that failed."""

    def __init__(self, fails: Fails, scenario: Scenario, tries: int) -> None:
        self._fails = fails
        self._left = tries
        self.best = scenario

    def __call__(self, scenario: Scenario) -> bool:
        if not self._left:
            raise OutOfTries
        self._left -= 1
        if not self._fails(scenario):
            return False
        self.best = scenario
        return True


def minimise(scenario: Scenario, fails: Fails, *, tries: int = 400) -> Scenario:
    """Return a scenario that still fails, from which nothing more can be left out (or ``tries`` runs were made)."""
    check = _Counted(fails, scenario, tries)
    try:
        before = None
        while before != check.best:
            before = check.best
            _fewer_faults(check)
            _fewer_actions(check)
            _simpler_nodes(check)
            _plainer_settings(check)
    except OutOfTries:
        pass
    return check.best


def _fewer_faults(check: _Counted) -> None:
    base = check.best
    smallest(base.faults, lambda kept: check(msgspec.structs.replace(base, faults=tuple(kept))))


def _fewer_actions(check: _Counted) -> None:
    base = check.best
    smallest(base.actions, lambda kept: check(msgspec.structs.replace(base, actions=tuple(kept))))


def _simpler_nodes(check: _Counted) -> None:
    """One node or one card less at a time. Nodes are numbered, so those behind a node that goes are renamed."""
    while any(check(msgspec.structs.replace(check.best, shapes=shapes)) for shapes in _simpler(check.best.shapes)):
        pass


def _plainer_settings(check: _Counted) -> None:
    """Put each setting that does not matter back to its default."""
    for name in check.best.settings.__struct_fields__:
        settings = check.best.settings
        default = getattr(type(settings)(), name)
        if getattr(settings, name) != default:
            plainer = msgspec.structs.replace(settings, **{name: default})
            check(msgspec.structs.replace(check.best, settings=plainer))


def smallest(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> Sequence[T]:
    """Return a part of ``items``, in order, that fails while no part of it with one left out does."""
    if not items or fails(()):
        return ()
    parts = 2
    while len(items) > 1:
        size = -(-len(items) // parts)
        chunks = [(*items[:start], *items[start + size :]) for start in range(0, len(items), size)]
        kept = next((chunk for chunk in chunks if chunk and fails(chunk)), None)
        if kept is not None:
            items, parts = kept, max(parts - 1, 2)
        elif size == 1:
            break
        else:
            parts = min(len(items), parts * 2)
    return items


def _simpler(shapes: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for i, shape in enumerate(shapes):
        others = (*shapes[:i], *shapes[i + 1 :])
        if others:
            yield others
        group = _GROUP.fullmatch(shape)
        if group is None:
            continue
        nodes, count, memory = int(group["nodes"]), int(group["count"]), group["memory"]
        if nodes > 1:
            yield (*shapes[:i], f"{nodes - 1}x{count}x{memory}", *shapes[i + 1 :])
        if count > 1:
            yield (*shapes[:i], f"{nodes}x{count - 1}x{memory}", *shapes[i + 1 :])
