"""Slices are asked for, charged and told of; what no agent takes up is withdrawn."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.lowlevel

from kube.client.api import Api
from kube.client.resources import GPU_NODES
from kube.client.retry import Retry
from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import Explain
from scheduler.core.model.verdict import Code
from scheduler.mig_partitioning.partitioner import Partitioner
from scheduler.report.state import SchedulerState
from scheduler.settings import PartitioningSettings
from scheduler.watch.cache import Cache
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from simulator.apiserver.server import MemoryApiServer
from simulator.apiserver.types import MOORAGE
from simulator.clock import VirtualClock
from tests.background import in_background
from tests.scheduler.core.mig_partitioning.cards import OFFERED, ONE, SEVEN, TWO
from tests.scheduler.core.objects import cluster, commit, node, pod
from tests.values import there

PROFILES = [
    {"name": "1g.10gb", "size": 1, "starts": [0, 1, 2, 3, 4, 5, 6], "most": 7},
    {"name": "2g.20gb", "size": 2, "starts": [0, 2, 4], "most": 3},
    {"name": "7g.80gb", "size": 8, "starts": [0], "most": 1},
]
SLICE = {"profile": "1g.10gb", "start": 0, "size": 1, "uuid": "MIG-x"}


@dataclass
class Scene:
    server: MemoryApiServer
    api: Api
    cluster: Cluster
    partitioning: Partitioner
    state: SchedulerState

    async def gpu_node(self) -> Any:
        return await self.api.get(GPU_NODES, "n1")

    async def follow(self) -> None:
        """The watch brings what is stored."""
        self.partitioning.kind().sink.upsert(await self.gpu_node())

    async def show(self, **card: Any) -> None:
        """The agent writes the status of its only GPU."""
        known = {"uuid": "GPU-a", "mig": True, "profiles": PROFILES, "layout": [SLICE]}
        status = {"status": {"cards": [{**known, **card}]}}
        await self.api.patch(GPU_NODES, "n1", status, subresource="status")
        await self.follow()

    async def asked(self) -> list[tuple[str, list[tuple[str, int]]]]:
        found = (await self.gpu_node()).spec.mig or []
        return [(each.attempt, [(place.profile, place.start) for place in each.layout]) for each in found]

    def decide(self) -> list[str]:
        """Decide until nobody more is placed; names of those that were."""
        placed: list[str] = []
        while True:
            plan = self.cluster.decide(0)
            news = [entry for entry in plan.entries if isinstance(entry, Explain)]
            self.cluster.told(news)
            if len(news) == len(plan.entries):
                self.partitioning.decided()
                return placed
            commit(self.cluster, plan)
            placed += [entry.placement.name for entry in plan.entries if not isinstance(entry, Explain)]  # type: ignore[union-attr]  # placements alone

    def says(self, name: str = "p") -> tuple[Code, str] | None:
        verdict = self.cluster.scheduling_queue.said.verdict(f"uid-{name}")
        return None if verdict is None else (verdict.code, verdict.detail)


async def scene(*pods: Any) -> Scene:
    clock = VirtualClock(asyncio.get_running_loop())
    server = MemoryApiServer(clock=clock, rng=random.Random(1), extra_types=MOORAGE, auto_namespaces=True)
    api = Api(server.transport("scheduler"), retry=Retry(random.Random(1)))
    made = cluster(node("n1", gpus=0, labels=OFFERED, extended={ONE: "1"}), *pods)
    cache = Cache(made)
    partitioning = Partitioner(api, cache, settings=PartitioningSettings(), rng=random.Random(2))
    await api.create(GPU_NODES, {"metadata": {"name": "n1"}})
    it = Scene(server, api, made, partitioning, SchedulerState(cache, {}, partitioning.attempts))
    it.state.is_leading = True
    await it.show()
    return it


WANTS_ALL = pod("p", extended={SEVEN: "1"})


async def test_a_pod_s_slice_is_asked_for_and_what_goes_is_given_to_nobody_else() -> None:
    it = await scene(WANTS_ALL)
    assert it.decide() == []
    await it.partitioning.look()
    ((attempt, layout),) = await it.asked()
    assert (attempt.startswith("moorage-"), layout) == (True, [("7g.80gb", 0)])
    assert it.cluster.free_slices("n1") == {}
    it.cluster.upsert_pod(pod("late", extended={ONE: "1"}))
    assert it.decide() == []
    assert it.says() == (Code.PARTITIONING_UNDER_WAY, "n1")
    assert it.cluster.validate() == []


async def test_after_the_agent_is_done_the_pod_starts_and_nothing_more_is_asked() -> None:
    it = await scene(WANTS_ALL)
    it.decide()
    await it.partitioning.look()
    ((attempt, _),) = await it.asked()
    seven = {"profile": "7g.80gb", "start": 0, "size": 8, "uuid": "MIG-y"}
    await it.show(layout=[seven], partitioning={"attempt": attempt, "state": "done"})
    await it.partitioning.look()
    assert it.says() == (Code.PARTITIONING_UNDER_WAY, "n1")
    it.cluster.upsert_node(node("n1", gpus=0, labels=OFFERED, extended={SEVEN: "1"}))
    assert it.decide() == ["p"]
    await anyio.sleep(100)
    await it.partitioning.look()
    assert [each for each, _ in await it.asked()] == [attempt]
    assert it.cluster.validate() == []


async def test_what_the_agent_refuses_counts_again_and_the_pod_is_told_that_none_can_be_made_for_now() -> None:
    it = await scene(WANTS_ALL)
    it.decide()
    await it.partitioning.look()
    ((attempt, _),) = await it.asked()
    await it.show(partitioning={"attempt": attempt, "state": "refused", "why": "a pod has it"})
    await it.partitioning.look()
    it.decide()
    await it.partitioning.look()
    it.decide()
    assert it.cluster.free_slices("n1") == {ONE: 1}
    assert it.says() == (Code.NO_GPU_CAN_BE_PARTITIONED, f"1 {SEVEN}")
    assert {how for how, count in it.state.mig_attempts().items() if count} == {"asked", "refused"}
    assert it.state.mig_gpus(anyio.current_time()) == {"under-way": 0, "resting": 0, "left-out": 1}
    it.state.is_leading = False
    assert it.state.mig_gpus(anyio.current_time()) == {}
    await anyio.sleep(61)
    await it.partitioning.look()
    assert [each for each, _ in await it.asked()] != [attempt]


async def test_a_gpu_node_that_changed_meanwhile_is_not_overwritten() -> None:
    it = await scene(WANTS_ALL)
    it.decide()
    by_hand = {"mig": [{"uuid": "GPU-a", "attempt": "by-hand", "layout": []}]}
    await it.api.patch(GPU_NODES, "n1", {"spec": by_hand})
    await it.partitioning.look()
    assert [each for each, _ in await it.asked()] == ["by-hand"]
    assert it.cluster.free_slices("n1") == {ONE: 1}


async def test_after_a_gpu_node_that_changed_meanwhile_the_next_look_asks() -> None:
    it = await scene(WANTS_ALL)
    it.decide()
    await it.api.patch(GPU_NODES, "n1", {"metadata": {"labels": {"edited": "yes"}}})
    await it.partitioning.look()
    assert await it.asked() == []
    await it.follow()
    await it.partitioning.look()
    assert [layout for _, layout in await it.asked()] == [[("7g.80gb", 0)]]


async def test_what_goes_does_not_count_where_nobody_knows_whether_it_was_asked_for() -> None:
    it = await scene(WANTS_ALL)
    it.decide()

    def strikes(call: Call) -> Fault | None:
        return Fault(refuse_with=500, carried_out=True) if call.verb == "patch" else None

    it.server.faults.on_request.append(strikes)
    await it.partitioning.look()
    assert len(await it.asked()) == 1
    assert it.cluster.free_slices("n1") == {}


async def test_what_goes_is_charged_before_any_other_work_has_its_turn() -> None:
    it = await scene(WANTS_ALL)
    it.decide()
    turns: list[tuple[int, dict[str, int]]] = []

    async def watch() -> None:
        while True:
            turns.append((len(it.partitioning.attempts.in_flight), it.cluster.free_slices("n1")))
            await anyio.lowlevel.checkpoint()

    async with in_background(watch):
        await anyio.lowlevel.checkpoint()
        await it.partitioning.look()
    assert (0, {ONE: 1}) in turns
    assert (1, {}) in turns
    assert set(map(str, turns)) == {str((0, {ONE: 1})), str((1, {}))}
    assert len(await it.asked()) == 1


async def test_what_an_administrator_asks_of_a_gpu_meanwhile_stays() -> None:
    it = await scene(WANTS_ALL)
    it.decide()
    by_hand = {"mig": [{"uuid": "GPU-a", "attempt": "by-hand", "layout": []}]}
    ((partition, attempt),), _ = await it.partitioning._think(anyio.current_time())
    await it.api.patch(GPU_NODES, "n1", {"spec": by_hand})
    await it.follow()
    await it.partitioning._ask(partition, attempt)
    assert [each for each, _ in await it.asked()] == ["by-hand"]


async def test_what_is_asked_of_other_gpus_stays() -> None:
    it = await scene(WANTS_ALL)
    it.decide()
    other = {"mig": [{"uuid": "GPU-b", "attempt": "by-hand", "layout": [{"profile": "2g.20gb", "start": 2}]}]}
    await it.api.patch(GPU_NODES, "n1", {"spec": other})
    await it.follow()
    await it.partitioning.look()
    assert [layout for _, layout in await it.asked()] == [[("2g.20gb", 2)], [("7g.80gb", 0)]]


async def test_a_new_leader_places_nobody_on_what_the_one_before_had_destroyed() -> None:
    it = await scene(WANTS_ALL)
    it.decide()
    await it.partitioning.look()
    await it.follow()
    after = cluster(node("n1", gpus=0, labels=OFFERED, extended={ONE: "1"}), WANTS_ALL)
    partitioning = Partitioner(it.api, Cache(after), settings=PartitioningSettings(), rng=random.Random(3))
    partitioning.kind().sink.upsert(await it.gpu_node())
    partitioning.begin()
    assert after.free_slices("n1") == {}
    partitioning.decided()
    await partitioning.look()
    assert after.free_slices("n1") == {}
    assert len(await it.asked()) == 1


async def test_a_pod_that_gives_up_meanwhile_says_nothing_and_another_says_what_decisions_say() -> None:
    it = await scene(WANTS_ALL, pod("q", extended={TWO: "1"}, cpu="100"))
    it.decide()
    await it.partitioning.look()
    it.decide()
    assert it.says("q") == (Code.NO_GPU_CAN_BE_PARTITIONED, f"1 {TWO}")
    it.cluster.remove_pod("uid-p")
    await it.show(mig=False)
    await it.partitioning.look()
    it.decide()
    assert it.says("p") is None
    found = there(it.says("q"))
    assert found[0] is Code.NO_NODE_FITS


async def test_pods_in_front_that_get_nothing_keep_nobody_from_slices() -> None:
    """Each of them wants more CPU than there is."""
    hopeless = [pod(f"h{number:02}", extended={SEVEN: "1"}, cpu=f"{100 + number}", priority=9) for number in range(40)]
    it = await scene(*hopeless, pod("p", extended={TWO: "1"}))
    it.decide()
    async with in_background(it.partitioning.run):
        await anyio.sleep(30)  # nothing changes meanwhile
    it.decide()
    assert [layout for _, layout in await it.asked()] == [[("1g.10gb", 0), ("2g.20gb", 2)]]
    assert it.says() == (Code.PARTITIONING_UNDER_WAY, "n1")
    assert it.says("h00") == (Code.NO_GPU_CAN_BE_PARTITIONED, f"1 {SEVEN}")
