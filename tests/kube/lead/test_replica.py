from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import pytest
from anyio.abc import TaskStatus
from typing_extensions import override

from kube.client.api import Api
from kube.client.resources import EVENTS, JOBS, LEASES, NAMESPACES, NODES
from kube.client.retry import Retry
from kube.events import EventRecorder
from kube.lead.lease import LeaderElection
from kube.lead.replica import Follower, Rivals, take_part
from kube.lead.secondary import Kind, Secondary, SecondaryTee
from kube.watch.reflector import Reflector
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from simulator.apiserver.server import MemoryApiServer
from simulator.clock import VirtualClock
from tests.background import in_background
from wire.api_groups import Lease, LeaseSpec
from wire.core import Job, Namespace, Node, ObjectMeta
from wire.tombstones import PERIOD_S

VIRTUAL_TIME = True


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

    async with in_background(process):
        await anyio.sleep(1.9)
        assert ended_at == []
        it.server.restore(it.server.resource_version, lambda _: True)
        await anyio.sleep(2.0)
        assert len(ended_at) == 1
        assert "the API server's history was set back" in caplog.text


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


def lease_of(holder: str) -> Lease:
    metadata = ObjectMeta(name="moorage-scheduler", namespace="kai-scheduler", uid="u")
    return Lease(metadata=metadata, spec=LeaseSpec(holder_identity=holder))


async def test_each_rival_is_told_of_once_in_the_log_and_by_an_event(caplog: pytest.LogCaptureFixture) -> None:
    clock = VirtualClock(asyncio.get_running_loop())
    server = MemoryApiServer(clock=clock, rng=random.Random(1), auto_namespaces=True)
    api = Api(server.transport(), retry=Retry(random.Random(1)))
    events = EventRecorder(api, clock=clock, controller="kai-scheduler", instance="me")
    rivals = Rivals(events)
    async with in_background(events.run):
        with caplog.at_level(logging.ERROR):
            for holder in ("a_1", "a_1", "b_2", "a_1"):
                rivals(lease_of(holder))
        await anyio.sleep(5.0)
        written = (await api.list(EVENTS, namespace="kai-scheduler")).items
    assert [record.getMessage().split(" while ")[1] for record in caplog.records] == [
        "a_1 works, too: stop one",
        "b_2 works, too: stop one",
    ]
    assert sorted((event.note, event.type, event.reason) for event in written) == [
        (f"this process works without leader election (--no-leader-election) while {rival} works, too: stop one",
         "Warning", "NotAlone")
        for rival in ("a_1", "b_2")
    ]  # fmt: skip
    regarding = written[0].regarding
    assert regarding is not None
    assert (regarding.kind, regarding.name, regarding.namespace) == ("Lease", "moorage-scheduler", "kai-scheduler")


# Kinds that a component can do without: what their sinks are told, and for how long they are waited for.

FORBIDDEN, LOST = Fault(refuse_with=403), Fault(lost="request")


@dataclass(slots=True)
class Told:
    """A sink that notes what it was told, with the second."""

    at: list[tuple[int, str]] = field(default_factory=list)
    began_s: float = field(default_factory=anyio.current_time)

    def keep(self, obj: Job | Namespace) -> str:
        return obj.metadata.name

    async def replace(self, _: Sequence[str]) -> None:
        self._note("list")

    def upsert(self, obj: Job | Namespace) -> None:
        self._note(obj.metadata.name)

    def delete(self, obj: Job | Namespace) -> None:
        self._note(f"-{obj.metadata.name}")

    def in_step(self, is_in_step: bool) -> None:
        self._note("in step" if is_in_step else "behind")

    def _note(self, what: str) -> None:
        self.at.append((round(anyio.current_time() - self.began_s), what))


class SecondaryBench:
    """Jobs and namespaces, followed; ``faults`` strikes lists and watches by their plural."""

    def __init__(self) -> None:
        self.server = MemoryApiServer(clock=VirtualClock(asyncio.get_running_loop()), rng=random.Random(1))
        self.faults: dict[str, Fault] = {}
        self.server.faults.on_request.append(self._fault)
        self.jobs, self.namespaces = Told(), Told()
        api = Api(self.server.transport("clerk"), retry=Retry(random.Random(2)))
        kinds = (Kind(JOBS, self.jobs, "no Jobs"), Kind(NAMESPACES, self.namespaces, "no namespaces"))
        self.secondary = Secondary(api, kinds, rng=random.Random(3))
        self.began_s = anyio.current_time()

    def _fault(self, call: Call) -> Fault | None:
        return self.faults.get(call.kind.plural) if call.user == "clerk" else None


@asynccontextmanager
async def following(it: SecondaryBench) -> AsyncIterator[float]:
    """Follow; gives how long the start took."""
    async with anyio.create_task_group() as tasks:
        await tasks.start(it.secondary.run)
        yield anyio.current_time() - it.began_s
        tasks.cancel_scope.cancel()


async def test_a_kind_is_in_step_from_its_first_list_on() -> None:
    it = SecondaryBench()
    async with following(it) as took_s:
        assert took_s < 1
        assert [what for _, what in it.jobs.at] == ["list", "in step"]


async def test_a_kind_that_is_refused_holds_up_nothing_and_is_in_step_when_it_is_not_refused_any_more() -> None:
    it = SecondaryBench()
    it.faults["jobs"] = FORBIDDEN
    async with following(it) as took_s:
        assert took_s < 1
        assert [what for _, what in it.namespaces.at] == ["list", "in step"]
        await anyio.sleep(60)
        assert it.jobs.at == []
        it.faults.clear()
        await anyio.sleep(60)
        assert [what for _, what in it.jobs.at] == ["list", "in step"]


async def test_the_start_and_a_term_wait_as_long_as_the_slowest_list_takes() -> None:
    it = SecondaryBench()
    it.server.faults.on_request.append(lambda call: Fault(delay_s=2.0) if call.verb == "list" else None)
    async with following(it) as took_s:
        assert round(took_s) == 2
        began_s = anyio.current_time()
        await it.secondary.catch_up()
        assert round(anyio.current_time() - began_s) == 2


async def test_lists_that_are_not_answered_are_waited_for_together_until_they_have_failed() -> None:
    it = SecondaryBench()
    it.faults = {"jobs": LOST, "namespaces": LOST}
    async with following(it) as took_s:
        # Tries of a little over 10 s each, none begun after 15 s.
        assert 20 < took_s < 30


@pytest.mark.parametrize("fault", [FORBIDDEN, Fault(refuse_with=503), Fault(lost="request", breaks=True)])
@pytest.mark.parametrize("verbs", [("list", "watch"), ("watch",)])
async def test_a_failure_that_lasts_puts_a_kind_behind_and_a_short_one_does_not(
    verbs: tuple[str, ...], fault: Fault
) -> None:
    it = SecondaryBench()
    async with following(it):

        async def refuse(seconds: float) -> None:
            it.server.faults.on_request[:] = [
                lambda call: fault if call.kind.plural == "jobs" and call.verb in verbs else None
            ]
            it.server.cut_watches()
            await anyio.sleep(seconds)
            it.server.faults.clear()
            await anyio.sleep(60)

        await anyio.sleep(10)
        await refuse(2.0)
        assert "behind" not in {what for _, what in it.jobs.at}
        await refuse(60.0)
        told = [what for _, what in it.jobs.at if what != "list"]
        assert told[:2] == ["in step", "behind"]
        assert told[-1] == "in step"
        assert "behind" not in {what for _, what in it.namespaces.at}


async def test_a_term_begins_with_fresh_lists_of_what_can_be_listed_and_the_rest_is_behind_at_once() -> None:
    it = SecondaryBench()
    async with following(it):
        await anyio.sleep(10)
        it.faults["jobs"] = FORBIDDEN
        await it.secondary.catch_up()
        assert anyio.current_time() - it.began_s == pytest.approx(10, abs=1)
        assert it.jobs.at[-1] == (10, "behind")
        assert it.namespaces.at[-1] == (10, "list")
        it.faults.clear()
        await anyio.sleep(60)
        assert [what for _, what in it.jobs.at][-2:] == ["list", "in step"]


async def test_a_term_waits_ten_seconds_for_lists_that_are_not_answered() -> None:
    it = SecondaryBench()
    async with following(it):
        await anyio.sleep(10)
        it.faults = {"jobs": LOST, "namespaces": LOST}
        await it.secondary.catch_up()
        assert it.jobs.at[-1] == it.namespaces.at[-1] == (20, "behind")


async def test_sinks_of_one_watch_see_the_same_and_only_the_first_learns_whether_it_is_in_step() -> None:
    first, further = Told(), Told()
    both = SecondaryTee(first, further)
    kept = [both.keep(Namespace(metadata=ObjectMeta(name="a")))]
    await both.replace(kept)
    both.in_step(True)
    both.upsert(Namespace(metadata=ObjectMeta(name="b")))
    both.in_step(False)
    both.delete(Namespace(metadata=ObjectMeta(name="b")))
    assert [what for _, what in first.at] == ["list", "in step", "b", "behind", "-b"]
    assert [what for _, what in further.at] == ["list", "b", "-b"]
