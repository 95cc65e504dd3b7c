"""The status of PodGroups: what they hold and ask for, and why they wait, at few writes."""

from __future__ import annotations

from typing import Any

import anyio
import msgspec
import pytest

from kube.client.resources import EVENTS, POD_GROUPS, PODS
from scheduler.conditions.status_fields import condition, is_alike, shown_condition, with_condition
from scheduler.conditions.suggestion_messages import below_minimum_text
from scheduler.core.model.verdict import Code, NodeReason, QueueCause, SubgroupShort, Verdict
from scheduler.core.report.state import GroupState
from scheduler.core.what_if.explanation import BelowMinimum
from scheduler.settings import SchedulerSettings
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from simulator.world import World, WorldSettings
from tests.scheduler import stage
from tests.scheduler.conditions.queues import create_queue, gpus
from tests.scheduler.stage import (
    api_of,
    bound,
    cordon,
    create,
    create_gang,
    is_call,
    pod,
    settle,
    share,
    strike_all,
    writes,
)
from wire import names
from wire.crds.podgroup import PodGroupStatus, SchedulingCondition

GPU = names.GPU_RESOURCE


async def status(world: World, name: str = "g") -> PodGroupStatus:
    """The status of a PodGroup as the API server has it."""
    return (await world.api.get(POD_GROUPS, name, namespace=stage.TEAM)).status


async def says(world: World, name: str = "g") -> SchedulingCondition | None:
    """Why a PodGroup waits, as it says."""
    conditions = (await status(world, name)).scheduling_conditions or []
    assert len(conditions) <= 1
    return conditions[0] if conditions else None


async def amounts_of(world: World, name: str = "g") -> tuple[Any, Any, Any]:
    """GPUs that are allocated, those that can't be preempted, and those that are requested."""
    shown = (await status(world, name)).resources_status
    assert shown is not None
    fields = (shown.allocated, shown.allocated_non_preemptible, shown.requested)
    return fields[0] and fields[0][GPU], fields[1] and fields[1][GPU], fields[2] and fields[2][GPU]


async def told(world: World, name: str = "g") -> list[tuple[str, str, str, str]]:
    """Events of the scheduler about a PodGroup, the first said first: reason, type, action, note."""
    listed = (await world.api.list(EVENTS, namespace=stage.TEAM)).items
    of_group = [each for each in listed if each.regarding is not None and each.regarding.kind == "PodGroup"]
    assert all(each.regarding is not None and each.regarding.uid for each in of_group)
    of_name = [each for each in of_group if each.regarding is not None and each.regarding.name == name]
    in_order = sorted(of_name, key=lambda each: each.event_time or "")
    return [(each.reason, each.type, each.action, each.note) for each in in_order]


async def first_note(world: World) -> str:
    return (await told(world))[0][3]


def count(world: World) -> int:
    """How often the scheduler wrote the status of a PodGroup."""
    return len(writes(world, "scheduler", "podgroups", "status"))


def members(count_: int, gpu_count: int = 1, *, prefix: str = "m") -> list[dict[str, Any]]:
    return [pod(f"{prefix}{number}", gpus=gpu_count) for number in range(count_)]


async def set_queue(world: World, queue: str, group: str = "g", **spec: Any) -> None:
    patch = {"spec": {"queue": queue, **spec}}
    await world.api.patch(POD_GROUPS, group, patch, namespace=stage.TEAM)


async def test_a_gang_that_starts_at_once_costs_one_write() -> None:
    async with stage.stage("1x4x80GiB") as world:
        await create_gang(world, "g", 3, *members(3))
        await settle(60)
        assert await amounts_of(world) == ("3", "0", "3")
        assert await says(world) is None
        assert count(world) == 1


async def test_a_gang_that_waits_shows_what_it_asks_and_why_it_waits() -> None:
    async with stage.stage("1x4x80GiB") as world:
        await create_gang(world, "g", 3, *members(3, 2))
        await settle(20)
        assert await amounts_of(world) == ("0", "0", "6")
        said = await says(world)
        assert said is not None
        assert (said.type, said.node_pool, said.status) == ("UnschedulableOnNodePool", "default", "True")
        (reason,) = said.reasons or []
        assert reason.reason == said.reason == "PodSchedulingErrors"
        assert reason.message == said.message == stage.waits_because(world, "m0")
        assert "Resources were found for 2 pods while 3 are required" in reason.message
        assert count(world) == 1


async def test_an_event_on_the_podgroup_says_why_a_gang_waits_once_for_each_reason() -> None:
    async with stage.stage("1x4x80GiB") as world:
        await create_gang(world, "g", 3, *members(2, 2))
        await settle(20)
        await create(world, pod("m2", gpus=2, annotations={names.POD_GROUP_NAME: "g"}))
        await settle(20)
        await settle(600)
        said = await says(world)
        assert said is not None
        assert await told(world) == [
            ("NotReady", "Warning", "Scheduling", await first_note(world)),
            ("Unschedulable", "Warning", "Scheduling", said.message),
        ]
        assert "currently 2 exist" in await first_note(world)
        await world.api.patch(POD_GROUPS, "g", {"spec": {"minMember": 2}}, namespace=stage.TEAM)
        await settle(60)
        assert bound(world) >= {"m0", "m1"}
        assert len(await told(world)) == 2


async def test_what_a_gang_says_goes_when_it_has_started() -> None:
    async with stage.stage("1x4x80GiB") as world:
        await create(world, pod("first", gpus=4))
        await settle(5)
        await create_gang(world, "g", 2, *members(2, 2))
        await settle(20)
        assert await says(world) is not None
        await world.api.delete(PODS, "first", namespace=stage.TEAM)
        await settle(20)
        assert bound(world) == {"m0", "m1"}
        assert await says(world) is None
        assert await amounts_of(world) == ("4", "0", "4")
        assert count(world) == 2


async def test_a_gang_beyond_a_limit_says_so_with_the_numbers_of_the_queue() -> None:
    async with stage.stage("1x8x80GiB") as world:
        await create_queue(world, "top", resources=gpus(quota=2, limit=3))
        await create_queue(world, "a", "top")
        await create_gang(world, "g", 2, *members(2, 2))
        await set_queue(world, "a", preemptibility="preemptible")
        await settle(20)
        said = await says(world)
        assert said is not None
        (reason,) = said.reasons or []
        assert reason.reason == "OverLimit"
        assert "top quota has reached the allowable limit of GPUs. Limit is 3 GPUs" in reason.message
        assert reason.details is not None
        details = reason.details.queue_details
        assert details is not None
        assert details.name == "top"
        assert [
            (each or {}).get(GPU)
            for each in (
                details.queue_requested_resources,
                details.queue_deserved_resources,
                details.queue_allocated_resources,
                details.queue_allocated_non_preemptible_resources,
                details.queue_resource_limits,
                details.pod_group_requested_resources,
                details.pod_group_requested_non_preemptible_resources,
            )
        ] == ["4", "2", "0", "0", "3", "4", "0"]
        assert (details.queue_resource_limits or {})["memory"] == "-1"


@pytest.mark.parametrize(
    ("queue", "quota", "expected"),
    [
        pytest.param("a", 1, "NonPreemptibleOverQuota", id="can't be preempted"),
        pytest.param("nobody", 9, "QueueDoesNotExist", id="no such queue"),
        pytest.param("a", -7, "PodSchedulingErrors", id="closed queue"),
    ],
)
async def test_reasons_of_queues_are_named_as_kai_names_them(queue: str, quota: int, expected: str) -> None:
    async with stage.stage("1x8x80GiB") as world:
        await create_queue(world, "a", resources=gpus(quota=quota))
        await create_gang(world, "g", 2, *members(2, 2))
        await set_queue(world, queue, preemptibility="non-preemptible")
        await settle(20)
        said = await says(world)
        assert said is not None
        assert [reason.reason for reason in said.reasons or ()] == [expected]


async def test_pods_alone_and_groups_without_pods_cost_no_write() -> None:
    async with stage.stage("1x4x80GiB") as world:
        await create(world, pod("alone", gpus=1), share("half"), pod("big", gpus=9))
        await create_gang(world, "empty", 1)
        await settle(60)
        assert count(world) == 0


async def test_a_gang_that_grows_is_written_every_ten_seconds() -> None:
    async with stage.stage("8x8x80GiB") as world:
        await create_gang(world, "g", 1)
        for number in range(60):
            await create(world, pod(f"m{number}", gpus=1, annotations={names.POD_GROUP_NAME: "g"}))
            await anyio.sleep(1)
        assert count(world) <= 7
        await settle(20)
        assert await amounts_of(world) == ("60", "0", "60")


async def waiting_gangs(world: World, number: int) -> None:
    """So many gangs, none of which fits."""
    for each in range(number):
        await create_gang(world, f"g{each:03}", 2, *members(2, 8, prefix=f"g{each:03}-"))
    await settle(60)


@pytest.mark.thorough
async def test_numbers_that_change_are_written_for_none_of_many_gangs() -> None:
    async with stage.stage("3x4x80GiB") as world:
        await waiting_gangs(world, 100)
        await cordon(world, "node-0")
        await settle(60)
        before = count(world)
        await cordon(world, "node-1")
        await create(world, pod("more", gpus=1))
        await settle(120)
        assert "2 node(s) were unschedulable" in stage.waits_because(world, "g007-0")
        assert count(world) == before


async def test_a_successor_writes_nothing_where_only_numbers_are_others() -> None:
    async with stage.stage("12x4x80GiB") as world:
        await waiting_gangs(world, 20)
        await cordon(world, "node-0")
        await settle(60)
        world.scheduler.crash()
        before = count(world)
        for number in range(1, 11):
            await cordon(world, f"node-{number}")
        await world.restart(world.scheduler)
        await settle(60)
        assert "11 node(s) were unschedulable" in stage.waits_because(world, "g007-0")
        assert count(world) == before


async def test_what_others_wrote_is_put_right_and_their_conditions_stay() -> None:
    theirs = [
        {"type": "Audited", "status": "True", "transitionID": "7"},
        {"type": "UnschedulableOnNodePool", "nodePool": "other", "status": "True"},
    ]
    async with stage.stage("1x4x80GiB") as world:
        await create_gang(world, "g", 3, *members(3, 2))
        await settle(20)
        forged = {"schedulingConditions": theirs, "resourcesStatus": {"allocated": {GPU: "9", "pods": "3"}}}
        await api_of(world, "someone").patch(
            POD_GROUPS, "g", {"status": forged}, namespace=stage.TEAM, subresource="status"
        )
        await settle(20)
        assert await amounts_of(world) == ("0", "0", "6")
        conditions = (await status(world)).scheduling_conditions or []
        assert [(each.type, each.node_pool, each.transition_id) for each in conditions] == [
            ("Audited", "", "7"),
            ("UnschedulableOnNodePool", "other", ""),
            ("UnschedulableOnNodePool", "default", "8"),
        ]
        shown = (await status(world)).resources_status
        assert shown is not None
        assert set(shown.allocated or ()) == {"cpu", "memory", GPU}


async def test_a_gang_starts_while_its_status_is_written() -> None:
    """The plan names the version of the PodGroup, which the status changes."""
    async with stage.stage("1x4x80GiB") as world:
        await create(world, pod("first", gpus=4))
        await settle(5)
        strike_all(world, is_call("scheduler", "patch", "podgroups", "status"), Fault(delay_s=2.0))
        await create_gang(world, "g", 2, *members(2, 2))
        await settle(4.9)
        await world.api.delete(PODS, "first", namespace=stage.TEAM, grace_s=0)
        await settle(3)
        assert bound(world) == {"m0", "m1"}


async def test_a_missing_right_stops_these_writes_and_nothing_else() -> None:
    async with stage.stage("1x4x80GiB") as world:
        is_ours, tries = is_call("scheduler", "patch", "podgroups", "status"), list[Call]()

        def refuse(call: Call) -> Fault | None:
            if not is_ours(call):
                return None
            tries.append(call)
            return Fault(refuse_with=403)

        world.server.faults.on_request.append(refuse)
        await create_queue(world, names.DEFAULT_QUEUE)
        await create_gang(world, "g", 2, *members(2))
        await create_gang(world, "h", 2, *members(2, prefix="h"))
        await settle(600)
        assert bound(world) == {"m0", "m1", "h0", "h1"}
        assert 1 <= len(tries) <= 20
        assert len(writes(world, "scheduler", "queues", "status")) >= 1
        world.server.faults.clear()
        await settle(301)
        assert await amounts_of(world, "h") == ("2", "0", "2")


async def test_nothing_is_written_where_that_is_switched_off() -> None:
    off = msgspec.structs.replace(WorldSettings(seed=1), scheduler=SchedulerSettings(object_status=False))
    async with stage.stage("1x4x80GiB", settings=off) as world:
        await create_gang(world, "g", 2, *members(2))
        await settle(60)
        assert bound(world) == {"m0", "m1"}
        assert count(world) == 0


NOW, EARLIER = "2026-01-02T03:04:05Z", "2026-01-01T00:00:00Z"


def nodes(**counts: int) -> Verdict:
    """No node fits: so many for each kind; ``gpus`` for want of GPUs."""
    kinds = {"gpus": ("insufficient", "nvidia.com/gpu"), "cordoned": ("cordoned", ""), "taint": ("taint", "")}
    reasons = tuple(NodeReason(*kinds[kind], count) for kind, count in counts.items())
    return Verdict(code=Code.NO_NODE_FITS, node_reasons=reasons)


def limit(queue: str, held: int) -> Verdict:
    cause = QueueCause(at=queue, resource="gpu", most=8 * 10**9, held=held * 10**9, asked=10**9)
    return Verdict(code=Code.OVER_LIMIT, detail="team", queue=cause)


def made(*verdicts: Verdict, status: PodGroupStatus | None = None) -> SchedulingCondition:
    state = GroupState(verdicts=verdicts)
    return condition(
        state, status or PodGroupStatus(), lambda _: None, namespace="ns", pool="default", is_fixed=False, now=NOW
    )


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        pytest.param(nodes(gpus=3), nodes(gpus=12), True, id="another count"),
        pytest.param(nodes(gpus=9, taint=2), nodes(gpus=2, taint=10), True, id="counts that change the order"),
        pytest.param(nodes(gpus=3), nodes(gpus=2, cordoned=1), True, id="a node was cordoned"),
        pytest.param(nodes(gpus=3), nodes(gpus=3, taint=1), False, id="another reason"),
        pytest.param(limit("dept", 3), limit("dept", 7), True, id="a limit with other numbers"),
        pytest.param(limit("dept", 3), limit("other", 3), False, id="another queue's limit"),
        pytest.param(nodes(gpus=3), limit("dept", 3), False, id="another kind"),
    ],
)
def test_two_conditions_are_alike_if_they_give_the_same_reasons(one: Verdict, other: Verdict, expected: bool) -> None:
    assert is_alike(made(one), made(other)) is expected


@pytest.mark.parametrize(
    ("ids", "expected"), [([], "1"), (["3", "11"], "12"), (["x", ""], "1"), (["9" * 400], "1"), (["-4", "٣"], "1")]
)
def test_transitions_are_counted_whatever_others_wrote(ids: list[str], expected: str) -> None:
    others = [SchedulingCondition(type="Other", transition_id=each) for each in ids]
    assert made(nodes(gpus=1), status=PodGroupStatus(scheduling_conditions=others)).transition_id == expected


def test_the_time_of_a_condition_is_when_the_group_began_to_wait() -> None:
    first = made(nodes(gpus=1))
    assert first.last_transition_time == NOW
    shown = SchedulingCondition(type=first.type, node_pool=first.node_pool, status="True", last_transition_time=EARLIER)
    assert made(nodes(taint=1), status=PodGroupStatus(scheduling_conditions=[shown])).last_transition_time == EARLIER


def test_a_group_with_several_reasons_lists_them_all() -> None:
    found = made(limit("dept", 3), nodes(gpus=1))
    assert [each.reason for each in found.reasons or ()] == ["OverLimit", "PodSchedulingErrors"]
    assert found.message == "\n".join(each.message for each in found.reasons or ())


@pytest.mark.parametrize(
    ("there", "pool", "kept"), [("default", "a", True), ("", "a", True), ("a", "a", False), ("", "default", False)]
)
def test_conditions_of_other_node_pools_are_kept(there: str, pool: str, kept: bool) -> None:
    other = SchedulingCondition(type="UnschedulableOnNodePool", node_pool=there)
    status = PodGroupStatus(scheduling_conditions=[other])
    wanted = condition(
        GroupState(verdicts=(nodes(gpus=1),)),
        status,
        lambda _: None,
        namespace="ns",
        pool=pool,
        is_fixed=False,
        now=NOW,
    )
    assert wanted.node_pool == pool
    left = with_condition(status, None, pool)
    assert ([each.get("nodePool", "") for each in left] == [there]) is kept
    assert (shown_condition(status, pool) is None) is kept


# What is said of a gang below its minimum.

SINCE = "It has been below its minimum since 2027-01-15 08:00:00Z: "


def below_minimum_text_told(**how: Any) -> str:
    usual = {"bound": 2, "minimum": 3, "since_s": 1_800_000_000, "left_s": 42, "until_s": 1_800_000_060}
    return below_minimum_text(BelowMinimum(**{**usual, **how}))


@pytest.mark.parametrize(
    ("how", "rest"),
    [
        ({}, "42 s are left: its pods are evicted at 2027-01-15 08:01:00Z unless it is complete by then."),
        (
            {"assumed_grace_s": 60},
            "42 s are left: its pods are evicted at 2027-01-15 08:01:00Z (by the default grace period, 60 s) "
            "unless it is complete by then.",
        ),
        ({"left_s": 0}, "Its time is over: its pods are evicted, unless waiting pods can complete it."),
        ({"left_s": 0, "until_s": None}, "Its PodGroup lets it run so without an end."),
        ({"is_going": True}, "Its pods are being evicted."),
    ],
)
def test_the_time_that_is_left_is_said(how: dict[str, Any], rest: str) -> None:
    assert below_minimum_text_told(**how) == f"{SINCE}2 have a node, required are 3. {rest}"


@pytest.mark.parametrize(
    ("short", "lacks"),
    [
        (SubgroupShort("a", 4, 1), "of its pods in sub-group a 1 have a node, required are 4."),
        (SubgroupShort("", 2, 1, is_of_subgroups=True), "of its sub-groups 1 are complete, required are 2."),
    ],
)
def test_what_lacks_is_named(short: SubgroupShort, lacks: str) -> None:
    assert below_minimum_text_told(short=short).startswith(SINCE + lacks)
