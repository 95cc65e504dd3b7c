"""Who may be evicted for whom: S7 of the nominations on record, and S13 of those who take.

By own count of pods, PodGroups and Queues, as the API server shows them.
"""

from __future__ import annotations

import math
import re
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from simulator.checks.facts import Json, PodFacts
from simulator.checks.gangs import Gangs, Key
from simulator.checks.limits import Limits
from simulator.checks.nominations import ON_ITS_WAY_S, Nomination, OpenNomination
from simulator.checks.queues import NOTHING, PER, Amounts, QueueTree
from simulator.checks.violations import Findings
from wire import names
from wire.rfc3339 import parse_ns
from wire.units import SECOND_NS

_PREEMPT: Final = "preempt"
_RECLAIM: Final = "reclaim"
_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    _PREEMPT: ("preemptMinRuntime",),
    _RECLAIM: ("reclaimMinRuntime",),
    "consolidation": ("preemptMinRuntime", "reclaimMinRuntime"),
}
_PARTS: Final = re.compile(r"(\d+)([hms])")
_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0}
#: A start is recorded in whole seconds.
_ROUNDED_S: Final = 1.0


@dataclass(slots=True)
class _Member:
    """A bound pod: since when it is one of its gang, since when it runs, and when it stopped to stay."""

    pod: PodFacts
    group: Key | None
    since_s: float
    started_s: float | None = None
    left_s: float | None = None
    use: Amounts = field(default_factory=lambda: NOTHING)


@dataclass(frozen=True, slots=True)
class _Case:
    """A nomination, judged at a time. What changed since ``since_s`` nobody may know. ``going``: UIDs of victims."""

    nomination: Nomination
    going: set[str]
    at_s: float
    since_s: float
    #: UIDs of victims of older nominations.
    gone: set[str]


@dataclass(frozen=True, slots=True)
class _Doubt:
    """A queue that seems to have had to give what it had a right to, unless pods were on their way into it."""

    at_s: float
    queues: frozenset[str]
    text: str


@dataclass(slots=True, eq=False)
class Taking:
    """S7 of a nomination, judged when it comes to be on record.

    - A gang keeps its minimum, or goes whole: its core is never taken in part; one that lacks members keeps those it
      needs.
    - Preemption takes from pods of lower priority in the queue of the nominated pod, reclaim from other queues.
    - A core is taken when its minimum has run for as long as a queue says that it is left alone.
    - Where node pools have schedulers each, none takes pods of another pool, or for one.
    - Reclaim takes nothing from a queue that is within its quota in every resource by then, as no share is below a
      quota.

    A scheduler may have heard late of what changed. So a member that left a moment ago may count as there, one that
    came a moment ago as unknown, and nothing is judged of a PodGroup, a queue or a pod that was changed or moved just
    then. Shares of queues are not judged: fair shares are the scheduler's own arithmetic, which has a reference of its
    own.

    ``pods``: every pod that was ever seen, its last version.
    """

    findings: Findings
    limits: Limits
    gangs: Gangs
    pods: Mapping[str, PodFacts]
    _members: dict[str, _Member] = field(default_factory=dict)
    _of_group: dict[Key, dict[str, None]] = field(default_factory=dict)
    #: When what a PodGroup says changed last.
    _changed_s: dict[Key, float] = field(default_factory=dict)
    _specs: dict[Key, Json] = field(default_factory=dict)
    #: Nominations (by pool and id) and victims that were judged.
    _judged: dict[Key, set[str]] = field(default_factory=dict)
    _doubts: deque[_Doubt] = field(default_factory=deque)

    # --- what is there -----------------------------------------------------------------------------------------------
    def pod(self, pod: PodFacts, at_s: float, *, is_there: bool) -> None:
        """Take a version of a pod."""
        known = self._members.get(pod.uid)
        if not pod.node or not pod.is_ours or pod.is_reservation:
            return
        group = (pod.namespace, pod.pod_group) if pod.pod_group else None
        if known is None or known.group != group:
            if known is not None and known.group is not None:
                self._of_group[known.group].pop(pod.uid, None)
            started_s = known.started_s if known is not None else None
            known = self._members[pod.uid] = _Member(pod, group, at_s, started_s)
            if group is not None:
                self._of_group.setdefault(group, {})[pod.uid] = None
        known.pod = pod
        known.use = self.limits.use_of(pod.uid) or known.use
        if (status := pod.raw.get("status") or {}).get("startTime"):
            told_s = max(known.since_s, at_s - _told_late_s(status))
            known.started_s = told_s if known.started_s is None else min(known.started_s, told_s)
        if known.left_s is None and (not is_there or pod.deleting or pod.has_ended):
            known.left_s = at_s

    def pod_group(self, raw: Json, at_s: float) -> None:
        """Take a version of a PodGroup."""
        key, spec = (raw["metadata"].get("namespace", ""), raw["metadata"]["name"]), raw.get("spec") or {}
        if self._specs.get(key) != spec:
            self._specs[key], self._changed_s[key] = spec, at_s

    # --- what is judged ----------------------------------------------------------------------------------------------
    def record(self, pool: str, listed: Sequence[Nomination], at_s: float, *, late_s: float) -> None:
        """Judge a pool's nominations as they stand now, once each. ``late_s``: for so long nobody may know."""
        going = {victim.uid for nomination in listed for victim in nomination.victims}
        gone = set[str]()
        for nomination in listed:
            fresh = {victim.uid for victim in nomination.victims} - self._judged.get(nomination.key, set())
            victims = [self._members[uid] for uid in sorted(fresh) if uid in self._members]
            if victims:
                for text in self._wrong(_Case(nomination, going, at_s, at_s - late_s, set(gone)), victims):
                    self.findings.add("S7", at_s, f"nomination {nomination.id}: {text}")
            gone |= {victim.uid for victim in nomination.victims}
        others = {key: victims for key, victims in self._judged.items() if key[0] != pool}
        self._judged = others | {nomination.key: {victim.uid for victim in nomination.victims} for nomination in listed}

    def judge(self, now_s: float, *, is_end: bool = False) -> None:
        """Judge what may have had a reason that was still on its way."""
        while self._doubts and (is_end or self._doubts[0].at_s + ON_ITS_WAY_S <= now_s):
            one = self._doubts.popleft()
            came = (each for each in self._members.values() if one.at_s <= each.since_s)
            if not any(self.limits.queue_of(each.pod) in one.queues for each in came):
                self.findings.add("S7", one.at_s, one.text)

    def _wrong(self, case: _Case, victims: list[_Member]) -> Iterator[str]:
        nominees = [self.pods[uid] for uid in sorted(case.nomination.nominees) if uid in self.pods]
        is_known = bool(nominees) and len(nominees) == len(case.nomination.nominees)
        yield from self._wrong_pool(case, [*nominees, *(each.pod for each in victims)])
        groups: dict[Key | str, list[_Member]] = {}
        for victim in victims:
            groups.setdefault(victim.group or victim.pod.uid, []).append(victim)
        for taken in groups.values():
            group = taken[0].group
            if group is not None and not self._is_clear(group, case.since_s):
                continue
            rest = self._rest(group, case) if group is not None else []
            has_core = group is None or self._lacks(group, rest) != self._lacks(group, [*rest, *taken])
            known = [each for each in rest if each.since_s < case.since_s and each.left_s is None]
            if group is not None and known and has_core and self._was_whole(group, case.since_s):
                yield f"{_named(taken)} of gang {'/'.join(group)} go, and {_named(known)} stay"
            if is_known:
                yield from self._wrong_taker(case, nominees, taken)
            if is_known and has_core:
                yield from self._wrong_age(case, nominees[0], taken)
        if is_known and case.nomination.action == _RECLAIM:
            self._doubt_quotas(case, nominees[0], list(groups.values()))

    def _is_clear(self, group: Key, since_s: float) -> bool:
        is_known = group in self.gangs.minimums and group not in self.gangs.uncounted
        return is_known and self._changed_s.get(group, 0.0) < since_s

    def _rest(self, group: Key, case: _Case) -> list[_Member]:
        """Members that stay, and those that left a moment ago."""
        there = (each for each in self._all(group) if each.pod.uid not in case.going)
        return [each for each in there if each.left_s is None or each.left_s >= case.since_s]

    def _lacks(self, group: Key, members: Iterable[_Member]) -> int | None:
        """How many pods a gang lacks with these."""
        done = (each for each in self._all(group) if each.pod.phase == names.SUCCEEDED)
        there = {each.pod.uid: each.pod for each in (*members, *done)}
        parts = Counter(str(pod.labels.get(names.SUBGROUP_LABEL) or "") for pod in there.values())
        return self.gangs.minimums[group].lacks(parts)

    def _was_whole(self, group: Key, since_s: float) -> bool:
        """Whether it is whole with those that go."""
        there = (each for each in self._all(group) if each.left_s is None and each.since_s < since_s)
        return self._lacks(group, there) == 0

    def _all(self, group: Key) -> list[_Member]:
        return [self._members[uid] for uid in self._of_group.get(group, ())]

    def _wrong_pool(self, case: _Case, pods: Iterable[PodFacts]) -> Iterator[str]:
        """Whether a pod is another scheduler's, whom it is made room for or who goes."""
        pool = case.nomination.pool
        for pod in pods:
            other = self.limits.counted_pool(pod.uid)
            if other not in {None, pool} and not self.limits.was_moved(pod.uid, case.since_s):
                yield f"pod {pod.key} is of node pool {other!r}, and not of {pool!r}"

    def _wrong_taker(self, case: _Case, nominees: list[PodFacts], taken: list[_Member]) -> Iterator[str]:
        """Whether they are of the right queue, and less urgent."""
        action = case.nomination.action
        if action not in {_PREEMPT, _RECLAIM} or self._were_moved(case, nominees[0], taken):
            return
        has_queues = all(
            tree.specs for tree in self.limits.trees(case.since_s, case.nomination.pool)
        )  # else all are in one
        queue, most = self.limits.queue_of(nominees[0]), max(map(self.limits.priority_of, nominees))
        for each in taken:
            other = self.limits.queue_of(each.pod)
            if has_queues and (other == queue) != (action == _PREEMPT):
                yield f"{action} takes pod {each.pod.key} of queue {other} for one of queue {queue}"
            own = self.limits.priority_of(each.pod)
            if action == _PREEMPT and own >= most:
                yield f"pod {each.pod.key} of priority {own} goes for one of priority {most}"

    def _wrong_age(self, case: _Case, nominee: PodFacts, taken: list[_Member]) -> Iterator[str]:
        """Whether a core goes before it has run for as long as its queue says."""
        if self._were_moved(case, nominee, taken):
            return
        trees = self.limits.trees(case.since_s, case.nomination.pool)
        least_s = min(self._least_s(tree, case.nomination.action, nominee, taken[0].pod) for tree in trees)
        run_s = case.at_s - self._started_s(case, taken)
        if run_s + _ROUNDED_S < least_s:
            yield f"{_named(taken)} go after {run_s:.3f} s, and run for {least_s:g} s at least"

    def _doubt_quotas(self, case: _Case, nominee: PodFacts, groups: list[list[_Member]]) -> None:
        """Note queues that were within their quotas when the last of these groups was taken, in any order."""
        if any(self._were_moved(case, nominee, taken) for taken in groups):
            return
        trees = self.limits.trees(case.since_s, case.nomination.pool)
        for name in {_giving(trees[0], self.limits, nominee, taken[0].pod) for taken in groups} - {""}:
            queues = frozenset(trees[0].below(name))
            taken = [each for each in groups if self.limits.queue_of(each[0].pod) in queues]
            kept = [each.use for each in self._members.values() if self._is_kept(each, queues, case)]
            if all(_is_within_quota(tree, name, kept, taken) for tree in trees):
                who = ", ".join(map(_named, taken))
                text = f"nomination {case.nomination.id}: {who} go, and {name} is within its quota"
                self._doubts.append(_Doubt(case.at_s, queues, text))

    def _is_kept(self, member: _Member, queues: frozenset[str], case: _Case) -> bool:
        """Whether a pod counts in these queues, as far as anybody may think so."""
        is_there = member.left_s is None or member.left_s >= case.since_s
        is_here = self.limits.pool_of(member.pod) == case.nomination.pool and self.limits.queue_of(member.pod) in queues
        return is_there and is_here and member.pod.uid not in case.gone

    def _were_moved(self, case: _Case, nominee: PodFacts, taken: list[_Member]) -> bool:
        uids = (nominee.uid, *(each.pod.uid for each in taken))
        return any(self.limits.was_moved(uid, case.since_s) for uid in uids)

    def _started_s(self, case: _Case, taken: list[_Member]) -> float:
        """Since when the minimum of a gang runs, or a pod alone."""
        group = taken[0].group
        members, least = taken, 1
        if group is not None:
            members = [each for each in self._all(group) if each.left_s is None or each.left_s >= case.since_s]
            done = sum(each.pod.phase == names.SUCCEEDED for each in self._all(group))
            least = max(1, self.gangs.minimums[group].pods - done)
        starts = sorted(case.at_s if each.started_s is None else each.started_s for each in members)
        return starts[min(len(starts), least) - 1]

    def _least_s(self, tree: QueueTree, action: str, nominee: PodFacts, victim: PodFacts) -> float:
        """For how long a core of the victim's queue is left alone by a nominated pod; 0 where no queue says it."""
        path = tree.path(self.limits.queue_of(victim))[0]
        if action == _RECLAIM and (giving := _giving(tree, self.limits, nominee, victim)):
            path = path[path.index(giving) :]
        said = (
            next((tree.specs[name][each] for name in path if tree.specs[name].get(each)), "")
            for each in _FIELDS.get(action, ())
        )
        return max(map(_seconds, said), default=0.0)


def _told_late_s(status: Json) -> float:
    """How long after it took a pod up a kubelet has run a container, by its own clock: it may tell of both together."""
    states = (each.get("state") or {} for each in status.get("containerStatuses") or ())
    ran = [parse_ns(at) or 0 for state in states for each in state.values() if (at := each.get("startedAt"))]
    return max(0, min(ran, default=0) - (parse_ns(status["startTime"]) or 0)) / SECOND_NS


def _giving(tree: QueueTree, limits: Limits, nominee: PodFacts, victim: PodFacts) -> str:
    """The queue of a victim just below the lowest one above it and the nominated pod; "" within one queue."""
    path, above = tree.path(limits.queue_of(victim))[0], set(tree.path(limits.queue_of(nominee))[0])
    own = [name for name in path if name not in above]
    return own[-1] if own else ""


def _is_within_quota(tree: QueueTree, name: str, kept: list[Amounts], taken: list[list[_Member]]) -> bool:
    """Whether a queue is within its quota in every resource before the last group goes, whichever that is."""
    if name not in tree.specs:
        return False
    for resource in PER:
        goes = [sum((each.use[resource] for each in group), Fraction(0)) for group in taken]
        left = sum((use[resource] for use in kept), Fraction(0)) - sum(goes) + max(goes)
        quota = tree.most(name, "quota", resource)
        if quota is not None and left > quota:
            return False
    return True


def _named(members: Iterable[_Member]) -> str:
    return ", ".join(sorted(each.pod.key for each in members))


def _seconds(text: str) -> float:
    """Read a duration as simulated users write them."""
    return sum(float(number) * _SECONDS[unit] for number, unit in _PARTS.findall(text))


#: A take is kept if its nominated pods are there after this time; one that is given up shortly before is not judged.
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
    nominees: frozenset[str]
    at_s: float
    #: How much of it is of which namespace.
    parts: Mapping[str, Fraction]
    #: When the first of its nominated pods went; None: none did that counts.
    gone_s: float | None = None

    def is_given_up(self, before_s: float) -> bool:
        """Whether that was so by then."""
        return self.gone_s is not None and self.gone_s <= before_s


@dataclass(slots=True, eq=False)
class Takers:
    """S13: a namespace that gives up what others are evicted for takes less and less often.

    What it keeps of one namespace counts only against what it gives up of that one. Counted are nominations on record
    for which pods of other namespaces were evicted, and whether their nominated pods were there ten minutes later. The
    scheduler may count a nominated pod a moment later than it went, so a wait is judged as that much shorter.

    ``pods``: all that were ever seen, ``live``: those that exist. ``late_s``: how late schedulers may hear.
    """

    findings: Findings
    pods: Mapping[str, PodFacts]
    live: Mapping[str, PodFacts]
    late_s: Callable[[float], float]
    #: By node pool and namespace, and then by nomination.
    _of: dict[tuple[str, str], dict[tuple[str, str], _Take]] = field(default_factory=dict)
    #: Pods (UID) that were evicted for other namespaces.
    _evicted: set[str] = field(default_factory=set)
    #: Takes of nominated pods (UID) that are there.
    _holding: dict[str, list[_Take]] = field(default_factory=dict)

    def evicted(self, open_nomination: OpenNomination) -> None:
        """Take an eviction that was carried out for a nomination: the first one is a take."""
        nomination, at_s = open_nomination.nomination, open_nomination.since.at_s
        nominee = self.pods.get(nomination.places[0].uid) if nomination.places else None
        own = f"{nominee.namespace}/" if nominee is not None else "/"
        self._evicted.update(victim.uid for victim in nomination.victims if not victim.key.startswith(own))
        if nominee is None or all(victim.key.startswith(own) for victim in nomination.victims):
            return
        takes = self._of.setdefault((nomination.pool, nominee.namespace), {})
        if nomination.key in takes or any(not each.nominees.isdisjoint(nomination.nominees) for each in takes.values()):
            return
        self._judge(nominee.namespace, takes, at_s)
        others = Counter(
            victim.key.partition("/")[0] for victim in nomination.victims if not victim.key.startswith(own)
        )
        parts = {namespace: Fraction(count, others.total()) for namespace, count in others.items()}
        take = takes[nomination.key] = _Take(nomination.nominees, at_s, parts)
        for uid in nomination.nominees:
            if uid in self.live and not self.live[uid].has_ended:
                self._holding.setdefault(uid, []).append(take)
            elif uid not in self._evicted:
                take.gone_s = open_nomination.since.at_s

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
