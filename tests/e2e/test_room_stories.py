"""Who goes for whom, on the real control plane: reclaim between queues, preemption within one (roomstory.py)."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

import pytest

from tests.e2e.roomstory import PRIORITIES, Story, play
from tests.e2e.teams import teams
from tests.whole import slice_of
from tools.cluster.deployment import Deployment, Options
from tools.cluster.plane import ControlPlane

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

_numbers = itertools.count()

#: Two teams that are owed half of four GPUs each.
_HALVES = "a quota=2 weight=0 | b quota=2 weight=0"
#: The second one is owed nothing, and takes what is left over.
_OWED = "a quota=4 weight=0 | b quota=0"

RECLAIM = {
    "a team within its quota takes from the one above its share": Story(
        "1x2x80GiB", "a quota=1 weight=0 | b quota=1", "b b 1 x2", "a a 1", "a b*1"
    ),
    "of equal pods the newest goes": Story(
        "1x2x80GiB", "a quota=1 weight=0 | b quota=1", "old b 1 | new b 1", "a a 1", "a old", aged=True
    ),
    "the pod of lowest priority goes first": Story(
        "1x2x80GiB", "a quota=1 weight=0 | b quota=1", "low b 1 prio=10 | b b 1 prio=60", "a a 1", "a b", aged=True
    ),
    "each team gets its quota and no more": Story("1x4x80GiB", _HALVES, "b b 1 x4", "a a 1 x4", "a*2 b*2"),
    "two teams of equal weight share in halves": Story("1x4x80GiB", "a | b", "b b 1 x4", "a a 1 x4", "a*2 b*2"),
    "weights divide three to one": Story("1x4x80GiB", "a weight=3 | b weight=1", "b b 1 x4", "a a 1 x4", "a*3 b*1"),
    "nobody takes from a team within its quota": Story(
        "1x2x80GiB", "a quota=0 | b quota=2", "b b 1 x2", "a a 1", "b*2"
    ),
    "a team takes nothing above its limit": Story(
        "1x4x80GiB", "a quota=4 limit=1 weight=0 | b quota=0", "b b 1 x4", "a a 1 x2", "a*1 b*3"
    ),
    "what is non-preemptible stays": Story(
        "1x2x80GiB", "a quota=1 weight=0 | b quota=1", "fixed b 1 fixed | b b 1", "a a 1", "a fixed", aged=True
    ),
    "what is non-preemptible takes within the quota only": Story(
        "1x2x80GiB", "a quota=1 weight=1 | b quota=1", "b b 1 x2", "a a 1 x2 fixed", "a*1 b*1"
    ),
    "a department takes from another one": Story(
        "1x4x80GiB",
        "left quota=2 weight=0 | right quota=2 weight=0 | a quota=2 parent=left | b quota=2 parent=right",
        "b b 1 x4",
        "a a 1 x4",
        "a*2 b*2",
    ),
    "a team takes from its sibling in a department": Story(
        "1x4x80GiB", "top quota=4 | a quota=2 parent=top | b quota=2 parent=top", "b b 1 x4", "a a 1 x3", "a*2 b*2"
    ),
    "a minimum runtime protects": Story(
        "1x2x80GiB",
        "a quota=1 weight=0 | b quota=1 reclaimMinRuntime=1h",
        "b b 1 x2",
        "a a 1",
        "b*2",
    ),
    "and no longer than it lasts": Story(
        "1x2x80GiB", "a quota=1 weight=0 | b quota=1 reclaimMinRuntime=5s", "b b 1 x2", "a a 1", "a b*1"
    ),
    "an elastic gang gives its surplus": Story(
        "1x4x80GiB", "a quota=2 weight=0 | b quota=2", "g b 1 x4 gang=2", "a a 1 x2", "a*2 g*2"
    ),
    "a gang that would fall below its minimum goes whole": Story(
        "1x4x80GiB", "a quota=3 weight=0 | b quota=1", "g b 1 x4 gang=4", "a a 1 x3", "a*3"
    ),
    "a gang takes from single pods": Story("2x2x80GiB", _OWED, "b b 1 x4", "g a 1 x3 gang=3", "g*3 b*1"),
    "a gang that can't have all takes nothing": Story(
        "1x4x80GiB", "a quota=2 weight=0 | b quota=2", "b b 1 x4", "g a 1 x3 gang=3", "b*4"
    ),
    "a gang larger than the cluster takes nothing": Story(
        "1x2x80GiB", "a quota=8 weight=0 | b quota=0", "b b 1 x2", "g a 1 x3 gang=3", "b*2"
    ),
    "pods of eight GPUs take a whole node": Story(
        "2x4x80GiB", "a quota=8 weight=0 | b quota=0", "b b 1 x8", "a a 4", "a b*4"
    ),
    "a share takes a share": Story(
        "1x1x80GiB", "a quota=0.5 weight=0 | b quota=0.5", "b b 0.5 x2", "a a 0.5", "a b*1"
    ),
    "one of three shares on a device goes": Story(
        "1x1x80GiB", "a quota=0.3 weight=0 | b quota=0.6", "b b 0.3 x3", "a a 0.3", "a b*2"
    ),
    "a whole GPU takes all shares of one device": Story(
        "1x2x80GiB", "a quota=1 weight=0 | b quota=1", "b b 0.5 x4", "a a 1", "a b*2"
    ),
    "a share takes a whole GPU": Story("1x1x80GiB", "a quota=1 weight=0 | b quota=0", "b b 1", "a a 0.5", "a"),
    "memory of a GPU is taken as a part": Story(
        "1x1x80GiB", "a quota=0.5 weight=0 | b quota=0.5", "b b 40000MiB x2", "a a 40000MiB", "a b*1"
    ),
    "only the pod on the node that fits goes": Story(
        "2x1x80GiB", "a quota=1 weight=0 | b quota=1", "zero b 1 on=0 | one b 1 on=1", "a a 1 on=1", "a zero"
    ),
    "who fits nowhere takes nothing": Story("2x1x80GiB", _OWED, "b b 1 x2", "a a 1 on=7", "b*2"),
    "who fits in what is free takes nothing": Story("1x3x80GiB", _OWED, "b b 1 x2", "a a 1", "a b*2"),
    "a budget turns to another victim": Story(
        "1x2x80GiB", "a quota=1 weight=0 | b quota=1", "kept b 1 app=web | b b 1", "a a 1", "a kept",
        budgets="app=web minAvailable=1",
    ),
    "where budgets keep all nobody goes": Story(
        "1x2x80GiB", "a quota=1 weight=0 | b quota=1", "b b 1 x2 app=web", "a a 1", "b*2",
        budgets="app=web minAvailable=2",
    ),
}  # fmt: skip

PREEMPT = {
    "urgent work takes from its own queue": Story("1x2x80GiB", "a", "low a 1 x2", "high a 1 prio=80", "high low*1"),
    "equal work takes nothing": Story("1x2x80GiB", "a", "old a 1 x2", "same a 1", "old*2"),
    "the least urgent goes": Story(
        "1x2x80GiB", "a", "least a 1 prio=10 | more a 1 prio=60", "high a 1 prio=80", "high more", aged=True
    ),
    "urgent work takes nothing from another team within its share": Story(
        "1x2x80GiB", "a quota=0 | b quota=2", "b b 1 x2", "high a 1 prio=80", "b*2"
    ),
    "what is non-preemptible stays": Story(
        "1x2x80GiB", "a quota=2", "fixed a 1 fixed | low a 1", "high a 1 x2 prio=80", "fixed high*1"
    ),
    "a minimum runtime protects": Story(
        "1x2x80GiB", "a preemptMinRuntime=1h", "low a 1 x2", "high a 1 prio=80", "low*2"
    ),
    "a gang goes whole": Story("1x2x80GiB", "a", "g a 1 x2 gang=2 prio=10", "high a 1 prio=80", "high"),
    "an urgent gang takes what it needs": Story("1x4x80GiB", "a", "low a 1 x4", "g a 1 x2 gang=2 prio=80", "g*2 low*2"),
    "a share takes a share": Story("1x1x80GiB", "a", "low a 0.5 x2", "high a 0.5 prio=80", "high low*1"),
    "cores are taken as GPUs are": Story("1x1x80GiB", "a", "low a cpu=40 x2", "high a cpu=40 prio=80", "high low*1"),
    "who is slow to go is waited for": Story("1x1x80GiB", "a", "low a 1 grace=4", "high a 1 prio=80", "high"),
    "at the limit of its queue": Story(
        "1x4x80GiB", "a limit=2 weight=1", "low a 1 x2", "high a 1 prio=80", "high low*1"
    ),
}


# What goes for whom is decided by the core, which has the stories of tests/scheduler/core/stories/test_room*.py.
RECLAIMS = slice_of(RECLAIM, 3, "an elastic gang gives its surplus", "a budget turns to another victim")
PREEMPTS = slice_of(PREEMPT, 3, "an urgent gang takes what it needs", "who is slow to go is waited for")


@pytest.fixture(scope="module")
def room_plane() -> Iterator[ControlPlane]:
    """A control plane of their own: once there is a Queue, pods elsewhere have to name one."""
    with ControlPlane() as plane:
        for value in PRIORITIES:
            body = {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": f"room-{value}"},
                "value": value,
            }
            plane.apply(json.dumps(body))
        yield plane


@pytest.fixture(scope="module")
def preemption(room_plane: ControlPlane) -> Iterator[Deployment]:
    options = Options(arguments={"binder": ["--idle-s", "1"]})
    with Deployment(room_plane, options) as deployment:
        yield deployment
        deployment.check()


@pytest.mark.parametrize("story", RECLAIMS.values(), ids=RECLAIMS)
async def test_a_team_gets_its_own_back(story: Story, room_plane: ControlPlane, preemption: Deployment) -> None:
    async with teams(room_plane, f"room-{next(_numbers)}", [story.nodes], preemption) as at:
        await play(story, at, room_plane)


@pytest.mark.parametrize("story", PREEMPTS.values(), ids=PREEMPTS)
async def test_urgent_work_goes_first(story: Story, room_plane: ControlPlane, preemption: Deployment) -> None:
    async with teams(room_plane, f"room-{next(_numbers)}", [story.nodes], preemption) as at:
        await play(story, at, room_plane)
