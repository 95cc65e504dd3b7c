"""Queues as the checker reads them: one version of all Queue objects, plain JSON in, exact fractions out.

Written from docs/queues.md and not from the scheduler's code: who stands below whom, what a queue allows, and why one
can't be used.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, Final

from simulator.facts import Json

#: By resource of a Queue: how much one on the wire is, in what pods are counted in (millicores, bytes, GPUs).
PER: Final[Mapping[str, Fraction]] = {"cpu": Fraction(1), "memory": Fraction(10**6), "gpu": Fraction(1)}
#: By resource: how many smallest units (millicores, bytes, nano of a GPU) one on the wire has.
_UNITS: Final = {"cpu": 1, "memory": 10**6, "gpu": 10**9}
_WEIGHT_UNITS: Final = 10**6
_WITHOUT_END: Final = -1
_TOO_MANY_UNITS: Final = 2**60
_DEEPEST: Final = 32
AMOUNTS: Final = ("limit", "quota")


class QueueTree:
    """One version of all Queues (name -> spec). It never changes, so what is found in it is kept."""

    def __init__(self, specs: Mapping[str, Json]) -> None:
        self.specs = specs
        self._paths: dict[str, tuple[list[str], str]] = {}
        self._below: dict[str, list[str]] | None = None
        self._parents = {spec.get("parentQueue") or "" for spec in specs.values()}

    def path(self, name: str) -> tuple[list[str], str]:
        """A queue and all above it, itself first; and why it can't be used, "" if it can."""
        if name not in self._paths:
            self._paths[name] = self._found_path(name)
        return self._paths[name]

    def closed(self, name: str) -> str:
        """Why no pod may start in a queue, "" if one may."""
        _, why = self.path(name)
        return why or (f"queue {name} has queues below it" if name in self._parents else "")

    def below(self, name: str) -> Iterable[str]:
        """A queue and all queues below it."""
        if self._below is None:
            self._below = {}
            for each in self.specs:
                for above in self.path(each)[0]:
                    self._below.setdefault(above, []).append(each)
        return self._below.get(name, ())

    def most(self, name: str, field: str, resource: str) -> Fraction | None:
        """What a limit or a quota allows, exactly as it prints; None: everything."""
        written = self._amount(name, field, resource)
        is_endless = written == _WITHOUT_END or not math.isfinite(written or 0)
        return None if is_endless else Fraction(str(written or 0)) * PER[resource]

    def parent(self, name: str) -> str:
        """The queue above, "" at the top."""
        return str(self.specs[name].get("parentQueue") or "")

    def _amount(self, name: str, field: str, resource: str) -> Any:
        resources = self.specs[name].get("resources") or {}
        return (resources.get(resource) or {}).get(field)

    def _found_path(self, name: str) -> tuple[list[str], str]:
        path: list[str] = []
        while name:
            if name not in self.specs:
                return [], f"there is no queue {name}"
            if name in path:
                return [], f"queue {name} is above itself"
            if wrong := self._without_meaning(name):
                return [], f"queue {name} has {wrong}"
            path.append(name)
            if len(path) > _DEEPEST:
                return [], f"more than {_DEEPEST} queues are above each other"
            name = self.parent(name)
        return path, ""

    def _without_meaning(self, name: str) -> str:
        for resource, units in _UNITS.items():
            for field in AMOUNTS:
                written = self._amount(name, field, resource)
                if written != _WITHOUT_END and not _has_meaning(written, units):
                    return f"a {field} of {written} {resource}"
            weight = self._amount(name, "overQuotaWeight", resource)
            if not _has_meaning(weight, _WEIGHT_UNITS):
                return f"a weight of {weight} for {resource}"
        return ""


def _has_meaning(written: Any, units: int) -> bool:
    if written is None:
        return True
    return math.isfinite(written) and written >= 0 and math.floor(Fraction(str(written)) * units) < _TOO_MANY_UNITS
