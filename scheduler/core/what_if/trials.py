"""Trying a change: the same ``decide`` on a changed snapshot says whether the group starts then.

A change of what the group requests concerns nobody else. One that frees or adds something is tried beside the others
that wait as well, as they may take it first. A family's finder yields a ``Question`` and takes whether the group starts
then, and yields an edit that was found: its caller may do something else between two.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Final, TypeAlias, TypeVar

import msgspec

from scheduler.core.decide.allowance import COST_OF_PLACING, Limits, cost_of_changing
from scheduler.core.decide.attempts import least_use
from scheduler.core.decide.changes import AnotherAsk, Bound, Change, LastInTurn, OnlyThese
from scheduler.core.decide.decide import Answer, Decision, answering_as_if
from scheduler.core.decide.placer import Placer
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.model.plan import Nominate, Placement, Retire, placements
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.preemption import Nomination
from scheduler.core.model.priority_order import order_members
from scheduler.core.model.records import PodGroupRecord, PodRecord
from scheduler.core.model.steps import Steps, ended
from scheduler.core.model.verdict import Code, Verdict
from scheduler.core.queues.accounts import Accounts
from scheduler.core.scheduling_queue.hints import asks_others, has_slots, needs_of, passing
from scheduler.core.scheduling_queue.unschedulable import depends_on_all
from scheduler.core.what_if.edits import Edit, Subject, with_new_pods


class Waking:
    """Who would have a turn after a change of nodes: whom the scheduling queue would wake, by sums never too strict.

    See scheduling_queue/unschedulable.py. ``before`` the change nobody who waits would start.
    """

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
    """All others that wait, by form: of pods alone that request the same, or gangs alike, the first are tried.

    Where all of those are placed, the ones that were left out may come first as well, so nothing is said of such a
    change. ``are_too_many``: some were left out.
    """

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


#: A try is one decision to its end: nobody waits for it but who asked.
_LIMITS: Final = Limits(most=50_000_000, searching=5_000_000, retold=0)


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of the group. ``placed``: its pods with their places. ``room``: who is evicted for it.

    ``frees_device``: it starts once an idle reservation is removed. ``verdict``: why it goes on waiting, with nodes
    by reason where the group was tried alone, as things are.
    ``is_beside_all``: every rival had its turn, so that no other comes first.
    """

    placed: tuple[Placement, ...] = ()
    preemption: Nomination | None = None
    frees_device: bool = False
    verdict: Verdict | None = None
    others_placed: int = 0
    is_beside_all: bool = True

    @property
    def starts(self) -> bool:
        """Whether it starts: at once, or when others that go for it are gone."""
        return bool(self.placed) or self.preemption is not None or self.frees_device


@dataclass
class Trying:
    """Tries changes for one group, at once or in steps. ``tries``: decisions made so far.

    Steps are about ``snapshot``: they have to be given up when the cluster changes, or this goes on from another one.
    ``limits``: of each decision. ``is_settled``: a decision was just made, so nobody who waits starts as things are.
    ``looks_ahead``: a change that lets it start helps only if its pods are not evicted at once for others.
    """

    snapshot: Snapshot
    subject: Subject
    now_ns: int
    wall_s: int
    tries: int = 0
    limits: Limits = _LIMITS
    is_settled: bool = False
    looks_ahead: bool = True
    #: Without any change: alone, and beside the others, with and without a search for room.
    _as_it_is: dict[tuple[bool, bool], Outcome] = field(default_factory=dict)
    _rivals: Rivals | None = None
    _is_quiet: bool | None = None

    def go_on_from(self, snapshot: Snapshot, subject: Subject, *, now_ns: int, wall_s: int) -> None:
        """Try on another state of the cluster from here on. What was tried on the one before is forgotten."""
        self.snapshot, self.subject, self.now_ns, self.wall_s = snapshot, subject, now_ns, wall_s
        self._as_it_is.clear()
        self._rivals = self._is_quiet = None

    # --- others ------------------------------------------------------------------------------------------------------
    @property
    def rivals(self) -> Rivals:
        """The others that wait, as far as they are tried beside the group."""
        return ended(self.finding_rivals())

    def finding_rivals(self) -> Steps[Rivals]:
        """Find them in steps."""
        if self._rivals is None:
            self._rivals = yield from finding_rivals(self.snapshot, self.subject)
        return self._rivals

    @property
    def is_quiet(self) -> bool:
        """Whether nobody else would be placed now: so a change of the group alone gives nobody anything."""
        return ended(self._finding_quiet())

    def _finding_quiet(self) -> Steps[bool]:
        if self._is_quiet is None:
            is_alone = self.is_settled or not (yield from self.finding_rivals()).uids
            self._is_quiet = is_alone or not (yield from self.trying_beside(preemption=False)).others_placed
        return self._is_quiet

    # --- trying ------------------------------------------------------------------------------------------------------
    def outcome(self, *changes: Change, wall_s: int | None = None) -> Outcome:
        """What becomes of the group after these changes, if nobody else waits. Nothing of the snapshot changes."""
        return ended(self.trying_alone(*changes, wall_s=wall_s))

    def trying_alone(self, *changes: Change, wall_s: int | None = None) -> Steps[Outcome]:
        """Try that in steps."""
        return self._outcome(changes, wall_s, is_beside=False, preemption=True)

    def beside_others(self, *changes: Change, preemption: bool, wall_s: int | None = None) -> Outcome:
        """What becomes of it beside the others that wait. ``preemption``: room is searched for, for them as well."""
        return ended(self.trying_beside(*changes, preemption=preemption, wall_s=wall_s))

    def trying_beside(self, *changes: Change, preemption: bool, wall_s: int | None = None) -> Steps[Outcome]:
        """Try that in steps."""
        return self._outcome(changes, wall_s, is_beside=True, preemption=preemption)

    def _outcome(
        self, changes: tuple[Change, ...], wall_s: int | None, *, is_beside: bool, preemption: bool
    ) -> Steps[Outcome]:
        if changes or wall_s is not None:
            at_s = self.wall_s if wall_s is None else wall_s
            return (yield from self._tried(changes, at_s, is_beside=is_beside, preemption=preemption))
        key = is_beside, preemption
        if key not in self._as_it_is:
            tried = yield from self._tried((), self.wall_s, is_beside=is_beside, preemption=preemption)
            self._as_it_is[key] = tried
        return self._as_it_is[key]

    def helps(self, *changes: Change, is_own: bool, wall_s: int | None = None) -> bool:
        """Whether the group starts after these changes. ``is_own``: they concern nothing but the group itself."""
        return ended(self.helping(*changes, is_own=is_own, wall_s=wall_s))

    def helping(self, *changes: Change, is_own: bool, wall_s: int | None = None) -> Steps[bool]:
        """Find that out in steps."""
        if not is_own and (yield from self.finding_rivals()).are_too_many:
            return False
        found = yield from self.trying_alone(*changes, wall_s=wall_s)
        if not found.starts:
            return False
        if not (yield from self.finding_rivals()).uids:
            return True
        if not (is_own and (yield from self._finding_quiet())):
            found = yield from self.trying_beside(*changes, preemption=not found.placed, wall_s=wall_s)
        if not (found.starts and found.is_beside_all):
            return False
        return not (yield from self._is_evicted(changes, found.placed, self.wall_s if wall_s is None else wall_s))

    def helping_last(self, *changes: Change) -> Steps[bool]:
        """Find out whether it starts after these changes as the last of all: others get their further members first.

        A decision places no member beyond a minimum before that minimum is bound.
        """
        found = yield from self.finding_rivals()
        changed = self.snapshot.with_(*changes, OnlyThese(found.uids))
        yield cost_of_changing(self.snapshot)
        awake = yield from found.finding_awake(
            self.snapshot, changed, self.now_ns, is_quiet=(yield from self._finding_quiet())
        )
        self.tries += 1
        answer = yield from answering_as_if(
            changed,
            OnlyThese(awake),
            uids=(),
            now_ns=self.now_ns,
            limits=msgspec.structs.replace(self.limits, preemption=False, explains=False),
            wall_s=self.wall_s,
        )
        others = tuple(placements(answer.decision.entries))
        last = LastInTurn(tuple(sorted(self.subject.uids)))
        return (yield from self.helping(*changes, Bound(others, self.wall_s), last, is_own=False))

    def _is_evicted(self, changes: tuple[Change, ...], placed: tuple[Placement, ...], wall_s: int) -> Steps[bool]:
        """Whether the next decision evicts pods of the group, once they run, for others that wait."""
        if not (self.looks_ahead and self.snapshot.settings.preemption and placed):
            return False
        self.tries += 1
        answer = yield from answering_as_if(
            self.snapshot,
            *changes,
            Bound(placed, wall_s),
            OnlyThese((yield from self.finding_rivals()).uids),
            uids=(),
            now_ns=self.now_ns,
            limits=msgspec.structs.replace(self.limits, preemption=True, explains=False),
            wall_s=wall_s,
        )
        nominations = (entry.nomination for entry in answer.decision.entries if isinstance(entry, Nominate))
        return any(victim.pod_uid in self.subject.uids for each in nominations for victim in each.victims)

    def _tried(self, changes: tuple[Change, ...], wall_s: int, *, is_beside: bool, preemption: bool) -> Steps[Outcome]:
        self.tries += 1
        own = only = self.subject.uids
        snapshot = self.snapshot
        is_explained = not (changes or is_beside)
        if is_beside:
            found = yield from self.finding_rivals()
            is_quiet = bool(changes) and (yield from self._finding_quiet())
            snapshot, changes = snapshot.with_(*changes, OnlyThese(own | found.uids)), ()
            yield cost_of_changing(self.snapshot)
            # Evictions serve all that wait in their order, whether a change of nodes wakes them or not.
            only = own | (
                found.uids
                if preemption
                else (yield from found.finding_awake(self.snapshot, snapshot, self.now_ns, is_quiet=is_quiet))
            )
        answer = yield from answering_as_if(
            snapshot,
            *changes,
            OnlyThese(only),
            uids=sorted(own),
            now_ns=self.now_ns,
            limits=msgspec.structs.replace(self.limits, preemption=preemption, explains=is_explained),
            wall_s=wall_s,
        )
        is_beside_all = not is_beside or self._had_all_their_turn(answer.decision)
        return _outcome(answer, self.subject, is_beside_all=is_beside_all)

    def _had_all_their_turn(self, decision: Decision) -> bool:
        placed = {each.pod_uid for each in placements(decision.entries)}
        return not decision.has_put_off and self.rivals.are_enough(placed)


def _outcome(answer: Answer, subject: Subject, *, is_beside_all: bool) -> Outcome:
    entries, own = answer.decision.entries, subject.uids
    placed = tuple(each for each in placements(entries) if each.pod_uid in own)
    others = sum(each.pod_uid not in own for each in placements(entries))
    verdicts = [answer.verdicts[uid] for uid in sorted(answer.verdicts)]
    is_retiring = any(isinstance(entry, Retire) and entry.for_pod in own for entry in entries)
    return Outcome(
        placed=placed,
        preemption=next(
            (entry.nomination for entry in entries if isinstance(entry, Nominate) and _is_for(entry, own)), None
        ),
        frees_device=is_retiring or any(each.code is Code.WAITING_FOR_DEVICE for each in verdicts),
        verdict=verdicts[0] if verdicts and not placed else None,
        others_placed=others,
        is_beside_all=is_beside_all,
    )


def _is_for(entry: Nominate, own: frozenset[str]) -> bool:
    return any(place.pod_uid in own for place in entry.nomination.places)


T = TypeVar("T")


class Pause(msgspec.Struct, frozen=True):
    """Asks nothing: a finder that has looked at much lets its caller do something else. ``operations``: what it did."""

    operations: int

    def answering(self, trying: Trying) -> Steps[bool]:
        """Answer True."""
        del trying
        yield self.operations
        return True


class Question(msgspec.Struct, frozen=True):
    """Whether the group starts after these changes. ``wall_s``: at this time; None: now. ``is_own``: see Trying.

    ``is_last``: as the last of all that wait, with the members beyond their minimums.
    """

    changes: tuple[Change, ...] = ()
    is_own: bool = False
    wall_s: int | None = None
    is_last: bool = False

    def answering(self, trying: Trying) -> Steps[bool]:
        """Try it in steps. Raises NotPossible and UnknownObject."""
        if self.is_last:
            return trying.helping_last(*self.changes)
        return trying.helping(*self.changes, is_own=self.is_own, wall_s=self.wall_s)


#: Yields questions, each answered with a bool, and edits that help, each answered with None.
Finding: TypeAlias = "Generator[Question | Pause | Edit, bool | None, None]"


def about(trying: Trying, *edits: Edit) -> Question:
    """Ask whether the group starts after all of these edits, made one after the other. Raises NotPossible."""
    changes, subject = list[Change](), trying.subject
    for edit in edits:
        made = edit.changes(trying.snapshot, subject)
        changes += made
        subject = _asking(subject, made)
    made = with_new_pods(tuple(changes), trying.subject, trying.wall_s)
    return Question(made, is_own=all(edit.is_own for edit in edits))


def _asking(subject: Subject, changes: Sequence[Change]) -> Subject:
    """The group whose pods ask what these changes say, so that another edit keeps it."""
    classes = {uid: change.cls for change in changes if isinstance(change, AnotherAsk) for uid in change.uids}
    waiting = tuple(msgspec.structs.replace(pod, cls=classes.get(pod.uid, pod.cls)) for pod in subject.waiting)
    return msgspec.structs.replace(subject, waiting=waiting) if classes else subject


def paused(steps: Steps[T]) -> Generator[Pause, bool | None, T]:
    """Look at much with pauses. The cluster may change in each, so ``steps`` must rest on nothing that does."""
    while True:
        try:
            operations = next(steps)
        except StopIteration as done:
            result: T = done.value
            return result
        yield Pause(operations)


def first(most: int, finding: Finding) -> Generator[Question | Pause, bool, list[Edit]]:
    """Pass questions and pauses on until ``most`` edits are found; return them."""
    found: list[Edit] = []
    answer: bool | None = None
    while len(found) < most:
        try:
            step = finding.send(answer)
        except StopIteration:
            break
        if isinstance(step, Question | Pause):
            answer = yield step
        else:
            found.append(step)
            answer = None
    return found


def answered(trying: Trying, finding: Finding) -> Iterator[Edit]:
    """Answer each question at once; yield the edits."""
    answer: bool | None = None
    while True:
        try:
            step = finding.send(answer)
        except StopIteration:
            return
        if isinstance(step, Question | Pause):
            answer = ended(step.answering(trying))
        else:
            answer = None
            yield step
