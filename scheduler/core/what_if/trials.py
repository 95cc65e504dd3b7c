"""Trying a change: the same ``decide`` on a changed snapshot says whether the group starts then.

A change of what the group requests concerns nobody else. One that frees or adds something is tried beside the others
that wait as well, as they may take it first (rivals.py). A family's finder yields a ``Question`` and takes whether the
group starts then, and yields an edit that was found: its caller may do something else between two.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

import msgspec

from scheduler.core.decide.allowance import Limits, cost_of_changing
from scheduler.core.decide.changes import Change, OnlyThese
from scheduler.core.decide.decide import Answer, Decision, answering_as_if
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.model.plan import Nominate, Placement, Retire, placements
from scheduler.core.model.preemption import Nomination
from scheduler.core.model.steps import Steps, ended
from scheduler.core.model.verdict import Code, Verdict
from scheduler.core.what_if.edits import Edit, Subject
from scheduler.core.what_if.rivals import Rivals, finding_rivals

#: A try is one decision to its end: nobody waits for it but who asked.
_LIMITS: Final = Limits(most=50_000_000, searching=5_000_000, retold=0)


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of the group. ``placed``: its pods with their places. ``room``: who is evicted for it.

    ``frees_device``: it starts once an idle reservation is removed. ``verdict``: why it goes on waiting, with nodes
    by reason where the group was tried alone, as things are.
    ``is_beside_all``: every rival had its turn, so that no other comes first.
    """

    placed: tuple[Placement, ...] = ()
    room: Nomination | None = None
    frees_device: bool = False
    verdict: Verdict | None = None
    others_placed: int = 0
    is_beside_all: bool = True

    @property
    def starts(self) -> bool:
        """Whether it starts: at once, or when others that go for it are gone."""
        return bool(self.placed) or self.room is not None or self.frees_device


@dataclass
class Trying:
    """Tries changes for one group, at once or in steps. ``tries``: decisions made so far.

    Steps are about ``snapshot``: they have to be given up when the cluster changes, or this goes on from another one.
    ``limits``: of each decision. ``is_settled``: a decision was just made, so nobody who waits starts as things are.
    """

    snapshot: Snapshot
    subject: Subject
    now_ns: int
    wall_s: int
    tries: int = 0
    limits: Limits = _LIMITS
    is_settled: bool = False
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
        alone = yield from self.trying_alone(*changes, wall_s=wall_s)
        if not alone.starts:
            return False
        if (is_own and (yield from self._finding_quiet())) or not (yield from self.finding_rivals()).uids:
            return True
        beside = yield from self.trying_beside(*changes, preemption=not alone.placed, wall_s=wall_s)
        return beside.starts and beside.is_beside_all

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
            only = own | (yield from found.finding_awake(self.snapshot, snapshot, self.now_ns, is_quiet=is_quiet))
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
        room=next((entry.nomination for entry in entries if isinstance(entry, Nominate) and _is_for(entry, own)), None),
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
    """Whether the group starts after these changes. ``wall_s``: at this time; None: now. ``is_own``: see Trying."""

    changes: tuple[Change, ...] = ()
    is_own: bool = False
    wall_s: int | None = None

    def answering(self, trying: Trying) -> Steps[bool]:
        """Try it in steps. Raises NotPossible and UnknownObject."""
        return trying.helping(*self.changes, is_own=self.is_own, wall_s=self.wall_s)


#: Yields questions, each answered with a bool, and edits that help, each answered with None.
Finding: TypeAlias = "Generator[Question | Pause | Edit, bool | None, None]"


def about(trying: Trying, *edits: Edit) -> Question:
    """Ask whether the group starts after all of these edits. Raises NotPossible."""
    changes = [change for edit in edits for change in edit.changes(trying.snapshot, trying.subject)]
    return Question(tuple(changes), is_own=all(edit.is_own for edit in edits))


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
