"""One representative for all states that differ in names only, so that each is explored once; and paths as text.

Interchangeable pods, groups, schedulers and binders are sorted by their shape; attempts, reservations and devices are
numbered as they appear; resourceVersions are renumbered in their order; late writes that can't land any more are gone
(machines.py). So retries without end make no states without end. Where two shapes are equal the choice is arbitrary:
that may leave two representatives of one class, and never makes one of two classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

from verification.model.state import (
    ATTEMPT,
    DEVICE,
    GROUP,
    INCARNATIONS,
    NAMES,
    PLAN,
    POD,
    RESERVATION,
    VERSIONS,
    Binder,
    Resv,
    World,
    owner_of,
    slot_of,
)

Key = tuple[int, ...]
Renaming = dict[int, int]


class _Part:
    """A component that is kept, and what is known of it."""

    __slots__ = ("names", "renamed", "shape", "value")

    def __init__(self, value: Any, names: tuple[int, ...], shape: int) -> None:
        self.value = value
        self.names = names
        self.shape = shape
        #: What its names become -> what it becomes.
        self.renamed: dict[tuple[int, ...], _Part] = {}


class Canonical:
    """``classes``: per pod slot a number; slots of equal class ask the same and are interchangeable.

    Components (a pod, a reservation, a binder, ...) repeat in thousands of states. Each is kept once, with its names,
    its shape and what it became by each renaming; a state's key is the identities of its components.
    """

    def __init__(self, classes: tuple[int, ...]) -> None:
        self._classes = classes
        #: Slots by class: where the pods of each class have their places.
        self._places = sorted(range(len(classes)), key=classes.__getitem__)
        #: By identity of the value, which stays alive here.
        self._parts: dict[int, _Part] = {}
        self._by_value: dict[Any, _Part] = {}
        self._shapes: dict[Any, int] = {}

    def __call__(self, world: World) -> tuple[World, Key]:
        """Return the representative, and the key that no other one has."""
        representative, key, _ = self.renamed(world)
        return representative, key

    def renamed(self, world: World) -> tuple[World, Key, Renaming]:
        """Return the representative, its key, and what each name became in it."""
        part = self._part
        pods = [part(pod) for pod in world.pods]
        requests = [part(request) for request in world.requests]
        resvs = [part(resv) for resv in world.resvs]
        schedulers = sorted([part(one) for one in world.schedulers], key=_shape)
        binders = sorted([part(one) for one in world.binders], key=_shape)
        late = part(tuple(sorted(world.late, key=self._shape_of)))
        classes = self._classes
        by_shape = sorted(range(len(pods)), key=lambda i: (classes[i], pods[i].shape, requests[i].shape))
        at_pods = [slot for _, slot in sorted(zip(self._places, by_shape, strict=True))]
        at_groups = sorted(range(len(resvs)), key=lambda i: resvs[i].shape)
        parts = [
            *[pods[i] for i in at_pods],
            *[resvs[i] for i in at_groups],
            *[requests[i] for i in at_pods],
            *schedulers,
            *binders,
            part(world.ghosts),
            late,
            part(world.collector),
            part(world.plan),
            part(world.left_behind),
        ]
        renaming = _renaming(parts, at_pods, at_groups)
        done = [self._rename(one, renaming) if one.names else one.value for one in parts]
        p, g = len(pods), len(pods) + len(resvs)
        r, s = g + len(requests), g + len(requests) + len(schedulers)
        representative = World(
            pods=tuple(done[:p]),
            resvs=tuple(done[p:g]),
            requests=tuple(done[g:r]),
            schedulers=tuple(done[r:s]),
            binders=tuple(done[s:-5]),
            ghosts=done[-5],
            late=done[-4],
            collector=done[-3],
            plan=done[-2],
            left_behind=done[-1],
            left=world.left,
        )
        key = tuple([id(value) for value in done])
        return representative, (*key, id(self._part(world.left).value)), renaming

    def _part(self, value: Any) -> _Part:
        found = self._parts.get(id(value))
        if found is None or found.value is not value:
            found = self._by_value.get(value)
            if found is None:
                found = self._new(value)
        return found

    def _new(self, value: Any) -> _Part:
        seen: dict[int, None] = {}
        _collect(value, seen)
        own = {name: NAMES + at for at, name in enumerate(seen)}
        shape = repr(_replace(value, own))
        part = _Part(value, tuple(seen), self._shapes.setdefault(shape, len(self._shapes)))
        self._parts[id(value)] = part
        self._by_value[value] = part
        return part

    def _shape_of(self, value: Any) -> int:
        return self._part(value).shape

    def _rename(self, part: _Part, renaming: Renaming) -> Any:
        target = tuple([renaming[name] for name in part.names])
        renamed = part.renamed.get(target)
        if renamed is None:
            value = _replace(part.value, dict(zip(part.names, target, strict=True)))
            renamed = part.renamed[target] = self._part(_sorted_inside(value))
        return renamed.value


def _shape(part: _Part) -> int:
    return part.shape


def _collect(part: Any, seen: dict[int, None]) -> None:
    if isinstance(part, tuple):
        for item in part:
            _collect(item, seen)
    elif type(part) is int and part >= NAMES:
        seen.setdefault(part)


def _replace(part: Any, renaming: Renaming) -> Any:
    if isinstance(part, tuple):
        items = [_replace(item, renaming) for item in part]
        return type(part)(*items) if hasattr(part, "_fields") else tuple(items)
    return renaming.get(part, part) if type(part) is int else part


def _sorted_inside(part: Any) -> Any:
    """Books and units are in the order of their names."""
    if isinstance(part, Binder):
        return Binder(tuple(sorted(part.units)), tuple(sorted(part.verified)))
    if isinstance(part, Resv):
        return part._replace(book=tuple(sorted(part.book)))
    return part


def _renaming(parts: list[_Part], at_pods: list[int], at_groups: list[int]) -> Renaming:
    """What each name becomes. A name of less than DEVICE is a place; a version is its owner and its rank."""
    place = {slot: at for at, slot in enumerate(at_pods)}
    renaming: Renaming = {GROUP + group: GROUP + at for at, group in enumerate(at_groups)}
    counts = {DEVICE: DEVICE, RESERVATION: RESERVATION, ATTEMPT: ATTEMPT, PLAN: PLAN}
    versions: dict[int, None] = {}
    for part in parts:
        for name in part.names:
            if name in renaming:
                continue
            if name >= POD * VERSIONS:
                versions[name] = None
            elif name < GROUP:
                slot, incarnation = divmod(name - POD, INCARNATIONS)
                renaming[name] = POD + place[slot] * INCARNATIONS + incarnation
            else:
                base = name // 100 * 100
                renaming[name] = counts[base]
                counts[base] += 1
    owner = rank = -1
    for name in sorted(versions):
        if name // VERSIONS != owner:
            owner = name // VERSIONS
            rank = _owner(owner, renaming, place, counts) * VERSIONS
        renaming[name] = rank
        rank += 1
    return renaming


def _owner(owner: int, renaming: Renaming, place: dict[int, int], counts: dict[int, int]) -> int:
    """A version may outlive the last mention of its object."""
    known = renaming.get(owner)
    if known is not None:
        return known
    if owner >= RESERVATION:
        renaming[owner] = counts[RESERVATION]
        counts[RESERVATION] += 1
        return renaming[owner]
    slot, incarnation = divmod(owner - POD, INCARNATIONS)
    return POD + place[slot] * INCARNATIONS + incarnation


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
    """One line for each step of a path of representatives, and the last state.

    Each state of a path has names of its own; here everything keeps one name all along.
    """
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
