"""The evictor: pods that have to go are evicted by the Eviction API, in the order in which they are asked for.

All evictions of the scheduler go through one evictor: with a limit a second and side by side, for all callers. A pod is
named by its UID, so its successor of the same name is safe.
"""

from __future__ import annotations

import heapq
import logging
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

import anyio
from anyio.abc import TaskGroup

from kube.client.api import Api
from kube.client.errors import ApiError, Conflict, Forbidden, NotFound, Refused, ServerError, TooManyRequests
from kube.client.resources import POD_GROUPS, PODS
from kube.client.retry import doubled_s
from kube.events import Bursts, EventRecorder
from kube.telemetry.logevents import LogEvent, about, ignore
from kube.watch.signal import Signal
from scheduler.conditions.messages import moved_text, preempted_text, reclaimed_text
from scheduler.core.model.preemption import Action, Nomination, Victim
from scheduler.core.model.records import PodRecord
from scheduler.core.queues.use import queue_of
from scheduler.core.report.state import QueueState, queue_states
from scheduler.telemetry.events import Answer, Emit, EvictionAnswered, Evicts
from scheduler.watch.cache import Cache
from wire import names
from wire.api_groups import WARNING
from wire.core import ObjectReference

_log: Final = logging.getLogger(__name__)

SIDE_BY_SIDE: Final = 16
#: The most of them for pods of one namespace: the API server may take 10 s for an answer about a pod that was replaced.
SIDE_BY_SIDE_OF_NAMESPACE: Final = 4
FIRST_REFUSAL_S: Final = 10.0
LONGEST_REFUSAL_S: Final = 600.0
_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 10.0
#: A right that is missing is given by a person.
_LONGEST_FORBIDDEN_S: Final = 300.0
_CAUSE: Final = "DisruptionBudget"
#: In the API server's answer about a pod under several budgets, which has no reason (docs/design/api-server-facts.md).
_SEVERAL: Final = "more than one PodDisruptionBudget"


#: After these nobody is asked again.
ENDS: Final = frozenset({Answer.EVICTED, Answer.GONE, Answer.OTHER_POD, Answer.SPARED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A pod that is to go. ``is_due`` is asked right before each request; ``told`` hears each answer.

    ``asker``: who wants it. Several askers are asked and answered one by one. ``past_budgets``: it is deleted where a
    budget forbids its eviction (``--disruption-budgets``).
    """

    uid: str
    namespace: str
    name: str
    asker: str
    is_due: Callable[[], bool]
    told: Callable[[Answer], None]
    past_budgets: bool = False


@dataclass(slots=True, eq=False)
class _Asking:
    """A pod with those who want it gone, by asker. ``failures``: answers in a row that say nothing.

    ``turn``: which of its entries in the queue counts; earlier ones were replaced.
    """

    uid: str
    namespace: str
    name: str
    wanted: dict[str, Wanted] = field(default_factory=dict)
    failures: int = 0
    turn: int = 0

    @property
    def place(self) -> str:
        """For people."""
        return f"{self.namespace}/{self.name}"

    def tell(self, answer: Answer) -> None:
        """Tell all askers."""
        for wanted in [*self.wanted.values()]:
            wanted.told(answer)


class Bucket:
    """Lets ``per_s`` through each second, and ``burst`` at once after a pause."""

    def __init__(self, per_s: int, burst: int) -> None:
        self._each_s = 1 / per_s
        self._burst_s = (burst - 1) / per_s
        self._next = float("-inf")

    async def take(self) -> bool:
        """Wait for one's turn; return whether it had to be waited for."""
        now = anyio.current_time()
        at = max(self._next, now - self._burst_s)
        self._next = at + self._each_s
        if at <= now:
            return False
        await anyio.sleep(at - now)
        return True


class Evictor:
    """Evicts. ``on_refused`` is called with a pod (UID) and whether it is refused from now on, or not any more."""

    def __init__(
        self,
        api: Api,
        *,
        per_s: int,
        side_by_side: int = SIDE_BY_SIDE,
        on_refused: Callable[[str, bool], None] = ignore,
    ) -> None:
        self._api = api
        self._bucket = Bucket(per_s, 2 * per_s)
        self._limiter_size = side_by_side
        #: (when to ask, order, which) by the event loop's time; one whose turn is another one was replaced.
        self._due: list[tuple[float, int, _Asking]] = []
        self._order = 0
        self._asking: dict[str, _Asking] = {}
        #: Pod -> (refusals in a row, until when it is refused).
        self._refused: dict[str, tuple[int, float]] = {}
        #: Requests without an answer by pod (UID), and the pods whose last one may have been carried out.
        self._sent: Counter[str] = Counter()
        self._unclear: set[str] = set()
        #: Requests that were begun, by namespace; what waits until one of its namespace has ended, and what may follow.
        self._begun: Counter[str] = Counter()
        self._held: dict[str, deque[tuple[int, _Asking]]] = {}
        self._following: deque[_Asking] = deque()
        self._news = Signal()
        self._on_refused = on_refused

    def ask(self, wanted: Wanted) -> None:
        """Have a pod evicted; what its asker wanted of it before counts no more. A refused pod waits until it isn't."""
        asking = self._asking.setdefault(wanted.uid, _Asking(wanted.uid, wanted.namespace, wanted.name))
        asking.wanted[wanted.asker] = wanted
        asking.failures = 0
        self._put(asking, self._refused.get(wanted.uid, (0, 0.0))[1])

    def _put(self, asking: _Asking, at: float) -> None:
        self._order += 1
        asking.turn = self._order
        heapq.heappush(self._due, (max(at, anyio.current_time()), self._order, asking))
        self._news.set()

    def is_asking(self, uid: str, asker: str) -> bool:
        """Whether this asker will hear of this pod again."""
        return uid in self._asking and asker in self._asking[uid].wanted

    def is_on_its_way(self, uid: str) -> bool:
        """Whether this pod may yet be evicted by a request that was sent: its answer is not known."""
        return self._sent[uid] > 0 or uid in self._unclear

    @property
    def refused(self) -> Collection[str]:
        """Pods (UIDs) that are refused, or were refused not long ago."""
        return self._refused.keys()

    def forget_refusals(self) -> None:
        """Forget how often pods were refused that were not asked again for a while."""
        now = anyio.current_time()
        self._refused = {uid: told for uid, told in self._refused.items() if told[1] + LONGEST_REFUSAL_S > now}

    async def run(self) -> None:
        """Evict until cancelled."""
        limiter = anyio.CapacityLimiter(self._limiter_size)
        async with anyio.create_task_group() as tasks:
            while True:
                asking = await self._next()
                if asking is not None:
                    await self._begin(asking, tasks, limiter)

    async def _next(self) -> _Asking | None:
        """The first whose time has come; None if there may be another one to wait for."""
        if self._following:
            return self._following.popleft()
        if not self._due:
            await self._news.wait()
            return None
        left_s = self._due[0][0] - anyio.current_time()
        if left_s > 0:
            with anyio.move_on_after(left_s):
                await self._news.wait()
            return None
        _, order, asking = heapq.heappop(self._due)
        if not self._has_turn(asking, order):
            return None
        if self._begun[asking.namespace] >= SIDE_BY_SIDE_OF_NAMESPACE:
            self._held.setdefault(asking.namespace, deque()).append((order, asking))
            return None
        self._begun[asking.namespace] += 1
        return asking

    def _has_turn(self, asking: _Asking, order: int) -> bool:
        return self._asking.get(asking.uid) is asking and asking.turn == order

    def _ended(self, namespace: str) -> None:
        """A request of a namespace has ended: the next one that waits for that follows in its place."""
        held = self._held.get(namespace, deque())
        while held:
            order, asking = held.popleft()
            if self._has_turn(asking, order):
                self._following.append(asking)
                self._news.set()
                return
        self._held.pop(namespace, None)
        self._begun[namespace] -= 1
        if not self._begun[namespace]:
            del self._begun[namespace]

    async def _begin(self, asking: _Asking, tasks: TaskGroup, limiter: anyio.CapacityLimiter) -> None:
        borrower = object()  # two requests for one pod may be on their way
        await limiter.acquire_on_behalf_of(borrower)
        tasks.start_soon(self._carry_out, asking, limiter, borrower)

    def _is_still_due(self, asking: _Asking) -> bool:
        """Whether to ask. If the last request may have been carried out, the pod is looked at in any case."""
        if asking.uid in self._unclear:
            return True
        spared = [wanted for wanted in asking.wanted.values() if not wanted.is_due()]
        if len(spared) == len(asking.wanted):
            self._end(asking, Answer.SPARED)
            return False
        for wanted in spared:
            del asking.wanted[wanted.asker]
            wanted.told(Answer.SPARED)
        return True

    async def _carry_out(self, asking: _Asking, limiter: anyio.CapacityLimiter, borrower: object) -> None:
        """The edge of one request: what goes wrong with one pod stops nothing else."""
        try:
            if await self._has_its_turn(asking):
                await self._request(asking)
        except Exception:  # noqa: BLE001 - the edge of the component
            _log.exception("an eviction was broken off: %s", asking.place)
            self._unclear.add(asking.uid)
            self._again(asking, Answer.FAILED)
        finally:
            limiter.release_on_behalf_of(borrower)
            self._ended(asking.namespace)

    async def _has_its_turn(self, asking: _Asking) -> bool:
        """Whether to ask now. One that is spared takes nobody's turn; one that waited for its turn is judged again."""
        if not self._is_still_due(asking):
            return False
        return not await self._bucket.take() or self._is_still_due(asking)

    async def _request(self, asking: _Asking) -> None:
        try:
            if asking.uid in self._unclear:
                seen = await self._seen(asking)
                self._unclear.discard(asking.uid)
                if seen is not None:
                    self._end(asking, seen)
                    return
                if not self._is_still_due(asking):
                    return
            await self._send(asking)
        except NotFound:
            self._end(asking, Answer.GONE)
        except ApiError as error:
            self._failed(asking, error)
        else:
            self._end(asking, Answer.EVICTED)

    async def _send(self, asking: _Asking) -> None:
        uid = asking.uid
        self._sent[uid] += 1
        try:
            await self._evict(asking)
        finally:
            self._sent[uid] -= 1
            if not self._sent[uid]:
                del self._sent[uid]

    async def _evict(self, asking: _Asking) -> None:
        """Evict a pod, or delete it where a budget forbids that and does not count. Raises ApiError."""
        try:
            await self._api.evict(asking.namespace, asking.name, uid=asking.uid)
        except (TooManyRequests, ServerError) as error:
            goes = any(wanted.past_budgets for wanted in asking.wanted.values())
            if not goes or not self._refused_s(asking.uid, error):
                raise
            _log.info("it is deleted, as its queue has more than budgets protect: %s: %s", asking.place, error)
            await self._api.delete(PODS, asking.name, namespace=asking.namespace, uid=asking.uid)

    async def _seen(self, asking: _Asking) -> Answer | None:
        """What became of a pod whose eviction was not answered clearly; None: it stays so far. Raises ApiError."""
        pod = await self._api.get(PODS, asking.name, namespace=asking.namespace)
        if pod.metadata.uid != asking.uid:
            return Answer.OTHER_POD
        return Answer.EVICTED if pod.metadata.deletion_timestamp is not None else None

    def _failed(self, asking: _Asking, error: ApiError) -> None:
        refused_s = self._refused_s(asking.uid, error)
        if refused_s:
            self._refuse(asking, refused_s, error)
            return
        # Of a Conflict the pod tells which: another one by now, or it has changed in this moment.
        if error.outcome_unknown or isinstance(error, Conflict):
            self._unclear.add(asking.uid)
        pause_s = self._again(asking, Answer.FAILED, error)
        tell = _log.error if isinstance(error, Forbidden) else _log.warning
        tell("no clear answer to the eviction of %s, asking again in %.1f s: %s", asking.place, pause_s, error)

    def _refused_s(self, uid: str, error: ApiError) -> float:
        """For how long a pod is refused by this answer; 0: it is not about budgets."""
        if isinstance(error, ServerError):
            return LONGEST_REFUSAL_S if _SEVERAL in str(error) else 0.0
        if not (isinstance(error, TooManyRequests) and _is_of_budget(error)):
            return 0.0
        times = self._refused.get(uid, (0, 0.0))[0]
        return doubled_s(FIRST_REFUSAL_S, times, longest_s=LONGEST_REFUSAL_S)

    def _refuse(self, asking: _Asking, refused_s: float, error: ApiError) -> None:
        uid, until = asking.uid, anyio.current_time() + refused_s
        self._refused[uid] = (self._refused.get(uid, (0, 0.0))[0] + 1, until)
        asking.failures = 0
        self._put(asking, until)
        extra = about(LogEvent.EVICTION_REFUSED, pod=asking.place, again_s=refused_s)
        _log.info("it may not be evicted now: %s", error, extra=extra)
        asking.tell(Answer.REFUSED)
        self._on_refused(uid, True)

    def _again(self, asking: _Asking, answer: Answer, error: ApiError | None = None) -> float:
        longest_s = _LONGEST_FORBIDDEN_S if isinstance(error, Forbidden) else _LONGEST_PAUSE_S
        pause_s = doubled_s(_FIRST_PAUSE_S, asking.failures, longest_s=longest_s)
        if isinstance(error, TooManyRequests) and error.retry_after_s is not None:
            pause_s = max(pause_s, min(error.retry_after_s, longest_s))
        asking.failures += 1
        self._asking.setdefault(asking.uid, asking)
        self._put(asking, anyio.current_time() + pause_s)
        asking.tell(answer)
        return pause_s

    def _end(self, asking: _Asking, answer: Answer) -> None:
        uid, told = asking.uid, [*asking.wanted.values()]
        self._unclear.discard(uid)
        asking.wanted.clear()
        if self._asking.get(uid) is asking:
            del self._asking[uid]
            if uid in self._refused:
                self._on_refused(uid, False)
            if answer is not Answer.SPARED:
                self._refused.pop(uid, None)
        for wanted in told:
            wanted.told(answer)


def _is_of_budget(error: Refused) -> bool:
    """Whether a 429 is a budget's answer, and not that of a server with too much to do."""
    causes = (error.status.details or {}).get("causes") or ()
    return any(isinstance(cause, dict) and cause.get("reason") == _CAUSE for cause in causes)


_WHY: Final = {each: Evicts(each.value) for each in Action}
#: The most pods of one PodGroup that have an event of their own, as with client-go,
OF_GROUP: Final = 10
#: and the most pods without one in a namespace.
OF_NAMESPACE: Final = 50


class Evictions:
    """Records what became of victims: an event for people, a line of the log, a count.

    What an event says is put together while the victim is known. Of many pods of one PodGroup, or of one namespace, the
    first have an event each, and the others one together (kube/events.py).
    """

    def __init__(self, cache: Cache, events: EventRecorder, emit: Emit) -> None:
        self._cache = cache
        self._events = Bursts(events, reason=names.REASON_EVICT, action="Evicting")
        self._emit = emit

    def states(self) -> Mapping[str, QueueState]:
        """How queues stand, by name; to be asked once for all that is written together."""
        queues = self._cache.cluster.queues
        return {
            state.record.name: state
            for state in queue_states(queues.records.all(), queues.accounts(), queues.sums.sums)
        }

    def note(
        self, nomination: Nomination, victim: Victim, states: Mapping[str, QueueState]
    ) -> tuple[ObjectReference, str]:
        """About what an event is, and what it says."""
        pod = self._cache.cluster.pod(victim.pod_uid)
        place, taker = f"{victim.namespace}/{victim.name}", self._cache.cluster.pod(nomination.places[0].pod_uid)
        workload = self._workload(nomination, taker, victim.namespace)
        if nomination.action is Action.PREEMPT:
            text = preempted_text(place, workload)
        elif nomination.action is Action.MOVE:
            text = moved_text(place)
        else:
            queues = dict.fromkeys(self._queue(one) for one in (pod, taker) if one is not None)
            text = reclaimed_text(place, workload, [states[name] for name in queues if name in states])
        return self._regarding(victim, pod), text

    def _workload(self, nomination: Nomination, taker: PodRecord | None, reader: str) -> str:
        """The workload that takes a place, for people of a namespace: of those of others they are told the queue."""
        if nomination.namespace == reader:
            return f"{nomination.namespace}/{nomination.pod_group or (taker.name if taker is not None else '')}"
        return f"of queue {self._queue(taker)}" if taker is not None else "of another namespace"

    def _queue(self, pod: PodRecord) -> str:
        group = self._cache.cluster.pod_group(pod.namespace, pod.pod_group) if pod.pod_group else None
        return queue_of(pod, group)

    def _regarding(self, victim: Victim, pod: PodRecord | None) -> ObjectReference:
        """The victim's PodGroup, or the pod where there is none."""
        group = None if pod is None else self._cache.cluster.pod_group(pod.namespace, pod.pod_group)
        kind, name, uid = (PODS, victim.name, victim.pod_uid) if group is None else (POD_GROUPS, group.name, group.uid)
        return ObjectReference(
            api_version=kind.api_version, kind=kind.kind, name=name, namespace=victim.namespace, uid=uid
        )

    def told(self, nomination: Nomination, victim: Victim, note: tuple[ObjectReference, str], answer: Answer) -> None:
        """Tell of an answer; people hear of evictions only."""
        self._emit(EvictionAnswered(_WHY[nomination.action], answer))
        if answer is not Answer.EVICTED:
            return
        regarding, text = note
        place, action = f"{victim.namespace}/{victim.name}", nomination.action.value
        taker = f"{nomination.namespace}/{nomination.pod_group}" if nomination.pod_group else nomination.namespace
        extra = about(
            LogEvent.POD_EVICTED, pod=place, node=victim.node, action=action, nomination=nomination.id, taker=taker
        )
        _log.info("evicted: %s", text, extra=extra)
        is_of_group = regarding.kind == POD_GROUPS.kind
        alike, most = (regarding.uid, OF_GROUP) if is_of_group else (victim.namespace, OF_NAMESPACE)
        self._events.record(regarding, text, alike=alike, most=most, type=WARNING)
