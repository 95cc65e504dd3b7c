"""Node agents that are away, or slow to tell what kubelet has answered. On a node without an agent nothing happens."""

from __future__ import annotations

import anyio
from typing_extensions import override

from simulator.nodes.agent import NodeAgent
from verification.hostile.faults.ground import Ground
from verification.hostile.faults.timed import Timed


class _OnAgent(Timed, frozen=True, kw_only=True):
    """A fault of the agent of ``node``. Everything is promised: nothing rests on an agent."""

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
