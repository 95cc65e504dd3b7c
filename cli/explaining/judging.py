"""Explains groups from a scheduler's own state, in slices between its decisions.

A slice is one try, which costs at most what a decision may (core/decide/allowance.py), and waits until another decision
would do nothing. The state may change between two slices: then the search goes on from the state as it is, and what was
found stays as it was tried. One question is worked on at a time, and for ``MOST_S`` at most.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio

from cli.explaining import groups, others, supposing
from cli.explaining.budget import Budget
from cli.explaining.questions import Asked, Unanswered
from cli.explaining.supposing import Whole
from cli.explaining.views import GroupView
from cli.inspection.options import POD
from kube.client.clock import Clock, monotonic_ns
from scheduler.core.cluster import Cluster
from scheduler.core.decide.allowance import Limits
from scheduler.core.decide.changes import UnknownObject
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.what_if import explanation, written
from scheduler.core.what_if import subject as subjects
from scheduler.core.what_if.asking import Question
from scheduler.core.what_if.edit import Edit, Family, NotPossible
from scheduler.core.what_if.subject import Subject
from scheduler.core.what_if.suggest import MOST, Search, Suggestion, searching
from scheduler.core.what_if.trying import Trying

#: A question is worked on for this time at most; what was found by then is the answer.
MOST_S: Final = 8.0
#: The slices of a question wait this long for decisions, in all, and look this often.
_DECISIONS_S: Final = 1.0
_LOOK_S: Final = 0.005
#: A try does not tell others again why they wait.
_LIMITS: Final = Limits(retold=0)
_NOT_LEADING: Final = (
    "this replica of the scheduler does not lead: failed attempts, and pods that are evicted for others, are not known"
)
_CUT: Final = "time was up: not all changes that might help were tried"
_CHANGED: Final = "the group or what it depends on changed meanwhile: not all changes that might help were tried"


class Judging:
    """``is_leading``: whether decisions are made here; a replica that follows answers by what it has read."""

    def __init__(
        self, cluster: Cluster, *, clock: Clock, is_leading: Callable[[], bool], budget: Budget | None = None
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._is_leading = is_leading
        self._budget = budget or Budget()
        self._turn = anyio.Lock()

    async def explain(self, asked: Asked) -> Whole:
        """Explain a group. Raises Unanswered for one that is not there, and for changes that make no sense."""
        edits = _edits(asked)
        async with self._turn:
            until = anyio.current_time() + MOST_S
            found = _Explaining(self._cluster, asked, edits)
            patience_s = await self._slice(until, _DECISIONS_S)
            with self._budget.slice():
                found.begin(self._wall_s(), is_settled=self._is_settled())
            while found.is_open:
                patience_s = await self._slice(until, patience_s)
                if anyio.current_time() >= until:
                    break
                with self._budget.slice():
                    found.go_on(self._wall_s(), is_settled=self._is_settled())
        unread = (*(() if self._is_leading() else (_NOT_LEADING,)), *((found.left_out,) if found.left_out else ()))
        return Whole(group=found.view(), unread=unread)

    async def _slice(self, until: float, patience_s: float) -> float:
        """Wait until a slice may begin; return what is left of the patience with decisions."""
        await anyio.sleep_until(min(until, self._budget.begins_at()))
        began = anyio.current_time()
        impatient_at = began + patience_s
        while self._is_leading() and not self._is_settled() and anyio.current_time() < impatient_at:  # noqa: ASYNC110 - time passes, too
            await anyio.sleep(_LOOK_S)
        return impatient_at - anyio.current_time()

    def _is_settled(self) -> bool:
        return self._is_leading() and self._cluster.is_decided(monotonic_ns())

    def _wall_s(self) -> int:
        return self._clock.now_ns() // 1_000_000_000


class _Explaining:
    """One question. ``is_open``: something is left to try. ``left_out``: why not everything was tried."""

    def __init__(self, cluster: Cluster, asked: Asked, edits: list[Edit]) -> None:
        self._cluster = cluster
        self._asked = asked
        self._edits = edits
        self._helps: list[Suggestion] = []
        self._question: Question | None = None
        self.left_out = _CUT

    @property
    def is_open(self) -> bool:
        return self._question is not None

    def begin(self, wall_s: int, *, is_settled: bool) -> None:
        """Find out why the group waits. Raises Unanswered."""
        now_ns = monotonic_ns()
        try:
            snapshot, subject = self._state()
        except NotPossible as error:
            raise Unanswered(400, f"--what-if {error}") from error
        if subject is None:
            asked = self._asked
            whose = " that waits for this scheduler or has a node" if asked.kind == POD else ""
            raise Unanswered(404, f"there is no {asked.kind} {asked.name} in namespace {asked.namespace}{whose}")
        self._generation = self._cluster.generation
        self._trying = Trying(snapshot, subject, now_ns, wall_s, limits=_LIMITS)
        self._trying.is_settled = is_settled and not self._edits
        explained = explanation.explained(self._trying, suggest=lambda _: ())
        self._view = groups.group_view(explained, self._edits)
        self._search: Search = searching(self._trying, self._helps)
        self._advance(lambda: next(self._search))

    def go_on(self, wall_s: int, *, is_settled: bool) -> None:
        """Answer one question of the search by the state as it is now."""
        question = self._question
        assert question is not None  # noqa: S101 - is_open
        if self._cluster.generation != self._generation and not self._renew(wall_s):
            self._question, self.left_out = None, _CHANGED
            return
        self._trying.is_settled = is_settled and not self._edits
        try:
            helps = question.answer(self._trying)
        except (NotPossible, UnknownObject):
            helps = False  # what it is about has changed meanwhile
        self._advance(lambda: self._search.send(helps))

    def view(self) -> GroupView:
        """The answer, as far as it has come."""
        asked = self._asked
        helps = self._helps if asked.sees_others else others.suggested_to(asked.namespace, self._helps)
        view = groups.with_helps(self._view, helps[:MOST], tried=self._trying.tries)
        return view if asked.sees_others else others.without_others(view)

    def _advance(self, step: Callable[[], Question]) -> None:
        try:
            self._question = step()
        except StopIteration:
            self._question, self.left_out = None, ""
        except (NotPossible, UnknownObject):
            self._question, self.left_out = None, _CHANGED  # the search is about something that is gone

    def _renew(self, wall_s: int) -> bool:
        """Go on from the state as it is now; return whether the group is still there, and waits."""
        try:
            snapshot, subject = self._state()
        except (NotPossible, UnknownObject):
            return False
        if subject is None or not subject.waiting:
            return False
        self._generation = self._cluster.generation
        self._trying.go_on_from(snapshot, subject, now_ns=monotonic_ns(), wall_s=wall_s)
        return True

    def _state(self) -> tuple[Snapshot, Subject | None]:
        """The cluster as it is supposed to be, and the group; None: it is not there. Raises NotPossible."""
        asked, snapshot = self._asked, self._cluster.snapshot()
        find = subjects.of_pod if asked.kind == POD else subjects.of_group
        subject = find(snapshot, asked.namespace, asked.name)
        return (snapshot, None) if subject is None else supposing.after(snapshot, subject, self._edits)


def _edits(asked: Asked) -> list[Edit]:
    """Read the changes that are supposed. Raises Unanswered."""
    try:
        edits = [written.read(text) for text in asked.supposed]
    except NotPossible as error:
        raise Unanswered(400, f"--what-if {error}") from error
    if not asked.sees_others and any(edit.family is Family.ENDED for edit in edits):
        raise Unanswered(403, "--what-if finish, drain, cordon: allowed where you may list the pods of all namespaces")
    return edits
