"""S7: nobody is evicted past a PodDisruptionBudget, by own count of the pods that it selects.

The API server goes by what the disruption controller counted last, so a budget is judged only where nothing has changed
for a moment: neither it nor whether a pod of its namespace is healthy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from simulator.facts import Json, PodFacts

#: So late the disruption controller may be.
_HEARSAY_S: Final = 2.0


@dataclass(slots=True, eq=False)
class Budgets:
    """``live``: pods that are there."""

    live: Mapping[str, PodFacts]
    _there: dict[tuple[str, str], Json] = field(default_factory=dict)
    #: When a budget (namespace and name) changed last.
    _changed_s: dict[tuple[str, str], float] = field(default_factory=dict)
    #: Pods (UID) of namespaces with budgets that are healthy, and when one last stopped to be, by namespace.
    _healthy: set[str] = field(default_factory=set)
    _lost_s: dict[str, float] = field(default_factory=dict)

    def take(self, raw: Json, at_s: float, *, is_gone: bool) -> None:
        """Take a version of a PodDisruptionBudget."""
        key = raw["metadata"].get("namespace", ""), raw["metadata"]["name"]
        before = self._there.pop(key, None)
        if not is_gone:
            spec = self._there[key] = raw.get("spec") or {}
            if spec != before:
                self._changed_s[key] = at_s

    def pod(self, pod: PodFacts, at_s: float) -> None:
        """Take a version of a pod."""
        if pod.uid in self.live and _is_healthy(pod):
            self._healthy.add(pod.uid)
        elif pod.uid in self._healthy:
            self._healthy.discard(pod.uid)
            self._lost_s[pod.namespace] = at_s

    def passed(self, pod: PodFacts, at_s: float) -> str | None:
        """The budget that forbids a healthy pod to go now; None if all allow it, or if nobody can say."""
        if not _is_healthy(pod) or self._lost_s.get(pod.namespace, -math.inf) > at_s - _HEARSAY_S:
            return None
        for (namespace, name), spec in self._there.items():
            if namespace != pod.namespace or not selects(spec.get("selector"), pod.labels):
                continue
            if self._changed_s[namespace, name] > at_s - _HEARSAY_S:
                continue
            pods = [each for each in self.live.values() if self._is_selected(each, namespace, spec)]
            others = sum(_is_healthy(each) for each in pods if each.uid != pod.uid)
            if others < _desired(spec, len(pods)):
                return f"{namespace}/{name}"
        return None

    def _is_selected(self, pod: PodFacts, namespace: str, spec: Json) -> bool:
        return pod.namespace == namespace and not pod.has_ended and selects(spec.get("selector"), pod.labels)


def selects(selector: Json | None, labels: Json) -> bool:
    """Whether a label selector selects these labels; none selects nothing, an empty one everything."""
    if selector is None:
        return False
    wanted = (selector.get("matchLabels") or {}).items()
    return all(labels.get(key) == value for key, value in wanted) and all(
        _holds(each, labels) for each in selector.get("matchExpressions") or ()
    )


def _holds(wanted: Json, labels: Json) -> bool:
    key, values = wanted["key"], wanted.get("values") or ()
    found: Mapping[str, bool] = {
        "In": key in labels and labels[key] in values,
        "NotIn": labels.get(key) not in values,
        "Exists": key in labels,
        "DoesNotExist": key not in labels,
    }
    return found[wanted["operator"]]


def _is_healthy(pod: PodFacts) -> bool:
    return is_healthy(pod.raw) and not pod.has_ended


def is_healthy(raw: Json) -> bool:
    """Whether a pod, as JSON, is ready and stays."""
    conditions: Iterable[Json] = (raw.get("status") or {}).get("conditions") or ()
    is_ready = any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
    return is_ready and not raw["metadata"].get("deletionTimestamp")


def _desired(spec: Json, pods: int) -> int:
    """How many have to stay healthy. Of as many pods as are there: who makes them may want more."""
    if (least := spec.get("minAvailable")) is not None:
        return _of(least, pods)
    most = spec.get("maxUnavailable")
    return 0 if most is None else pods - _of(most, pods)


def _of(said: object, pods: int) -> int:
    text = str(said)
    return math.ceil(int(text[:-1]) * pods / 100) if text.endswith("%") else int(text)
