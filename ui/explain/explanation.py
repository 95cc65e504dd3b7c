"""Explains a pod or PodGroup in slices, and asks the scheduler of a cluster for its explanation.

A slice is a bounded number of operations of one try; a try costs at most what a decision may (decide/allowance.py).
Where the state changes between two slices, that try is repeated and the search goes on from the new state; earlier
findings stay as they were tried.

The scheduler is asked through the API server's service proxy, with the user's own token. It gives no answer where the
service is off, where the user has no token (a client certificate), may not use the proxy, or impersonates somebody;
then there is a reason. Only where no scheduler of the cluster explains there is none: nothing has failed.
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol
from urllib.parse import quote

import msgspec

from kube.client.clock import monotonic_ns
from kube.client.config import Credentials
from kube.client.errors import ApiError
from kube.client.http_reads import HttpReads
from kube.client.transport import Response
from runtime.client import Reached
from runtime.options.selection import POD, called
from runtime.text import BadInput
from scheduler.core.decide.allowance import Limits
from scheduler.core.decide.changes import UnknownObject
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.model.steps import Steps, ended
from scheduler.core.what_if import explanation
from scheduler.core.what_if.edit_text import read_edit
from scheduler.core.what_if.edits import (
    Edit,
    Family,
    NotPossible,
    Subject,
    subject_of_group,
    subject_of_pod,
    with_new_pods,
)
from scheduler.core.what_if.explanation import Explained, with_residents
from scheduler.core.what_if.suggestions import MOST, Search, Suggestion, searching, suggestions_within
from scheduler.core.what_if.trials import Pause, Question, Trying
from ui.explain import tables, views
from ui.explain.views import Asked, GroupView, Unanswered
from ui.queues.count import NOW_NS, Known
from ui.queues.pools import unread_of
from wire import names

#: Operations (core/decide/allowance.py) after which no further change is tried: about 0.7 s.
MOST_OPERATIONS_AT_ONCE: Final = 1_500_000
#: A node that is like another one has copies of the devices that this one alone reaches.
NO_COPIES: Final = "devices that several nodes reach: changes that add nodes add none of them"
CUT_AT_ONCE: Final = "not all changes that might help were tried, as that takes too long"


class Whole(msgspec.Struct, frozen=True):
    """What is printed as JSON and YAML. ``unread``: what could not be read, and so is missing here."""

    group: GroupView
    unread: tuple[str, ...] = ()


def edits(texts: Sequence[str]) -> list[Edit]:
    """Read all of ``--what-if``. Raises BadInput for one that means nothing."""
    found = []
    for text in texts:
        try:
            found.append(read_edit(text))
        except NotPossible as error:
            raise BadInput(f"--what-if {error}") from error
    return found


def subject(known: Known, kind: str, namespace: str, name: str) -> Subject:
    """Find the group. Raises BadInput if it is not there."""
    snapshot = known.snapshot
    found = (subject_of_pod if kind == POD else subject_of_group)(snapshot, namespace, name)
    if found is not None:
        return found
    records = snapshot.pods.records.values()
    there = (
        [pod.name for pod in records if pod.namespace == namespace]
        if kind == POD
        else [group for of, group in snapshot.pod_groups if of == namespace]
    )
    near = difflib.get_close_matches(name, there, n=1)
    meant = f"; did you mean {near[0]}?" if near else ""
    whose = "" if kind != POD else " that waits for this scheduler or has a node"
    unread = unread_of("Pod" if kind == POD else "PodGroup", known.unread)
    raise BadInput(f"there is no {called(kind)} {name} in namespace {namespace}{whose}{meant}{unread}")


def explained(
    known: Known, of: Subject, supposed: Sequence[Edit], wall_s: int, *, most: int = MOST_OPERATIONS_AT_ONCE
) -> Explained:
    """Explain a group after these edits. Raises BadInput for one that is not possible here.

    ``most``: operations after which no further change is tried.
    """
    try:
        snapshot, of = after(with_residents(known.snapshot, now_ns=NOW_NS, wall_s=wall_s), of, supposed, wall_s)
    except NotPossible as error:
        raise BadInput(f"--what-if {error}") from error
    trying = Trying(snapshot, of, NOW_NS, wall_s)
    found = ended(explanation.explaining(trying))
    helps, is_whole = suggestions_within(trying, most)
    return msgspec.structs.replace(found, helps=tuple(helps), is_cut=not is_whole)


def after(snapshot: Snapshot, of: Subject, supposed: Sequence[Edit], wall_s: int) -> tuple[Snapshot, Subject]:
    """Return the cluster as it would be after these edits, and the group in it. Raises NotPossible."""
    for edit in supposed:
        snapshot = snapshot.with_(*with_new_pods(edit.changes(snapshot, of), of, wall_s))
        of = _again(snapshot, of)
    return snapshot, of


def _again(snapshot: Snapshot, of: Subject) -> Subject:
    """The same group, as it is in another snapshot."""
    find = subject_of_pod if of.group is None else subject_of_group
    return find(snapshot, of.namespace, of.name) or of


def devices_left_out(found: Explained) -> Iterator[str]:
    """That further nodes bring no devices of common pools, of a group that waits and needs devices for its claims."""
    snapshot = found.trying.snapshot
    if found.outcome.starts or not found.trying.subject.needs_devices(snapshot):
        return
    if snapshot.devices.has_common_pools:
        yield NO_COPIES


def is_in_doubt(known: Known, of: Subject, found: Explained) -> bool:
    """Whether something that was not read may keep the group waiting, though it starts by all that was."""
    rules = known.has_doubtful_rules and any(each.claims for each in found.outcome.placed)
    budgets = found.outcome.preemption is not None and not known.knows_budgets
    is_anywhere = (of.namespace, of.name) in known.placed_anywhere
    return rules or budgets or is_anywhere or not of.uids.isdisjoint(known.mounting | known.claiming)


def not_looked_at(known: Known, of: Subject, found: Explained) -> Iterator[str]:
    """What the answer leaves out."""
    if known.mounting & of.uids:
        yield "PersistentVolumeClaims of its pods, which may keep it waiting, too, or off some nodes"
    if known.claiming & of.uids:
        yield "ResourceClaims of its pods, which may keep it waiting, too, or off some nodes"
    yield from devices_left_out(found)
    if found.is_cut:
        yield CUT_AT_ONCE
    if (of.namespace, of.name) in known.placed_anywhere:
        yield "Topologies: the PodGroup counts as if it named none"
    is_about_evictions = found.preemption is not None or found.outcome.preemption is not None
    if is_about_evictions and not known.knows_budgets:
        yield "PodDisruptionBudgets, which may protect pods that could be evicted"
    if of.waiting and not known.knows_evictions:
        yield "the record of evictions (ConfigMaps of kai-scheduler): no pod counts as one that may be evicted for it"


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
        self._view = tables.group_view(explained, self._edits, sees_others=self._asked.sees_others)
        self.not_looked_at = tuple(devices_left_out(explained))
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
            snapshot, subject = self._read(wall_s)
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
            snapshot, subject = self._read(wall_s)
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

    def _read(self, wall_s: int) -> tuple[Snapshot, Subject | None]:
        """The cluster as it is supposed to be, and the group; None: it is not there. Raises NotPossible."""
        asked, snapshot = self._asked, self._state.snapshot()
        find = subject_of_pod if asked.kind == POD else subject_of_group
        subject = find(snapshot, asked.namespace, asked.name)
        return (snapshot, None) if subject is None else after(snapshot, subject, self._edits, wall_s)

    # --- the answer --------------------------------------------------------------------------------------------------
    def view(self) -> GroupView:
        """The answer, as far as it has come."""
        asked = self._asked
        helps = self._helps if asked.sees_others else views.suggested_to(asked.namespace, self._helps)
        view = tables.with_helps(self._view, helps[:MOST], tried=self._trying.tries)
        return view if asked.sees_others else views.without_others(view)


def _edits(asked: Asked) -> list[Edit]:
    """Read the changes that are supposed. Raises Unanswered."""
    try:
        edits = [read_edit(text) for text in asked.supposed]
    except NotPossible as error:
        raise Unanswered(400, f"--what-if {error}") from error
    if not asked.sees_others and any(edit.family is Family.ENDED for edit in edits):
        raise Unanswered(403, "--what-if finish, drain, cordon: allowed where you may list the pods of all namespaces")
    return edits


#: Has the token: the proxy takes Authorization away (ui/explain/server.py).
TOKEN_HEADER: Final = "X-Moorage-Authorization"  # noqa: S105 - the name of a header
_SERVICES: Final = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/services"
_SERVICE: Final = f"{_SERVICES}/{names.EXPLAIN_SERVICE}"
_PATH: Final = f"{_SERVICES}/https:{names.EXPLAIN_SERVICE}:explain/proxy/explain"
#: The scheduler takes 8 s at most.
_TIMEOUT_S: Final = 10.0
#: What the scheduler says of the question, not of itself.
_OF_THE_QUESTION: Final = frozenset({400, 404})
_ACT_AS: Final = "Impersonate-"


class NoAnswer(Exception):
    """Raised where the scheduler does not answer. The message says why."""


class NotServed(NoAnswer):
    """Raised where no scheduler of the cluster explains: the Service does not exist."""


class CanNotAsk(NoAnswer):
    """Raised where nobody was asked, as these credentials can't be passed on."""


async def ask(cluster: Reached, arguments: argparse.Namespace, namespace: str) -> Whole:
    """Ask the scheduler what the arguments name. Raises NoAnswer, and BadInput for what it refuses."""
    asked = Asked(kind=arguments.what, namespace=namespace, name=arguments.names[0], supposed=tuple(arguments.what_if))
    try:
        return await passed_on(cluster.credentials, asked)
    except CanNotAsk as why:
        if await _is_served(cluster):
            raise
        raise NotServed(str(why)) from why


async def _is_served(cluster: Reached) -> bool:
    """Whether there is a scheduler to ask, as far as these credentials may know."""
    try:
        found = await cluster.transport.request("GET", _SERVICE, query={}, timeout_s=_TIMEOUT_S)
    except (ApiError, OSError, ValueError):
        return True
    return found.status != 404


async def passed_on(credentials: Credentials, asked: Asked) -> Whole:
    """Ask the scheduler as the owner of these credentials. Raises NoAnswer, and BadInput for what it refuses."""
    if any(name.startswith(_ACT_AS) for name, _ in credentials.headers):
        raise CanNotAsk("--as can't be passed on to it")
    token = "" if credentials.authorization is None else await credentials.authorization()
    if not token.lower().startswith("bearer "):
        raise CanNotAsk("it needs a bearer token, and these credentials have none")
    path = "/".join((_PATH, *(quote(part, safe="") for part in (asked.kind, asked.namespace, asked.name))))
    query = {"what-if": "\n".join(asked.supposed)} if asked.supposed else {}
    shown = msgspec.structs.replace(credentials, headers=(*credentials.headers, (TOKEN_HEADER, token)))
    try:
        async with HttpReads(shown, user_agent="moorage-explain") as transport:
            return _read(await transport.request("GET", path, query=query, timeout_s=_TIMEOUT_S))
    except (ApiError, OSError, ValueError) as error:
        raise NoAnswer(str(error)) from error


class _Refusal(msgspec.Struct):
    """``error``: of the scheduler; ``message``: of the API server, where it does not get as far."""

    error: str = ""
    message: str = ""


def _read(answer: Response) -> Whole:
    try:
        if answer.status == 200:
            return msgspec.json.decode(answer.body, type=Whole)
        said = msgspec.json.decode(answer.body, type=_Refusal)
    except msgspec.MsgspecError as error:
        raise NoAnswer(f"HTTP {answer.status} in a form of another version") from error
    if answer.status in _OF_THE_QUESTION and said.error:
        raise BadInput(said.error)
    if answer.status == 404:  # of the API server
        raise NotServed(said.message)
    raise NoAnswer(f"HTTP {answer.status}: {said.error or said.message}")
