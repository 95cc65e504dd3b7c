"""Gangs with subgroups below subgroups, in one process with scheduler, binder and nodes: starts, restarts, releases."""

from __future__ import annotations

from typing import Any

import pytest

from kube.client.resources import EVENTS, POD_GROUPS, PODS
from simulator.apiserver.faults import Fault
from simulator.world import World
from tests.scheduler import stage
from tests.scheduler.stage import bound, create, is_call, pod, settle, share
from wire import names

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
        is_bound = is_call("binder" if how == "of shares" else "scheduler", "create", "pods", "binding")
        world.server.faults.on_request.append(lambda call: Fault(refuse_with=503) if is_bound(call) else None)
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
