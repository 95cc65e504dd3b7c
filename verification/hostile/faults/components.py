"""What befalls components beside crashes: wall clocks that jump; admission, agents and API servers that fail or lag."""

from __future__ import annotations

import random

import anyio
from typing_extensions import override

from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault, ReviewFault
from simulator.nodes.node_set import NodeAgent
from verification.hostile.faults.ground import Ground, Timed, is_struck

#: Our webhooks, as simulator/components.py names them. The API server's own policies can't be away.
_OURS = ("mutate.moorage.dev", "validate.moorage.dev", "queues.moorage.dev", "podgroups.moorage.dev")


class _Reviews(Timed, frozen=True, kw_only=True):
    """Admission that is away, slow, or asked twice: of a thousand questions to our webhooks ``per_mille`` are struck.

    Everything is promised: a pod that could not be asked about does not exist, and its maker gets the error; a change
    of a pod that was not let through is made again. Queues and PodGroups are stored unchecked meanwhile. A user without
    GPU pods is never kept waiting (BYSTANDER).
    """

    per_mille: int = 1000
    seed: int = 0

    @override
    async def _happen(self, ground: Ground) -> None:
        dice = ground.dice(self.kind, self.seed)

        def rule(webhook: str) -> ReviewFault | None:
            is_struck = webhook in _OURS and dice.randrange(1000) < self.per_mille
            return self._fault(dice) if is_struck else None

        with ground.reviews(rule):
            await anyio.sleep(self.for_s)

    def _fault(self, dice: random.Random) -> ReviewFault:
        """Make the fault of one question."""
        raise NotImplementedError


class AdmissionDown(_Reviews, frozen=True, kw_only=True, tag="admission-down"):
    """Nobody listens: the API server refuses our pods with 500, and changes of them by anybody."""

    @override
    def _fault(self, dice: random.Random) -> ReviewFault:
        return ReviewFault(down=True)


class AdmissionSlow(_Reviews, frozen=True, kw_only=True, tag="admission-slow"):
    """Answers take up to ``slow_s``; the API server gives up after the time that our configuration allows (5 s)."""

    slow_s: float

    @override
    def _fault(self, dice: random.Random) -> ReviewFault:
        return ReviewFault(delay_s=dice.uniform(0.0, self.slow_s))


class AdmissionTwice(_Reviews, frozen=True, kw_only=True, tag="admission-twice"):
    """The mutating webhook is asked again with what it made of a pod, as if another one had changed it since."""

    @override
    def _fault(self, dice: random.Random) -> ReviewFault:
        return ReviewFault(twice=True)


class _OnAgent(Timed, frozen=True, kw_only=True):
    """A fault of the agent of ``node``; on a node without an agent nothing happens.

    Everything is promised: nothing rests on an agent.
    """

    node: str

    @override
    async def _happen(self, ground: Ground) -> None:
        agent = ground.world.agents.of.get(self.node)
        if agent is not None:
            await self._strike(agent)

    async def _strike(self, agent: NodeAgent) -> None:
        """Let it happen to the agent."""
        raise NotImplementedError


class AgentDown(_OnAgent, frozen=True, kw_only=True, tag="agent-down"):
    """The agent is dead, and what it was about to tell is lost; at the end it is started again."""

    @override
    async def _strike(self, agent: NodeAgent) -> None:
        agent.faults.is_down = True
        try:
            await anyio.sleep(self.for_s)
        finally:
            agent.faults.is_down = False


class AgentSlow(_OnAgent, frozen=True, kw_only=True, tag="agent-slow"):
    """Between kubelet's answer and the agent's patch ``slow_s`` pass: the reservation may be gone or told by then."""

    slow_s: float

    @override
    async def _strike(self, agent: NodeAgent) -> None:
        agent.faults.slow_s = self.slow_s
        try:
            await anyio.sleep(self.for_s)
        finally:
            agent.faults.slow_s = 0.0


class ListExpired(Timed, frozen=True, kw_only=True, tag="list-expired"):
    """``user`` has to list again, pages have ``page`` items, and of a thousand next pages ``per_mille`` are gone (410).

    Everything is promised: a list is taken whole or not at all, and one that was not asked for in pages can't expire.
    """

    user: str = ""
    page: int = 2
    per_mille: int = 1000
    seed: int = 0

    @override
    async def _happen(self, ground: Ground) -> None:
        dice = ground.dice(self.kind, self.seed)
        #: Of which users (and kinds) the history is there again, since they have listed.
        listed: set[tuple[str, str]] = set()

        def rule(call: Call) -> Fault | None:
            if not is_struck(call, self.user):
                return None
            kind = call.user, call.kind.plural
            if call.verb == "watch" and kind not in listed:
                return Fault(refuse_with=410)
            if call.verb != "list":
                return None
            listed.add(kind)
            is_gone = "continue" in call.query and dice.randrange(1000) < self.per_mille
            return Fault(refuse_with=410) if is_gone else Fault(page=self.page)

        with ground.requests(rule):
            ground.server.cut_watches(lambda call: is_struck(call, self.user))
            await anyio.sleep(self.for_s)


class ServerLags(Timed, frozen=True, kw_only=True, tag="server-lags"):
    """The API server that ``user`` watches is cut off from etcd, and goes on serving what it knew when that began.

    Its watches are silent. Lists and reads are still of the newest version (they are read from a quorum), so a
    watch from such a version is refused: 504, "too large resource version". Everything is promised.
    """

    user: str = ""

    @override
    async def _happen(self, ground: Ground) -> None:
        known = ground.server.resource_version

        def rule(call: Call) -> Fault | None:
            asked = call.query.get("resourceVersion", "")
            is_watch = call.verb == "watch" and is_struck(call, self.user)
            return Fault(refuse_with=504) if is_watch and asked.isdecimal() and int(asked) > known else None

        def held_s(call: Call, _: bytes) -> float:
            return ground.left_s(self.end_s) if is_struck(call, self.user) else 0.0

        with ground.requests(rule), ground.lines(held_s):
            ground.server.cut_watches(lambda call: is_struck(call, self.user))
            await anyio.sleep(self.for_s)


class ClockJump(Timed, frozen=True, kw_only=True, tag="clock-jump"):
    """The wall clock of one component jumps by ``by_s`` seconds (back, if negative) and jumps back at the end.

    Everything is promised: no wall clock is part of the argument for safety, and liveness may suffer only while the
    clock is wrong. Times that the component writes into objects are wrong, of course.
    """

    component: str
    by_s: float

    @override
    async def _happen(self, ground: Ground) -> None:
        clock = ground.world.clocks.get(self.component)
        if clock is None:
            return
        by_ns = round(self.by_s * 1e9)
        clock.ahead_ns += by_ns
        try:
            await anyio.sleep(self.for_s)
        finally:
            clock.ahead_ns -= by_ns
