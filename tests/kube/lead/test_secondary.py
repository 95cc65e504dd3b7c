"""Kinds that a component can do without: what their sinks are told, and for how long they are waited for."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import pytest

from kube.client.api import Api
from kube.client.resources import JOBS, NAMESPACES
from kube.client.retry import Retry
from kube.lead.secondary import Kind, Secondary, SecondaryTee
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from simulator.apiserver.server import MemoryApiServer
from simulator.clock import VirtualClock
from tests.conftest import AnyioBackend
from wire.core import Job, Namespace, ObjectMeta

FORBIDDEN, LOST = Fault(refuse_with=403), Fault(lost="request")


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


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


class Bench:
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
async def following(it: Bench) -> AsyncIterator[float]:
    """Follow; gives how long the start took."""
    async with anyio.create_task_group() as tasks:
        await tasks.start(it.secondary.run)
        yield anyio.current_time() - it.began_s
        tasks.cancel_scope.cancel()


async def test_a_kind_is_in_step_from_its_first_list_on() -> None:
    it = Bench()
    async with following(it) as took_s:
        assert took_s < 1
        assert [what for _, what in it.jobs.at] == ["list", "in step"]


async def test_a_kind_that_is_refused_holds_up_nothing_and_is_in_step_when_it_is_not_refused_any_more() -> None:
    it = Bench()
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
    it = Bench()
    it.server.faults.on_request.append(lambda call: Fault(delay_s=2.0) if call.verb == "list" else None)
    async with following(it) as took_s:
        assert round(took_s) == 2
        began_s = anyio.current_time()
        await it.secondary.catch_up()
        assert round(anyio.current_time() - began_s) == 2


async def test_lists_that_are_not_answered_are_waited_for_together_until_they_have_failed() -> None:
    it = Bench()
    it.faults = {"jobs": LOST, "namespaces": LOST}
    async with following(it) as took_s:
        # Tries of a little over 10 s each, none begun after 15 s.
        assert 20 < took_s < 30


@pytest.mark.parametrize("fault", [FORBIDDEN, Fault(refuse_with=503), Fault(lost="request", breaks=True)])
@pytest.mark.parametrize("verbs", [("list", "watch"), ("watch",)])
async def test_a_failure_that_lasts_puts_a_kind_behind_and_a_short_one_does_not(
    verbs: tuple[str, ...], fault: Fault
) -> None:
    it = Bench()
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
    it = Bench()
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
    it = Bench()
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
