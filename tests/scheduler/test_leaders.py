"""Several schedulers and binders: handed over, killed, stopped, cut off, or all working at once by mistake."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from kube.lead.lease import LeaseSettings
from simulator.apiserver.calls import Call
from simulator.replicas import Component
from simulator.world import World, WorldSettings
from tests.scheduler.stage import bound, create, create_gang, find, phases, pod, share, stage
from tests.whole import IS_WHOLE, seeds

pytestmark = pytest.mark.thorough

LEASE = LeaseSettings()
#: From a release to the next Binding: a look at the lease, lists, a decision, a first share (tests/e2e: the same).
CLEAN_S = 2.0
#: As long as a process may take to end when it has lost its lease and can run again (docs/replicas.md).
ENDS_WITHIN_S = 5.0
#: What ended is started again after a second (simulator/replicas.py).
RESTART_S = 1.0
#: A pod is refused by its machine where two schedulers gave it the same whole GPU (protocol.md, Whole GPUs).
CLASHED = "UnexpectedAdmissionError"


@asynccontextmanager
async def replicas(*shapes: str, seed: int = 1, **settings: Any) -> AsyncIterator[World]:
    """A cluster with two schedulers and two binders that elect their leaders."""
    made = WorldSettings(seed=seed, **{"schedulers": 2, "binders": 2, "election": LEASE, **settings})
    async with stage(*(shapes or ["2x4x80GiB"]), settings=made) as world:
        yield world


def leader_of(world: World, role: str) -> Component:
    """The replica that wrote last, of those that hold or held the lease of this role."""
    wrote = [entry.user for entry in world.server.audit if entry.resource == "leases" and entry.verb != "get"]
    return world.components[next(user for user in reversed(wrote) if user.startswith(role))]


def others(world: World, leader: Component) -> set[str]:
    """Names of the other replicas."""
    role = leader.name.partition("-")[0]
    return {name for name in world.components if name.startswith(role)} - {leader.name}


async def bound_within(world: World, seconds: float, *names: str) -> float:
    """Wait until these pods are bound, and return after how long."""
    started_at = anyio.current_time()
    with anyio.fail_after(seconds):
        while not set(names) <= bound(world):  # noqa: ASYNC110 - nothing signals it
            await anyio.sleep(0.01)
    return anyio.current_time() - started_at


def writes_of(world: World, user: str) -> list[str]:
    """What a component has written beside its lease, in order."""
    return [
        f"{entry.verb} {entry.resource}/{entry.subresource} {entry.name}"
        for entry in world.server.audit
        if entry.user == user
        and entry.verb not in {"get", "list", "watch"}
        and entry.resource not in {"leases", "events"}
    ]


def works() -> list[dict[str, Any]]:
    return [*(share(f"half-{i}") for i in range(4)), *(pod(f"whole-{i}", gpus=1) for i in range(2))]


async def test_one_of_each_works_and_the_others_write_nothing() -> None:
    async with replicas() as world:
        await create(world, *works())
        assert await world.until_idle()
        assert set(phases(world).values()) == {"Running"}
        for role in ("scheduler", "binder"):
            leader = leader_of(world, role)
            assert writes_of(world, leader.name)
            assert all(writes_of(world, other) == [] for other in others(world, leader))


@pytest.mark.parametrize("role", ["scheduler", "binder"])
@pytest.mark.parametrize("seed", seeds(4))
async def test_after_a_clean_hand_over_pods_are_bound_again_within_two_seconds(role: str, seed: int) -> None:
    async with replicas(seed=seed) as world:
        await create(world, share("before"))
        await bound_within(world, 10.0, "before")
        leader = leader_of(world, role)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(leader.stop)
            # Whole: needs the scheduler. A first share: needs the binder, and the machine that starts a reservation.
            fresh = pod("fresh", gpus=1) if role == "scheduler" else share("fresh", "0.9")
            await create(world, fresh)
            started_s = 0.0 if role == "scheduler" else world.settings.kubelet.sandbox_s + 1.0
            await bound_within(world, CLEAN_S + started_s, "fresh")
        assert not leader.is_running
        assert leader_of(world, role).name in others(world, leader)


async def test_a_hand_over_in_the_middle_of_many_commits_loses_none_and_waits_for_none() -> None:
    async with replicas("4x8x80GiB", event_delay_s=0.05) as world:
        await create(world, *(pod(f"whole-{i}", gpus=1) for i in range(30)))
        await anyio.sleep(0.02)
        await leader_of(world, "scheduler").stop()
        await create(world, pod("last", gpus=1))
        await bound_within(world, CLEAN_S, "last", *(f"whole-{i}" for i in range(30)))
        assert await world.until_idle()
        assert CLASHED not in {find(world, f"whole-{i}")["status"].get("reason") for i in range(30)}


@pytest.mark.parametrize("role", ["scheduler", "binder"])
@pytest.mark.parametrize("seed", seeds(3))
async def test_after_a_kill_pods_are_bound_again_within_twice_the_lease(role: str, seed: int) -> None:
    async with replicas(seed=seed) as world:
        await create(world, *works())
        await anyio.sleep(random.Random(seed).random())
        leader = leader_of(world, role)
        leader.crash()
        await create(world, pod("fresh-whole", gpus=1), share("fresh", "0.9"))
        await bound_within(world, 2.0 * LEASE.duration_s, "fresh-whole", "fresh")
        assert await world.until_idle()
        assert set(phases(world).values()) == {"Running"}


Befall = Callable[[Component], None]


def stopped(leader: Component) -> None:
    leader.pause(3.0 * LEASE.duration_s)


def cut_off(leader: Component) -> None:
    leader.cut_off(3.0 * LEASE.duration_s)


@dataclass(slots=True)
class Log:
    """Writes of a role's replicas but events, as the server carried them out: when, by whom, and what kind."""

    role: str
    #: Who leads when the log begins.
    leader: str
    writes: list[tuple[float, str, str]] = field(default_factory=list)

    def is_of_interest(self, call: Call) -> bool:
        return call.user.startswith(self.role) and call.verb not in READS and call.kind.plural != "events"

    def note(self, call: Call, _code: int) -> None:
        if self.is_of_interest(call):
            self.writes.append((anyio.current_time(), call.user, call.kind.plural))

    def of_a_former_leader(self) -> list[tuple[float, str, str]]:
        """What somebody wrote after another had taken the lease from him."""
        late, leader, former = [], self.leader, set()
        for write in self.writes:
            _, user, kind = write
            if kind == "leases" and user != leader:
                former.add(leader)
                former.discard(user)
                leader = user
            elif user in former:
                late.append(write)
        return late


READS = {"get", "list", "watch"}


@pytest.mark.parametrize("seed", seeds(4))
@pytest.mark.parametrize("role", ["scheduler", "binder"])
@pytest.mark.parametrize("befall", [stopped, cut_off])
async def test_a_leader_that_comes_back_after_its_lease_writes_nothing_and_breaks_nothing(
    befall: Befall, role: str, seed: int
) -> None:
    """Whatever it was about to do. Its successor has work to do and bound all by then."""
    rng = random.Random(seed)
    async with replicas("3x4x80GiB", seed=seed, event_delay_s=0.1) as world:
        log = Log(role, leader_of(world, role).name)
        world.server.faults.on_answer.append(log.note)
        await create(world, *works())
        await create_gang(world, "gang", 4, *(share(f"member-{i}") for i in range(4)))
        await anyio.sleep(rng.random())
        befall(leader_of(world, role))
        await create(world, share("fresh", "0.9"), pod("fresh-whole", gpus=1))
        await bound_within(world, 2.0 * LEASE.duration_s, "fresh", "fresh-whole")
        assert await world.until_idle()
        assert set(phases(world).values()) == {"Running"}
        assert {user for _, user, kind in log.writes if kind == "leases"} - {log.leader}
        assert log.of_a_former_leader() == []
        await world.clear()


@pytest.mark.parametrize("seed", seeds(2))
@pytest.mark.parametrize("role", ["scheduler", "binder"])
@pytest.mark.parametrize("befall", [stopped, cut_off])
async def test_a_leader_that_lost_its_lease_ends_and_is_started_anew(befall: Befall, role: str, seed: int) -> None:
    """Though its watches are full of news when it goes on."""
    async with replicas("3x4x80GiB", seed=seed) as world:
        leader = leader_of(world, role)
        befall(leader)
        for number in range(8):
            await create(world, share(f"share-{number}", "0.6"))
            await anyio.sleep(3.0 * LEASE.duration_s / 8)
        await anyio.sleep(ENDS_WITHIN_S + RESTART_S)
        assert leader.incarnations == 2
        assert await world.until_idle()
        assert set(phases(world).values()) == {"Running"}
        await world.clear()


@pytest.mark.parametrize("number", range(1, 12, 3 if IS_WHOLE else 5))
@pytest.mark.parametrize("role", ["scheduler", "binder"])
@pytest.mark.parametrize("moment", ["before its bytes leave", "before its answer is heard"])
async def test_a_leader_that_is_stopped_in_the_middle_of_a_write_does_not_go_on_with_it(
    moment: str, role: str, number: int
) -> None:
    left = [number]
    async with replicas("3x4x80GiB") as world:
        leader = leader_of(world, role)
        log = Log(role, leader.name)

        def strike(call: Call, _code: int = 0) -> None:
            if log.is_of_interest(call) and call.kind.plural != "leases":
                left[0] -= 1
                if left[0] == 0:
                    leader.pause(3.0 * LEASE.duration_s)

        world.server.faults.on_answer.append(log.note)
        if moment == "before its bytes leave":
            world.server.faults.on_request.append(strike)
        else:
            world.server.faults.on_answer.append(strike)
        await create(world, *works())
        await create_gang(world, "gang", 4, *(share(f"member-{i}") for i in range(4)))
        await anyio.sleep(2.0 * LEASE.duration_s)
        assert left[0] <= 0
        assert await world.until_idle()
        assert set(phases(world).values()) == {"Running"}
        assert log.of_a_former_leader() == []
        await world.clear()


@pytest.mark.parametrize("jump_s", [-3600, 3600])
async def test_a_wall_clock_that_jumps_makes_nobody_lead_or_cease_to(jump_s: int) -> None:
    async with replicas() as world:
        await create(world, *works())
        await anyio.sleep(0.3)
        leaders = {role: leader_of(world, role).name for role in ("scheduler", "binder")}
        for name in (*leaders.values(), *world.components):
            world.clocks[name].ahead_ns += jump_s * 10**9
            await anyio.sleep(20.0)
            await create(world, pod(f"after-{len(world.pods)}"))
        assert await world.until_idle()
        assert set(phases(world).values()) == {"Running"}
        assert {role: leader_of(world, role).name for role in leaders} == leaders


@pytest.mark.parametrize("seed", seeds(6))
async def test_two_of_each_at_once_by_mistake_break_nothing(seed: int) -> None:
    """S1, S2, S4 and S5 are checked by the stage; what a clash may cost is a refused whole-GPU pod (S10).

    There is a device for each of the 19 pods, so that none has to wait, wherever two schedulers put the others.
    """
    rng = random.Random(seed)
    delay_s = rng.choice([0.0, 0.1, 1.0])
    async with replicas("5x4x80GiB", seed=seed, election=None, event_delay_s=delay_s) as world:
        await create(world, *(share(f"share-{i}", rng.choice(["0.3", "0.5", "0.6"])) for i in range(12)))
        await create(world, *(pod(f"whole-{i}", gpus=1) for i in range(3)))
        await create_gang(world, "gang", 4, *(share(f"member-{i}", "0.4") for i in range(4)))
        assert await world.until_idle()
        ended = {name: phase for name, phase in phases(world).items() if phase != "Running"}
        assert set(ended.values()) <= {"Failed"}
        assert all(find(world, name)["status"].get("reason") == CLASHED for name in ended)
        assert all(name.startswith("whole-") for name in ended)
        await world.clear()
