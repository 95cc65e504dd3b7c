"""What a PodGroup needs to be whole, by a count of our own: its pods in all, and its sub-groups level by level.

From what the fields are documented to mean (kai-contract 2.2), not from the scheduler. A level without `minSubGroup`
needs all its children. Children that need no pods help only where there are too few others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from simulator.facts import Json

_NOBODY: Final[Mapping[str, int]] = {}


@dataclass(slots=True)
class _Group:
    """A sub-group; "" is the PodGroup. ``pods`` and ``parts``: its minimums.

    ``fewest``: the number of pods with which it is complete; None if it can't be.
    """

    pods: int = 0
    parts: int | None = None
    children: list[str] = field(default_factory=list)
    fewest: int | None = 0


class Minimums:
    """Of one PodGroup. ``is_clear``: whether they mean something. ``has_parts``: whether there are sub-groups."""

    def __init__(self, spec: Json) -> None:
        self.in_all = int(spec.get("minMember") or 0)
        listed = list(spec.get("subGroups") or ())
        self.has_parts = bool(listed) or spec.get("minSubGroup") is not None
        self._groups = {"": _Group(parts=spec.get("minSubGroup"))}
        for part in listed:
            self._groups[part["name"]] = _Group(int(part.get("minMember") or 0), part.get("minSubGroup"))
        is_sound = len(self._groups) == len(listed) + 1 and not any(map(_has_both, [spec, *listed]))
        is_sound = is_sound and all((part.get("parent") or "") in self._groups for part in listed)
        for part in listed if is_sound else ():
            self._groups[part.get("parent") or ""].children.append(part["name"])
        #: Names, children before what is above them.
        self._upwards = self._from_below()
        has_empty = any(each.parts is not None and not each.children for name, each in self._groups.items() if name)
        self.is_clear = is_sound and len(self._upwards) == len(self._groups) and not has_empty
        for name in self._upwards:
            self._groups[name].fewest = self._of(name, _NOBODY, None, {})

    def _from_below(self) -> list[str]:
        found = [""]
        for name in found:
            found += self._groups[name].children
        return found[::-1]

    @property
    def pods(self) -> int:
        """The fewest pods with which it is whole; of one that can't be, all that its sub-groups need."""
        fewest = self._groups[""].fewest
        if fewest is None:
            fewest = sum(each.pods for each in self._groups.values() if not each.children)
        return max(self.in_all, fewest)

    def lacks(self, there: Mapping[str, int], waiting: Mapping[str, int] | None = None) -> int | None:
        """How many pods make it whole beside those ``there`` (by sub-group), out of those that wait if they are given.

        None if that can't be.
        """
        found = self._all(there, waiting)[""]
        missing = max(0, self.in_all - sum(there.values()))
        if found is None or (waiting is not None and missing > sum(waiting.values())):
            return None
        return max(found, missing)

    def complete(self, name: str, there: Mapping[str, int]) -> tuple[int, int]:
        """How many complete sub-groups one needs that has others below it, and how many it has with these pods."""
        lacking = self._all(there, _NOBODY)
        group = self._groups[name]
        needing = [child for child in group.children if self._groups[child].fewest != 0]
        return self._wanted(group, len(needing)), sum(lacking[child] == 0 for child in needing)

    def least(self, name: str) -> int:
        """The minimum of pods of a sub-group that has none below it."""
        return self._groups[name].pods if name in self._groups else 0

    def is_whole(self, there: Mapping[str, int]) -> bool:
        """Whether these pods by sub-group are enough."""
        return self.lacks(there) == 0

    def _all(self, there: Mapping[str, int], waiting: Mapping[str, int] | None) -> dict[str, int | None]:
        known: dict[str, int | None] = {}
        for name in self._upwards:
            known[name] = self._of(name, there, waiting, known)
        return known

    def _of(
        self, name: str, there: Mapping[str, int], waiting: Mapping[str, int] | None, known: Mapping[str, int | None]
    ) -> int | None:
        group = self._groups[name]
        if name and not group.children:
            missing = max(0, group.pods - there.get(name, 0))
            return missing if waiting is None or missing <= waiting.get(name, 0) else None
        needing = [child for child in group.children if self._groups[child].fewest != 0]
        of_children = [known.get(child, self._groups[child].fewest) for child in needing]
        sums = sorted(each for each in of_children if each is not None)
        wanted = self._wanted(group, len(needing))
        return sum(sums[:wanted]) if len(sums) >= wanted else None

    @staticmethod
    def _wanted(group: _Group, needing: int) -> int:
        if group.parts is None:
            return needing
        free = len(group.children) - needing
        return max(min(group.parts, needing), group.parts - free)


def _has_both(said: Json) -> bool:
    return said.get("minMember") is not None and said.get("minSubGroup") is not None
