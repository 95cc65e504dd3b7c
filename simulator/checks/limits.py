"""S6: nobody passes the limits of its queue, and what can't be preempted stays within the quotas, by own count.

Judged whenever a pod of ours is bound: what all pods of a queue and of those below it use then, terminating ones
included, against what the Queue objects say. GPUs are whole ones and what Bindings give of shared ones; MIG slices are
not counted here, so what is found is there, and what a slice too many does is left to others.

Who binds may have heard of Queues, or of who belongs to which, some time ago (``lag_s``): for so long after the last
such change nothing is judged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, Final, NamedTuple

from simulator.checks.counting import MILLI, NANO, demand
from simulator.facts import Json, PodFacts
from simulator.violations import Findings
from wire import names

#: By resource of a Queue: whole units on the wire for one of ours (a core, a byte, a GPU).
_PER: Final = {"cpu": Fraction(1), "memory": Fraction(10**6), "gpu": Fraction(1)}
_WITHOUT_END: Final = -1
#: Pods of this priority and more can't be preempted, unless somebody says otherwise (kai-contract 3.1).
_NOT_PREEMPTED: Final = 100
_SAID: Final = {"preemptible": False, "non-preemptible": True}

_NOTHING: Final[Mapping[str, Fraction]] = dict.fromkeys(_PER, Fraction(0))

Key = tuple[str, str]


class Row(NamedTuple):
    """What a pod counts for, and where."""

    queue: str
    is_fixed: bool
    used: Mapping[str, Fraction]


class Limits:
    """Queues and PodGroups as they are now, and what pods use. ``lag_s``: how late others may hear of them."""

    def __init__(self, findings: Findings, lag_s: float) -> None:
        self._findings, self._lag_s = findings, lag_s
        self._queues: dict[str, Json] = {}
        self._groups: dict[Key, Json] = {}
        self._changed_s = -math.inf
        #: What is made of the Queues as they are: ways up, and names of parents.
        self._paths: dict[str, tuple[list[str], str]] = {}
        self._parents: set[str] = set()
        #: Pods of ours that are there, by UID, and those of each PodGroup.
        self._pods: dict[str, PodFacts] = {}
        self._members: dict[Key, dict[str, None]] = {}
        #: What each pod counts for, and the sums by queue: of all, and of what can't be preempted.
        self._rows: dict[str, Row] = {}
        self._sums: dict[tuple[str, bool], dict[str, Fraction]] = {}

    # --- what is there -----------------------------------------------------------------------------------------------
    def queue(self, raw: Json, at_s: float, *, is_gone: bool) -> None:
        """Take a version of a Queue."""
        name, spec = raw["metadata"]["name"], raw.get("spec") or {}
        if is_gone or self._queues.get(name) != spec:
            self._changed_s = at_s
        if is_gone:
            self._queues.pop(name, None)
        else:
            self._queues[name] = spec
        self._paths.clear()
        self._parents = {each.get("parentQueue") or "" for each in self._queues.values()}

    def pod_group(self, raw: Json, at_s: float, *, is_gone: bool) -> None:
        """Take a version of a PodGroup."""
        key = raw["metadata"].get("namespace", ""), raw["metadata"]["name"]
        spec = raw.get("spec") or {}
        if is_gone:
            self._groups.pop(key, None)
        else:
            self._groups[key] = {"queue": spec.get("queue"), "preemptibility": spec.get("preemptibility")}
        for uid in self._members.get(key, ()):
            self._count(self._pods[uid], at_s)

    def pod(self, pod: PodFacts, at_s: float, *, is_gone: bool) -> None:
        """Take a version of a pod, and judge it where it is bound by that."""
        known = self._pods.pop(pod.uid, None)
        if known is not None and (key := _group_of(known)) is not None:
            self._members[key].pop(pod.uid, None)
        if is_gone or not pod.is_ours or pod.is_reservation:
            self._put(pod.uid, None)
            return
        self._pods[pod.uid] = pod
        if (key := _group_of(pod)) is not None:
            self._members.setdefault(key, {})[pod.uid] = None
        self._count(pod, at_s)
        if known is not None and pod.node and not known.node:
            self._judge(pod, at_s)

    def _count(self, pod: PodFacts, at_s: float) -> None:
        before = self._rows.get(pod.uid)
        holds = bool(pod.node) and not pod.has_ended
        row = Row(self._queue_of(pod), self._is_fixed(pod), _used(pod) if holds else _NOTHING)
        if before is not None and before[:2] != row[:2]:
            self._changed_s = at_s
        self._put(pod.uid, row)

    def _put(self, uid: str, row: Row | None) -> None:
        before = self._rows.pop(uid, None)
        for each, sign in ((before, -1), (row, 1)):
            for is_fixed in () if each is None else {False, each.is_fixed}:
                total = self._sums.setdefault((each.queue, is_fixed), dict(_NOTHING)) if each else {}
                for resource, amount in (each.used if each else {}).items():
                    total[resource] += sign * amount
        if row is not None:
            self._rows[uid] = row

    # --- what is judged ----------------------------------------------------------------------------------------------
    def may_hold(self, pod: PodFacts) -> bool:
        """Whether the queue of a pod that waits may be why it does: it can't be used, or has too little left.

        Too much is taken for what it asks: all of its gang that waits, and a whole GPU for each share by memory.
        """
        if not self._queues:
            return False
        row = self._rows[pod.uid]
        path, broken = self._path(row.queue)
        if broken or row.queue in self._parents:
            return True
        key = _group_of(pod)
        together = [each for each in map(self._pods.__getitem__, self._members[key]) if not each.node] if key else [pod]
        asked = {resource: sum((_asked(each)[resource] for each in together), Fraction(0)) for resource in _PER}
        fields = ("limit", "quota") if row.is_fixed else ("limit",)
        return any(any(self._passed(name, field, asked, more=asked)) for name in path for field in fields)

    def _judge(self, pod: PodFacts, at_s: float) -> None:
        if not self._queues or (self._lag_s and at_s - self._changed_s < self._lag_s):
            return
        row = self._rows[pod.uid]
        path, broken = self._path(row.queue)
        if broken or row.queue in self._parents:
            why = broken or f"queue {row.queue} has queues below it"
            self._findings.add("S6", at_s, f"pod {pod.key} was bound, and {why}")
            return
        for name in path:
            for field in ("limit", "quota") if row.is_fixed else ("limit",):
                for text in self._passed(name, field, row.used):
                    self._findings.add("S6", at_s, f"{text} with pod {pod.key}")

    def _passed(
        self, name: str, field: str, asked: Mapping[str, Fraction], *, more: Mapping[str, Fraction] = _NOTHING
    ) -> Iterator[str]:
        """Of what is asked, where a queue with ``more`` than it uses is over its limit or quota."""
        below = [each for each in {queue for queue, _ in self._sums} if name in self._path(each)[0]]
        resources = self._queues[name].get("resources") or {}
        for resource, amount in asked.items():
            most = _most((resources.get(resource) or {}).get(field), resource)
            sums = (self._sums.get((each, field == "quota"), _NOTHING)[resource] for each in below)
            used = sum(sums, more[resource])
            if most is not None and amount and used > most:
                yield f"queue {name} uses {float(used):g} {resource} of a {field} of {float(most):g}"

    # --- who counts where --------------------------------------------------------------------------------------------
    def _queue_of(self, pod: PodFacts) -> str:
        group = self._groups.get(_group_of(pod) or ("", ""))
        if group is not None:
            return group["queue"] or names.DEFAULT_QUEUE
        return pod.labels.get(names.QUEUE_LABEL) or pod.labels.get(names.PROJECT_LABEL) or names.DEFAULT_QUEUE

    def _is_fixed(self, pod: PodFacts) -> bool:
        group = self._groups.get(_group_of(pod) or ("", ""))
        written = pod.labels.get(names.PREEMPTIBILITY_LABEL) if group is None else group["preemptibility"]
        priority: int = (pod.raw.get("spec") or {}).get("priority") or 0
        return _SAID.get(written or "", priority >= _NOT_PREEMPTED)

    def _path(self, name: str) -> tuple[list[str], str]:
        """A queue and all above it; and what is wrong with the way up."""
        if name not in self._paths:
            self._paths[name] = self._found_path(name)
        return self._paths[name]

    def _found_path(self, name: str) -> tuple[list[str], str]:
        path: list[str] = []
        while name:
            if name not in self._queues:
                return [], f"there is no queue {name}"
            if name in path:
                return [], f"queue {name} is above itself"
            path.append(name)
            name = self._queues[name].get("parentQueue") or ""
        return path, ""


def _group_of(pod: PodFacts) -> Key | None:
    name = pod.annotations.get(names.POD_GROUP_NAME)
    return (pod.namespace, name) if name else None


def _used(pod: PodFacts) -> Mapping[str, Fraction]:
    gpus = Fraction(demand(pod, names.GPU_RESOURCE))
    shared = Fraction(sum(grant.nano for grant in pod.grants if grant.resource == names.GPU_RESOURCE), NANO)
    return {
        "cpu": Fraction(demand(pod, "cpu", per=MILLI)),
        "memory": Fraction(demand(pod, "memory")),
        "gpu": gpus or shared,
    }


def _asked(pod: PodFacts) -> Mapping[str, Fraction]:
    shared = sum((ask.devices * (ask.fraction or Fraction(1)) for ask in pod.asks.values()), Fraction(0))
    used = _used(pod)
    return {**used, "gpu": max(used["gpu"], shared)}


def _most(written: Any, resource: str) -> Fraction | None:
    """What a limit or a quota allows, exactly as it prints; None: everything."""
    if written == _WITHOUT_END:
        return None
    return Fraction(str(written or 0)) * _PER[resource]
