"""The others that wait, and may take what a change frees or adds before the group that it is for.

Of pods alone that request the same, and of gangs of one form, only the first ones are tried beside the group. Where all
of them are placed those that were left out may come first as well, so nothing is said of such a change. Who would have
a turn after a change of nodes is who the scheduling queue would wake (scheduling_queue/unschedulable.py), by sums that
are never too strict.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import nsmallest
from typing import Final

import msgspec

from scheduler.core.decide.allowance import COST_OF_PLACING
from scheduler.core.decide.attempts import least_use
from scheduler.core.decide.placer import Placer
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.priority_order import order_members
from scheduler.core.model.records import PodGroupRecord, PodRecord
from scheduler.core.model.steps import Steps, ended
from scheduler.core.queues.accounts import Accounts
from scheduler.core.scheduling_queue.hints import asks_others, has_slots, needs_of, passing
from scheduler.core.scheduling_queue.unschedulable import depends_on_all
from scheduler.core.what_if.edits import Subject


class Waking:
    """One change: ``before`` it nobody who waits would start."""

    def __init__(self, before: Snapshot, changed: Snapshot, now_ns: int) -> None:
        self._before, self._changed, self._now_ns = before, changed, now_ns
        self._placer = Placer(before)
        is_same = before.ledger is changed.ledger
        #: Rows of the nodes that got something.
        self._rows: Sequence[int] = () if is_same else changed.ledger.changes.helped_since(0)

    def wakes_alone(self, pod: PodRecord) -> bool:
        """Whether a pod alone is woken."""
        if not self._rows:
            return False
        cls = self._changed.judged(pod, self._now_ns).cls
        return _depends_on_more(cls) or bool(self._passing(cls))

    def waking_gang(self, members: Sequence[PodRecord], needed: Sequence[PodRecord]) -> Steps[bool]:
        """Whether a gang is woken, in steps. ``needed``: of its members that wait, those with which it starts.

        () if it has started, and waits for more of them.
        """
        if not self._rows:
            return False
        classes = {self._changed.judged(pod, self._now_ns).cls for pod in members}
        if not needed:
            return any(_depends_on_more(cls) or self._passing(cls) for cls in classes)
        cls = next(iter(classes))
        if len(classes) > 1 or cls.alternatives or cls.places or _depends_on_more(cls):
            return True  # nobody can tell which node helps it
        rows = self._passing(cls)
        if not rows or cls.request.is_shared:
            return bool(rows)
        needs = needs_of(self._changed.ledger, cls)
        if has_slots(self._changed.ledger, needs, rows, len(needed)):
            return True
        lacking = yield from self._lacking(needed)
        return has_slots(self._changed.ledger, needs, rows, lacking)

    def _passing(self, cls: PodClass) -> Sequence[int]:
        """Of the nodes that got something those on which a class passes."""
        ledger = self._changed.ledger
        return passing(ledger, needs_of(ledger, cls), self._rows)

    def _lacking(self, needed: Sequence[PodRecord]) -> Steps[int]:
        """How many of these found no place before the change."""
        mark, placed = self._placer.statement.checkpoint(), 0
        for pod in needed:
            if self._placer.place(self._before.judged(pod, self._now_ns)) is None:
                break  # the others request the same
            placed += 1
            yield COST_OF_PLACING
        self._placer.statement.rollback(mark)
        return max(1, len(needed) - placed)


def _depends_on_more(cls: PodClass) -> bool:
    """Whether sums of nodes don't say what may help a class."""
    return depends_on_all(cls) or asks_others(cls)


#: Pods alone of one form, and gangs of one form, that are tried beside the group.
_PODS: Final = 64
_GANGS: Final = 8
#: Where there are many forms fewer of each are, so that there are about this many pods in all, but not less than that.
_IN_ALL: Final = 512
_FEWEST: Final = 2
#: Where there are more forms than that nobody is tried beside them.
_FORMS: Final = 1024
#: Pods that are looked at in one step; what one costs, and what a form does when it may be awake, in operations.
_AT_ONCE: Final = 512
_LOOKING: Final = 2
_WAKING: Final = 80


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """Groups that are alike. ``first``: the pods of one. ``uids``: of those that are tried; ``is_cut``: not of all."""

    first: tuple[PodRecord, ...]
    uids: frozenset[str]
    group: PodGroupRecord | None = None
    is_cut: bool = False

    def is_kept_by_queue(self, changed: Snapshot, accounts: Accounts) -> bool:
        """Whether its queue would not take one of them."""
        return accounts.refusal(least_use(changed, self.needed(changed))) is not None

    def fits_somewhere(self, changed: Snapshot, placer: Placer, now_ns: int) -> bool:
        """Whether a pod of it fits on a node, or would once idle reservations are removed."""
        pods = {pod.cls: pod for pod in (changed.judged(pod, now_ns) for pod in self.needed(changed))}
        if any(placer.ranking(way).fitting() for cls in pods for way in placer.ways(cls)):
            return True
        mark = placer.statement.checkpoint()
        comes_free = any(placer.wait_for_device(pod) is not None for pod in pods.values())
        placer.statement.rollback(mark)
        return comes_free

    def needed(self, changed: Snapshot) -> Sequence[PodRecord]:
        """The pods with which one of them starts, or goes on."""
        return self.starting(changed) or order_members(self.first)[:1]

    def starting(self, changed: Snapshot) -> Sequence[PodRecord]:
        """The pods with which one of them starts; () of a gang that has started."""
        ordered = order_members(self.first)
        return ordered if self.group is None else changed.quorum(self.group).needed(ordered)

    def waking(self, waking: Waking, changed: Snapshot) -> Steps[bool]:
        """Whether a change of nodes wakes it, found in steps."""
        if self.group is None:
            return waking.wakes_alone(self.first[0])
        return (yield from waking.waking_gang(self.first, self.starting(changed)))


class Rivals(msgspec.Struct, frozen=True):
    """All forms. ``are_too_many``: some were left out."""

    forms: tuple[Form, ...]
    are_too_many: bool = False

    @property
    def uids(self) -> frozenset[str]:
        """Pods that are tried beside the group."""
        return frozenset(uid for form in self.forms for uid in form.uids)

    def finding_awake(
        self, before: Snapshot, changed: Snapshot, now_ns: int, *, is_quiet: bool = False
    ) -> Steps[frozenset[str]]:
        """Those of them that the scheduler would give a turn after a change, found in steps.

        It wakes those that their queues keep no longer, and all that these keep when a Queue is another one, or sizes
        of cards are. ``is_quiet``: nobody
        would have been placed ``before``; else who fits somewhere may have been about to have a turn.
        """
        if not self.forms:
            return frozenset()
        placer, waking = Placer(changed), Waking(before, changed, now_ns)
        one, other = before.queues, changed.queues
        had, have = one.accounts(), other.accounts()
        wakes_kept = one.tree is not other.tree or one.card_sizes != other.card_sizes
        found = set[str]()
        for form in self.forms:
            if form.is_kept_by_queue(changed, have):
                is_awake = wakes_kept
            elif form.is_kept_by_queue(before, had):
                is_awake = True
            else:
                is_awake = yield from form.waking(waking, changed)
                is_awake = is_awake or (not is_quiet and form.fits_somewhere(changed, placer, now_ns))
            if is_awake:
                found |= form.uids
            yield _WAKING
        return frozenset(found)

    def are_enough(self, placed: set[str]) -> bool:
        """Whether of each form that was cut one is not placed, so that those left out would not be either."""
        return not any(form.is_cut and form.uids <= placed for form in self.forms)


def rivals(snapshot: Snapshot, subject: Subject) -> Rivals:
    """Find the others that wait."""
    return ended(finding_rivals(snapshot, subject))


def finding_rivals(snapshot: Snapshot, subject: Subject) -> Steps[Rivals]:
    """Find them in steps."""
    own, others = subject.uids, list[PodRecord]()
    for number, pod in enumerate(_waiting(snapshot), 1):
        if pod.uid not in own:
            others.append(pod)
        if number % _AT_ONCE == 0:
            yield _AT_ONCE * _LOOKING
    gangs = yield from _gangs(snapshot, others)
    forms = (*gangs, *(yield from _alone(others)))
    return Rivals(forms[:_FORMS], are_too_many=len(forms) > _FORMS)


def _waiting(snapshot: Snapshot) -> Iterator[PodRecord]:
    records = snapshot.pods.records
    for uid in [*snapshot.pods.unbound]:
        pod = records[uid]
        if not (pod.deleting or pod.gated or snapshot.is_spoken_for(uid)):
            yield pod


def _alone(others: Sequence[PodRecord]) -> Steps[list[Form]]:
    """Pods alone by form, the first ones in the order of turns."""
    found: dict[object, list[PodRecord]] = {}
    for number, pod in enumerate(others, 1):
        if not pod.pod_group:
            found.setdefault((pod.namespace, pod.queue, pod.priority, pod.cls), []).append(pod)
        if number % _AT_ONCE == 0:
            yield _AT_ONCE * _LOOKING
    most = max(_FEWEST, min(_PODS, _IN_ALL // max(1, len(found))))
    forms = list[Form]()
    for pods in found.values():
        kept = nsmallest(most, pods, key=_turn)
        forms.append(Form(first=(kept[0],), uids=frozenset(pod.uid for pod in kept), is_cut=len(pods) > most))
        yield _LOOKING * len(pods)
    return forms


def _gangs(snapshot: Snapshot, others: Sequence[PodRecord]) -> Steps[list[Form]]:
    """Gangs by form, likewise."""
    members: dict[tuple[str, str], list[PodRecord]] = {}
    for pod in others:
        if pod.pod_group:
            members.setdefault((pod.namespace, pod.pod_group), []).append(pod)
    found: dict[object, list[tuple[PodGroupRecord, list[PodRecord]]]] = {}
    for key, pods in members.items():
        group = snapshot.pod_groups.get(key)
        if group is not None:
            form = group.queue, group.minimum, group.tree, frozenset(pod.cls for pod in pods), len(pods)
            found.setdefault(form, []).append((group, pods))
        yield _LOOKING * len(pods)
    forms = list[Form]()
    for gangs in found.values():
        kept = sorted(gangs, key=lambda each: (min(_turn(pod)[0] for pod in each[1]), each[0].created))[:_GANGS]
        uids = frozenset(pod.uid for _, pods in kept for pod in pods)
        forms.append(Form(first=tuple(kept[0][1]), uids=uids, group=kept[0][0], is_cut=len(gangs) > _GANGS))
        yield _LOOKING * len(uids)
    return forms


def _turn(pod: PodRecord) -> tuple[int, str, str]:
    return -pod.priority, pod.created, pod.uid
