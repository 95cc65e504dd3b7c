"""Events of pods whose words were understood otherwise than they read: one, when they are bound."""

from __future__ import annotations

from collections import deque
from typing import Any

import anyio
import msgspec
import pytest

from gpu.request import FractionAsk, GpuRequest
from gpu.translation import Note, NoteCode, Place, Translation
from kube.events import EventRecorder
from scheduler.conditions.enforcement import ClashingClaims, Remarking
from scheduler.core.cluster import Cluster
from scheduler.core.model.settings import Settings
from scheduler.report.state import SchedulerState
from scheduler.watch.cache import Cache, CacheListeners
from tests.background import in_background
from tests.kube.lead.test_lease import LoopClock
from tests.kube.scripted import ScriptedTransport, api_over, ok
from tests.scheduler.core.model.test_records import request
from tests.scheduler.core.nodes.claiming import claimed
from tests.scheduler.core.objects import NANO, bound, changed, commit, feed, node, recorded, reservation
from wire import names
from wire.api_groups import NORMAL, WARNING
from wire.core import Pod

HALF = FractionAsk(NANO // 2)
SAME = request((FractionAsk(NANO // 2, seat="a"),), (FractionAsk(NANO // 2, seat="a"),))
APART = request((HALF,), (HALF,))

DROPPED = Note(NoteCode.COUNT_DROPPED, "nvidia.com/gpu of container main", "4", "0.5")
ROUNDED = Note(NoteCode.ROUNDED_UP, "clearml-injector/fraction", "0.3", "0.375")
WEAKENED = Note(NoteCode.WEAKENED, "gpu.shared of container main", "2", "1 to 2 devices")


class Stage:
    """A cache that is told of pods, and what is said of them."""

    def __init__(self, *shared: Pod) -> None:
        self._transport = ScriptedTransport(deque([ok({"metadata": {"name": "e"}}, status=201)] * 10))
        self.events = EventRecorder(
            api_over(self._transport), clock=LoopClock(0), controller="kai-scheduler", instance="s-0"
        )
        self.remarking = Remarking(self.events)
        self.cache = Cache(Cluster(Settings()), listeners=CacheListeners(bound=self.remarking.bound))
        self.cache.cluster.upsert_node(node(gpus=2))
        for pod in shared:
            self.cache.note_pod(pod)

    async def run(self, *seen: Pod) -> None:
        """Lead, and see these versions of pods."""
        async with in_background(self.remarking.run, self.events.run):
            await anyio.sleep(1)
            for pod in seen:
                self.cache.note_pod(pod)
            await anyio.sleep(10)

    @property
    def told(self) -> list[tuple[str, str]]:
        """Type and text of what was said."""
        bodies: list[dict[str, Any]] = [asked.body for asked in self._transport.requests]
        assert all(body["reason"] == names.REASON_UNDERSTOOD for body in bodies)
        assert all(body["regarding"]["uid"] == "uid-p" for body in bodies)
        return [(body["type"], body["note"]) for body in bodies]


def _pod(*notes: Note, of: GpuRequest = SAME, alternatives: tuple[GpuRequest, ...] = ()) -> Pod:
    return recorded(Translation(dialect="hami", request=of, alternatives=alternatives, notes=notes))


@pytest.mark.parametrize(
    ("notes", "kind", "parts"),
    [
        pytest.param((DROPPED,), WARNING, ("is '4', read as 0.5: a count of whole GPUs",), id="dropped"),
        pytest.param((ROUNDED,), NORMAL, ("is '0.3', read as 0.375: rounded up",), id="more than was asked"),
        pytest.param((ROUNDED, DROPPED), WARNING, ("rounded up", "; nvidia.com/gpu of"), id="both, in one event"),
    ],
)
async def test_notes_are_one_event_of_the_bound_pod(notes: tuple[Note, ...], kind: str, parts: tuple[str, ...]) -> None:
    waiting, stage = _pod(*notes), Stage()
    given = bound(waiting, "n1", ("g", NANO))
    await stage.run(waiting, changed(waiting), given, changed(given))
    ((said, text),) = stage.told
    assert said == kind
    assert all(part in text for part in parts)


@pytest.mark.parametrize("notes", [(), (WEAKENED,)], ids=["none", "less may be given, but all was"])
async def test_a_pod_that_has_what_it_says_is_told_nothing(notes: tuple[Note, ...]) -> None:
    waiting, stage = _pod(*notes), Stage()
    await stage.run(waiting, bound(waiting, "n1", ("g", NANO)))
    assert stage.told == []


FULL = [reservation("a", book={"x": NANO // 2}), reservation("b", book={"y": NANO // 2}, uuid="GPU-2")]


@pytest.mark.parametrize(
    ("notes", "kind"), [((), NORMAL), ((WEAKENED,), WARNING)], ids=["as good", "less than was asked"]
)
async def test_a_pod_that_is_given_another_of_its_alternatives_is_told_which(
    notes: tuple[Note, ...], kind: str
) -> None:
    waiting = _pod(*notes, alternatives=(APART,))
    stage = Stage(*FULL, waiting)
    commit(stage.cache.cluster, stage.cache.cluster.decide(0))
    await stage.run(bound(waiting, "n1", ("a", NANO // 2), ("b", NANO // 2)))
    ((said, text),) = stage.told
    assert said == kind
    wanted = "c0: 50% of a GPU, on device a; c1: 50% of a GPU, on device a"
    assert text.startswith(f"given is c0: 50% of a GPU; c1: 50% of a GPU, instead of {wanted}")
    assert ("less than is asked may be given" in text) is bool(notes)


async def test_who_does_not_lead_tells_nothing_and_who_leads_next_nothing_of_before() -> None:
    waiting, stage = _pod(DROPPED), Stage()
    stage.cache.note_pod(waiting)
    stage.cache.note_pod(given := bound(waiting, "n1", ("g", NANO)))
    await stage.run(changed(given))
    assert stage.told == []


async def test_a_pod_that_was_bound_before_it_was_seen_is_told_nothing() -> None:
    stage = Stage()
    await stage.run(bound(_pod(DROPPED), "n1", ("g", NANO)))
    assert stage.told == []


@pytest.mark.parametrize(
    ("alternative", "text"), [(0, ""), (1, ""), (2, "given is c0: 50% of a GPU; c1: 50% of a GPU")]
)
async def test_what_is_asked_first_on_the_node_that_was_chosen_is_no_alternative(alternative: int, text: str) -> None:
    """A pod that asks otherwise on some nodes: it was given less only where that node has something better."""
    others, pool = Place(other_than=((("pool", "a"),),)), Place(labels=(("pool", "a"),))
    waiting = recorded(
        Translation(dialect="hami", request=SAME, alternatives=(SAME, APART), places=(others, pool, pool))
    )
    stage = Stage(waiting)
    found = stage.cache.cluster.pod("uid-p")
    assert found is not None
    async with in_background(stage.remarking.run, stage.events.run):
        await anyio.sleep(1)
        stage.remarking.bound(found, alternative)
        await anyio.sleep(10)
    assert [said.startswith(text) for _, said in stage.told] == ([True] if text else [])


# Conditions and counts of ResourceClaims whose devices were given twice.
async def test_each_of_two_claims_with_one_device_is_told_once_and_counted_until_one_gives_back() -> None:
    cache = Cache(Cluster(Settings()))
    transport = ScriptedTransport(deque([ok({"metadata": {"name": "e"}}, status=201)] * 10))
    events = EventRecorder(api_over(transport), clock=LoopClock(0), controller="kai-scheduler", instance="s-0")
    clashing, state = ClashingClaims(cache, events), SchedulerState(cache, {})
    state.is_leading = True
    feed(cache.cluster, claimed("x", on=("a", "d0")), claimed("z", on=("a", "d1")))
    clashing.tell()
    assert state.clashing_claims() == 0
    feed(cache.cluster, claimed("y", on=("a", "d0")))
    for _ in range(2):
        clashing.tell()
    assert state.clashing_claims() == 2
    feed(cache.cluster, claimed("y"))
    clashing.tell()
    assert state.clashing_claims() == 0
    async with in_background(events.run):
        await anyio.sleep(10)
    bodies: list[dict[str, Any]] = [asked.body for asked in transport.requests]
    told = {body["regarding"]["name"]: (body["reason"], body["note"]) for body in bodies}
    text = "Devices of this claim were also given to ns/{}: let one scheduler allocate from these pools"
    assert (len(bodies), told) == (
        2,
        {other: (names.REASON_ALLOCATED_TWICE, text.format(named)) for other, named in (("x", "y"), ("y", "x"))},
    )


async def test_a_claim_of_another_namespace_has_no_name() -> None:
    cache = Cache(Cluster(Settings()))
    transport = ScriptedTransport(deque([ok({"metadata": {"name": "e"}}, status=201)] * 10))
    events = EventRecorder(api_over(transport), clock=LoopClock(0), controller="kai-scheduler", instance="s-0")
    own, more = claimed("y", on=("a", "d0")), claimed("z", on=("a", "d0"))
    theirs = [
        msgspec.structs.replace(
            each, metadata=msgspec.structs.replace(each.metadata, name=f"canary-{number}", namespace="canary")
        )
        for number, each in enumerate((own, more))
    ]
    feed(cache.cluster, claimed("x", on=("a", "d0")), *theirs)
    ClashingClaims(cache, events).tell()
    async with in_background(events.run):
        await anyio.sleep(10)
    told = {body["regarding"]["name"]: body["note"] for asked in transport.requests if (body := asked.body)}
    assert "also given to 2 claims of other namespaces: let" in told["x"]
    assert "also given to canary/canary-1, 1 claim of other namespaces: let" in told["canary-0"]


def test_a_replica_that_follows_counts_none() -> None:
    cache = Cache(Cluster(Settings()))
    feed(cache.cluster, claimed("x", on=("a", "d0")), claimed("y", on=("a", "d0")))
    assert SchedulerState(cache, {}).clashing_claims() == 0
