from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio
import pytest
from anyio.abc import TaskStatus
from typing_extensions import override

from kube.client.api import Api
from kube.client.resources import LEASES, NAMESPACES, NODES
from kube.client.retry import Retry
from kube.lead.lease import LeaderElection
from kube.lead.replica import Follower, take_part
from kube.lead.secondary import Kind, Secondary
from kube.watch.reflector import Reflector
from simulator.apiserver.server import MemoryApiServer
from simulator.clock import VirtualClock
from tests.conftest import AnyioBackend
from wire.core import Namespace, Node
from wire.recent import PERIOD_S


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


@dataclass(slots=True)
class Names:
    """A sink that keeps names."""

    there: set[str] = field(default_factory=set)
    lists: int = 0

    def keep(self, obj: Namespace | Node) -> str:
        return obj.metadata.name

    async def replace(self, kept: Sequence[str]) -> None:
        self.there = set(kept)
        self.lists += 1

    def upsert(self, obj: Namespace | Node) -> None:
        self.there.add(obj.metadata.name)

    def delete(self, obj: Namespace | Node) -> None:
        self.there.discard(obj.metadata.name)


class Clerk(Follower):
    """Notes which nodes it knows when it begins to work; then it is busy until cancelled, as ``busy`` says."""

    def __init__(self, api: Api) -> None:
        self.namespaces, self.nodes = Names(), Names()
        super().__init__(
            (
                Reflector(api, NAMESPACES, self.namespaces, rng=random.Random(1)),
                Reflector(api, NODES, self.nodes, rng=random.Random(2)),
            )
        )
        self.began_with: list[set[str]] = []
        self.ended = False
        self.forgot_at: list[float] = []

    @override
    def _forget_gone(self) -> None:
        self.forgot_at.append(anyio.current_time())

    @override
    async def finish(self) -> None:
        return

    @override
    async def _work(self) -> None:
        self.began_with.append(set(self.nodes.there))
        try:
            await anyio.sleep_forever()
        finally:
            self.ended = True


class Bench:
    def __init__(self) -> None:
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.server = MemoryApiServer(clock=self.clock, rng=random.Random(1), auto_namespaces=True)
        self.admin = Api(self.server.transport(), retry=Retry(random.Random(1)))

    def clerk(self) -> Clerk:
        return Clerk(Api(self.server.transport("clerk"), retry=Retry(random.Random(2))))

    async def node(self, name: str) -> None:
        await self.admin.create(NODES, {"metadata": {"name": name}})


async def test_it_is_in_step_when_each_reflector_has_listed_in_turn() -> None:
    it = Bench()
    await it.node("n1")
    clerk = it.clerk()
    async with anyio.create_task_group() as tasks:
        await tasks.start(clerk.follow)
        assert clerk.nodes.there == {"n1"}
        listed = [entry.resource for entry in it.server.audit if entry.user == "clerk" and entry.verb == "list"]
        assert listed == ["namespaces", "nodes"]
        await it.node("n2")
        await anyio.sleep(1.0)
        assert clerk.nodes.there == {"n1", "n2"}
        assert clerk.began_with == []
        tasks.cancel_scope.cancel()


async def test_who_begins_to_lead_misses_nothing_however_late_its_watches_are() -> None:
    it = Bench()
    it.server.faults.on_watch_line.append(lambda _call, _line: 60.0)
    clerk = it.clerk()
    async with anyio.create_task_group() as tasks:
        await tasks.start(clerk.follow)
        await it.node("n1")
        await anyio.sleep(1.0)
        assert clerk.nodes.there == set()
        tasks.start_soon(clerk.lead)
        await anyio.sleep(1.0)
        assert clerk.began_with == [{"n1"}]
        assert (clerk.namespaces.lists, clerk.nodes.lists) == (2, 2)
        tasks.cancel_scope.cancel()


async def test_the_only_one_works_on_its_first_lists() -> None:
    it = Bench()
    await it.node("n1")
    clerk = it.clerk()
    async with anyio.create_task_group() as tasks:
        await tasks.start(clerk.run)
        await anyio.sleep(1.0)
        assert clerk.began_with == [{"n1"}]
        assert clerk.nodes.lists == 1
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(("is_elected", "lists"), [(True, 2), (False, 1)])
async def test_who_is_not_elected_begins_on_its_first_lists(*, is_elected: bool, lists: int) -> None:
    it = Bench()
    await it.node("n1")
    clerk, rng = it.clerk(), random.Random(3)
    election = LeaderElection(it.admin, namespace="ns", name="l", identity="new", clock=it.clock, rng=rng)
    elected = election if is_elected else None
    with anyio.move_on_after(60.0):
        await take_part(clerk, election=elected, fence=election.fence, stop=anyio.Event())
    assert clerk.began_with == [{"n1"}]
    assert (clerk.namespaces.lists, clerk.nodes.lists) == (lists, lists)


async def test_what_is_gone_is_forgotten_period_by_period_by_who_only_follows_too() -> None:
    clerk = Bench().clerk()
    async with anyio.create_task_group() as tasks:
        await tasks.start(clerk.follow)
        await anyio.sleep(2.5 * PERIOD_S)
        assert clerk.forgot_at == [PERIOD_S, 2 * PERIOD_S]
        tasks.cancel_scope.cancel()


async def test_the_lease_of_a_process_that_is_gone_runs_out_while_the_first_lists_come() -> None:
    clock, rng = VirtualClock(asyncio.get_running_loop()), random.Random(1)
    server = MemoryApiServer(clock=clock, rng=rng, auto_namespaces=True)
    api = Api(server.transport(), retry=Retry(rng))
    left = {"holderIdentity": "gone", "leaseDurationSeconds": 15, "renewTime": "1970-01-01T00:00:00.000000Z"}
    await api.create(LEASES, {"metadata": {"name": "l"}, "spec": left}, namespace="ns")

    class Slow(Clerk):
        works_at = 0.0

        @override
        async def follow(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
            await anyio.sleep(12.0)
            await super().follow(task_status=task_status)

        @override
        async def _work(self) -> None:
            self.works_at = anyio.current_time()
            await anyio.sleep_forever()

    slow = Slow(api)
    election = LeaderElection(api, namespace="ns", name="l", identity="new", clock=clock, rng=rng)
    begun = anyio.current_time()
    with anyio.move_on_after(60.0):
        await take_part(slow, election=election, fence=election.fence, stop=anyio.Event())
    assert 15.0 <= slow.works_at - begun < 15.5


@pytest.mark.parametrize("is_elected", [True, False])
@pytest.mark.parametrize("is_held_by_another", [True, False])
async def test_a_replica_ends_when_it_lists_what_is_of_another_history(
    *, is_elected: bool, is_held_by_another: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The snapshot has the lease as it was seen last, so that the lease says nothing."""
    it = Bench()
    clerk, rng = it.clerk(), random.Random(3)
    holder = "other" if is_held_by_another else "new"
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 600, "renewTime": "1970-01-01T00:00:00.000000Z"}
    await it.admin.create(LEASES, {"metadata": {"name": "l"}, "spec": spec}, namespace="ns")
    election = LeaderElection(it.admin, namespace="ns", name="l", identity="new", clock=it.clock, rng=rng)
    ended_at: list[float] = []

    async def process() -> None:
        elected = election if is_elected else None
        await take_part(clerk, election=elected, fence=election.fence, stop=anyio.Event())
        ended_at.append(anyio.current_time())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(process)
        await anyio.sleep(1.9)
        assert ended_at == []
        it.server.restore(it.server.resource_version, lambda _: True)
        await anyio.sleep(2.0)
        assert len(ended_at) == 1
        assert "the API server's history was set back" in caplog.text
        tasks.cancel_scope.cancel()


async def test_the_only_one_stops_working_when_history_was_set_back() -> None:
    it = Bench()
    clerk = it.clerk()
    async with anyio.create_task_group() as tasks:
        await tasks.start(clerk.run)
        await anyio.sleep(1.0)
        it.server.restore(it.server.resource_version, lambda _: True)
        assert not clerk.ended
        await anyio.sleep(2.0)
        assert clerk.ended


class OptionalNames(Names):
    """A sink that need not be in step."""

    def in_step(self, is_in_step: bool) -> None:
        return


class ClerkWithMore(Clerk):
    """One that can do without the nodes."""

    def __init__(self, api: Api) -> None:
        super().__init__(api)
        self.secondary = Secondary(api, [Kind(NODES, OptionalNames(), "nothing")], rng=random.Random(3))
        first, second = self._followed
        self._followed = (first, self.secondary, second)


async def test_all_watches_of_a_follower_are_known_those_that_it_can_do_without_too() -> None:
    server = MemoryApiServer(clock=VirtualClock(asyncio.get_running_loop()), rng=random.Random(1))
    clerk = ClerkWithMore(Api(server.transport(), retry=Retry(random.Random(1))))
    first, second, third = clerk.reflectors
    assert [reflector.resource for reflector in (first, second, third)] == [NAMESPACES, NODES, NODES]
    assert clerk.secondary.reflectors == [second]
