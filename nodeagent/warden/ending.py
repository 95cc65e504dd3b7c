"""Ending a process that was judged, and no other.

A PID is used again when its process has ended. So the process is pinned by a pidfd first, and only then start time and
pod are read again: whoever has the PID after that, the signal goes to the one that was pinned. A kernel without pidfds
(before 5.3) ends nobody.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Final

from nodeagent.core.judging import is_still
from nodeagent.core.samples import Process
from nodeagent.processes import Processes

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
    """Sends signals. ``grace_ns``: between SIGTERM and SIGKILL; 0: SIGKILL at once."""

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
