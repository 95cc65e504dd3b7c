"""The cycle: something changed, a few milliseconds pass, one decision is made, and its entries are sent on their way.

Driven by events, not by a timer: when nothing changes nothing happens, and the plan itself says when time alone will
change the answer. While changes keep coming the batching window is longer: one decision on many of them costs much less
than one on each, so decisions take a bounded part of the process's time.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import anyio
from anyio.abc import TaskGroup

from kube.client.api import Api
from kube.client.clock import monotonic_ns
from kube.client.errors import ApiError, Conflict, NotFound
from kube.client.resources import PODS
from kube.telemetry.logevents import LogEvent, about
from scheduler.commit.bind_requests import HandedOver, NotHanded, create_request, request_manifest
from scheduler.commit.claim_binding import Preparing
from scheduler.commit.claim_writes import LeavingClaims
from scheduler.commit.direct import Direct
from scheduler.commit.gangs import Gangs
from scheduler.core.assumed.attempts import State
from scheduler.core.model.plan import (
    Attempt,
    Bind,
    Evict,
    Explain,
    Gang,
    GiveUp,
    Hold,
    Join,
    Nominate,
    Placement,
    Plan,
    Prepare,
    Retire,
    Withdraw,
)
from scheduler.settings import SchedulerSettings
from scheduler.telemetry.events import Decided, Emit, RequestMade, Stage, StageTook
from scheduler.watch.cache import Cache
from wire.units import SECOND_NS

#: The next decision comes no sooner than this many times the time that one took,
TIMES: Final = 3
#: and at most this long, after its end.
MOST_S: Final = 0.1


class BatchingWindow:
    """``least_s``: from the first change to the decision. Times are the event loop's."""

    def __init__(self, least_s: float) -> None:
        self._least_s = least_s
        self._rests_until = -math.inf

    def decided(self, began_s: float, ended_s: float) -> None:
        """Note when a decision was made that left no work to the next one."""
        self._rests_until = ended_s + min(TIMES * (ended_s - began_s), MOST_S)

    def left_s(self, now_s: float) -> float:
        """How long to wait for what comes with a change that came now."""
        return max(self._least_s, self._rests_until - now_s)


T = TypeVar("T")

_log: Final = logging.getLogger(__name__)

#: How often one looks whether an opening has named its device, within the time that one is patient with it.
_LOOKS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Carriers:
    """Carry out the entries of a plan, each its own kinds."""

    direct: Direct
    gangs: Gangs
    handed: HandedOver
    preparing: Preparing
    leaving: LeavingClaims
    #: Takes a nomination, or that one is given up, and charges it at once; None: nobody is evicted for others.
    preempt: Callable[[Nominate | GiveUp], None] | None
    #: Takes the eviction of what is left of a gang.
    release_gang: Callable[[Evict], None]


class Cycle:
    """Decides and commits. Every placement is charged in the same breath as it was decided.

    ``explain`` is called with why pods wait, after each decision that is not the one before, ``after_each`` after all.
    Ages of objects are told by the API server's clock.
    """

    def __init__(
        self,
        api: Api,
        cache: Cache,
        carriers: Carriers,
        *,
        explain: Callable[[Sequence[Explain]], None],
        after_each: Callable[[], None],
        settings: SchedulerSettings,
        emit: Emit,
    ) -> None:
        self._api = api
        self._cache = cache
        self._direct = carriers.direct
        self._gangs = carriers.gangs
        self._handed = carriers.handed
        self._preparing = carriers.preparing
        self._leaving = carriers.leaving
        self._preempt = carriers.preempt
        self._release_gang = carriers.release_gang
        self._explain = explain
        self._after_each = after_each
        self._settings = settings
        self._emit = emit
        self._gathering = BatchingWindow(settings.gather_s)
        #: Reservations (UIDs) whose removal is under way.
        self._retiring: set[str] = set()
        #: Pods (UIDs) whose BindRequest is asked for and not answered yet.
        self._asking: set[str] = set()
        #: Commits under way; ``finish`` waits for them.
        self._commits = 0
        self._is_finishing = False
        self._all_done = anyio.Event()

    async def run(self) -> None:
        """Decide whenever something changed, until cancelled."""
        async with anyio.create_task_group() as tasks:
            with self._handed.watching_in(tasks):
                await self._decide_in(tasks)

    async def _decide_in(self, tasks: TaskGroup) -> None:
        limiter = anyio.CapacityLimiter(self._settings.in_flight)
        before: Plan | None = None
        while not self._is_finishing:
            began = anyio.current_time()
            self._cache.note_preemption_facts()
            plan = self._cache.cluster.decide(monotonic_ns(), wall_s=self._api.clock.now_ns() // SECOND_NS)
            decided = anyio.current_time()
            if plan.wake_at_ns is None or plan.wake_at_ns > monotonic_ns():
                self._gathering.decided(began, decided)
            self._commit(plan, tasks, limiter, is_new=plan is not before)
            if plan is not before:
                before = plan
                _log_cycle(plan, decided - began)
                self._emit(Decided(plan, began, decided, anyio.current_time()))
            self._handed.settle_departed()
            self._look_for_abandoned_plans(tasks)
            self._give_claims_back(plan, tasks)
            self._after_each()
            await self._wait(plan)

    def _look_for_abandoned_plans(self, tasks: TaskGroup) -> None:
        abandoned = self._gangs.abandoned
        for key in abandoned.stale():
            tasks.start_soon(self._guarded, abandoned.take_back, key)
        for key in abandoned.handed_over_in_part():
            tasks.start_soon(self._guarded, abandoned.free_if_stuck, key)

    def _give_claims_back(self, plan: Plan, tasks: TaskGroup) -> None:
        is_whole = plan.wake_at_ns is None or plan.wake_at_ns > monotonic_ns()
        for pod in [*self._leaving.due(is_whole=is_whole)]:
            tasks.start_soon(self._guarded, self._leaving.leave, pod)

    async def finish(self) -> None:
        """Decide nothing more, and wait until no commit is under way."""
        self._is_finishing = True
        self._preparing.stop()
        self._leaving.stop()
        self._cache.wake.set()
        while self._commits:
            self._all_done = anyio.Event()
            await self._all_done.wait()

    async def _wait(self, plan: Plan) -> None:
        """Wait for a change or for the plan's time; then a moment more, for what comes with it."""
        timeout_s = None
        if plan.wake_at_ns is not None:
            timeout_s = max(0.0, (plan.wake_at_ns - monotonic_ns()) / 1e9)
        with anyio.move_on_after(timeout_s):
            await self._cache.wake.wait()
        await anyio.sleep(self._gathering.left_s(anyio.current_time()))

    def _commit(self, plan: Plan, tasks: TaskGroup, limiter: anyio.CapacityLimiter, *, is_new: bool) -> None:
        """Charge all placements, then start their writes. A plan that came again is not reported a second time.

        Shares that enter the same books go together. A join and its Binding hold one place among those in flight: an
        entry whose Binding does not follow soon is taken for abandoned (protocol.md, step 5).
        """
        joins: dict[tuple[str, ...], list[Placement]] = {}
        for entry in plan.entries:
            match entry:
                case Bind(placement=placement):
                    self._assume([placement])
                    bind = self._timed(Stage.BIND, self._direct.bind)
                    tasks.start_soon(self._carry_out, [placement], self._limited, limiter, bind, placement)
                case Join(placement=placement):
                    self._assume([placement])
                    joins.setdefault(tuple(device.group for device in placement.devices), []).append(placement)
                case Attempt(placement=placement):
                    self._cache.cluster.commits.open(placement)
                    hand_over = self._timed(Stage.HAND_OVER, self._hand_over)
                    tasks.start_soon(self._carry_out, [placement], self._limited, limiter, hand_over, placement)
                    tasks.start_soon(self._lose_patience, placement)
                case Hold(placement=placement):
                    self._cache.cluster.commits.hold(placement)
                case Gang() | Prepare():
                    self._begin_together(entry, tasks)
                case Retire() | Withdraw() | Explain() | Nominate() | GiveUp() | Evict():
                    self._begin(entry, tasks)
        for joining in joins.values():
            join = self._timed(Stage.JOIN, self._direct.join)
            tasks.start_soon(self._carry_out, joining, self._limited, limiter, join, joining)
        if is_new:
            explained = [entry for entry in plan.entries if isinstance(entry, Explain)]
            self._cache.cluster.told(explained)
            self._explain(explained)

    def _begin_together(self, entry: Gang | Prepare, tasks: TaskGroup) -> None:
        """Charge pods that start together, and start the gang, or have their claims bound first."""
        if isinstance(entry, Gang):
            self._assume(entry.placements)
            start = self._timed(Stage.GANG, self._gangs.start)
            tasks.start_soon(self._carry_out, entry.placements, start, entry)
            return
        for placement in entry.placements:
            self._cache.cluster.commits.prepare(placement)
        prepare = self._timed(Stage.PREPARE, self._preparing.prepare)
        tasks.start_soon(self._carry_out, entry.placements, prepare, entry.placements)

    def _begin(self, entry: Retire | Withdraw | Explain | Nominate | GiveUp | Evict, tasks: TaskGroup) -> None:
        """Start to take away what is there already, if that is what an entry asks; charge what is kept for holders."""
        match entry:
            case Retire():
                self._start_retiring(entry, tasks)
            case Withdraw(placement=placement):
                self._move_on(placement, tasks)
            case Nominate() | GiveUp():
                if self._preempt is None:
                    raise ValueError(f"preemption is off: {entry}")
                self._preempt(entry)
            case Evict():
                self._release_gang(entry)
            case Explain():
                pass

    def _move_on(self, placement: Placement, tasks: TaskGroup) -> None:
        """Take a share back from a node that is late: one that is held is decided on again at once.

        A hand-over that is not answered yet can't be taken back yet, and is left alone until the next change.
        """
        cluster = self._cache.cluster
        flight = cluster.commits.flight(placement.pod_uid)
        if flight is None or not (flight.state is State.HELD or self._handed.has(placement)):
            return
        cluster.commits.move_on(placement, now_ns=monotonic_ns())
        if flight.state is State.HELD:
            self._cache.wake.set()
        else:
            tasks.start_soon(self._guarded, self._handed.take_back, placement)

    async def _lose_patience(self, opening: Placement) -> None:
        """A share that can't be bound must not hold up those that wait for it to make its device known (L2).

        As long as the device has not told its name nobody could be bound there any sooner, so patience begins then; a
        share whose device stays silent is given up by the binder. One that never gets there is given up by nobody, so
        patience begins, too, while the API server does not take its BindRequest.
        """
        looks = 0
        while looks <= _LOOKS and self._cache.cluster.commits.is_under_way(opening.pod_uid, attempt=opening.number):
            await anyio.sleep(self._settings.opening_s / _LOOKS)
            looks = looks + 1 if self._is_named(opening) or opening.pod_uid in self._asking else 0
        if self._cache.cluster.commits.give_up_opening(opening.pod_uid, attempt=opening.number):
            self._cache.wake.set()

    def _is_named(self, opening: Placement) -> bool:
        """Whether the reservations of all devices of a placement have told which device they hold."""
        reservations = (self._cache.reservations.get(device.group) for device in opening.devices)
        return all(held is not None and held.is_told for held in reservations)

    def _assume(self, placements: Sequence[Placement]) -> None:
        for placement in placements:
            self._cache.cluster.commits.assume(placement)

    async def _carry_out(
        self, placements: Sequence[Placement], commit: Callable[..., Awaitable[None]], *arguments: Any
    ) -> None:
        """Carry out a commit of these placements.

        Of one that is broken off nothing is known. Its charges stay until its pods were read, and fenced if unbound.
        """

        async def committed(*given: Any) -> None:
            try:
                await commit(*given)
            except Exception:
                for placement in placements:
                    self._cache.cluster.commits.break_off(placement)
                self._cache.wake.set()
                raise

        await self._guarded(committed, *arguments)

    async def _guarded(self, commit: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        """The edge of each commit: what goes wrong with one pod stops nothing else (S11)."""
        self._commits += 1
        try:
            await commit(*arguments)
        except Exception:  # noqa: BLE001 - the edge of the component
            _log.exception("a commit was broken off: %s", arguments)
        finally:
            self._commits -= 1
            if not self._commits:
                self._all_done.set()

    def _timed(self, stage: Stage, commit: Callable[[T], Awaitable[None]]) -> Callable[[T], Awaitable[None]]:
        """Tell how long a commit took, once its turn had come; one that was broken off is not told."""

        async def timed(placed: T) -> None:
            began = anyio.current_time()
            await commit(placed)
            self._emit(StageTook(stage, anyio.current_time() - began))

        return timed

    async def _limited(self, limiter: anyio.CapacityLimiter, commit: Callable[[T], Awaitable[None]], placed: T) -> None:
        async with limiter:
            await commit(placed)

    async def _hand_over(self, placement: Placement) -> None:
        """Hand an attempt to the binder."""
        pod = self._cache.cluster.pod(placement.pod_uid)
        if pod is None:
            self._cache.cluster.commits.forget_departed(placement.pod_uid)  # nothing was written for it
            return
        began_s = anyio.current_time()
        self._asking.add(placement.pod_uid)
        try:
            request = await create_request(
                self._api, request_manifest(placement, pod.cls.request, pool=self._settings.decisions.pool)
            )
        except NotHanded as error:
            self._cache.cluster.commits.failed(placement.pod_uid, "", f"Refused: {error}", now_ns=monotonic_ns())
            self._cache.cluster.commits.release(placement.pod_uid, attempt=placement.number)
            self._cache.wake.set()
            return
        finally:
            self._asking.discard(placement.pod_uid)
        self._handed.add(placement, request.metadata.uid)
        place, groups = f"{placement.namespace}/{placement.name}", [device.group for device in placement.devices]
        self._emit(RequestMade(placement, began_s))
        trace = self._cache.trace_of(placement.pod_uid)
        extra = about(LogEvent.ATTEMPT_MADE, pod=place, node=placement.node, groups=groups, **trace)
        _log.info("handed to the binder", extra=extra)

    def _start_retiring(self, entry: Retire, tasks: TaskGroup) -> None:
        if entry.reservation_uid not in self._retiring:
            self._retiring.add(entry.reservation_uid)
            tasks.start_soon(self._retire, entry)

    async def _retire(self, entry: Retire) -> None:
        """Delete an idle reservation; the deletion shows a second later, or it is asked for again."""
        await self._guarded(self._delete_idle, entry)
        await anyio.sleep(1)
        self._retiring.discard(entry.reservation_uid)
        self._cache.wake.set()

    async def _delete_idle(self, entry: Retire) -> None:
        """Delete an idle reservation, unless somebody joined it in between (its version tells)."""
        try:
            held = self._cache.reservation(entry.reservation_uid)
            if held is None or held.deleting or held.book is None or held.book.entries:
                return
            await self._api.delete(PODS, held.name, namespace=held.namespace, uid=held.uid, resource_version=held.rv)
            extra = about(LogEvent.RESERVATION_REMOVED, reservation=held.name, group=held.group, node=held.node)
            _log.info("its device is wanted whole", extra=extra)
        except (NotFound, Conflict):
            return
        except ApiError as error:
            _log.warning("reservation %s was not removed: %s", entry.reservation_uid, error)


def _log_cycle(plan: Plan, took_s: float) -> None:
    if not _log.isEnabledFor(logging.DEBUG):
        return
    kinds = Counter(type(entry).__name__.lower() for entry in plan.entries)
    extra = about(LogEvent.CYCLE_DECIDED, took_ms=took_s * 1e3, **kinds)
    _log.debug("decided", extra=extra)
