"""What would help is told after a while of waiting, as long as it is true, and costs few writes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import anyio
import pytest

from kube.client.resources import PODS
from scheduler.app import Scheduler
from scheduler.conditions import advice
from scheduler.conditions.advice import anchor, link
from scheduler.conditions.messages import KIND_WORDS
from scheduler.conditions.suggestion_messages import (
    BOUND_WORDS,
    KEPT_WORDS,
    edit_text,
    guarded_text,
    hint_text,
    reserved_text,
    suggestion_text,
)
from scheduler.conditions.suggestions import Suggesting
from scheduler.core.model.plan import Explain
from scheduler.core.model.preemption import Bound, Kept
from scheduler.core.model.verdict import Code, Verdict
from scheduler.core.what_if.edit_text import read_edit
from scheduler.core.what_if.edits import Edit
from scheduler.core.what_if.known_ends import KnownEnd, Wait
from scheduler.core.what_if.suggestions import Suggestion
from scheduler.settings import SchedulerSettings
from simulator.world import World, WorldSettings
from tests.background import in_background
from tests.scheduler import stage
from tests.scheduler.stage import (
    all_writes,
    cordon,
    create,
    create_gang,
    find,
    phases,
    pod,
    settle,
    waits_because,
    writes,
)

_LACKS_4 = (
    "no nodes with enough resources were found: 2 node(s) didn't have enough resources: GPUs. "
    "The best node lacks 4 GPU(s)."
)
_HINT = " This change lets it start (tried, and renewed within 10 minutes): request 4 GPUs per pod."


def suggesting() -> WorldSettings:
    return WorldSettings(seed=1, scheduler=SchedulerSettings(suggestions=True))


@dataclass
class Reads:
    """A wall clock that notes when it is read, as each search does. ``time``: of the event loop."""

    time: Callable[[], float]
    read_at_s: list[float] = field(default_factory=list)

    def now_ns(self) -> int:
        self.read_at_s.append(self.time())
        return round(self.time() * 10**9)


def told(world: World, name: str) -> str:
    """What is said to help."""
    return waits_because(world, name).partition("minutes): ")[2]


async def test_after_half_a_minute_a_pod_is_told_what_would_let_it_start() -> None:
    async with stage.stage("2x4x80GiB", settings=suggesting()) as world:
        await create(world, pod("big", gpus=8))
        await settle(29)
        assert waits_because(world, "big") == _LACKS_4
        await settle(5)
        assert waits_because(world, "big") == _LACKS_4 + _HINT


async def test_it_can_be_switched_off() -> None:
    async with stage.stage("2x4x80GiB") as world:
        await create(world, pod("big", gpus=8))
        await settle(60)
        assert waits_because(world, "big") == _LACKS_4


async def test_as_long_as_nothing_changes_nothing_more_is_written() -> None:
    async with stage.stage("2x4x80GiB", settings=suggesting()) as world:
        await create(world, pod("big", gpus=8))
        await settle(60)
        assert len(writes(world, "scheduler", "pods", "status")) == 2
        before = len(all_writes(world, "scheduler"))
        await settle(3600)
        assert len(all_writes(world, "scheduler")) == before


async def test_what_does_not_help_any_more_is_gone_within_the_time_that_it_states() -> None:
    async with stage.stage("2x4x80GiB", settings=suggesting()) as world:
        await create(world, pod("big", gpus=8))
        await settle(60)
        assert told(world, "big") == "request 4 GPUs per pod."
        await create(world, *(pod(f"other-{at}", gpus=2) for at in range(2)))
        await settle(5)
        await create(world, *(pod(f"more-{at}", gpus=1) for at in range(2)))
        await settle(600)
        assert told(world, "big") == "request 2 GPUs per pod."


async def test_it_goes_with_the_reason_that_it_was_tried_for() -> None:
    async with stage.stage("1x4x80GiB", settings=suggesting()) as world:
        await create(world, pod("small", gpus=2))
        await settle(5)
        await create(world, pod("big", gpus=4))
        await settle(40)
        assert told(world, "big") == "request 2 GPUs per pod."
        await world.api.delete(PODS, "small", namespace=stage.TEAM)
        await settle(10)
        assert phases(world) == {"big": "Running"}


async def test_a_gang_is_told_with_how_many_pods_it_would_start() -> None:
    async with stage.stage("2x4x80GiB", settings=suggesting()) as world:
        await create_gang(world, "train", 3, *(pod(f"train-{at}", gpus=4) for at in range(3)))
        await settle(60)
        for at in range(3):
            assert told(world, f"train-{at}") == ("request 2 GPUs per pod; start with 2 pods (minMember: 2)."), (
                waits_because(world, f"train-{at}")
            )


async def test_who_waits_for_pods_with_a_deadline_is_told_when_it_starts_at_the_latest_and_not_for_whom() -> None:
    async with stage.stage("1x4x80GiB", settings=suggesting()) as world:
        await create(world, pod("secret", gpus=4, activeDeadlineSeconds=3600))
        await settle(5)
        await create(world, pod("next", gpus=4))
        await settle(60)
        said = told(world, "next")
        assert re.fullmatch(
            r"wait until \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ at the latest, when 1 pod ended, if nothing else changes\.",
            said,
        ), waits_because(world, "next")
        assert "secret" not in said


async def test_a_time_that_is_over_is_not_told_any_more() -> None:
    """The pod is bound and past its deadline, and its kubelet does not end it."""
    async with stage.stage("1x4x80GiB", settings=suggesting()) as world:
        await create(world, pod("late", gpus=4, activeDeadlineSeconds=100))
        await settle(5)
        await create(world, pod("next", gpus=4))
        await settle(60)
        assert told(world, "next").startswith("wait until")
        await settle(120)
        assert not told(world, "next").startswith("wait until")


async def test_a_gang_that_lacks_pods_meanwhile_is_not_looked_at_and_keeps_nobody_from_being_told() -> None:
    async with stage.stage("2x4x80GiB", settings=suggesting()) as world:
        await create_gang(world, "train", 2, pod("train-0", gpus=8), pod("train-1", gpus=8))
        await settle(20)
        await world.api.delete(PODS, "train-0", namespace=stage.TEAM)
        await create(world, pod("big", gpus=8))
        await settle(60)
        assert "Waiting for 2 pods" in waits_because(world, "train-1")
        assert told(world, "big") == "request 4 GPUs per pod."


async def test_a_group_for_which_nothing_helps_is_tried_every_five_minutes() -> None:
    async with stage.stage("1x4x80GiB", settings=suggesting()) as world:
        await cordon(world, "node-0")
        await create(world, pod("big", gpus=8))
        await settle(5)
        (scheduler,) = world.running.values()
        assert isinstance(scheduler, Scheduler)
        clock = Reads(anyio.current_time)
        told: list[str] = []
        suggesting_alone = Suggesting(scheduler.cache, clock=clock, suggest=lambda _, sentence: told.append(sentence))
        waits = Verdict(code=Code.NO_NODE_FITS)
        suggesting_alone.decided(
            [Explain(pods=(find(world, "big")["metadata"]["uid"],), pod_group=None, verdict=waits)]
        )
        async with in_background(suggesting_alone.run):
            await settle(1000)
        tried_at = sorted({round(at, -1) for at in clock.read_at_s})
        assert (tried_at, told) == ([40.0, 340.0, 640.0, 940.0], [])


@pytest.mark.thorough
@pytest.mark.parametrize("count", [200])
async def test_at_most_five_pods_alone_are_told_in_a_second(count: int) -> None:
    async with stage.stage("1x4x80GiB", settings=suggesting()) as world:
        await create(world, *(pod(f"big-{at}", gpus=8) for at in range(count)))
        await settle(28)
        told_at = [len(writes(world, "scheduler", "pods", "status"))]
        for _ in range(20):
            await settle(1)
            told_at.append(len(writes(world, "scheduler", "pods", "status")))
        assert max(later - sooner for sooner, later in pairwise(told_at)) <= 5
        assert told_at[-1] > told_at[0]


async def test_what_was_said_helps_those_who_follow_it() -> None:
    """Everybody does what the condition says, and runs."""
    async with stage.stage("3x4x80GiB", settings=suggesting()) as world:
        await create(world, pod("a", gpus=3), pod("b", gpus=2), pod("c", gpus=1))
        await settle(5)
        await create(world, pod("big", gpus=6), pod("wide", gpus=5))
        await settle(90)
        for name in ("big", "wide"):
            gpus = int(re.findall(r"request (\d) GPU", told(world, name))[0])
            await world.api.delete(PODS, name, namespace=stage.TEAM)
            await settle(5)
            await create(world, pod(f"{name}-smaller", gpus=gpus))
            await settle(20)
            assert phases(world)[f"{name}-smaller"] == "Running"
            await world.api.delete(PODS, f"{name}-smaller", namespace=stage.TEAM)
            await settle(5)


# Suggestions in words, and advice for every reason.

END = KnownEnd(namespace="team", name="job", at_s=1_800_000_000, by="deadline")


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (read_edit("gpu-fraction=0.3"), "request 0.3 of a GPU per pod"),
        (read_edit("gpu-memory=8000"), "request 8000 MiB of GPU memory per pod"),
        (read_edit("gpus=1"), "request 1 GPU per pod"),
        (read_edit("gpus=2"), "request 2 GPUs per pod"),
        (read_edit("cpu=1.5"), "request 1.5 CPU cores per pod"),
        (read_edit("memory=8Gi"), "request 8192 MiB of memory per pod"),
        (read_edit("members=6"), "start with 6 pods (minMember: 6)"),
        (read_edit("members=1"), "start with 1 pod (minMember: 1)"),
        (read_edit("without nodeSelector zone"), "leave out nodeSelector zone"),
        (read_edit("without podAffinity"), "leave out podAffinity"),
        (read_edit("tolerate k=v:NoSchedule"), "tolerate the taint k=v:NoSchedule"),
        (read_edit("limit team-a gpu=16"), "set the limit of queue team-a to 16 GPUs"),
        (read_edit("queue=team-b"), "use queue team-b"),
        (read_edit("finish team/job"), "end team/job"),
        (read_edit("drain n4"), "drain n4"),
        (read_edit("node +1 like n1"), "add 1 node like n1"),
        (read_edit("node +2 like n1"), "add 2 nodes like n1"),
        (Wait(until_s=1_800_000_000), "wait until 2027-01-15 08:00:00Z, if nothing else changes"),
        (
            Wait(until_s=1_800_000_000, uids=("a", "b", "c"), ends=(END,)),
            "wait until 2027-01-15 08:00:00Z at the latest, when team/job (by its activeDeadlineSeconds) "
            "and 2 more pods ended, if nothing else changes",
        ),
    ],
)
def test_an_edit_is_an_imperative(edit: Edit, text: str) -> None:
    assert edit_text(edit) == text


def test_two_edits_are_joined() -> None:
    assert suggestion_text(Suggestion((read_edit("members=2"), read_edit("gpus=1")))) == (
        "start with 2 pods (minMember: 2) and request 1 GPU per pod"
    )


@pytest.mark.parametrize(
    ("edits", "text"),
    [
        (
            (read_edit("gpus=2"),),
            "This change lets it start (tried, and renewed within 10 minutes): request 2 GPUs per pod.",
        ),
        (
            (Wait(until_s=1_800_000_000, uids=("a", "b"), ends=(END,)), read_edit("members=2")),
            "Each of these changes, alone, lets it start (tried, and renewed within 10 minutes): wait until "
            "2027-01-15 08:00:00Z at the latest, when 2 pods ended, if nothing else changes; start with 2 pods "
            "(minMember: 2).",
        ),
    ],
)
def test_a_condition_says_what_helps_and_names_nobody(edits: tuple[Edit, ...], text: str) -> None:
    assert hint_text(edits, renewed_s=600) == text


def test_there_is_advice_for_every_reason_and_for_no_other() -> None:
    assert set(advice.OF_CODES) == set(Code)
    assert set(advice.OF_NODES) == {*KIND_WORDS, "insufficient"}
    assert set(advice.OF_KEPT) == set(KEPT_WORDS) == set(Kept)
    assert set(BOUND_WORDS) == set(Bound)


def test_every_reason_has_a_name_of_its_own_in_the_documentation() -> None:
    reasons = [code.value for code in Code] + [*advice.OF_NODES] + [kept.value for kept in Kept]
    assert len({anchor(reason) for reason in reasons}) == len(reasons)
    assert link("NoNodeFits") == "moorage explain reason no-node-fits"


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        (
            1,
            "1 pod that could be evicted for it is protected. A PodDisruptionBudget allows no eviction of it, "
            "or the API server refused to evict it.",
        ),
        (
            3,
            "3 pods that could be evicted for it are protected. A PodDisruptionBudget allows no eviction of them, "
            "or the API server refused to evict them.",
        ),
    ],
)
def test_pods_that_may_not_be_evicted_are_told_with_both_causes(pods: int, expected: str) -> None:
    assert guarded_text(pods) == expected


def test_pods_that_reserved_nodes_keep_are_told() -> None:
    expected = "2 pods that could be evicted for it are on nodes that are reserved for a group that has waited longer."
    assert reserved_text(2) == expected
