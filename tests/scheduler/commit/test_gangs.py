"""Gangs start whole or not at all, with their members at the binder or committed directly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import msgspec
import pytest

from gpu import book
from gpu.book import Book, Entry
from gpu.limits import MemoryCaps
from kube.client.resources import EVENTS, POD_GROUPS, PODS
from scheduler.settings import SchedulerSettings
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from simulator.nodes.shape import ReservationFault
from simulator.world import World, WorldSettings
from tests.scheduler import stage
from tests.scheduler.stage import (
    BINDING,
    bound,
    create,
    create_gang,
    is_call,
    phases,
    pod,
    settle,
    share,
    strike_all,
    waits_because,
    writes,
)
from wire import names


async def test_a_gang_of_whole_gpus_is_committed_directly_with_its_plan_first() -> None:
    async with stage.stage("4x8x80GiB") as world:
        await create_gang(world, "g", 32, *(pod(f"m{i}", gpus=1) for i in range(32)))
        await settle()
        assert set(phases(world).values()) == {"Running"}
        wrote = [e for e in world.server.audit if e.user == "scheduler" and e.verb in {"create", "patch"}]
        order = [e.resource + "/" + e.subresource for e in wrote if e.resource not in {"events", "configmaps"}]
        assert order[0] == "podgroups/"
        assert order[1:33] == ["pods/binding"] * 32
        assert order[33:] == ["podgroups/status"]


async def test_a_member_that_changed_on_its_way_is_bound_all_the_same() -> None:
    async with stage.stage("1x4x80GiB") as world:
        slow = BINDING
        world.server.faults.on_request.append(
            lambda call: Fault(delay_s=2.0) if slow(call) and call.name == "m1" else None
        )
        await create_gang(world, "g", 3, *(pod(f"m{i}", gpus=1) for i in range(3)))
        await settle(1)
        assert bound(world) == {"m0", "m2"}
        await world.api.patch(PODS, "m1", {"metadata": {"annotations": {"note": "changed"}}}, namespace=stage.TEAM)
        await settle(10)
        assert bound(world) == {"m0", "m1", "m2"}


async def test_an_entry_that_was_taken_out_of_a_book_on_the_way_is_made_again_as_it_was() -> None:
    settings = WorldSettings(seed=1, scheduler=SchedulerSettings(memory_caps=MemoryCaps.ALL))
    async with stage.stage("1x1x80GiB", settings=settings) as world:
        await create(world, share("a", "0.3"))
        await settle()
        slow = BINDING
        world.server.faults.on_request.append(
            lambda call: Fault(delay_s=2.0) if slow(call) and call.name == "m1" else None
        )
        members = [share(f"m{i}", "0.3") for i in range(2)]
        for wanted in members:
            wanted["spec"]["terminationGracePeriodSeconds"] = 600
        await create_gang(world, "g", 2, *members)
        await settle(1)
        before, uid = await _the_book(world), stage.find(world, "m1")["metadata"]["uid"]
        await _write(world, {other: entry for other, entry in before.items() if other != uid})
        await world.api.patch(PODS, "m1", {"metadata": {"annotations": {"note": "changed"}}}, namespace=stage.TEAM)
        await settle(10)
        again = (await _the_book(world))[uid]
        assert bound(world) == {"a", "m0", "m1"}
        assert again.rv != before[uid].rv
        assert msgspec.structs.replace(again, rv=before[uid].rv) == before[uid]
        assert (again.grace_s, again.cap_nano) == (600, again.nano)


async def _the_book(world: World) -> Mapping[str, Entry]:
    """Entries by pod (UID) of the only book."""
    (held,) = (await world.api.list(PODS, namespace=names.RESERVATION_NAMESPACE)).items
    return book.parse((held.metadata.annotations or {})[names.TENANTS]).entries


async def _write(world: World, entries: Mapping[str, Entry]) -> None:
    """Have the only book say this, as if the binder had taken the others out."""
    (held,) = (await world.api.list(PODS, namespace=names.RESERVATION_NAMESPACE)).items
    edit = {"metadata": {"annotations": {names.TENANTS: book.render(Book(dict(entries)))}}}
    await stage.api_of(world, "binder").patch(PODS, held.metadata.name, edit, namespace=held.metadata.namespace)


@pytest.mark.parametrize(
    ("strikes", "by_binder"),
    [
        (("patch", "podgroups", ""), False),
        (("create", "pods", "binding"), False),
        (("create", "bindrequests", ""), True),
    ],
    ids=["plan", "binding", "hand-over"],
)
async def test_a_gang_whose_commit_was_broken_off_is_whole_in_the_end(
    strikes: tuple[str, str, str], by_binder: bool
) -> None:
    async with stage.stage("2x2x80GiB") as world:
        struck = stage.break_off(world, is_call("scheduler", *strikes))
        members = (share(f"m{i}") if by_binder else pod(f"m{i}", gpus=1) for i in range(3))
        await create_gang(world, "g", 3, *members)
        await settle(5)
        assert len(struck) == 1
        await settle(150)
        assert set(phases(world).values()) == {"Running"}


async def test_what_is_left_of_a_gang_is_released_when_a_member_is_lost_on_its_way() -> None:
    patient = WorldSettings(seed=1, gang_grace_s=90.0)  # the deletion, the grace time and the eviction take their time
    async with stage.stage("1x4x80GiB", settings=patient) as world:
        slow = BINDING
        world.server.faults.on_request.append(
            lambda call: Fault(delay_s=3.0) if slow(call) and call.name == "m2" else None
        )
        await create_gang(world, "g", 3, *(pod(f"m{i}", gpus=1) for i in range(3)))
        await settle(1)
        assert bound(world) == {"m0", "m1"}
        await world.api.delete(PODS, "m2", namespace=stage.TEAM)
        await settle(50)
        assert bound(world) == {"m0", "m1"}
        await settle(30)
        assert phases(world) == {}


@pytest.mark.parametrize(("late_s", "reads"), [(600.0, ["m0", "m1"]), (0.0, [])], ids=["minutes late", "in time"])
async def test_the_time_to_be_whole_begins_however_late_a_watch_tells_that_the_others_are_bound(
    late_s: float, reads: list[str]
) -> None:
    async with stage.stage("1x4x80GiB", settings=WorldSettings(seed=1, gang_grace_s=90.0)) as world:
        slow, audit = BINDING, world.server.audit
        world.server.faults.on_request.append(
            lambda call: Fault(delay_s=3.0 if call.name == "m2" else 0.5) if slow(call) else None
        )
        await create_gang(world, "g", 3, *(pod(f"m{i}", gpus=1) for i in range(3)))
        await settle(0.4)
        world.server.faults.on_watch_line.append(lambda call, _: late_s if call.user == "scheduler" else 0.0)
        await settle(0.6)
        assert bound(world) == {"m0", "m1"}
        await world.api.delete(PODS, "m2", namespace=stage.TEAM)
        await settle(85)
        assert phases(world) == {}
        read = [each.name for each in audit if (each.user, each.verb, each.resource) == ("scheduler", "get", "pods")]
        assert sorted(name for name in read if name != "m2") == reads


async def test_a_gang_that_was_whole_again_between_two_looks_has_all_of_its_grace_time() -> None:
    async with stage.stage("1x4x80GiB") as world:
        await create_gang(world, "g", 2, pod("m0", gpus=1), pod("m1", gpus=1))
        await settle(7)
        await world.api.delete(PODS, "m1", namespace=stage.TEAM)
        await settle(6)
        late = pod("m2", gpus=1)
        late["metadata"]["annotations"][names.POD_GROUP_NAME] = "g"
        await create(world, late)
        await settle(2)
        assert bound(world) == {"m0", "m2"}
        await world.api.delete(PODS, "m2", namespace=stage.TEAM, grace_s=0)
        await settle(59)
        assert bound(world) == {"m0"}
        await settle(10)
        assert bound(world) == set()


async def test_members_that_try_to_complete_a_gang_and_fail_give_it_no_time_anew() -> None:
    async with stage.stage("1x4x80GiB", settings=WorldSettings(seed=1)) as world:
        await create_gang(world, "g", 2, pod("m0", gpus=1), pod("m1", gpus=1))
        await settle(5)
        await world.api.delete(PODS, "m1", namespace=stage.TEAM)
        world.nodes["node-0"].faults.reservation = ReservationFault(silent=True)
        late = share("m2", "0.5")
        late["metadata"]["annotations"][names.POD_GROUP_NAME] = "g"
        await create(world, late)
        await settle(55)
        assert bound(world) == {"m0"}
        assert writes(world, "scheduler", "bindrequests", verb="create")
        await settle(55)
        assert bound(world) == set()


@pytest.mark.parametrize(
    ("period", "after_s", "left"),
    [
        pytest.param("30s", 45, set(), id="shorter than the scheduler's"),
        pytest.param("3m", 150, {"m0"}, id="longer, and not over"),
        pytest.param("3m", 250, set(), id="longer, and over"),
        pytest.param("-1s", 1000, {"m0"}, id="for ever"),
        pytest.param("soon", 50, {"m0"}, id="unreadable: the scheduler's, not over"),
        pytest.param("soon", 100, set(), id="unreadable: the scheduler's, over"),
    ],
)
async def test_a_gang_may_say_how_long_it_runs_below_its_minimum(period: str, after_s: float, left: set[str]) -> None:
    async with stage.stage("1x4x80GiB") as world:
        await create_gang(world, "g", 2, pod("m0", gpus=1), pod("m1", gpus=1))
        await world.api.patch(POD_GROUPS, "g", {"spec": {"stalenessGracePeriod": period}}, namespace=stage.TEAM)
        await settle()
        await world.api.delete(PODS, "m1", namespace=stage.TEAM, grace_s=0)
        await settle(after_s)
        assert bound(world) == left


async def test_a_gang_whose_time_can_not_be_read_is_told_once_while_it_is_whole() -> None:
    async with stage.stage("1x4x80GiB") as world:
        await create_gang(world, "g", 2, pod("m0", gpus=1), pod("m1", gpus=1))
        await world.api.patch(POD_GROUPS, "g", {"spec": {"stalenessGracePeriod": "soon"}}, namespace=stage.TEAM)
        await settle(60)
        events = (await world.api.list(EVENTS, namespace=stage.TEAM)).items
        [event] = [one for one in events if one.reason == "MalformedPodGroup"]
        assert event.regarding is not None
        assert (event.regarding.name, event.type) == ("g", "Warning")
        assert 'spec.stalenessGracePeriod "soon" can' in event.note
        assert "after 60 s below its minimum" in event.note
        assert event.series is None
        assert bound(world) == {"m0", "m1"}


async def test_a_gang_whose_minimum_was_lowered_unseen_is_not_released() -> None:
    async with stage.stage("1x4x80GiB") as world:
        await create_gang(world, "g", 3, *(pod(f"m{i}", gpus=1) for i in range(3)))
        await settle()
        world.server.faults.on_request.append(
            lambda call: Fault(refuse_with=503) if call.user == "scheduler" and _follows_groups(call) else None
        )
        world.server.cut_watches(lambda call: call.user == "scheduler" and _follows_groups(call))
        await world.api.patch(POD_GROUPS, "g", {"spec": {"minMember": 2}}, namespace=stage.TEAM)
        await world.api.delete(PODS, "m2", namespace=stage.TEAM)
        await settle(200)
        assert bound(world) == {"m0", "m1"}


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param({"minSubGroup": 1, "subGroups": [{"name": "a", "minMember": 2}]}, id="two minimums"),
        pytest.param({"subGroups": [{"name": "a", "parent": "a", "minMember": 9}]}, id="cycle"),
    ],
)
@pytest.mark.parametrize("is_unseen", [False, True], ids=["seen", "unseen"])
async def test_running_pods_of_a_group_whose_minimums_nobody_knows_are_left_alone(
    asked: dict[str, Any], is_unseen: bool
) -> None:
    async with stage.stage("1x4x80GiB") as world:
        await create_gang(world, "g", 3, *(pod(f"m{i}", gpus=1) for i in range(3)))
        await settle()
        if is_unseen:
            world.server.faults.on_request.append(
                lambda call: Fault(refuse_with=503) if call.user == "scheduler" and _follows_groups(call) else None
            )
            world.server.cut_watches(lambda call: call.user == "scheduler" and _follows_groups(call))
        await world.api.patch(POD_GROUPS, "g", {"spec": asked}, namespace=stage.TEAM)
        await world.api.delete(PODS, "m2", namespace=stage.TEAM, grace_s=0)
        await settle(200)
        assert bound(world) == {"m0", "m1"}


def _follows_groups(call: Call) -> bool:
    return call.verb in {"watch", "list"} and call.kind.plural == "podgroups"


async def test_a_gang_that_becomes_whole_while_the_api_server_is_asked_is_left_alone() -> None:
    async with stage.stage("1x4x80GiB") as world:
        await create_gang(world, "g", 2, pod("m0", gpus=1), pod("m1", gpus=1))
        await settle(7)
        await world.api.delete(PODS, "m1", namespace=stage.TEAM, grace_s=0)
        asked = 0

        def slow(call: Call) -> Fault | None:
            nonlocal asked
            if call.namespace != stage.TEAM or not is_call("scheduler", "list", "pods")(call):
                return None
            asked += 1
            return Fault(answer_delay_s=5.0)

        world.server.faults.on_request.append(slow)
        while not asked:
            await settle(1)
        late = pod("m2", gpus=1)
        late["metadata"]["annotations"][names.POD_GROUP_NAME] = "g"
        await create(world, late)
        await settle(100)
        assert bound(world) == {"m0", "m2"}


@pytest.mark.parametrize(("slow_s", "left"), [(55.0, {"m0", "m2"}), (120.0, set())])
async def test_a_gang_that_is_being_completed_when_its_time_is_over_is_waited_for_but_not_for_ever(
    slow_s: float, left: set[str]
) -> None:
    async with stage.stage("1x2x80GiB", settings=stage.quick_idle(1000.0)) as world:
        await create_gang(world, "g", 2, pod("m0", gpus=1), pod("m1", gpus=1))
        await settle(7)
        await world.api.delete(PODS, "m1", namespace=stage.TEAM, grace_s=0)
        await create(world, share("other", "0.9"))
        await settle(15)
        late = pod("m2", gpus=1)
        late["metadata"]["annotations"][names.POD_GROUP_NAME] = "g"
        await create(world, late)
        strike_all(world, is_call("scheduler", "delete", "pods"), Fault(refuse_with=503))
        await settle(10)
        assert bound(world) == {"m0", "other"}
        await world.api.delete(PODS, "other", namespace=stage.TEAM)
        await settle(slow_s)
        world.server.faults.on_request.clear()
        await settle(20)
        assert bound(world) == left


@pytest.mark.parametrize("gpus", [0, 1], ids=["shares", "whole"])
async def test_a_member_whose_binding_the_api_server_failed_is_bound_though_the_others_succeeded_meanwhile(
    gpus: int,
) -> None:
    async with stage.stage("1x4x80GiB") as world:
        until = anyio.current_time() + 20.0

        def fails(call: Call) -> Fault | None:
            is_binding = (call.verb, call.kind.plural, call.subresource) == ("create", "pods", "binding")
            is_meant = is_binding and call.name == "m2" and anyio.current_time() < until
            return Fault(refuse_with=500) if is_meant else None

        world.server.faults.on_request.append(fails)
        members = [pod(f"m{i}", gpus=1) if gpus else share(f"m{i}") for i in range(3)]
        for member in members:
            member["metadata"]["annotations"]["simulator.moorage.dev/run-s"] = "5"
            member["spec"]["restartPolicy"] = "Never"
        await create_gang(world, "g", 3, *members)
        await settle(120)
        assert phases(world) == dict.fromkeys(("m0", "m1", "m2"), "Succeeded")


@pytest.mark.parametrize("gpus", [0, 1], ids=["shares", "whole"])
@pytest.mark.parametrize("refused_s", [20.0, 90.0])
async def test_a_member_whose_binding_the_api_server_failed_waits_for_a_gang_when_the_others_were_deleted_meanwhile(
    gpus: int, refused_s: float
) -> None:
    async with stage.stage("1x4x80GiB") as world:
        until = anyio.current_time() + refused_s
        is_binding = BINDING, is_call("binder", "create", "pods", "binding")

        def fails(call: Call) -> Fault | None:
            is_meant = any(picks(call) for picks in is_binding) and call.name == "m2"
            return Fault(refuse_with=500) if is_meant and anyio.current_time() < until else None

        def member(name: str) -> dict[str, Any]:
            made = pod(name, gpus=1) if gpus else share(name)
            made["metadata"]["annotations"][names.POD_GROUP_NAME] = "g"
            return made

        world.server.faults.on_request.append(fails)
        await create_gang(world, "g", 3, *(member(f"m{i}") for i in range(3)))
        with anyio.fail_after(60):
            while bound(world) != {"m0", "m1"}:  # noqa: ASYNC110 - nothing signals it
                await anyio.sleep(0.1)
        for name in ("m0", "m1"):
            await world.api.delete(PODS, name, namespace=stage.TEAM, grace_s=0)
        await settle(300)
        assert phases(world) == {"m2": "Pending"}
        assert "Waiting for 3 pods, currently 1 exist" in waits_because(world, "m2")
        await create(world, member("m3"), member("m4"))
        await settle(120)
        assert len(bound(world)) == 3
        assert set(phases(world).values()) == {"Running"}


@pytest.mark.parametrize("gpus", [0, 1], ids=["shares", "whole"])
async def test_a_gang_whose_plan_is_refused_backs_off_and_says_why(gpus: int) -> None:
    async with stage.stage("1x4x80GiB") as world:
        members = [pod(f"m{i}", gpus=1) if gpus else share(f"m{i}") for i in range(2)]
        full = {"metadata": {"annotations": {"note": "x" * (256 * 1024 - 4)}}}
        await create_gang(world, "g", 3, *members)
        await world.api.patch(POD_GROUPS, "g", full, namespace=stage.TEAM)
        late = pod("m2")
        late["metadata"]["annotations"][names.POD_GROUP_NAME] = "g"
        await create(world, late)
        await settle(100)
        assert bound(world) == set()
        assert "the plan can't be written on PodGroup g" in waits_because(world, "m0")
        tried = [entry for entry in world.server.audit if entry.user == "scheduler" and entry.resource == "podgroups"]
        assert 3 < len([entry for entry in tried if entry.verb == "patch"]) < 30
        await world.api.patch(POD_GROUPS, "g", {"metadata": {"annotations": {"note": None}}}, namespace=stage.TEAM)
        await settle(60)
        assert bound(world) == {"m0", "m1", "m2"}


async def test_a_gang_whose_pod_group_always_changes_underneath_is_not_asked_for_without_pause() -> None:
    async with stage.stage("1x4x80GiB") as world:
        plans = 0

        def changed(call: Call) -> Fault | None:
            nonlocal plans
            if not is_call("scheduler", "patch", "podgroups")(call):
                return None
            plans += 1
            return Fault(refuse_with=409)

        world.server.faults.on_request.append(changed)
        await create_gang(world, "g", 2, share("m0"), share("m1"))
        await settle(30)
        assert 3 < plans < 60
        assert "PodGroup g is changed faster" in waits_because(world, "m0")
        world.server.faults.on_request.clear()
        await settle(60)
        assert bound(world) == {"m0", "m1"}


# Gangs with subgroups below subgroups, in one process with scheduler, binder and nodes: starts, restarts, releases.
#: A leader, and as many of two segments as are asked for, of two pods each; as a LeaderWorkerSet with segments.
SEGMENTS: list[dict[str, Any]] = [
    {"name": "leader", "minMember": 1},
    {"name": "workers", "minSubGroup": 1},
    {"name": "segment-0", "parent": "workers", "minMember": 2},
    {"name": "segment-1", "parent": "workers", "minMember": 2},
]


def member(made: dict[str, Any], subgroup: str) -> dict[str, Any]:
    """A pod as a member of a subgroup."""
    made["metadata"].setdefault("annotations", {})[names.POD_GROUP_NAME] = "g"
    made["metadata"].setdefault("labels", {})[names.SUBGROUP_LABEL] = subgroup
    return made


def of(subgroup: str, count: int, **asked: Any) -> list[dict[str, Any]]:
    return [member(pod(f"{subgroup}-{i}", **{"gpus": 1, **asked}), subgroup) for i in range(count)]


async def create_tree(world: World, parts: list[dict[str, Any]], *pods: dict[str, Any], **spec: Any) -> None:
    body = {"metadata": {"name": "g"}, "spec": {"subGroups": parts, **spec}}
    await world.api.create(POD_GROUPS, body, namespace=stage.TEAM)
    await create(world, *pods)


async def notes(world: World, reason: str) -> list[str]:
    listed = await world.api.list(EVENTS, namespace=stage.TEAM)
    return [event.note for event in listed.items if event.reason == reason]


async def lose(world: World, *pods: str) -> None:
    for name in pods:
        await world.api.delete(PODS, name, namespace=stage.TEAM, grace_s=0)


@pytest.mark.parametrize("how", ["of shares", "of whole GPUs"])
async def test_a_restart_in_the_middle_of_a_start_carries_out_what_was_planned(how: str) -> None:
    """The plan on the PodGroup is all that the next scheduler has: it must not choose other subgroups."""
    async with stage.stage("1x4x80GiB") as world:
        writer = "binder" if how == "of shares" else "scheduler"
        strike_all(world, is_call(writer, "create", "pods", "binding"), Fault(refuse_with=503))
        pods = [
            member(share(name, "0.6") if how == "of shares" else pod(name, gpus=1), name[0])
            for name in ("a-0", "a-1", "b-0", "b-1")
        ]
        parts = [{"name": "a", "minMember": 2}, {"name": "b", "minMember": 2}]
        await create_tree(world, parts, *pods, minSubGroup=1)
        await settle(3)
        world.scheduler.crash()
        await settle(1)
        await world.restart(world.scheduler)
        world.server.faults.on_request.clear()
        await settle(60)
        assert {"a-0", "a-1"} <= bound(world)


async def test_a_gang_of_which_too_few_subgroups_are_whole_is_released_and_says_so() -> None:
    async with stage.stage("1x8x80GiB") as world:
        await create_tree(world, SEGMENTS, *of("leader", 1), *of("segment-0", 2), *of("segment-1", 2))
        await settle(30)
        await lose(world, "segment-0-0", "segment-1-1")
        await settle(50)
        assert bound(world) == {"leader-0", "segment-0-1", "segment-1-0"}
        await settle(100)
        assert bound(world) == set()
        said = await notes(world, names.REASON_EVICT)
        lacks = "Workload doesn't meet the minimum required number of sub-groups (1) in sub-group workers, evicting"
        assert len([note for note in said if note.startswith(lacks)]) == 3


async def test_one_that_lost_its_leader_names_the_leader() -> None:
    async with stage.stage("1x8x80GiB") as world:
        await create_tree(world, SEGMENTS, *of("leader", 1), *of("segment-0", 2))
        await settle(30)
        await lose(world, "leader-0")
        await settle(150)
        assert bound(world) == set()
        said = await notes(world, names.REASON_EVICT)
        lacks = "Workload doesn't meet the minimum required number of pods (1) in sub-group leader, evicting"
        assert len([note for note in said if note.startswith(lacks)]) == 2
