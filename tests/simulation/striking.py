"""Strikes one write of a run: its sender is killed, its answer is lost, or the server refuses it.

Writes are numbered as they are sent. Up to the struck write a run is the same as the one that was recorded, so the
number says which write it is.
"""

from __future__ import annotations

from typing import Final, Literal

import anyio
import msgspec
from typing_extensions import override

from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from simulator.replicas import BINDER, SCHEDULER, Component
from simulator.world import World

#: Whose writes are struck; the reservation processes' identity patch is a step of the protocol, too.
WRITERS: Final = (SCHEDULER, BINDER, "reservation")
_READS: Final = frozenset({"get", "list", "watch"})
_QUIET_S: Final = 20.0


class Write(msgspec.Struct, frozen=True):
    """One write: ``what`` is the resource with its sub-resource, ``whom`` namespace/name."""

    user: str
    verb: str
    what: str
    whom: str

    @override
    def __str__(self) -> str:
        return f"{self.user} {self.verb} {self.what} {self.whom}"


class Blow(msgspec.Struct, frozen=True, kw_only=True):
    """How a write is struck. ``killed``: the component dies as the write is sent, or as it is done.

    ``both``: binder and scheduler die. ``away_s``: how long who died stays away.
    """

    name: str
    fault: Fault | None = None
    killed: Literal["", "sent", "done"] = ""
    both: bool = False
    away_s: float = 1.0


_LOST: Final = Fault(lost="request")
_UNHEARD: Final = Fault(lost="answer")

BLOWS: Final = (
    Blow(name="killed before", fault=_LOST, killed="sent"),
    Blow(name="killed after", fault=_UNHEARD, killed="done"),
    Blow(name="killed, lands late", fault=Fault(lost="request", lands_after_s=7.0), killed="sent"),
    Blow(name="both killed before", fault=_LOST, killed="sent", both=True),
    Blow(name="both killed after", fault=_UNHEARD, killed="done", both=True),
    Blow(name="killed after, long away", fault=_UNHEARD, killed="done", away_s=100.0),
    Blow(name="times out, not done", fault=_LOST),
    Blow(name="times out, done", fault=_UNHEARD),
    Blow(name="times out, lands late", fault=Fault(lost="request", lands_after_s=18.0)),
    Blow(name="breaks, not done", fault=Fault(lost="request", breaks=True)),
    Blow(name="breaks, done", fault=Fault(lost="answer", breaks=True)),
    Blow(name="breaks, lands late", fault=Fault(lost="request", breaks=True, lands_after_s=2.0)),
    Blow(name="refused with 409", fault=Fault(refuse_with=409)),
    Blow(name="refused with 429", fault=Fault(refuse_with=429)),
    Blow(name="refused with 500", fault=Fault(refuse_with=500)),
)


def is_ours(user: str, verb: str) -> bool:
    """Whether a request is a write of Moorage."""
    return user in WRITERS and verb not in _READS


class Striker:
    """Counts the writes of a world from now on, and strikes the one with number ``at`` (None: none)."""

    def __init__(self, world: World, blow: Blow | None, at: int | None) -> None:
        self._world = world
        self._blow = blow or Blow(name="none")
        self._at = at
        self._struck: Call | None = None
        self._dead: list[Component] = []
        self._died = anyio.Event()
        self._revived = anyio.Event()
        self._started_s = anyio.current_time()
        #: In the order in which they were sent.
        self.writes: list[Write] = []
        #: What the server carried out, with the time.
        self.log: list[str] = []
        world.server.faults.on_request.insert(0, self._on_request)
        world.server.faults.on_answer.append(self._on_answer)

    @property
    def has_struck(self) -> bool:
        """Whether the write came."""
        return self._struck is not None

    async def run(self) -> None:
        """Start anew who died, after the time away."""
        await self._died.wait()
        await anyio.sleep(self._blow.away_s)
        for component in self._dead:
            self._log("restarted", component.name)
            await self._world.restart(component)
        self._revived.set()

    async def until_idle(self) -> bool:
        """Wait until everybody lives again, late writes have landed and nothing happens any more."""
        is_idle = await self._world.until_idle(quiet_s=_QUIET_S)
        if self._dead:
            await self._revived.wait()
        if self._struck is not None:
            await anyio.sleep(_QUIET_S)
            is_idle = await self._world.until_idle(quiet_s=_QUIET_S)
        return is_idle

    def _on_request(self, call: Call) -> Fault | None:
        if not is_ours(call.user, call.verb) or any(call.user == component.name for component in self._dead):
            return None
        self.writes.append(_write(call))
        if len(self.writes) - 1 != self._at:
            return None
        self._struck = call
        self._log(self._blow.name, str(_write(call)))
        if self._blow.killed == "sent":
            self._kill()
        return self._blow.fault

    def _on_answer(self, call: Call, code: int) -> None:
        if call.verb not in _READS:
            self._log(str(code), str(_write(call)))
        if call is self._struck and self._blow.killed == "done":
            self._kill()

    def _kill(self) -> None:
        """Kill the sender. A reservation process can't be killed alone here; who waits for its word can."""
        both = [self._world.binder, self._world.scheduler]
        sender = self.writes[-1].user
        victim = sender if sender in {SCHEDULER, BINDER} else BINDER
        self._dead = [component for component in both if self._blow.both or component.name == victim]
        for component in self._dead:
            component.crash()
        self._died.set()

    def _log(self, what: str, about: str) -> None:
        self.log.append(f"{anyio.current_time() - self._started_s:8.3f}  {what:>9}  {about}")


def _write(call: Call) -> Write:
    name = call.name
    if not name and call.body:
        metadata = call.decoded().get("metadata") or {}
        name = metadata.get("name") or f"{metadata.get('generateName', '')}..."
    what = f"{call.kind.plural}/{call.subresource}" if call.subresource else call.kind.plural
    if call.kind.plural == "events":
        name = "..."  # its name is random
    return Write(call.user, call.verb, what, f"{call.namespace}/{name}")
