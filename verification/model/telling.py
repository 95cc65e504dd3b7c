"""Tells a path as text. Each state of a path has names of its own; here everything keeps one name all along."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

from verification.model.canonical import Canonical
from verification.model.state import DEVICE, GROUP, NAMES, PLAN, POD, VERSIONS, World, owner_of, slot_of

_LETTERS: Final = {DEVICE: "device", 400: "R", 500: "attempt", PLAN: "plan"}
Steps = Callable[[World], Iterator[tuple[tuple[Any, ...], World]]]


class _Names:
    """Display names: for what has a name in the state at hand."""

    def __init__(self) -> None:
        self._shown: dict[int, str] = {}
        self._counts: dict[str, int] = {}

    def show(self, name: int) -> str:
        """The display name; a new one for what is new."""
        shown = self._shown.get(name)
        if shown is None:
            shown = self._shown[name] = self._new(name)
        return shown

    def moved(self, renaming: dict[int, int]) -> None:
        """Go on to the next state, in which names are others."""
        self._shown = {renaming[name]: self.show(name) for name in renaming}

    def _new(self, name: int) -> str:
        if name >= POD * VERSIONS:
            owner = self.show(owner_of(name))
            return f"{owner}.v{self._next(owner)}"
        if name < GROUP:
            made = self._next(f"pod {slot_of(name)}")
            return "ABCDEF"[slot_of(name)] + "'" * (made - 1)
        if name < DEVICE:
            return f"group {self._next('group')}"
        kind = _LETTERS[name // NAMES * NAMES]
        return f"{kind}{self._next(kind)}"

    def _next(self, kind: str) -> int:
        self._counts[kind] = self._counts.get(kind, 0) + 1
        return self._counts[kind]


def told(steps: Steps, canonical: Canonical, path: Sequence[World]) -> list[str]:
    """One line for each step of a path of representatives, and the last state."""
    names = _Names()
    for name in sorted(_names(path[0])):
        names.show(name)
    lines: list[str] = []
    for world, wanted in pairwise(path):
        for label, after in steps(world):
            found, _, renaming = canonical.renamed(after)
            if found == wanted:
                lines.append(_line(label, names))
                names.moved(renaming)
                break
    return [*lines, *_described(path[-1], names)]


def _names(part: Any) -> set[int]:
    if isinstance(part, tuple):
        return {name for item in part for name in _names(item)}
    return {part} if type(part) is int and part >= NAMES else set()


def _line(label: tuple[Any, ...], names: _Names) -> str:
    return " ".join(_text(part, names) for part in label if part != "")


def _text(part: Any, names: _Names) -> str:
    if isinstance(part, tuple):
        fields = getattr(part, "_fields", None)
        if fields:
            inner = ", ".join(f"{key}={_text(value, names)}" for key, value in zip(fields, part, strict=True) if value)
            return f"{type(part).__name__}({inner})"
        return "(" + ", ".join(_text(item, names) for item in part) + ")"
    return names.show(part) if type(part) is int and part >= NAMES else str(part)


def _described(world: World, names: _Names) -> list[str]:
    """A state, its parts that say something."""
    parts: list[Any] = [pod for pod in world.pods if pod is not None]
    parts += [request for request in world.requests if request is not None]
    parts += [(GROUP + at, resv) for at, resv in enumerate(world.resvs) if resv is not None]
    parts += [binder for binder in world.binders if binder.units]
    parts += [one for scheduler in world.schedulers for one in scheduler]
    parts += [*world.ghosts, *world.late, *([world.collector] if world.collector else [])]
    return ["= " + _text(part, names) for part in parts]
