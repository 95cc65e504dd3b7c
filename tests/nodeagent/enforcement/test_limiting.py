"""The agent beside a played memory enforcer, in virtual time; books are those of the API server."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest

from gpu.book import Book, Entry, render
from kube.client.resources import EVENTS, PODS
from nodeagent.core.devices import Lost, Machine
from nodeagent.core.enforcement.messages import Limited
from nodeagent.core.enforcement.tenants import STALE_NS
from reservation.device import Device, Unreadable
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import NOTHING, Fault
from simulator.clock import VirtualClock
from tests.nodeagent.node import AGENT, CARDS, Scene, scene
from tests.nodeagent.played import PlayedEnforcer
from tests.values import there
from wire import names
from wire.api_groups import Event
from wire.crds.gpunode import TenantStatus
from wire.rfc3339 import parse_ns

POD = "3f1c2a52-6d0c-4d55-9a30-3d5c7e0b6f3e"
OTHER = "00000000-1111-4222-8333-444444444444"
HALF = 500_000_000


def entry(name: str, **more: Any) -> Entry:
    return Entry(HALF // 2, "a", "1", 0, f"team/{name}", **more)


def told(uuid: str = "GPU-a", **entries: Entry) -> dict[str, Any]:
    """Annotations of a reservation whose device and book are known."""
    book = Book({{"p": POD, "q": OTHER}[name]: each for name, each in entries.items()})
    return {names.RESERVE_FOR_GPU_INDEX: uuid, names.TENANTS: render(book)}


BOOK = told(p=entry("p", cap_mib=20_000), q=entry("q"))
MINE = (POD, "GPU-a")


async def tenants(it: Scene) -> dict[str, TenantStatus]:
    return {one.pod: one for one in (await it.gpu_node()).status.tenants or ()}


async def events(it: Scene) -> list[Event]:
    return list((await it.api.list(EVENTS, namespace="team")).items)


def status_writes(it: Scene) -> int:
    return it.writes().count("patch gpunodes/status")


async def test_caps_are_those_of_the_books_and_follow_them() -> None:
    async with scene() as it:
        enforcer = PlayedEnforcer("GPU-a")
        await it.reserve(**BOOK)
        await it.start(enforcer)
        await anyio.sleep(0.1)
        # The first that a memory enforcer is sent is all of them.
        assert (enforcer.is_connected, enforcer.sent) == (True, [{MINE: 20_000}])
        await it.reserve("second", **told("GPU-b", q=entry("q", cap_nano=HALF)))
        await anyio.sleep(0.5)
        assert enforcer.caps == {MINE: 20_000, (OTHER, "GPU-b"): 40_779}
        await it.api.delete(PODS, "r", namespace=names.RESERVATION_NAMESPACE, grace_s=0)
        await anyio.sleep(0.5)
        assert enforcer.caps == {(OTHER, "GPU-b"): 40_779}


async def test_an_enforcer_keeps_its_caps_while_an_agent_that_was_started_cannot_read_the_driver() -> None:
    async with scene() as it:
        enforcer = PlayedEnforcer("GPU-a")
        it.machine[0] = Unreadable("the driver is not there yet")
        await it.reserve(**BOOK)
        await it.start(enforcer, cards_every_s=5.0)
        await anyio.sleep(60.0)
        assert (enforcer.is_connected, enforcer.sent) == (False, [])
        it.machine[0] = Machine(CARDS[:1], {"GPU-a": Device("GPU-a", 3, 81559)})
        await anyio.sleep(6.0)
        assert (enforcer.is_connected, enforcer.sent) == (True, [{MINE: 20_000}])


async def test_a_card_that_appears_later_has_its_caps_then() -> None:
    async with scene() as it:
        enforcer = PlayedEnforcer("GPU-a")
        it.machine[0] = Machine((), {})
        await it.reserve(**BOOK)
        await it.start(enforcer, cards_every_s=5.0)
        await anyio.sleep(1.0)
        assert enforcer.caps == {}
        it.machine[0] = Machine(CARDS[:1], {"GPU-a": Device("GPU-a", 3, 81559)})
        await anyio.sleep(5.0)
        assert enforcer.caps == {MINE: 20_000}


async def test_caps_on_a_gpu_that_the_driver_has_lost_stay_until_its_reservation_goes() -> None:
    async with scene() as it:
        enforcer = PlayedEnforcer("GPU-a")
        await it.reserve(**BOOK)
        await it.start(enforcer, cards_every_s=5.0)
        await anyio.sleep(1.0)
        it.machine[0] = Machine(CARDS[1:], {"GPU-b": Device("GPU-b", 1, 81559)}, (Lost(0, "GPU is lost"),))
        await anyio.sleep(60.0)
        assert enforcer.caps == {MINE: 20_000}
        await it.api.delete(PODS, "r", namespace=names.RESERVATION_NAMESPACE, grace_s=0)
        await anyio.sleep(1.0)
        assert enforcer.caps == {}


@pytest.mark.parametrize(("cap_all", "capped"), [(False, {POD: 20_000}), (True, {POD: 20_000, OTHER: 20_389})])
async def test_who_has_no_cap_is_capped_at_its_share_only_where_that_is_wanted(
    cap_all: bool, capped: dict[str, int]
) -> None:
    async with scene() as it:
        enforcer = PlayedEnforcer("GPU-a")
        await it.reserve(**BOOK)
        await it.start(enforcer, cap_all=cap_all)
        await anyio.sleep(1.0)
        assert {pod: mib for (pod, _), mib in (enforcer.caps or {}).items()} == capped


async def test_a_burst_of_books_is_sent_in_few_pieces() -> None:
    async with scene() as it:
        enforcer = PlayedEnforcer("GPU-a")
        await it.start(enforcer)
        await anyio.sleep(1.0)
        for number in range(100):
            await it.reserve(f"r{number}", **told(f"GPU-{number}", p=entry("p", cap_mib=1)))
        await anyio.sleep(1.0)
        assert len(enforcer.sent) <= 10


async def test_use_and_what_is_enforced_are_in_the_gpu_node() -> None:
    async with scene() as it:
        enforcer = PlayedEnforcer("GPU-a", "GPU-b")
        await it.reserve(**BOOK)
        await it.start(enforcer)
        await anyio.sleep(3.0)
        # Nobody has reported yet.
        found = await tenants(it)
        assert {pod: (one.memory_percent, one.enforced) for pod, one in found.items()} == {
            "team/p": (None, ""),
            "team/q": (None, ""),
        }
        enforcer.holds[MINE] = 10_195
        await enforcer.go_on(3)
        one, other = (await tenants(it))["team/p"], (await tenants(it))["team/q"]
        assert (one.pod_uid, one.card, one.memory_percent, one.sm_percent, one.enforced) == (
            POD, "GPU-a", 55, 40, "kill",
        )  # fmt: skip
        assert (other.memory_percent, other.enforced) == (0, "")
        status = (await it.gpu_node()).status.agent
        assert (status.back_ends, status.missing) == (["kill"], None)


async def test_use_alone_is_written_every_five_minutes_at_most_and_a_steady_one_never() -> None:
    async with scene() as it:
        enforcer = PlayedEnforcer("GPU-a")
        await it.reserve(**BOOK)
        await it.start(enforcer)
        enforcer.holds[MINE] = 1_000
        await enforcer.go_on(400)
        writes = status_writes(it)
        await enforcer.go_on(3600)
        # The pod that uses nothing is idle after half an hour, and that is written once.
        assert status_writes(it) == writes + 1
        writes += 1
        for turn in range(120):
            enforcer.holds[MINE] = 5_000 + 10_000 * (turn % 2)
            await enforcer.go_on(30)
        assert 1 <= status_writes(it) - writes <= 13


async def test_an_enforcer_that_falls_silent_enforces_nothing_and_the_gpu_node_says_so() -> None:
    async with scene() as it:
        enforcer = PlayedEnforcer("GPU-a")
        await it.reserve(**BOOK)
        await it.start(enforcer)
        await enforcer.go_on(3)
        assert (await tenants(it))["team/p"].enforced == "kill"
        enforcer.say("no memory enforcer: it closed the connection")
        await anyio.sleep(STALE_NS / 1e9 + 15.0)
        assert (await tenants(it))["team/p"].enforced == ""
        status = (await it.gpu_node()).status.agent
        assert status.back_ends is None
        assert [(one.what, one.why) for one in status.missing or ()] == [
            ("memory caps", "no memory enforcer: it closed the connection")
        ]
        # Caps stay with it, should it come again.
        assert enforcer.caps == {MINE: 20_000}
        await enforcer.go_on(45)
        assert (await tenants(it))["team/p"].enforced == "kill"


@pytest.mark.parametrize("unjudged", [("GPU-a",), ()])
async def test_a_device_that_can_not_be_judged_enforces_nothing(unjudged: tuple[str, ...]) -> None:
    async with scene() as it:
        enforcer = PlayedEnforcer("GPU-a")
        enforcer.unjudged = unjudged
        enforcer.is_dry = not unjudged
        await it.reserve(**BOOK)
        await it.start(enforcer)
        await enforcer.go_on(3)
        assert (await tenants(it))["team/p"].enforced == ""
        enforcer.unjudged, enforcer.is_dry = (), False
        await enforcer.go_on(3)
        assert (await tenants(it))["team/p"].enforced == "kill"


async def test_limits_that_the_driver_holds_are_in_the_gpu_node() -> None:
    async with scene() as it:
        enforcer = PlayedEnforcer("GPU-a")
        enforcer.driver, enforcer.is_dry = Limited((MINE,)), True
        await it.reserve(**BOOK)
        await it.start(enforcer)
        await enforcer.go_on(3)
        assert {pod: one.enforced for pod, one in (await tenants(it)).items()} == {"team/p": "driver", "team/q": ""}
        status = (await it.gpu_node()).status.agent
        assert (status.back_ends, [one.what for one in status.missing or ()]) == (["driver"], ["memory caps"])
        enforcer.is_dry = False
        await enforcer.go_on(3)
        status = (await it.gpu_node()).status.agent
        assert (status.back_ends, status.missing) == (["driver", "kill"], None)


async def test_a_node_whose_driver_has_no_limits_says_so_and_stays_with_killing() -> None:
    async with scene() as it:
        enforcer = PlayedEnforcer("GPU-a")
        enforcer.driver = Limited((), "r615 and later can")
        await it.reserve(**BOOK)
        await it.start(enforcer)
        await enforcer.go_on(3)
        assert (await tenants(it))["team/p"].enforced == "kill"
        status = (await it.gpu_node()).status.agent
        assert status.back_ends == ["kill"]
        assert [(one.what, one.why) for one in status.missing or ()] == [
            ("memory caps by driver", "r615 and later can")
        ]
        enforcer.driver = Limited((MINE,))
        await enforcer.go_on(45)
        status = (await it.gpu_node()).status.agent
        assert (status.back_ends, status.missing) == (["driver", "kill"], None)
        assert (await tenants(it))["team/p"].enforced == "driver"


@pytest.mark.parametrize("alternates", ["unjudged", "driver", "why"])
async def test_what_alternates_with_each_look_is_written_seldom(alternates: str) -> None:
    async with scene() as it:
        enforcer = PlayedEnforcer("GPU-a")
        await it.reserve(**BOOK)
        await it.start(enforcer)
        await enforcer.go_on(5)
        writes = status_writes(it)
        for turn in range(300):
            is_odd = turn % 2 == 1
            if alternates == "unjudged":
                enforcer.unjudged = ("GPU-a",) if is_odd else ()
            else:
                why = "refused" if is_odd and alternates == "why" else ""
                enforcer.driver = Limited((), why) if is_odd else Limited((MINE,))
            await enforcer.go_on(1)
        # Two changes in thirty seconds, one of a tenant and one of the back ends each, and one for use.
        assert status_writes(it) - writes <= 2 * 2 * 300 // 30 + 1


async def test_a_pod_is_told_of_what_was_done_once_a_minute() -> None:
    async with scene() as it:
        enforcer = PlayedEnforcer("GPU-a")
        await it.reserve(**BOOK)
        await it.start(enforcer)
        enforcer.holds[MINE] = 30_000
        await anyio.sleep(1.0)
        await enforcer.go_on(61, enforcer.kill(MINE, "ended"))
        await anyio.sleep(1.0)
        # The same sentence twice, and no series: that would be a right to patch.
        first, second = await events(it)
        said = "30000 MiB of GPU-a are in use, the cap is 20000 MiB: process train was killed"
        for each in (first, second):
            assert (each.reason, each.type, each.note) == ("GPUMemoryExceeded", "Warning", said)
            about = there(each.regarding)
            assert (about.kind, about.namespace, about.name, about.uid) == ("Pod", "team", "p", POD)
            assert (each.reporting_controller, each.reporting_instance) == ("moorage-node-agent", "node-a")
        assert {entry.verb for entry in it.requests("create", "patch") if entry.resource == "events"} == {"create"}


async def test_a_dry_run_says_that_nothing_was_done() -> None:
    async with scene() as it:
        enforcer = PlayedEnforcer("GPU-a")
        enforcer.is_dry = True
        await it.reserve(**BOOK)
        await it.start(enforcer)
        enforcer.holds[MINE] = 30_000
        await anyio.sleep(1.0)
        await enforcer.go_on(3, enforcer.kill(MINE))
        (only,) = await events(it)
        assert "would be killed; the memory enforcer is in dry run" in only.note
        status = (await it.gpu_node()).status.agent
        assert (status.back_ends, [each.what for each in status.missing or ()]) == (None, ["memory caps"])


async def test_events_that_are_refused_hold_nothing_up() -> None:
    async with scene() as it:
        enforcer = PlayedEnforcer("GPU-a")

        def refuse(call: Call) -> Fault:
            return Fault(refuse_with=403) if call.user == AGENT and call.kind.plural == "events" else NOTHING

        it.server.faults.on_request.append(refuse)
        await it.reserve(**BOOK)
        await it.start(enforcer)
        enforcer.holds[MINE] = 30_000
        await anyio.sleep(1.0)
        await enforcer.go_on(5, enforcer.kill(MINE, "ended"))
        assert await events(it) == []
        assert (await tenants(it))["team/p"].enforced == "kill"


async def test_kills_and_measures_are_there_to_be_shown_and_without_an_enforcer_there_is_none() -> None:
    async with scene() as it:
        enforcer = PlayedEnforcer("GPU-a")
        await it.reserve(**BOOK)
        scope = await it.start(enforcer)
        enforcer.holds[MINE] = 30_000
        await anyio.sleep(1.0)
        enforcer.report(enforcer.kill(MINE, "ended"))
        limiting = there(it.agent.limiting)
        assert limiting.kills() == {("largest", False): 1}
        assert {one.tenancy.pod for one in limiting.measures().tenants} == {"team/p", "team/q"}
        scope.cancel()
        await it.start()
        await anyio.sleep(5.0)
        assert it.agent.limiting is None


async def test_who_is_idle_is_told_with_one_time_since_when_and_a_steady_one_costs_one_write() -> None:
    async with scene() as it:
        enforcer = PlayedEnforcer("GPU-a")
        await it.reserve(**told(p=entry("p", cap_mib=20_000)))
        await it.start(enforcer)
        began_ns = VirtualClock(asyncio.get_running_loop()).now_ns()
        await enforcer.go_on(1790)
        assert (await tenants(it))["team/p"].idle_since is None
        writes = status_writes(it)
        await enforcer.go_on(7200)
        (one,) = (await tenants(it)).values()
        assert one.idle_since is not None
        since_ns = there(parse_ns(one.idle_since))
        assert abs(since_ns - began_ns) <= 2 * 10**9
        assert status_writes(it) == writes + 1
        enforcer.holds[MINE] = 10_000
        await enforcer.go_on(400)
        assert (await tenants(it))["team/p"].idle_since is None


async def test_the_gpu_node_says_when_it_was_written() -> None:
    async with scene() as it:
        await it.start(PlayedEnforcer("GPU-a"))
        await anyio.sleep(1.0)
        first = (await it.gpu_node()).status.reported_at
        assert parse_ns(first or "") is not None
        writes = status_writes(it)
        await anyio.sleep(3600.0)
        assert ((await it.gpu_node()).status.reported_at, status_writes(it)) == (first, writes)
