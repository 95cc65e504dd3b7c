"""S7 and S13 of evictions, L6, and the writes that reached the API server, by which S7, L2 and L5 are judged.

An eviction for others is named by a nomination on record, and has somebody to run then; who may be taken for whom is
judged by victims.py, what was freed by preemption.py. Shares of queues, and whether another set had been enough, are
not judged: that is the search's, whose tests know better.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from simulator.checks.facts import Json, PodFacts
from simulator.checks.limits import Limits
from simulator.checks.nominations import ON_ITS_WAY_S, SETTLED_S, Moment, OpenNomination, Record
from simulator.checks.violations import Findings
from wire import names

#: So late the disruption controller may be.
_HEARSAY_S: Final = 2.0


@dataclass(slots=True, eq=False)
class Budgets:
    """S7: nobody is evicted past a PodDisruptionBudget, by own count of the pods that it selects.

    The API server goes by what the disruption controller counted last, so a budget is judged only where nothing has
    changed for a moment: neither it nor whether a pod of its namespace is healthy. ``live``: pods that exist.
    """

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

    A failed attempt waits 1 s, 2 s, 4 s... (scheduler/core/assumed/attempts.py), a condition is written once in 5 s;
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
    somebody else has its device. All other evictions are ``for_others``.
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


#: No group is evicted for others more often in so long.
MOST: Final = 10
FOR_OTHERS_WINDOW_S: Final = 3600.0
#: Who evicts may not have heard for so long that nobody waits any more.
HEARSAY_S: Final = 5.0
#: At rest a nomination that nobody waits for is gone after so long: the sweep (docs/design/preemption.md), twice.
_SWEPT_S: Final = 120.0
#: At rest every other one has come to its end after so long.
_ENDED_S: Final = 900.0


@dataclass(frozen=True, slots=True)
class _Eviction:
    when: Moment
    user: str
    key: str
    pod: PodFacts | None
    #: The node pool it was in, None: nobody can say, as it is gone or had changed pools a moment ago.
    pool: str | None = None


@dataclass(slots=True, eq=False)
class ForOthers:
    """Judges evictions that are for others. ``find``: the pod of a namespace and name, if it is there.

    ``was_for`` is called with the nomination of each eviction.
    """

    findings: Findings
    record: Record
    limits: Limits
    budgets: Budgets
    find: Callable[[str, str], PodFacts | None]
    was_for: Callable[[OpenNomination], None]
    _open: deque[_Eviction] = field(default_factory=deque)
    #: Group -> when its pods were evicted, and for which nomination.
    _counts: dict[str, dict[tuple[str, str], float]] = field(default_factory=dict)

    def take(self, write: Write) -> None:
        """Take an eviction that the API server carried out; it is judged when the record is known that stood then."""
        pod = self.find(write.namespace, write.name)
        if pod is not None and pod.deleting:
            return
        key = f"{write.namespace}/{write.name}"
        self._open.append(
            _Eviction(Moment(write.version, write.at_s), write.user, key, pod, self._pool(pod, write.at_s))
        )
        if pod is None:
            return
        if (budget := self.budgets.passed(pod, write.at_s)) is not None:
            self.findings.add("S7", write.at_s, f"pod {key} was evicted past PodDisruptionBudget {budget}")
        if self.limits.is_fixed(pod, since_s=write.at_s - self._late_s(write.at_s)):
            self.findings.add("S7", write.at_s, f"pod {key} was evicted, and it can't be preempted")

    def _pool(self, pod: PodFacts | None, at_s: float) -> str | None:
        is_known = pod is not None and not self.limits.was_moved(pod.uid, at_s - self._late_s(at_s))
        return self.limits.pool_of(pod) if pod is not None and is_known else None

    def _late_s(self, at_s: float) -> float:
        return HEARSAY_S + self.limits.lateness.at(at_s - self.findings.start_s)

    def judge(self, now_s: float, *, is_end: bool = False) -> None:
        """Judge what happened long enough ago."""
        while self._open and (is_end or self._open[0].when.at_s + SETTLED_S <= now_s):
            self._judge(self._open.popleft())

    def _judge(self, one: _Eviction) -> None:
        naming = [
            each
            for each in self.record.at(one.when, late_s=ON_ITS_WAY_S)
            if any(self._is_same(victim.uid, victim.key, one) for victim in each.nomination.victims)
        ]
        if not naming:
            text = (
                f"{one.user} evicted pod {one.key}: its gang and device are sound, and no nomination on record names it"
            )
            self.findings.add("S7", one.when.at_s, text)
            return
        if not any(self._has_nominee(each, one.when) for each in naming):
            told = f"pod {one.key} was evicted for {self._nominees(naming[0])}, gone or placed by then"
            self.findings.add("S13", one.when.at_s, told)
        if one.pool is not None and all(each.nomination.pool != one.pool for each in naming):
            told = f"pod {one.key} was evicted for {self._nominees(naming[0])}, of another node pool"
            self.findings.add("S7", one.when.at_s, told)
        self._count(one, naming[-1].nomination.key)
        self.was_for(naming[-1])

    def _is_same(self, uid: str, key: str, one: _Eviction) -> bool:
        return uid == one.pod.uid if one.pod is not None else key == one.key

    def _has_nominee(self, each: OpenNomination, when: Moment) -> bool:
        late_s = self._late_s(when.at_s)
        return any(self.record.waited(uid, when, late_s=late_s) for uid in each.nomination.nominees)

    def _nominees(self, each: OpenNomination) -> str:
        return ", ".join(sorted(map(self.record.key, each.nomination.nominees)))

    def _count(self, one: _Eviction, nomination: tuple[str, str]) -> None:
        group = _group(one)
        counts = {
            key: at_s for key, at_s in self._counts.get(group, {}).items() if at_s > one.when.at_s - FOR_OTHERS_WINDOW_S
        }
        counts.setdefault(nomination, one.when.at_s)
        self._counts[group] = counts
        if len(counts) > MOST:
            text = f"{group} was evicted for others more than {MOST} times in {FOR_OTHERS_WINDOW_S:.0f} s"
            self.findings.add("S13", one.when.at_s, text)

    def judge_rest(self, at_s: float) -> None:
        """L6, as far as it shows at rest: every nomination has come to its end."""
        self.findings.judged.add("L6")
        now = Moment(0, at_s)
        for each in self.record.open:
            lasted_s = at_s - each.since.at_s
            who = f"the nomination for {self._nominees(each)}"
            is_waited_for = any(self.record.waited(uid, now) for uid in each.nomination.nominees)
            if not is_waited_for and lasted_s > _SWEPT_S:
                self.findings.add("L6", at_s, f"{who} is on record, and nobody of them waits")
            elif lasted_s > _ENDED_S:
                self.findings.add("L6", at_s, f"{who} is on record, and nothing comes of it")


def _group(one: _Eviction) -> str:
    """By whom evictions are counted: a PodGroup, else the pod's maker, else the pod."""
    pod = one.pod
    if pod is None:
        return f"pod {one.key}"
    if pod.pod_group:
        return f"PodGroup {pod.namespace}/{pod.pod_group}"
    makers = pod.raw["metadata"].get("ownerReferences") or ()
    maker = next((each for each in makers if each.get("controller")), None)
    return f"{maker['kind']} {pod.namespace}/{maker['name']}" if maker else f"pod {pod.key}"
