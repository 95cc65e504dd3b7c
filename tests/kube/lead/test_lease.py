from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest

from kube.client import errors
from kube.client.api import Api
from kube.client.fence import WriteFence
from kube.client.resources import LEASES
from kube.client.retry import Retry
from kube.client.transport import JSON, OBJECT_BYTES, Response
from kube.lead.lease import LeaderElection, LeaseSettings, incarnation
from simulator.clock import VirtualTimeLoop
from tests.background import in_background
from tests.kube.scripted import ok, refusal

VIRTUAL_TIME = True


@dataclass(slots=True)
class LoopClock:
    """Wall time that goes with the event loop's; a clock that is wrong by years, since nobody may rely on it."""

    offset_ns: int = 0
    is_stopped: bool = False

    def now_ns(self) -> int:
        return self.offset_ns + int(self.is_stopped or anyio.current_time() * 1e9)


#: Of a process that is gone.
LEFT_BEHIND = {"holderIdentity": "z", "leaseDurationSeconds": 15, "renewTime": "1970-01-01T00:00:00.000000Z"}


@dataclass(slots=True)
class LeaseServer:
    """One Lease with its version, and what may go wrong on the way to it. Shared by all candidates."""

    #: An installation's lease, which nobody has held yet. None: there is no lease.
    spec: dict[str, Any] | None = field(default_factory=dict)
    version: int = 1
    writes: list[tuple[float, dict[str, Any]]] = field(default_factory=list)

    def holder(self) -> str | None:
        return None if self.spec is None else self.spec.get("holderIdentity")

    def answer(self, method: str, body: dict[str, Any] | None) -> Response:
        if method == "POST":
            return self._create(body or {})
        if self.spec is None:
            return refusal(404, "NotFound")
        if method == "PATCH":
            return self._patch(body or {})
        return self._object()

    def _create(self, body: dict[str, Any]) -> Response:
        if self.spec is not None:
            return refusal(409, "AlreadyExists")
        self.spec = {}
        return self._store(body["spec"])

    def _patch(self, body: dict[str, Any]) -> Response:
        if body["metadata"]["resourceVersion"] != str(self.version):
            return refusal(409, "Conflict")
        return self._store(body["spec"])

    def _store(self, spec: dict[str, Any]) -> Response:
        merged = {**(self.spec or {}), **spec}
        self.spec = {name: value for name, value in merged.items() if value is not None}
        self.version += 1
        self.writes.append((anyio.current_time(), spec))
        return self._object()

    def _object(self) -> Response:
        return ok({"metadata": {"name": "l", "resourceVersion": str(self.version)}, "spec": self.spec})


@dataclass(slots=True)
class Link:
    """One candidate's way to the server: a Transport that can hang, break, or lose answers."""

    server: LeaseServer
    state: str = "up"
    answers_after_s: float = 0.0
    requests: int = 0

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        body: bytes | None = None,
        content_type: str = "",
        accept: str = JSON,
        timeout_s: float,
        most_bytes: int = OBJECT_BYTES,
    ) -> Response:
        assert path.startswith("/apis/coordination.k8s.io/v1/namespaces/ns/leases")
        self.requests += 1
        await anyio.sleep(0.01)
        if self.state == "hangs":
            await anyio.sleep_forever()
        if self.state == "is refused" or (self.state == "is refused reads" and method == "GET"):
            raise errors.Unreachable
        if self.state == "is forbidden":
            return refusal(403, "Forbidden")
        response = self.server.answer(method, msgspec.json.decode(body) if body else None)
        if self.state == "loses answers" and method != "GET":
            raise errors.Unreachable
        await anyio.sleep(self.answers_after_s)
        return response

    def stream(
        self, path: str, *, query: Mapping[str, str], accept: str = JSON, timeout_s: float
    ) -> AbstractAsyncContextManager[tuple[Response, AsyncIterator[bytes]]]:
        raise NotImplementedError


@dataclass(slots=True)
class Candidate:
    """A process that notes when it worked. ``terms`` are pairs of loop times, the last one open while it works."""

    name: str
    server: LeaseServer
    settings: LeaseSettings = LeaseSettings()  # noqa: RUF009 - frozen
    skew_ns: int = 0
    is_stopped_clock: bool = False
    terms: list[list[float]] = field(default_factory=list)
    rivals: list[str | None] = field(default_factory=list)
    link: Link = field(init=False)
    clock: LoopClock = field(init=False)
    election: LeaderElection = field(init=False)

    def __post_init__(self) -> None:
        self.link = Link(self.server)
        self.clock = LoopClock(self.skew_ns, self.is_stopped_clock)
        rng = random.Random(self.name)
        self.election = LeaderElection(
            Api(self.link, retry=Retry(rng)),
            namespace="ns",
            name="l",
            identity=self.name,
            clock=self.clock,
            rng=rng,
            settings=self.settings,
        )
        self.election.on_rival = lambda lease: self.rivals.append(lease.spec.holder_identity)

    async def work(self) -> None:
        assert self.election.is_leading
        self.terms.append([anyio.current_time()])
        try:
            await anyio.sleep_forever()
        finally:
            self.terms[-1].append(anyio.current_time())

    async def run(self) -> None:
        await self.election.run(self.work)

    def is_working(self) -> bool:
        return bool(self.terms) and len(self.terms[-1]) == 1


async def test_the_first_to_come_leads_at_once_and_renews() -> None:
    server = LeaseServer()
    candidate = Candidate("a", server)
    with anyio.move_on_after(60.0):
        await candidate.run()
    assert candidate.terms == [[pytest.approx(0.02), 60.0]]
    renewals = [at for at, spec in server.writes if set(spec) == {"renewTime"}]
    assert all(1.9 < later - earlier < 2.2 for earlier, later in itertools.pairwise(renewals))
    assert len(renewals) >= 28


async def test_what_stands_in_the_lease_is_what_kubernetes_expects() -> None:
    server = LeaseServer(spec=None)
    with anyio.move_on_after(1.0):
        await Candidate("a", server).run()
    assert server.writes[0][1] == {
        "holderIdentity": "a",
        "leaseDurationSeconds": 15,
        "acquireTime": "1970-01-01T00:00:00.010000Z",
        "renewTime": "1970-01-01T00:00:00.010000Z",
        "leaseTransitions": 0,
    }


async def test_only_one_of_many_leads() -> None:
    server = LeaseServer()
    candidates = [Candidate(name, server) for name in "abcde"]
    with anyio.move_on_after(120.0):
        async with anyio.create_task_group() as tasks:
            for candidate in candidates:
                tasks.start_soon(candidate.run)
    assert sum(len(candidate.terms) for candidate in candidates) == 1


@pytest.mark.parametrize("state", ["hangs", "is refused", "is forbidden"])
async def test_the_leader_stops_working_when_the_api_fails_it(state: str, caplog: pytest.LogCaptureFixture) -> None:
    server = LeaseServer()
    candidate = Candidate("a", server)
    async with in_background(candidate.run):
        await anyio.sleep(20.0)
        last_renewal = server.writes[-1][0]
        candidate.link.state = state
        await anyio.sleep(9.0 - (20.0 - last_renewal))
        assert candidate.is_working()
        await anyio.sleep(1.0)
        assert not candidate.is_working()
        assert not candidate.election.is_leading
        assert candidate.terms[0][1] == pytest.approx(last_renewal + 10.0, abs=0.05)
        assert "lease ns/l was not renewed for 10.0 s" in caplog.text


async def test_a_leader_whose_every_answer_takes_almost_as_long_as_a_call_may_stays_in_office() -> None:
    server = LeaseServer()
    candidate = Candidate("a", server)
    async with in_background(candidate.run):
        await anyio.sleep(5.0)
        candidate.link.answers_after_s = 4.8
        await anyio.sleep(300.0)
        assert candidate.is_working()
        assert len(candidate.terms) == 1


async def test_quick_answers_are_not_asked_for_more_often_than_each_period() -> None:
    server = LeaseServer()
    candidate = Candidate("a", server)
    async with in_background(candidate.run):
        await anyio.sleep(100.0)
    assert 48 <= len(server.writes) <= 51


@pytest.mark.parametrize("skew_years", [-30, 0, 30])
async def test_a_successor_works_only_after_the_old_leases_full_duration(skew_years: int) -> None:
    server = LeaseServer()
    old = Candidate("a", server)
    new = Candidate("b", server, skew_ns=skew_years * 365 * 86_400 * 10**9)
    async with in_background(old.run) as tasks:
        await anyio.sleep(5.0)
        tasks.start_soon(new.run)
        await anyio.sleep(15.0)
        last_renewal = server.writes[-1][0]
        old.link.state = "hangs"
        old_held_until = old.election.held_until
        await anyio.sleep(40.0)
        assert new.is_working()
        assert new.terms[0][0] >= last_renewal + 15.0
        assert new.terms[0][0] >= old_held_until
        assert new.terms[0][0] > old.terms[0][1]
        assert new.terms[0][0] < last_renewal + 15.0 + 3.0


async def test_a_newcomer_waits_a_full_duration_whatever_the_times_in_the_lease_say() -> None:
    spec = {"holderIdentity": "z", "leaseDurationSeconds": 15, "renewTime": "1970-01-01T00:00:00.000000Z"}
    new = Candidate("b", LeaseServer(spec, 7))
    with anyio.move_on_after(60.0):
        await new.run()
    assert 15.0 <= new.terms[0][0] < 18.0


@pytest.mark.parametrize("name", "bcdef")
async def test_a_lease_that_nobody_renews_is_taken_when_it_is_over_and_not_a_period_later(name: str) -> None:
    new = Candidate(name, LeaseServer(LEFT_BEHIND, 7))
    with anyio.move_on_after(60.0):
        await new.run()
    assert 15.0 <= new.terms[0][0] < 15.1
    # Before that it looks each second, and not more often.
    assert new.link.requests < 15 + 60 / 2 + 5


async def take_part_after(candidate: Candidate, lists_take_s: float) -> None:
    """A process whose first lists take a while, during which it looks at the lease."""
    with anyio.move_on_after(lists_take_s):
        await candidate.election.observe()
    await candidate.run()


@pytest.mark.parametrize(("lists_take_s", "works_at"), [(10.0, 15.0), (14.9, 15.0), (40.0, 40.0)])
async def test_an_old_lease_runs_out_while_a_process_gets_in_step(lists_take_s: float, works_at: float) -> None:
    new = Candidate("b", LeaseServer(LEFT_BEHIND, 7))
    with anyio.move_on_after(60.0):
        await take_part_after(new, lists_take_s)
    assert works_at <= new.terms[0][0] < works_at + 0.1


async def test_a_holder_who_renews_while_a_process_gets_in_step_stays() -> None:
    server = LeaseServer()
    old, new = Candidate("a", server), Candidate("b", server)
    async with in_background(old.run) as tasks:
        await anyio.sleep(1.0)
        tasks.start_soon(take_part_after, new, 30.0)
        await anyio.sleep(60.0)
        assert old.is_working()
        assert not new.terms


@pytest.mark.parametrize("state", ["is refused", "is forbidden"])
async def test_a_server_that_fails_while_a_process_gets_in_step_shortens_no_wait(state: str) -> None:
    new = Candidate("b", LeaseServer(LEFT_BEHIND, 7))
    new.link.state = state
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take_part_after, new, 20.0)
        await anyio.sleep(20.0)
        asked = new.link.requests
        new.link.state = "up"
        await anyio.sleep(40.0)
        tasks.cancel_scope.cancel()
    assert new.terms[0][0] >= 35.0
    assert asked <= 60, "it is not asked without a pause"


async def test_history_that_is_set_back_while_a_process_gets_in_step_is_found_when_it_takes_part() -> None:
    server = LeaseServer(LEFT_BEHIND, 7)
    new = Candidate("b", server)
    async with in_background(new.election.observe):
        await anyio.sleep(5.0)
        server.version = 3
        await anyio.sleep(5.0)
        assert not await new.election.one_term(new.work)
        assert not new.terms


async def hand_over(writes: Callable[[Candidate], Coroutine[Any, Any, None]]) -> tuple[float, LeaseServer, Candidate]:
    """A leader does ``writes`` and is told to end a second later; when it gave the lease back, and its successor."""
    server = LeaseServer()
    old, new = Candidate("a", server), Candidate("b", server)
    async with anyio.create_task_group() as tasks:
        async with anyio.create_task_group() as old_tasks:
            old_tasks.start_soon(old.run)
            await anyio.sleep(5.0)
            tasks.start_soon(new.run)
            await anyio.sleep(4.0)
            old_tasks.start_soon(writes, old)
            await anyio.sleep(1.0)
            old_tasks.cancel_scope.cancel()
        released_at, released = server.writes[-1]
        assert released["holderIdentity"] is None
        await anyio.sleep(30.0)
        taken_at = next(at for at, spec in server.writes if spec.get("holderIdentity") == "b")
        assert taken_at - released_at < 1.5
        assert server.spec is not None
        assert server.spec["leaseTransitions"] == 1
        tasks.cancel_scope.cancel()
    return released_at, server, new


async def test_a_lease_that_was_given_back_with_all_written_is_worked_under_at_once() -> None:
    async def write(old: Candidate) -> None:
        with old.election.fence.write(10.0):
            await anyio.sleep(0.5)

    released_at, server, new = await hand_over(write)
    released = next(spec for at, spec in server.writes if at == released_at)
    assert released["leaseDurationSeconds"] is None
    assert new.terms[0][0] - released_at < 1.5


async def test_a_lease_that_was_given_back_is_not_worked_under_while_late_writes_may_land() -> None:
    lands_until = []

    async def write(old: Candidate) -> None:
        with old.election.fence.write(4.0):
            lands_until.append(old.election.fence.lands_until)
            await anyio.sleep_forever()

    released_at, server, new = await hand_over(write)
    released = next(spec for at, spec in server.writes if at == released_at)
    assert released["leaseDurationSeconds"] == 8
    assert lands_until == [pytest.approx(9.0 + 9.0)]
    assert lands_until[0] <= new.terms[0][0] < released_at + 8 + 1.5


async def test_who_gives_a_lease_back_before_it_has_worked_passes_on_how_long_the_one_before_it_may_write() -> None:
    server = LeaseServer({"leaseDurationSeconds": 10}, 7)
    second, third = Candidate("b", server), Candidate("c", server)
    async with anyio.create_task_group() as tasks:
        with anyio.move_on_after(3.0):
            await second.run()
        assert server.spec is not None
        assert server.spec["leaseDurationSeconds"] == 8
        tasks.start_soon(third.run)
        await anyio.sleep(20.0)
        assert third.terms[0][0] > 10.0
        tasks.cancel_scope.cancel()


async def test_work_that_ends_by_itself_gives_the_lease_back() -> None:
    server = LeaseServer()
    candidate = Candidate("a", server)

    async def short() -> None:
        await anyio.sleep(3.0)

    await candidate.election.run(short)
    assert server.holder() is None
    assert not candidate.election.is_leading


async def test_work_that_fails_gives_the_lease_back_and_says_why() -> None:
    server = LeaseServer()

    async def fail() -> None:
        raise ValueError("bad day")

    with pytest.raises(ExceptionGroup) as caught:
        await Candidate("a", server).election.run(fail)
    assert caught.group_contains(ValueError, match="bad day")
    assert server.holder() is None


async def test_giving_back_does_not_hold_up_a_stop_when_the_api_hangs() -> None:
    candidate = Candidate("a", LeaseServer())
    async with in_background(candidate.run):
        await anyio.sleep(5.0)
        candidate.link.state = "hangs"
    assert anyio.current_time() <= 5.0 + 2.0


async def test_a_lease_taken_by_another_ends_the_work_at_once_and_is_left_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = LeaseServer()
    candidate = Candidate("a", server)
    async with in_background(candidate.run):
        await anyio.sleep(5.0)
        assert server.spec is not None
        server.spec = {**server.spec, "holderIdentity": "z"}
        server.version += 1
        await anyio.sleep(2.2)
        assert not candidate.is_working()
    assert server.holder() == "z"
    assert "lease ns/l was taken by z" in caplog.text
    assert "was not renewed" not in caplog.text


async def test_a_lease_that_was_deleted_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    server = LeaseServer()
    candidate = Candidate("a", server)
    async with in_background(candidate.run):
        await anyio.sleep(5.0)
        server.spec = None
        await anyio.sleep(2.2)
        assert len(candidate.terms[0]) == 2
        assert "lease ns/l was deleted" in caplog.text
        assert "was not renewed" not in caplog.text


@pytest.mark.parametrize("after_s", [3.2, 3.9, 4.8])
async def test_who_waits_and_sees_the_lease_deleted_works_only_when_its_holder_does_not_any_more(
    after_s: float,
) -> None:
    server = LeaseServer()
    old, new = Candidate("a", server), Candidate("b", server)
    async with in_background(old.run) as tasks:
        await anyio.sleep(5.0)
        tasks.start_soon(new.run)
        await anyio.sleep(after_s)
        held_until = old.election.held_until
        server.spec = None
        await anyio.sleep(60.0)
        leaders = old, new
        assert min(start for leader in leaders for start, *_ in leader.terms if start > 5.0) >= held_until


@pytest.mark.parametrize("settings", [LeaseSettings(), LeaseSettings(duration_s=30)])
async def test_a_process_that_starts_right_after_the_lease_was_deleted_waits_for_the_holder_it_never_saw(
    settings: LeaseSettings,
) -> None:
    server = LeaseServer()
    old, new = Candidate("a", server, settings), Candidate("b", server, settings)
    async with in_background(old.run) as tasks:
        await anyio.sleep(5.0)
        held_until = old.election.held_until
        server.spec = None
        tasks.start_soon(new.run)
        await anyio.sleep(60.0)
        assert min(start for leader in (old, new) for start, *_ in leader.terms if start > 5.0) >= held_until


async def test_a_lease_that_was_given_back_and_then_deleted_is_waited_for_too() -> None:
    server = LeaseServer({"holderIdentity": None, "leaseDurationSeconds": 8})
    candidate = Candidate("a", server)
    async with in_background(candidate.election.observe):
        await anyio.sleep(2.5)
    server.spec = None
    with anyio.move_on_after(60.0):
        await candidate.run()
    assert candidate.terms[0][0] >= 2.5 + 8.0


async def test_without_a_lease_the_first_process_waits_a_duration_and_keeps_the_lease_it_made() -> None:
    server = LeaseServer(spec=None)
    candidate = Candidate("a", server)
    with anyio.move_on_after(60.0):
        await candidate.run()
    assert candidate.terms == [[pytest.approx(15.01), 60.0]]


async def test_who_waits_sees_renewals_though_the_leaders_wall_clock_stands_still() -> None:
    server = LeaseServer()
    old, new = Candidate("a", server, is_stopped_clock=True), Candidate("b", server)
    async with in_background(old.run) as tasks:
        await anyio.sleep(1.0)
        tasks.start_soon(new.run)
        await anyio.sleep(100.0)
        assert old.is_working()
        assert new.terms == []


async def test_a_lease_that_somebody_only_touched_is_ours_still() -> None:
    server = LeaseServer()
    candidate = Candidate("a", server)
    async with in_background(candidate.run):
        for _ in range(10):
            await anyio.sleep(3.0)
            server.version += 1
        assert candidate.is_working()
        assert len(candidate.terms) == 1


async def test_a_lease_that_somebody_touched_and_that_can_not_be_read_is_ours_until_it_runs_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = LeaseServer()
    candidate = Candidate("a", server)
    async with in_background(candidate.run):
        await anyio.sleep(5.0)
        server.version += 1
        candidate.link.state = "is refused reads"
        await anyio.sleep(6.5)
        assert candidate.is_working()
        assert "not read" in caplog.text
        candidate.link.state = "up"
        await anyio.sleep(30.0)
        assert candidate.is_working()
        assert len(candidate.terms) == 1


async def test_a_lease_that_forgot_our_renewals_is_lost_though_it_names_us(caplog: pytest.LogCaptureFixture) -> None:
    """As after etcd was restored from a snapshot that was made while we led."""
    server = LeaseServer()
    candidate = Candidate("a", server)
    async with in_background(candidate.run):
        await anyio.sleep(5.0)
        before = server.spec, server.version
        await anyio.sleep(5.0)
        server.spec, server.version = before
        set_back_at = anyio.current_time()
        await anyio.sleep(2.5)
        assert len(candidate.terms[0]) == 2
        assert "the API server's history was set back" in caplog.text
        await anyio.sleep(30.0)
        assert candidate.is_working()
        assert candidate.terms[1][0] - set_back_at >= candidate.settings.duration_s - 2.2


async def test_who_waits_begins_anew_when_the_lease_is_older_than_it_was(caplog: pytest.LogCaptureFixture) -> None:
    server = LeaseServer()
    leader, waiting = Candidate("a", server), Candidate("b", server)
    ended: list[bool] = []

    async def wait() -> None:
        ended.append(await waiting.election.one_term(waiting.work))

    async with in_background(leader.run) as tasks:
        await anyio.sleep(5.0)
        tasks.start_soon(wait)
        await anyio.sleep(1.0)
        before = server.spec, server.version
        await anyio.sleep(5.0)
        leader.link.state = waiting.link.state = "is refused"
        await anyio.sleep(20.0)
        assert ended == []
        server.spec, server.version = before
        waiting.link.state = "up"
        await anyio.sleep(1.3)
        assert ended == [False]
        assert waiting.terms == []
        assert "the API server's history was set back" in caplog.text


@pytest.mark.parametrize("times", [1, 3])
async def test_a_lease_that_shows_a_renewal_without_an_answer_is_ours_still(times: int) -> None:
    server = LeaseServer()
    candidate = Candidate("a", server, LeaseSettings(duration_s=40, renew_deadline_s=30))
    async with in_background(candidate.run):
        await anyio.sleep(5.0)
        candidate.link.state = "loses answers"
        await anyio.sleep(2.1 * times)
        candidate.link.state = "up"
        server.version += 1
        await anyio.sleep(30.0)
        assert candidate.is_working()
        assert len(candidate.terms) == 1


async def test_a_renewal_whose_answer_was_lost_is_settled_by_reading() -> None:
    server = LeaseServer()
    candidate = Candidate("a", server)
    async with in_background(candidate.run):
        await anyio.sleep(5.0)
        candidate.link.state = "loses answers"
        await anyio.sleep(3.0)
        candidate.link.state = "up"
        await anyio.sleep(30.0)
        assert candidate.is_working()
        assert len(candidate.terms) == 1


async def test_a_renewal_that_the_lease_shows_counts_from_when_it_was_sent_though_its_answer_was_lost() -> None:
    server = LeaseServer()
    candidate = Candidate("a", server)
    async with in_background(candidate.run):
        await anyio.sleep(5.0)
        candidate.link.state = "loses answers"
        await anyio.sleep(2.0)
        unanswered = server.writes[-1][0]
        assert unanswered > 5.0
        candidate.link.state = "up"
        await anyio.sleep(2.0)
        assert server.writes[-1][0] == unanswered
        candidate.link.state = "hangs"
        await anyio.sleep(20.0)
        assert candidate.terms[0][1] == pytest.approx(unanswered + 10.0, abs=0.05)


async def test_a_take_over_whose_answer_was_lost_is_completed() -> None:
    server = LeaseServer()
    candidate = Candidate("a", server)
    candidate.link.state = "loses answers"
    async with in_background(candidate.run):
        await anyio.sleep(1.0)
        candidate.link.state = "up"
        await anyio.sleep(5.0)
        assert candidate.is_working()


async def test_a_leader_that_lost_touch_leads_again_but_not_before_its_own_late_writes_are_over() -> None:
    server = LeaseServer()
    candidate = Candidate("a", server, LeaseSettings(duration_s=40))
    async with in_background(candidate.run):
        await anyio.sleep(20.0)
        candidate.link.state = "hangs"
        held_until = candidate.election.held_until
        await anyio.sleep(11.0)
        candidate.link.state = "up"
        await anyio.sleep(40.0)
        assert len(candidate.terms) == 2
        assert candidate.terms[1][0] >= held_until


async def test_nothing_is_held_while_waiting_for_late_writes() -> None:
    spec = {"leaseDurationSeconds": 10}
    candidate = Candidate("a", LeaseServer(spec, 7))
    async with in_background(candidate.run):
        await anyio.sleep(5.0)
        assert candidate.link.server.holder() == "a"
        assert candidate.terms == []
        assert candidate.election.held_until < 0
        await anyio.sleep(6.0)
        assert candidate.election.is_leading


async def test_who_waits_is_told_of_a_rival_that_renews_and_of_none_that_is_silent() -> None:
    server = LeaseServer()
    old, new = Candidate("a", server), Candidate("b", server)
    async with in_background(old.run) as tasks:
        await anyio.sleep(5.0)
        tasks.start_soon(new.run)
        await anyio.sleep(20.0)
        assert set(new.rivals) == {"a"}
        renewals = len(new.rivals)
        old.link.state = "hangs"
        await anyio.sleep(40.0)
        assert new.is_working()
        assert len(new.rivals) <= renewals + 1
        assert old.rivals == []


async def test_a_fence_of_its_own_does_not_end_with_the_lease() -> None:
    fence = WriteFence()
    election = LeaderElection(
        Api(Link(LeaseServer()), retry=Retry(random.Random(1))),
        namespace="ns",
        name="l",
        identity="a",
        clock=LoopClock(),
        rng=random.Random(1),
        fence=fence,
    )
    assert election.fence is fence
    assert not election.is_leading
    with election.fence.write(10.0) as times:
        assert times.server_s == 10.0


async def test_writes_of_the_work_are_not_sent_without_the_lease() -> None:
    candidate = Candidate("a", LeaseServer())
    api = Api(candidate.link, retry=Retry(random.Random(1)), fence=candidate.election.fence)
    with pytest.raises(errors.TooLate):
        await api.patch(LEASES, "l", {}, namespace="ns")


@pytest.mark.parametrize("blocked_s", [13.0, 14.0, 100.0])
async def test_a_leader_whose_loop_was_blocked_past_its_lease_writes_nothing(blocked_s: float) -> None:
    """Right after the block, before any timer has fired: a process that was stopped and continued is no different."""
    candidate = Candidate("a", LeaseServer())
    api = Api(candidate.link, retry=Retry(random.Random(1)), fence=candidate.election.fence)
    refused = []

    async def work() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        await anyio.sleep(3.0)
        loop.spend(blocked_s)
        requests = candidate.link.requests
        try:
            await api.patch(LEASES, "l", {}, namespace="ns")
        except errors.TooLate:
            refused.append(candidate.link.requests - requests)
        await anyio.sleep_forever()

    with anyio.move_on_after(blocked_s + 10.0):
        await candidate.election.one_term(work)
    assert refused == [0]


@pytest.mark.parametrize("jump_s", [-3600, 3600])
async def test_a_wall_clock_that_jumps_changes_nothing(jump_s: int) -> None:
    server = LeaseServer()
    old, new = Candidate("a", server), Candidate("b", server)
    async with in_background(old.run) as tasks:
        await anyio.sleep(5.0)
        tasks.start_soon(new.run)
        for jumping in (old, new, old):
            await anyio.sleep(20.0)
            jumping.clock.offset_ns += jump_s * 10**9
        await anyio.sleep(20.0)
        assert old.is_working()
        assert (len(old.terms), len(new.terms)) == (1, 0)


@pytest.mark.parametrize(
    "settings",
    [
        {"duration_s": 10, "renew_deadline_s": 10.0},
        {"renew_deadline_s": 2.0},
        {"renew_deadline_s": 2.3},
        {"retry_s": 0.0},
        {"poll_s": 0.0},
        {"poll_s": 16.0},
    ],
)
def test_times_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        LeaseSettings(**settings)


def test_incarnations_differ() -> None:
    rng = random.Random(1)
    first, second = incarnation("a", rng), incarnation("a", rng)
    assert first != second
    assert first.startswith("a_")
