"""The writes that reached the API server, in order: whose they were, and what they say about S7, L2 and L5."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from simulator.violations import Findings
from wire import names

#: Writes that say nothing about work: elections, and events for people.
_LEASES: Final = "leases"
_EVENTS: Final = "events"
WINDOW_S: Final = 60.0
#: Where pods are ours.
_OWN_NAMESPACES: Final = frozenset({names.RESERVATION_NAMESPACE, names.SCALE_ADJUST_NAMESPACE})


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """One write as it was answered, or as it failed on its way (``code`` >= 300: it changed nothing).

    ``version``: the newest resourceVersion just then; the object's own if it changed.

    ``is_ours``: by a scheduler or a binder. ``name`` is the object's, also where only the body names it.
    """

    at_s: float
    user: str
    is_ours: bool
    verb: str
    plural: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    code: int = 200
    version: int = 0

    @property
    def is_attempt(self) -> bool:
        """Whether it tries to place a pod: a Binding, or a hand-over to the binder."""
        is_binding = self.plural == "pods" and self.subresource == "binding"
        return is_binding or (self.plural == "bindrequests" and self.verb == "create")

    @property
    def is_told(self) -> bool:
        """Whether it is about a pod of a user."""
        return self.plural in {"pods", "bindrequests"} and self.namespace not in _OWN_NAMESPACES

    @property
    def is_refused_eviction(self) -> bool:
        """Whether it asks once more for a pod that its budget, or two of them, keep: nobody tells when they do not."""
        return self.subresource == "eviction" and self.code in {429, 500}

    @property
    def text(self) -> str:
        """For people."""
        what = f"{self.plural}/{self.subresource}" if self.subresource else self.plural
        return f"{self.user} {self.verb} {what} {self.namespace}/{self.name}: {self.code}"


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one pod may cost in WINDOW_S (L2).

    A failed attempt waits 1 s, 2 s, 4 s... (scheduler/core/assumed/backoff.py), a condition is written once in 5 s;
    each may have to be sent again where answers are lost, and two leaders may do it by mistake. A loop without a pause
    makes hundreds.
    """

    attempts: int = 40
    writes: int = 160


@dataclass(slots=True)
class Writes:
    """Takes writes. ``writer`` knows who made each version."""

    findings: Findings
    bounds: Bounds = field(default_factory=Bounds)
    #: resourceVersion -> whether it is ours.
    _ours: dict[int, bool] = field(default_factory=dict)
    _newest: int = 0
    _of_pod: defaultdict[str, deque[Write]] = field(default_factory=lambda: defaultdict(deque))
    #: Ours that change something, but for leases.
    work: int = 0
    last_work: str = ""

    def take(self, write: Write) -> None:
        """Take a write down."""
        if write.version > self._newest:
            self._newest = write.version
            self._ours[write.version] = write.is_ours
        if not write.is_ours:
            return
        if write.plural != _LEASES and not write.is_refused_eviction:
            self.work += 1
            self.last_work = write.text
        if write.is_told and write.plural != _EVENTS:
            self._judge_often(write)

    def is_ours(self, version: int) -> bool:
        """Whether a version was written by us; one of which nothing is known was not written by anybody else."""
        return self._ours.get(version, True)

    def _judge_often(self, write: Write) -> None:
        """L2: what one pod costs is bounded, and so one bad pod does not delay the others."""
        key = f"{write.namespace}/{write.name}"
        recent = self._of_pod[key]
        recent.append(write)
        while recent[0].at_s < write.at_s - WINDOW_S:
            recent.popleft()
        attempts = sum(each.is_attempt for each in recent)
        for number, most, what in (
            (len(recent), self.bounds.writes, "writes"),
            (attempts, self.bounds.attempts, "attempts"),
        ):
            if number > most:
                text = f"pod {key} was worth more than {most} {what} in {WINDOW_S:.0f} s"
                self.findings.add("L2", write.at_s, text)


@dataclass(slots=True)
class Evictions:
    """S7: nobody's pod is deleted. Evicted are a broken gang's rest, who uses what is not his, and some for others.

    ``is_releasable`` says of a pod (namespace, name) whether its gang has been below its minimum for long enough, or
    somebody else has its device. All other evictions are ``for_others`` (simulator/checks/evicting.py).
    Evictions that the API server refuses (a PodDisruptionBudget) took nobody's pod away.
    """

    findings: Findings
    is_releasable: Callable[[str, str, float], bool]
    for_others: Callable[[Write], None]

    def take(self, write: Write) -> None:
        """Judge a write of ours that was carried out."""
        if not write.is_ours or write.code >= 300 or not write.is_told or write.plural != "pods":
            return
        if write.verb == "delete":
            self.findings.add("S7", write.at_s, f"{write.user} deleted pod {write.namespace}/{write.name}")
        elif write.subresource == "eviction" and not self.is_releasable(write.namespace, write.name, write.at_s):
            self.for_others(write)
