"""Node agents that are away or slow: what was not told early is told by the process, and work goes on."""

from __future__ import annotations

from simulator.policies import AGENT
from tests.verification.hostile.faults import grounds
from tests.verification.hostile.faults.grounds import stage
from verification.hostile.faults.components import AgentDown, AgentSlow
from verification.hostile.faults.reservations import ReservationUnpullable
from wire import names

AGENTS = frozenset({"node-0"})


async def told(on: grounds.Stage) -> str:
    """What the only reservation tells, "" if nothing."""
    (pod,) = await on.ground.reservations()
    return (pod.metadata.annotations or {}).get(names.RESERVE_FOR_GPU_INDEX, "")


def patches(on: grounds.Stage) -> list[int]:
    """How the patches of agents were answered."""
    return [entry.code for entry in on.world.server.audit if (entry.user, entry.verb) == (AGENT, "patch")]


async def test_an_agent_that_is_down_tells_nothing_until_it_is_back() -> None:
    async with stage(agents=AGENTS) as on:
        on.strike(AgentDown(at_s=0, for_s=20, node="node-0"))
        on.strike(ReservationUnpullable(at_s=0, for_s=60, node="node-0"))
        await on.until(1)
        await on.pod("p", gpu_fraction="0.5")
        await on.until(19)
        assert (await told(on), patches(on)) == ("", [])
        await on.until(25)
        assert patches(on) == [200]
        assert await told(on) != ""
        await on.until(30)
        assert await on.phase("p") == "Running"


async def test_what_a_slow_agent_tells_after_the_process_did_is_refused() -> None:
    async with stage(agents=AGENTS) as on:
        on.strike(AgentSlow(at_s=0, for_s=30, node="node-0", slow_s=5.0))
        await on.until(1)
        await on.pod("p", gpu_fraction="0.5")
        await on.until(4)
        assert await on.phase("p") == "Running"
        first = await told(on)
        await on.until(20)
        assert patches(on) == [409]
        assert await told(on) == first != ""


async def test_without_an_agent_nothing_happens() -> None:
    async with stage() as on:
        on.strike(AgentDown(at_s=0, for_s=5, node="node-0"))
        on.strike(AgentSlow(at_s=0, for_s=5, node="node-0", slow_s=5.0))
        await on.until(1)
        await on.pod("p", gpu_fraction="0.5")
        await on.until(10)
        assert await on.phase("p") == "Running"
        assert patches(on) == []
