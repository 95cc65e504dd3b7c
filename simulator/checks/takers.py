"""S13 of those who take: a namespace that gives up what others are evicted for takes less and less often.

What it keeps of one namespace counts only against what it gives up of that one.

By own count of what the API server shows: intents on record for which pods of other namespaces were evicted, and
whether their holders were there ten minutes later. The scheduler may count a holder a moment later than it went, so a
wait is judged as that much shorter.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from simulator.checks.standing import Standing
from simulator.facts import PodFacts
from simulator.violations import Findings

#: A take is kept if its holders are there after this time; one that is given up shortly before is not judged.
_KEPT_S: Final = 600.0
_DOUBTFUL_S: Final = 30.0
#: Given-up takes count for an hour at least, kept ones for as long as the scheduler may count them.
_HOUR_S: Final = 3600.0
_LONGEST_S: Final = 4160.0
_FREE: Final = 1
_FIRST_S: Final = 30.0
_LONGEST_WAIT_S: Final = 600.0
_ROUNDING: Final = Fraction(1, 20)


@dataclass(slots=True, eq=False)
class _Take:
    holders: frozenset[str]
    at_s: float
    #: How much of it is of which namespace.
    parts: Mapping[str, Fraction]
    #: When the first of its holders went; None: none did that counts.
    gone_s: float | None = None

    def is_given_up(self, before_s: float) -> bool:
        """Whether that was so by then."""
        return self.gone_s is not None and self.gone_s <= before_s


@dataclass(slots=True, eq=False)
class Takers:
    """``pods``: all that were ever seen, ``live``: those that are there. ``late_s``: how late schedulers may hear."""

    findings: Findings
    pods: Mapping[str, PodFacts]
    live: Mapping[str, PodFacts]
    late_s: Callable[[float], float]
    #: By node pool and namespace, and then by intent.
    _of: dict[tuple[str, str], dict[tuple[str, str], _Take]] = field(default_factory=dict)
    #: Pods (UID) that were evicted for other namespaces.
    _evicted: set[str] = field(default_factory=set)
    #: Takes of holders (UID) that are there.
    _holding: dict[str, list[_Take]] = field(default_factory=dict)

    def evicted(self, standing: Standing) -> None:
        """Take an eviction that was carried out for an intent: the first one is a take."""
        intent, at_s = standing.intent, standing.since.at_s
        holder = self.pods.get(intent.places[0].uid) if intent.places else None
        own = f"{holder.namespace}/" if holder is not None else "/"
        self._evicted.update(victim.uid for victim in intent.victims if not victim.key.startswith(own))
        if holder is None or all(victim.key.startswith(own) for victim in intent.victims):
            return
        takes = self._of.setdefault((intent.pool, holder.namespace), {})
        if intent.key in takes or any(not each.holders.isdisjoint(intent.holders) for each in takes.values()):
            return
        self._judge(holder.namespace, takes, at_s)
        others = Counter(victim.key.partition("/")[0] for victim in intent.victims if not victim.key.startswith(own))
        parts = {namespace: Fraction(count, others.total()) for namespace, count in others.items()}
        take = takes[intent.key] = _Take(intent.holders, at_s, parts)
        for uid in intent.holders:
            if uid in self.live and not self.live[uid].has_ended:
                self._holding.setdefault(uid, []).append(take)
            elif uid not in self._evicted:
                take.gone_s = standing.since.at_s

    def pod(self, pod: PodFacts, at_s: float) -> None:
        """Take a version of a pod."""
        if pod.uid in self._holding and (pod.uid not in self.live or pod.has_ended):
            for take in self._holding.pop(pod.uid):
                is_early = at_s < take.at_s + _KEPT_S - _DOUBTFUL_S
                if take.gone_s is None and is_early and pod.uid not in self._evicted:
                    take.gone_s = at_s

    def _judge(self, namespace: str, takes: dict[tuple[str, str], _Take], at_s: float) -> None:
        self.findings.judged.add("S13")
        for key in [key for key, take in takes.items() if take.at_s < at_s - _LONGEST_S]:
            del takes[key]
        heard_s = at_s - self.late_s(at_s)
        given_up = {each for each in takes.values() if each.is_given_up(heard_s) and each.at_s > at_s - _HOUR_S}
        over = _over(takes.values(), given_up)
        if over <= _FREE:
            return
        wait_s = min(_FIRST_S * 2 ** (over - _FREE - 1), _LONGEST_WAIT_S)
        last_s = max(each.gone_s or 0.0 for each in given_up)
        if at_s - last_s < wait_s - self.late_s(at_s):
            text = (
                f"namespace {namespace} has pods evicted again {at_s - last_s:.0f} s after it gave up what others were "
                f"evicted for, {over} times more than it kept it; it waits {wait_s:.0f} s"
            )
            self.findings.add("S13", at_s, text)


def _over(takes: Collection[_Take], given_up: Set[_Take]) -> int:
    """How many of them were given up beyond those that were kept; schedulers may round parts."""
    of: dict[str, Fraction] = {}
    for take in takes:
        for namespace, part in take.parts.items():
            of[namespace] = of.get(namespace, Fraction(0)) + (part if take in given_up else -part)
    is_rounded = any(len(take.parts) > 1 for take in takes)
    return math.floor(sum(max(each, Fraction(0)) for each in of.values()) - (_ROUNDING if is_rounded else 0))
