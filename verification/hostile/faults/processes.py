"""Processes of Moorage that crash, stand still, are cut off, lead while another one does, or are of an older version.

Under all of these everything is promised: what is not in the API server was never decided, and what is there is taken
up by the next process.
"""

from __future__ import annotations

from typing import Literal

import anyio
from typing_extensions import override

from simulator.apiserver.calls import Call
from simulator.replicas import Component
from verification.hostile.faults.ground import READS, Ground, Timed
from verification.hostile.versions import FIELDS

#: Where a process is when it dies: about to send a request; when it has been carried out and nobody has heard; or it
#: has just been sent, and lands later, perhaps after the process was started again.
Moment = Literal["before", "after", "in-flight"]


class Crash(Timed, frozen=True, kw_only=True, tag="crash"):
    """A component is killed at its ``nth`` request (0: at once), and started again ``pause_s`` later.

    Between two requests a process changes nothing that anybody else could see, and all of it is forgotten: so to be
    killed at any await is to be killed before or after one of its requests. ``writes_only``: reads don't count.
    Other requests that were on their way to the server never get there. If too few requests come in time, nothing
    happens.
    """

    component: str
    nth: int = 0
    moment: Moment = "before"
    writes_only: bool = True
    pause_s: float = 0.0
    #: With ``in-flight``: when the request lands.
    lands_after_s: float = 0.0

    def counts(self, call: Call) -> bool:
        """Whether it is one of the requests that are counted."""
        return not self.writes_only or call.verb not in READS

    @override
    async def _happen(self, ground: Ground) -> None:
        component = ground.components.get(self.component)
        if component is None:
            return
        hit = _Hit(self, ground, component)
        if self.nth == 0:
            hit.strike()
        with (
            ground.requests(hit.on_request),
            ground.answers(hit.on_answer),
            anyio.move_on_after(ground.left_s(self.end_s - self.pause_s)),
        ):
            await hit.done.wait()
        if hit.has_killed:
            await ground.start_again(component, pause_s=self.pause_s)


class _Hit:
    """Counts a component's requests and kills it at the one that was meant."""

    def __init__(self, crash: Crash, ground: Ground, component: Component) -> None:
        self.done = anyio.Event()
        self.has_killed = False
        self._crash = crash
        self._ground = ground
        self._component = component
        self._left = crash.nth

    def on_request(self, call: Call) -> None:
        if self._crash.moment != "after" and self._is_due(call):
            if self._crash.moment == "in-flight" and call.verb not in READS:
                self._ground.server.answer_later(call, self._crash.lands_after_s)
            self.strike()

    def on_answer(self, call: Call, _: int) -> None:
        if self._crash.moment == "after" and self._is_due(call):
            self.strike()

    def strike(self) -> None:
        self.has_killed = self._ground.crash(self._component)
        self.done.set()

    def _is_due(self, call: Call) -> bool:
        if call.user != self._component.name or not self._crash.counts(call) or self.done.is_set():
            return False
        self._left -= 1
        return self._left == 0


class Pause(Timed, frozen=True, kw_only=True, tag="pause"):
    """A component stands still, as after SIGSTOP, and goes on with what it believed."""

    component: str

    @override
    async def _happen(self, ground: Ground) -> None:
        component = ground.components.get(self.component)
        if component is not None:
            component.pause(self.for_s)
            await anyio.sleep(self.for_s)


class CutOff(Timed, frozen=True, kw_only=True, tag="cut-off"):
    """A component lives, but nothing passes between it and the API server until the end; then what was said arrives."""

    component: str

    @override
    async def _happen(self, ground: Ground) -> None:
        component = ground.components.get(self.component)
        if component is not None:
            component.cut_off(self.for_s)
            await anyio.sleep(self.for_s)


class TwoLeaders(Timed, frozen=True, kw_only=True, tag="two-leaders"):
    """Whichever replica of ``role`` wrote last is paused; if that is for longer than its lease, there are two leaders.

    When it goes on it still takes itself for the leader, and does what it was about to do. A role without another
    replica just stands still.
    """

    role: str

    @override
    async def _happen(self, ground: Ground) -> None:
        component = self._leader(ground)
        if component is not None:
            component.pause(self.for_s)
            await anyio.sleep(self.for_s)

    def _leader(self, ground: Ground) -> Component | None:
        ours = {name: each for name, each in ground.components.items() if name.startswith(self.role)}
        for entry in reversed(ground.server.audit):
            if entry.user in ours and entry.verb not in READS:
                return ours[entry.user]
        return next(iter(ours.values()), None)


class OlderVersion(Timed, frozen=True, kw_only=True, tag="older-version"):
    """A component is replaced by one of an older version, and at the end by one of this version again.

    The older one does not know the last ``lacks`` of the optional fields of a book's entry (versions.py).
    """

    component: str
    lacks: int = len(FIELDS)

    @override
    async def _happen(self, ground: Ground) -> None:
        component = ground.components.get(self.component)
        if component is None:
            return
        await self._replace(ground, component, FIELDS[-self.lacks :])
        await ground.wait_until(self.end_s)
        await self._replace(ground, component, ())

    @staticmethod
    async def _replace(ground: Ground, component: Component, lacks: tuple[str, ...]) -> None:
        ground.versions.older[component.name], component.is_older = lacks, bool(lacks)
        if ground.crash(component):  # else another fault has, and starts it as the version that it now is
            await ground.start_again(component, pause_s=0.0)
