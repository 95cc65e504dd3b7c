"""When each pod was made, bound and running, as the API server showed it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Times:
    """Seconds of the event loop; None: not yet."""

    created_s: float
    bound_s: float | None = None
    running_s: float | None = None

    @property
    def to_bind_s(self) -> float | None:
        """Time from creation to binding."""
        return None if self.bound_s is None else self.bound_s - self.created_s


@dataclass(slots=True)
class Timeline:
    """The times of all pods by UID."""

    of: dict[str, Times] = field(default_factory=dict)

    def note(self, pod: Mapping[str, Any], now_s: float) -> None:
        """Take a version of a pod."""
        times = self.of.setdefault(pod["metadata"]["uid"], Times(now_s))
        if times.bound_s is None and (pod.get("spec") or {}).get("nodeName"):
            times.bound_s = now_s
        if times.running_s is None and (pod.get("status") or {}).get("phase") == "Running":
            times.running_s = now_s
