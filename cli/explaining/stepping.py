"""Explains one group a step at a time: its caller may do something else between two steps, and may stop at any.

A step is one try, which costs at most what a decision may (core/decide/allowance.py). The state may change between two
steps: then the search goes on from the state as it is, and what was found stays as it was tried.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from cli.explain import called
from cli.explaining import groups, others, supposing
from cli.explaining.questions import Asked, Unanswered
from cli.explaining.views import GroupView
from cli.inspection.options import POD
from kube.client.clock import monotonic_ns
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

#: A try does not tell others again why they wait.
_LIMITS: Final = Limits(retold=0)
CUT: Final = "time was up: not all changes that might help were tried"
_CHANGED: Final = "the group or what it depends on changed meanwhile: not all changes that might help were tried"


class State(Protocol):
    """A cluster as it is now. ``generation`` is another one when anything is; scheduler.core.cluster.Cluster is one."""

    @property
    def generation(self) -> int:
        """Number of the state."""
        ...

    def snapshot(self) -> Snapshot:
        """What a decision would read."""
        ...


class Explaining:
    """One question. ``is_open``: something is left to try. ``left_out``: why not everything was tried.

    Raises Unanswered for changes that make no sense.
    """

    def __init__(self, state: State, asked: Asked, *, now_ns: Callable[[], int] = monotonic_ns) -> None:
        self._state = state
        self._asked = asked
        self._now_ns = now_ns
        self._edits = _edits(asked)
        self._helps: list[Suggestion] = []
        self._question: Question | None = None
        self.left_out = CUT

    @property
    def is_open(self) -> bool:
        """Whether ``go_on`` has anything to do."""
        return self._question is not None

    def begin(self, wall_s: int, *, is_settled: bool) -> None:
        """Find out why the group waits. ``is_settled``: a decision was just made. Raises Unanswered."""
        now_ns = self._now_ns()
        try:
            snapshot, subject = self._read()
        except NotPossible as error:
            raise Unanswered(400, f"--what-if {error}") from error
        if subject is None:
            asked = self._asked
            whose = " that waits for this scheduler or has a node" if asked.kind == POD else ""
            what = f"{called(asked.kind)} {asked.name}"
            raise Unanswered(404, f"there is no {what} in namespace {asked.namespace}{whose}")
        self._generation = self._state.generation
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
        if self._state.generation != self._generation and not self._renew(wall_s):
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
            snapshot, subject = self._read()
        except (NotPossible, UnknownObject):
            return False
        if subject is None or not subject.waiting:
            return False
        self._generation = self._state.generation
        self._trying.go_on_from(snapshot, subject, now_ns=self._now_ns(), wall_s=wall_s)
        return True

    def _read(self) -> tuple[Snapshot, Subject | None]:
        """The cluster as it is supposed to be, and the group; None: it is not there. Raises NotPossible."""
        asked, snapshot = self._asked, self._state.snapshot()
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
