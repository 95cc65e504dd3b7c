"""The memory enforcer's loop: look, set limits, judge, end, report; once an interval, more often over a cap.

It goes by the caps that the agent sent last. Before it was sent any it looks and reports, and judges nobody; when the
agent goes away the last caps go on: a pod's cap does not change while the pod lives, and a pod that is not in them has
none.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from nodeagent.core.enforcement.messages import Done, Limited, Report, bounded, fitting, told, write_report
from nodeagent.core.enforcement.overuse import (
    MIB,
    History,
    Judgement,
    Key,
    Kill,
    Process,
    Rules,
    Sample,
    above,
    is_still,
    judge,
)
from nodeagent.enforcement.memory_enforcer.limits import Limiting
from nodeagent.enforcement.memory_enforcer.sampling import DriverAway, Sampler
from nodeagent.listener import Listener
from nodeagent.processes import Processes
from wire.units import SECOND_NS

#: SIGKILL was sent.
ENDED: Final = "ended"
#: SIGTERM was sent; SIGKILL follows when its grace is over.
ASKED: Final = "asked"
#: It had ended.
GONE: Final = "gone"
#: The PID is another process's, or the process is in no pod, or in another one.
OTHER: Final = "other"
#: The kernel did not let us.
REFUSED: Final = "refused"


class Ending:
    """Ends processes that were judged, and no other. ``grace_ns``: between SIGTERM and SIGKILL; 0: SIGKILL at once.

    A PID is used again when its process has ended. So the process is pinned by a pidfd first, and only then start time
    and pod are read again: whoever has the PID after that, the signal goes to the one that was pinned. A kernel without
    pidfds (before 5.3) ends nobody.
    """

    def __init__(self, processes: Processes, *, grace_ns: int = 0) -> None:
        self._processes = processes
        self._grace_ns = grace_ns
        #: Pidfds of those that were asked, and when their grace is over, by PID and start time.
        self._asked: dict[tuple[int, int], tuple[int, int]] = {}

    def end(self, victim: Process, now_ns: int) -> str:
        """End a process, or ask it to. Returns one of the words above; raises nothing."""
        if (victim.pid, victim.started) in self._asked:
            return ASKED
        try:
            pinned = os.pidfd_open(victim.pid)
        except ProcessLookupError:
            return GONE
        except OSError:
            return REFUSED
        outcome = REFUSED
        try:
            outcome = self._signal(pinned, victim)
        finally:
            if outcome == ASKED:
                self._asked[victim.pid, victim.started] = (pinned, now_ns + self._grace_ns)
            else:
                os.close(pinned)
        return outcome

    def _signal(self, pinned: int, victim: Process) -> str:
        seen = self._processes.seen(victim.pid)
        if not victim.pod_uid or not is_still(victim, seen):
            return GONE if seen is None else OTHER
        sent = signal.SIGTERM if self._grace_ns else signal.SIGKILL
        try:
            signal.pidfd_send_signal(pinned, sent)
        except ProcessLookupError:
            return GONE
        except OSError:
            return REFUSED
        return ASKED if self._grace_ns else ENDED

    def press(self, now_ns: int) -> None:
        """Kill those whose grace is over: by the pidfd, so that it is still who was asked."""
        due = [who for who, (_, until_ns) in self._asked.items() if until_ns <= now_ns]
        for who in due:
            pinned, _ = self._asked.pop(who)
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(pinned, signal.SIGKILL)
            os.close(pinned)


SHORTEST_NS: Final = SECOND_NS // 4
LONGEST_NS: Final = 10 * SECOND_NS
#: Kills that are kept for an agent which is not there.
_MOST_KEPT: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often it looks."""

    interval_ns: int = SECOND_NS

    def next_ns(self, judgement: Judgement | None, rules: Rules) -> int:
        """Time to the next look: a quarter where it may decide on somebody's end, so that over-use is short."""
        is_near = judgement is not None and bool(judgement.suspects) and not rules.dry_run
        return max(SHORTEST_NS, self.interval_ns // 4) if is_near else self.interval_ns


class MemoryEnforcer:
    """One loop over one node. ``say``: tells people, a line each time. ``limiting``: None: it sets no limits."""

    def __init__(
        self,
        sampler: Sampler,
        ending: Ending,
        listener: Listener[dict[Key, int]],
        *,
        rules: Rules,
        pace: Pace,
        say: Callable[[str], None],
        limiting: Limiting | None = None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._sampler, self._ending, self._listener = sampler, ending, listener
        self._limiting = limiting
        self._rules, self._pace, self._say, self._clock_ns = rules, pace, say, clock_ns
        self._history = History()
        self._kept: list[Done] = []
        self._lost = 0
        self._said_away = ""
        self._said_limits = ""
        self._unjudged: frozenset[str] = frozenset()

    def run(self, is_stopped: Callable[[], bool]) -> None:
        """Go on until stopped."""
        due_ns = self._clock_ns()
        while not is_stopped():
            self._listener.wait(due_ns)
            if is_stopped():
                break
            looked_ns = self._clock_ns()
            judgement = self.turn()
            # From when it was due, so that what a look takes is not added; but no look is made up for.
            due_ns = max(due_ns, looked_ns - SHORTEST_NS) + self._pace.next_ns(judgement, self._rules)

    def turn(self) -> Judgement | None:
        """Look once and do what has to be done; None where the driver could not be asked."""
        self._ending.press(self._clock_ns())
        try:
            sample = self._sampler.look(self._clock_ns())
        except DriverAway as error:
            if str(error) != self._said_away:
                self._say(f"driver: {error}; nobody is judged until it answers")
            self._said_away = str(error)
            return None
        self._said_away = ""
        caps = self._listener.said
        limited = self._limit(caps or {}, sample)
        judgement = judge(sample, caps or {}, self._history, self._rules, counted=self._counted(caps or {}, sample))
        self._history = judgement.history
        self._tell_unjudged(judgement.unjudged)
        self._keep([self._carry_out(kill) for kill in judgement.kills])
        self._report(sample, judgement, None if caps is None else len(caps), limited)
        return judgement

    def _limit(self, caps: Mapping[Key, int], sample: Sample) -> Limited | None:
        if self._limiting is None:
            return None
        limited = self._limiting.turn(caps, self._sampler.cards, sample)
        if limited.why and limited.why != self._said_limits:
            self._say(f"limits: {limited.why}")
        self._said_limits = limited.why
        return limited

    def _counted(self, caps: Mapping[Key, int], sample: Sample) -> Mapping[Key, int]:
        """What the driver counts for pods that seem to be over their cap."""
        return {} if self._limiting is None else self._limiting.uses(above(sample, caps, self._rules))

    def _carry_out(self, kill: Kill) -> Done:
        now_ns = self._clock_ns()
        outcomes = () if kill.is_dry else tuple(self._ending.end(victim, now_ns) for victim in kill.victims)
        for number, victim in enumerate(kill.victims):
            done = "dry run, would be ended" if kill.is_dry else outcomes[number]
            self._say(
                f"kill: pod {kill.pod_uid} has {kill.used_bytes // MIB} MiB of {kill.device}, its cap is "
                f"{kill.cap_mib} MiB: process {victim.pid} ({victim.name}): {done}"
            )
        return Done(kill, outcomes)

    def _keep(self, done: list[Done]) -> None:
        self._kept += map(told, done)
        over = len(self._kept) - _MOST_KEPT
        if over > 0:
            self._lost += over
            del self._kept[:over]

    def _report(self, sample: Sample, judgement: Judgement, caps: int | None, limited: Limited | None) -> None:
        unjudged = tuple(sorted(judgement.unjudged))
        sent = fitting(self._kept)
        done = tuple(self._kept[:sent])
        report = Report(bounded(sample), done, unjudged, caps, self._lost, self._rules.dry_run, limited)
        if self._listener.send(write_report(report)):
            del self._kept[:sent]

    def _tell_unjudged(self, unjudged: frozenset[str]) -> None:
        for uuid in sorted(unjudged - self._unjudged):
            self._say(f"device {uuid}: the driver does not tell the memory of a process; nobody there is judged")
        self._unjudged = unjudged
