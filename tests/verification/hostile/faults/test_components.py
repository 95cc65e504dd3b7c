"""Admission, agents, clocks and API servers that are away, slow, jump or lag; and that work goes on."""

from __future__ import annotations

import random

import pytest

from kube.client import errors
from kube.client.api import Api
from kube.client.resources import PODS
from kube.client.retry import Retry
from simulator.apiserver.calls import Call
from simulator.policies import AGENT
from tests.verification.hostile.faults import grounds
from tests.verification.hostile.faults.grounds import NAMESPACE, Heard, Stage, listen, stage
from tests.verification.hostile.faults.test_requests import one_a_second
from verification.hostile.faults.components import (
    AdmissionDown,
    AdmissionSlow,
    AdmissionTwice,
    AgentDown,
    AgentSlow,
    ClockJump,
    ListExpired,
    ServerLags,
)
from verification.hostile.faults.reservations import ReservationUnpullable
from wire import names


async def another_schedulers_pod(on: Stage, name: str) -> None:
    container = {"name": "main", "image": "work"}
    body = {"metadata": {"name": name}, "spec": {"schedulerName": "default-scheduler", "containers": [container]}}
    await on.world.api.create(PODS, body, namespace=NAMESPACE)


async def test_while_admission_is_down_our_pods_are_refused_and_others_are_not() -> None:
    async with stage() as on:
        on.strike(AdmissionDown(at_s=1, for_s=10))
        await on.until(2)
        with pytest.raises(errors.ServerError, match=r'failed calling webhook "mutate.moorage.dev": .*refused'):
            await on.pod("p", gpu_fraction="0.5")
        began = on.now_s
        await another_schedulers_pod(on, "other")
        assert on.now_s == began
        await on.until(12)
        await on.pod("p", gpu_fraction="0.5")
        await on.until(40)
        assert await on.phase("p") == "Running"


async def test_a_pod_that_is_there_is_bound_without_admission_and_changes_of_it_are_refused() -> None:
    async with stage() as on:
        await on.pod("p", gpu_fraction="0.5")
        on.strike(AdmissionDown(at_s=0, for_s=30))
        await on.until(29)
        assert await on.phase("p") == "Running"
        with pytest.raises(errors.ServerError, match=r'failed calling webhook "validate.moorage.dev"'):
            await on.world.api.patch(PODS, "p", {"metadata": {"labels": {"a": "b"}}}, namespace=NAMESPACE)


@pytest.mark.parametrize(("slow_s", "refused"), [(4.0, False), (400.0, True)])
async def test_a_slow_admission_is_waited_for_as_long_as_its_configuration_says(slow_s: float, refused: bool) -> None:
    async with stage() as on:
        on.strike(AdmissionSlow(at_s=0, for_s=60, slow_s=slow_s))
        await on.until(1)
        said = ""
        try:
            await on.pod("p", gpu_fraction="0.5")
        except errors.ServerError as error:
            said = str(error)
        assert ("context deadline exceeded" in said) is refused
        assert (1.4 < on.now_s < 6, on.now_s == 6) == (not refused, refused)
        await on.until(61)
        began = on.now_s
        await on.pod("q", gpu_fraction="0.5")
        assert on.now_s == began


async def test_asked_twice_admission_makes_of_a_pod_what_it_makes_asked_once() -> None:
    async with stage() as on:
        once = await on.pod("p", gpu_fraction="0.5")
        on.strike(AdmissionTwice(at_s=1, for_s=10))
        await on.until(2)
        assert on.world.server.faults.of_review("mutate.moorage.dev").twice
        twice = await on.pod("q", gpu_fraction="0.5")
        assert twice.spec == once.spec
        assert twice.metadata.annotations == once.metadata.annotations
        await on.until(40)
        assert [await on.phase(name) for name in "pq"] == ["Running", "Running"]


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


async def test_what_a_component_writes_bears_its_wrong_time() -> None:
    async with stage() as on:
        on.strike(ClockJump(at_s=0, for_s=10, component="scheduler", by_s=400 * 86_400.0))
        await on.until(1)
        await on.pod("p", gpus=7)
        await on.until(5)
        times = [condition.last_transition_time for condition in (await on.read("p")).status.conditions or ()]
        assert [str(time)[:4] for time in times] == ["2027"]


async def test_jumps_of_one_clock_add_up() -> None:
    async with stage() as on:
        for at_s in (1.0, 2.0):
            on.strike(ClockJump(at_s=at_s, for_s=3, component="binder", by_s=10.0))
        ahead_s = []
        for at_s in (0.5, 1.5, 2.5, 4.5, 5.5):
            await on.until(at_s)
            ahead_s.append(on.world.clocks["binder"].ahead_ns / 1e9)
        assert ahead_s == [0, 10, 20, 10, 0]


@pytest.mark.parametrize("by_s", [-3600.0, 0.25, 86_400.0])
async def test_the_clock_of_one_component_jumps_and_jumps_back(by_s: float) -> None:
    async with stage() as on:
        clocks = on.world.clocks

        def apart_s() -> float:
            return (clocks["binder"].now_ns() - clocks["scheduler"].now_ns()) / 1e9

        on.strike(ClockJump(at_s=1, for_s=5, component="binder", by_s=by_s))
        assert apart_s() == 0
        await on.until(1.1)
        assert apart_s() == by_s
        await on.until(6.1)
        assert apart_s() == 0


def lists(on: Stage, user: str) -> list[tuple[bool, bool, int]]:
    """The lists of pods that a user asks for from now on: whether in pages, whether a further one, the answer."""
    taken: list[tuple[bool, bool, int]] = []

    def answered(call: Call, code: int) -> None:
        if (call.user, call.verb, call.kind.plural) == (user, "list", "pods"):
            taken.append(("limit" in call.query, "continue" in call.query, code))

    on.world.server.faults.on_answer.append(answered)
    return taken


async def test_a_list_that_expires_between_its_pages_is_read_whole_in_the_end() -> None:
    async with stage() as on:
        for number in range(5):
            await on.pod(f"p-{number}", gpu_fraction="0.1")
        await on.until(20)
        taken = lists(on, "scheduler")
        on.strike(ListExpired(at_s=20, for_s=30, user="scheduler", page=2))
        await on.until(21)
        await on.pod("q", gpu_fraction="0.1")
        first, whole = (True, False, 200), (False, False, 200)
        await on.until(49)
        # The further pages were refused on their way; what was read of the lists before the third counts for nothing.
        assert taken == [first, first, whole]
        assert await on.phase("q") == "Running"


async def test_pages_that_do_not_expire_are_read_one_after_the_other() -> None:
    async with stage() as on:
        for number in range(5):
            await on.pod(f"p-{number}", gpus=0)
        await on.until(20)
        on.strike(ListExpired(at_s=20, for_s=30, user="binder", page=2, per_mille=0))
        await on.until(21)
        taken = lists(on, "binder")
        api = Api(on.world.server.transport("binder"), retry=Retry(random.Random(1)))
        listing = await api.list(PODS, namespace=NAMESPACE)
        assert len(listing.items) == 5
        assert taken == [(True, False, 200), (True, True, 200), (True, True, 200)]


async def test_a_server_that_lags_refuses_watches_from_what_it_has_not_seen() -> None:
    async with stage() as on:
        heard = Heard()
        on.strike(ServerLags(at_s=2, for_s=5, user="binder"))
        on.group.start_soon(lambda: one_a_second(on, 1, 10))
        await on.until(3.5)
        await listen(on, heard)
        assert heard.lines == [(3.5, "504", "")]
        spared = Heard()
        on.group.start_soon(lambda: listen(on, spared, user="scheduler"))
        await on.until(7.5)
        assert spared.names == ["c-4", "c-5", "c-6", "c-7"]
        late = Heard()
        on.group.start_soon(lambda: listen(on, late))
        await on.until(9.5)
        assert late.names == ["c-8", "c-9"]


@pytest.mark.parametrize("user", ["", "scheduler", "binder"])
async def test_when_the_server_has_caught_up_what_waited_runs(user: str) -> None:
    async with stage() as on:
        on.strike(ServerLags(at_s=0, for_s=60, user=user))
        await on.until(1)
        await on.pod("p", gpu_fraction="0.5")
        await on.until(150)
        assert await on.phase("p") == "Running"
