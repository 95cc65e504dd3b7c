"""S7 and S13 of evictions for others, and L6: each is named by an intent on record, and has somebody to run then.

Who may be taken for whom is judged by simulator/checks/taking.py; shares of queues, and whether another set had been
enough, are not judged: that is the search's, whose tests know better. Room that was freed is judged by
simulator/checks/keptroom.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from simulator.checks.budgets import Budgets
from simulator.checks.limits import Limits
from simulator.checks.standing import ON_ITS_WAY_S, SETTLED_S, Moment, Record, Standing
from simulator.checks.writes import Write
from simulator.facts import PodFacts
from simulator.violations import Findings

#: No group is evicted for others more often in so long.
MOST: Final = 10
WINDOW_S: Final = 3600.0
#: Who evicts may not have heard for so long that nobody waits any more.
HEARSAY_S: Final = 5.0
#: At rest an intent that nobody waits for is gone after so long: the sweep (docs/design/room.md), twice.
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

    ``was_for`` is called with the intent of each eviction.
    """

    findings: Findings
    record: Record
    limits: Limits
    budgets: Budgets
    find: Callable[[str, str], PodFacts | None]
    was_for: Callable[[Standing], None]
    _open: deque[_Eviction] = field(default_factory=deque)
    #: Group -> when its pods were evicted, and for which intent.
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
            if any(self._is_same(victim.uid, victim.key, one) for victim in each.intent.victims)
        ]
        if not naming:
            text = (
                f"{one.user} evicted pod {one.key}: its gang and its device are sound, and no intent on record names it"
            )
            self.findings.add("S7", one.when.at_s, text)
            return
        if not any(self._has_holder(each, one.when) for each in naming):
            told = f"pod {one.key} was evicted for {self._holders(naming[0])}, gone or placed by then"
            self.findings.add("S13", one.when.at_s, told)
        if one.pool is not None and all(each.intent.pool != one.pool for each in naming):
            told = f"pod {one.key} was evicted for {self._holders(naming[0])}, of another node pool"
            self.findings.add("S7", one.when.at_s, told)
        self._count(one, naming[-1].intent.key)
        self.was_for(naming[-1])

    def _is_same(self, uid: str, key: str, one: _Eviction) -> bool:
        return uid == one.pod.uid if one.pod is not None else key == one.key

    def _has_holder(self, each: Standing, when: Moment) -> bool:
        late_s = self._late_s(when.at_s)
        return any(self.record.waited(uid, when, late_s=late_s) for uid in each.intent.holders)

    def _holders(self, each: Standing) -> str:
        return ", ".join(sorted(map(self.record.key, each.intent.holders)))

    def _count(self, one: _Eviction, intent: tuple[str, str]) -> None:
        group = _group(one)
        counts = {key: at_s for key, at_s in self._counts.get(group, {}).items() if at_s > one.when.at_s - WINDOW_S}
        counts.setdefault(intent, one.when.at_s)
        self._counts[group] = counts
        if len(counts) > MOST:
            text = f"{group} was evicted for others more than {MOST} times in {WINDOW_S:.0f} s"
            self.findings.add("S13", one.when.at_s, text)

    def judge_rest(self, at_s: float) -> None:
        """L6, as far as it shows at rest: every intent has come to its end."""
        self.findings.judged.add("L6")
        now = Moment(0, at_s)
        for each in self.record.standing:
            lasted_s = at_s - each.since.at_s
            who = f"the intent for {self._holders(each)}"
            is_waited_for = any(self.record.waited(uid, now) for uid in each.intent.holders)
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
