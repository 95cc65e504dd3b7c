"""The MPS daemon's loop: look at what the control daemon has, do what is missing, look again, report what holds.

It goes by the tenants that the agent sent last. Before it was sent any, it changes nothing: tenants of an agent before
this one are not known.

A turn ends within 20 s: two looks of 5 s and commands for 10 s. A server whose command gets no answer has a pause, so
one GPU that hangs takes a few seconds of a turn, and the others get theirs.
"""

from __future__ import annotations

import contextlib
import stat
import time
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath
from typing import Final

from nodeagent.core.mps import control as mpsnames
from nodeagent.core.mps import limits
from nodeagent.core.mps.control import Place, Wanted, in_question, joined
from nodeagent.core.mps.limits import Command, Pauses, Report, write_report
from nodeagent.listener import Listener
from nodeagent.mps.mps_daemon.control import Control, Daemon, NoAnswer, Refused, Stopped
from nodeagent.processes import Processes
from wire.units import SECOND_NS

#: Between two looks at least: each is three processes.
_PAUSE_NS: Final = 10**8
#: And at most where something is wrong: a server takes a moment to be ready.
_RETRY_NS: Final = 10**9
#: Commands of a turn. What is not done by then is done in the next one.
COMMANDS_NS: Final = 10 * SECOND_NS


class MpsDaemon:
    """``interval_ns``: between two looks where nothing is new. ``processes``: those of the node."""

    def __init__(
        self,
        control: Control,
        daemon: Daemon,
        listener: Listener[tuple[Wanted, ...]],
        *,
        interval_ns: int,
        processes: Processes,
        say: Callable[[str], None],
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._control, self._daemon, self._listener = control, daemon, listener
        self._interval_ns, self._say, self._clock_ns = interval_ns, say, clock_ns
        self._processes = processes
        self._joined: frozenset[Place] = frozenset()
        self._pauses = Pauses()
        self._said = ""

    def run(self, is_stopped: Callable[[], bool]) -> None:
        """Go on until stopped, also in the middle of a turn."""
        with contextlib.suppress(Stopped):
            self._run(is_stopped)

    def _run(self, is_stopped: Callable[[], bool]) -> None:
        while not is_stopped():
            report = self.turn()
            looked_ns = self._clock_ns()
            self._listener.wait(looked_ns + _PAUSE_NS)
            if not is_stopped():
                pause_ns = min(self._interval_ns, _RETRY_NS) if report.why else self._interval_ns
                self._listener.wait(looked_ns + pause_ns, for_news=True)

    def turn(self) -> Report:
        """Look once, do what has to be done, and send the report. Raises Stopped."""
        report = self._look(self._listener.said)
        if report.why != self._said:
            self._said = report.why
            self._say(report.why or "the control daemon serves")
        self._listener.send(write_report(report))
        return report

    def _look(self, wanted: tuple[Wanted, ...] | None) -> Report:
        pipes = PurePosixPath(self._control.pipes)
        try:
            said = self._control.look()
        except (NoAnswer, Refused) as error:
            # One that was just started does not answer yet; none is started beside one that answers.
            why = self._daemon.tend(self._clock_ns()) or f"the MPS control daemon does not answer: {error}"
            return Report(why=why, is_down=True)
        pods = {one.pid: self._pod_of(one.pid) for one in in_question(self._joined, said)}
        self._joined = joined(self._joined, said, pods)
        if wanted is None:
            return Report()
        refused, asked = "", limits.commands(wanted, said, pipes=pipes)
        self._pauses.keep({one.server for one in asked})
        if asked:
            try:
                refused = self._carry_out(asked)
                said = self._control.look()
            except (NoAnswer, Refused) as error:
                return Report(why=f"the MPS control daemon does not answer: {error}", is_down=True)
        held = limits.held(wanted, said, pipes=pipes, joined=self._joined)
        reachable = tuple(one for one in held if _is_socket(mpsnames.folder(pipes, one.wanted)))
        gone = limits.gone(wanted, said, pipes=pipes)
        return Report(reachable, refused or (f"the MPS server of {gone[0]} is not ready" if gone else ""), gone=gone)

    def _pod_of(self, pid: int) -> str:
        seen = self._processes.seen(pid)
        return "" if seen is None else seen.pod_uid

    def _carry_out(self, asked: Iterable[Command]) -> str:
        """Carry commands out, as far as there is time; return the first that limits a tenant and was not done."""
        found, until_ns = "", self._clock_ns() + COMMANDS_NS
        for command in asked:
            now_ns = self._clock_ns()
            if now_ns >= until_ns:
                break
            why = self._pauses.why(command.server, now_ns) or self._ask(command, (until_ns - now_ns) / 1e9)
            # What nobody wants any more is refused as long as it has clients.
            found = found or (f"{command.device}: {why}" if why and command.device else "")
        return found

    def _ask(self, command: Command, left_s: float) -> str:
        """Carry one out, in the time of the turn that is left; return why it was not, "" if it was."""
        try:
            self._control.ask(command.words, min(left_s, self._control.patience_s))
        except NoAnswer as error:
            self._pauses.begin(command.server, self._clock_ns(), str(error))
            return str(error)
        except Refused as error:
            self._pauses.end(command.server)
            return str(error)
        self._pauses.end(command.server)
        return ""


def _is_socket(folder: PurePosixPath) -> bool:
    """Whether a client could join: one that finds no socket runs without limits."""
    try:
        return stat.S_ISSOCK((Path(folder) / mpsnames.SOCKET).lstat().st_mode)
    except OSError:
        return False
