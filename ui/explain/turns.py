"""Explains groups from a scheduler's own state, in slices between its decisions.

A slice (stepping.py) waits until another decision would do nothing. One question is worked on at a
time, and for ``MOST_S`` at most.

How much of a scheduler's time explanations may take: never two slices at once, and a tenth of the time over seconds.

A scheduler has one event loop. While a slice of an explanation is computed nothing is decided, so after each slice as
much time passes as it took, at least. What was not used is saved for ``BURST_S`` seconds of work, which is enough for
the first question after a quiet time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import anyio
import msgspec

from kube.client.clock import Clock, monotonic_ns
from runtime.metrics.scheduler import ExplainObserver
from scheduler.core.cluster import Cluster
from ui.explain.explanation import Explaining, Whole
from ui.explain.questions import Asked
from ui.explain.views import GroupView, HolderView

#: Of all time, over long.
SHARE: Final = 0.1
#: Seconds of work that are saved while nobody asks.
BURST_S: Final = 2.0


class Budget:
    """Counts what slices took. ``worked_s``: a clock of this thread's CPU time, which others' load does not move."""

    def __init__(
        self,
        *,
        share: float = SHARE,
        burst_s: float = BURST_S,
        worked_s: Callable[[], float] = time.thread_time,
        observer: ExplainObserver | None = None,
    ) -> None:
        self._observer = observer or ExplainObserver()
        self._worked_s = worked_s
        self._share = share
        self._burst_s = burst_s
        self._left_s = burst_s
        self._counted_at = float("-inf")
        #: When the next slice may begin, by the one before.
        self._next_at = float("-inf")

    def begins_at(self) -> float:
        """Return when the next slice may begin."""
        now = anyio.current_time()
        self._refill(now)
        return max(self._next_at, now if self._left_s > 0 else now - self._left_s / self._share)

    @contextmanager
    def slice(self) -> Iterator[None]:
        """Count what is done inside; nothing may be awaited there."""
        began_s = self._worked_s()
        self._refill(anyio.current_time())
        try:
            yield
        finally:
            took_s = self._worked_s() - began_s
            self._left_s -= took_s
            self._next_at = anyio.current_time() + took_s
            self._observer.sliced(took_s)

    def _refill(self, now: float) -> None:
        if now > self._counted_at > float("-inf"):
            self._left_s = min(self._burst_s, self._left_s + (now - self._counted_at) * self._share)
        self._counted_at = now


#: (now, namespace) -> idle shares.
Idle = Callable[[int, str], tuple[HolderView, ...]]

#: A question is worked on for this time at most; what was found by then is the answer.
MOST_S: Final = 8.0
#: The slices of a question wait this long for decisions, in all, and look this often.
_DECISIONS_S: Final = 1.0
_LOOK_S: Final = 0.005
_NOT_LEADING: Final = (
    "this replica of the scheduler does not lead: failed attempts, and pods that are evicted for others, are not known"
)


class Judging:
    """``is_leading``: whether decisions are made here; a replica that follows answers by what it has read.

    ``idle``: idle shares of one namespace, "" for all, at a time; None: nobody follows what agents report.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        clock: Clock,
        is_leading: Callable[[], bool],
        budget: Budget | None = None,
        idle: Idle | None = None,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._is_leading = is_leading
        self._budget = budget or Budget()
        self._idle = idle
        self._turn = anyio.Lock()

    async def explain(self, asked: Asked) -> Whole:
        """Explain a group. Raises Unanswered for one that is not there, and for changes that make no sense."""
        found = Explaining(self._cluster, asked)
        async with self._turn:
            until = anyio.current_time() + MOST_S
            patience_s = _DECISIONS_S
            while found.is_open:
                patience_s = await self._slice(until, patience_s)
                with self._budget.slice():
                    if anyio.current_time() < until:
                        found.go_on(self._wall_s(), is_settled=self._is_settled())
                        continue
                    found.explain_now(self._wall_s(), is_settled=self._is_settled())
                break
        left_out = (found.left_out,) if found.left_out else ()
        unread = (*(() if self._is_leading() else (_NOT_LEADING,)), *found.not_looked_at, *left_out)
        return Whole(group=self._with_idle(found.view(), asked), unread=unread)

    def _with_idle(self, view: GroupView, asked: Asked) -> GroupView:
        if self._idle is None or not view.waiting or view.starts:
            return view
        idle = self._idle(self._clock.now_ns(), "" if asked.sees_others else asked.namespace)
        return msgspec.structs.replace(view, idle=idle)

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
