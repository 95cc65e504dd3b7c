"""Explains one group in slices: its caller may do something else between two of them, and may stop after any.

A slice is a bounded number of operations of one try; a try costs at most what a decision may (decide/allowance.py).
The state may change between two slices: then that try is made again, the search goes on from the state as it is, and
what was found stays as it was tried.
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
from scheduler.core.model.steps import Steps
from scheduler.core.what_if import explanation
from scheduler.core.what_if.edit_text import read_edit
from scheduler.core.what_if.edits import Edit, Family, NotPossible, Subject, subject_of_group, subject_of_pod
from scheduler.core.what_if.suggestions import MOST, Search, Suggestion, searching
from scheduler.core.what_if.trials import Pause, Question, Trying

#: A try does not tell others again why they wait.
_LIMITS: Final = Limits(retold=0)
#: Operations (core/decide/allowance.py) after which a slice ends.
MOST_OPERATIONS: Final = 4_000
_TO_THE_END: Final = 1 << 60
#: Interruptions by changes of the cluster after which a try is made at once: else it would never end.
_MOST_INTERRUPTED: Final = 3
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
    """One question. ``is_open``: something is left to do. ``is_explained``: it is known why the group waits.

    ``left_out``: why not everything was tried; ``not_looked_at``: what the answer leaves out. Raises Unanswered for
    changes that make no sense.
    """

    def __init__(self, state: State, asked: Asked, *, now_ns: Callable[[], int] = monotonic_ns) -> None:
        self._state = state
        self._asked = asked
        self._now_ns = now_ns
        self._edits = _edits(asked)
        self._helps: list[Suggestion] = []
        self._search: Search | None = None
        self._question: Question | Pause | None = None
        #: What is being done, and how often the state has changed meanwhile.
        self._steps: Steps[bool] | None = None
        self._interrupted = 0
        self._is_begun = False
        self.is_explained = False
        self.left_out = CUT
        self.not_looked_at: tuple[str, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether ``go_on`` has anything to do."""
        return not self.is_explained or self._question is not None

    def go_on(self, wall_s: int, *, is_settled: bool, most: int = MOST_OPERATIONS) -> None:
        """Do one slice, of ``most`` operations about: go on with one try, or begin the next, by the state as it is now.

        ``is_settled``: a decision was just made. Raises Unanswered for a group that is not there.
        """
        if not self._is_up_to_date(wall_s):
            return
        if self._steps is None:
            self._trying.is_settled = is_settled and not self._edits
            self._steps = self._explain() if self._question is None else self._question.answering(self._trying)
        if self._interrupted > _MOST_INTERRUPTED:
            most = _TO_THE_END
        answer = self._answer(self._steps, most)
        if answer is not None:
            self._steps, self._interrupted = None, 0
            self._advance(answer)

    def explain_now(self, wall_s: int, *, is_settled: bool) -> None:
        """Find out why the group waits, at once. Raises Unanswered."""
        while not self.is_explained:
            self.go_on(wall_s, is_settled=is_settled, most=_TO_THE_END)

    def _answer(self, steps: Steps[bool], most: int) -> bool | None:
        """Go on for ``most`` operations about; return the answer, None: that is not known yet."""
        done = 0
        try:
            while done < most:
                done += next(steps)
        except StopIteration as ended:
            return bool(ended.value)
        except (NotPossible, UnknownObject):
            return False  # what it is about has changed meanwhile
        return None

    def _explain(self) -> Steps[bool]:
        explained = yield from explanation.explaining(self._trying)
        self._view = groups.group_view(explained, self._edits, sees_others=self._asked.sees_others)
        self.not_looked_at = tuple(supposing.devices_left_out(explained))
        self.is_explained = True
        return True

    def _advance(self, answer: bool) -> None:
        try:
            if self._search is None:
                self._search = searching(self._trying, self._helps)
                self._question = next(self._search)
            else:
                self._question = self._search.send(answer)
        except StopIteration:
            self._question, self.left_out = None, ""
        except (NotPossible, UnknownObject):
            self._question, self.left_out = None, _CHANGED  # the search is about something that is gone

    # --- the state ---------------------------------------------------------------------------------------------------
    def _is_up_to_date(self, wall_s: int) -> bool:
        """Go on from the state as it is now; return whether that is possible."""
        if not self.is_explained:
            if not self._is_begun or self._state.generation != self._generation:
                self._begin(wall_s)
            return True
        if self._state.generation == self._generation or self._renew(wall_s):
            return True
        self._question, self.left_out = None, _CHANGED
        return False

    def _begin(self, wall_s: int) -> None:
        self._give_up()
        try:
            snapshot, subject = self._read()
        except NotPossible as error:
            raise Unanswered(400, f"--what-if {error}") from error
        if subject is None:
            asked = self._asked
            whose = " that waits for this scheduler or has a node" if asked.kind == POD else ""
            what = f"{called(asked.kind)} {asked.name}"
            raise Unanswered(404, f"there is no {what} in namespace {asked.namespace}{whose}")
        self._generation, self._is_begun = self._state.generation, True
        self._trying = Trying(snapshot, subject, self._now_ns(), wall_s, limits=_LIMITS)

    def _renew(self, wall_s: int) -> bool:
        """Go on from the state as it is now; return whether the group is still there, and waits."""
        self._give_up()
        try:
            snapshot, subject = self._read()
        except (NotPossible, UnknownObject):
            return False
        if subject is None or not subject.waiting:
            return False
        self._generation = self._state.generation
        self._trying.go_on_from(snapshot, subject, now_ns=self._now_ns(), wall_s=wall_s)
        return True

    def _give_up(self) -> None:
        """Give up what is being done: it is about a state that is gone."""
        if self._steps is not None:
            self._steps.close()
            self._steps = None
            self._interrupted += 1

    def _read(self) -> tuple[Snapshot, Subject | None]:
        """The cluster as it is supposed to be, and the group; None: it is not there. Raises NotPossible."""
        asked, snapshot = self._asked, self._state.snapshot()
        find = subject_of_pod if asked.kind == POD else subject_of_group
        subject = find(snapshot, asked.namespace, asked.name)
        return (snapshot, None) if subject is None else supposing.after(snapshot, subject, self._edits)

    # --- the answer --------------------------------------------------------------------------------------------------
    def view(self) -> GroupView:
        """The answer, as far as it has come."""
        asked = self._asked
        helps = self._helps if asked.sees_others else others.suggested_to(asked.namespace, self._helps)
        view = groups.with_helps(self._view, helps[:MOST], tried=self._trying.tries)
        return view if asked.sees_others else others.without_others(view)


def _edits(asked: Asked) -> list[Edit]:
    """Read the changes that are supposed. Raises Unanswered."""
    try:
        edits = [read_edit(text) for text in asked.supposed]
    except NotPossible as error:
        raise Unanswered(400, f"--what-if {error}") from error
    if not asked.sees_others and any(edit.family is Family.ENDED for edit in edits):
        raise Unanswered(403, "--what-if finish, drain, cordon: allowed where you may list the pods of all namespaces")
    return edits
