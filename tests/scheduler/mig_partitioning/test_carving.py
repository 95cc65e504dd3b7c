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
from scheduler.report.state import Standing
from scheduler.settings import CarvingSettings
from scheduler.watch.cache import Cache
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from simulator.apiserver.server import MemoryApiServer
from simulator.apiserver.types import MOORAGE
from simulator.clock import VirtualClock
from tests.scheduler.core.mig_partitioning.cards import OFFERED, ONE, SEVEN, TWO
from tests.scheduler.core.objects import cluster, commit, node, pod

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
    carving: Partitioner
    standing: Standing

    async def gpu_node(self) -> Any:
        return await self.api.get(GPU_NODES, "n1")

    async def follow(self) -> None:
        """The watch brings what is stored."""
        self.carving.kind().sink.upsert(await self.gpu_node())

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
                self.carving.decided()
                return placed
            commit(self.cluster, plan)
            placed += [entry.placement.name for entry in plan.entries if not isinstance(entry, Explain)]  # type: ignore[union-attr]  # placements alone

    def says(self, name: str = "p") -> tuple[Code, str] | None:
        verdict = self.cluster.backlog.said.verdict(f"uid-{name}")
        return None if verdict is None else (verdict.code, verdict.detail)


async def scene(*pods: Any) -> Scene:
    clock = VirtualClock(asyncio.get_running_loop())
    server = MemoryApiServer(clock=clock, rng=random.Random(1), extra_types=MOORAGE, auto_namespaces=True)
    api = Api(server.transport("scheduler"), retry=Retry(random.Random(1)))
    made = cluster(node("n1", gpus=0, labels=OFFERED, extended={ONE: "1"}), *pods)
    cache = Cache(made)
    carving = Partitioner(api, cache, settings=CarvingSettings(), rng=random.Random(2))
    await api.create(GPU_NODES, {"metadata": {"name": "n1"}})
    it = Scene(server, api, made, carving, Standing(cache, {}, carving.attempts))
    it.standing.is_leading = True
    await it.show()
    return it


WANTS_ALL = pod("p", extended={SEVEN: "1"})


async def test_a_pod_s_slice_is_asked_for_and_what_goes_is_given_to_nobody_else() -> None:
    it = await scene(WANTS_ALL)
    assert it.decide() == []
    await it.carving.look()
    ((attempt, layout),) = await it.asked()
    assert (attempt.startswith("moorage-"), layout) == (True, [("7g.80gb", 0)])
    assert it.cluster.free_slices("n1") == {}
    it.cluster.upsert_pod(pod("late", extended={ONE: "1"}))
    assert it.decide() == []
    assert it.says() == (Code.CARVING_UNDER_WAY, "n1")
    assert it.cluster.validate() == []


async def test_after_the_agent_is_done_the_pod_starts_and_nothing_more_is_asked() -> None:
    it = await scene(WANTS_ALL)
    it.decide()
    await it.carving.look()
    ((attempt, _),) = await it.asked()
    seven = {"profile": "7g.80gb", "start": 0, "size": 8, "uuid": "MIG-y"}
    await it.show(layout=[seven], carving={"attempt": attempt, "state": "done"})
    await it.carving.look()
    assert it.says() == (Code.CARVING_UNDER_WAY, "n1")
    it.cluster.upsert_node(node("n1", gpus=0, labels=OFFERED, extended={SEVEN: "1"}))
    assert it.decide() == ["p"]
    await anyio.sleep(100)
    await it.carving.look()
    assert [each for each, _ in await it.asked()] == [attempt]
    assert it.cluster.validate() == []


async def test_what_the_agent_refuses_counts_again_and_the_pod_is_told_that_none_can_be_made_for_now() -> None:
    it = await scene(WANTS_ALL)
    it.decide()
    await it.carving.look()
    ((attempt, _),) = await it.asked()
    await it.show(carving={"attempt": attempt, "state": "refused", "why": "a pod has it"})
    await it.carving.look()
    it.decide()
    await it.carving.look()
    it.decide()
    assert it.cluster.free_slices("n1") == {ONE: 1}
    assert it.says() == (Code.NO_CARD_CAN_BE_CARVED, f"1 {SEVEN}")
    assert {how for how, count in it.standing.mig_attempts().items() if count} == {"asked", "refused"}
    assert it.standing.mig_gpus(anyio.current_time()) == {"under-way": 0, "resting": 0, "left-out": 1}
    it.standing.is_leading = False
    assert it.standing.mig_gpus(anyio.current_time()) == {}
    await anyio.sleep(61)
    await it.carving.look()
    assert [each for each, _ in await it.asked()] != [attempt]


async def test_an_attempt_that_no_agent_takes_up_is_withdrawn_after_a_minute() -> None:
    it = await scene(WANTS_ALL)
    it.decide()
    await it.carving.look()
    await anyio.sleep(59)
    await it.carving.look()
    assert len(await it.asked()) == 1
    await anyio.sleep(2)
    await it.carving.look()
    assert await it.asked() == []
    assert it.cluster.free_slices("n1") == {ONE: 1}


async def test_a_gpu_node_that_changed_meanwhile_is_not_overwritten() -> None:
    it = await scene(WANTS_ALL)
    it.decide()
    by_hand = {"mig": [{"uuid": "GPU-a", "attempt": "by-hand", "layout": []}]}
    await it.api.patch(GPU_NODES, "n1", {"spec": by_hand})
    await it.carving.look()
    assert [each for each, _ in await it.asked()] == ["by-hand"]
    assert it.cluster.free_slices("n1") == {ONE: 1}


async def test_after_a_gpu_node_that_changed_meanwhile_the_next_look_asks() -> None:
    it = await scene(WANTS_ALL)
    it.decide()
    await it.api.patch(GPU_NODES, "n1", {"metadata": {"labels": {"edited": "yes"}}})
    await it.carving.look()
    assert await it.asked() == []
    await it.follow()
    await it.carving.look()
    assert [layout for _, layout in await it.asked()] == [[("7g.80gb", 0)]]


async def test_what_goes_does_not_count_where_nobody_knows_whether_it_was_asked_for() -> None:
    it = await scene(WANTS_ALL)
    it.decide()

    def strikes(call: Call) -> Fault | None:
        return Fault(refuse_with=500, carried_out=True) if call.verb == "patch" else None

    it.server.faults.on_request.append(strikes)
    await it.carving.look()
    assert len(await it.asked()) == 1
    assert it.cluster.free_slices("n1") == {}


async def test_what_goes_is_charged_before_any_other_work_has_its_turn() -> None:
    it = await scene(WANTS_ALL)
    it.decide()
    turns: list[tuple[int, dict[str, int]]] = []

    async def watch() -> None:
        while True:
            turns.append((len(it.carving.attempts.in_flight), it.cluster.free_slices("n1")))
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        await anyio.lowlevel.checkpoint()
        await it.carving.look()
        tasks.cancel_scope.cancel()
    assert (0, {ONE: 1}) in turns
    assert (1, {}) in turns
    assert set(map(str, turns)) == {str((0, {ONE: 1})), str((1, {}))}
    assert len(await it.asked()) == 1


async def test_what_an_administrator_asks_of_a_gpu_meanwhile_stays() -> None:
    it = await scene(WANTS_ALL)
    it.decide()
    by_hand = {"mig": [{"uuid": "GPU-a", "attempt": "by-hand", "layout": []}]}
    ((carve, attempt),), _ = await it.carving._think(anyio.current_time())
    await it.api.patch(GPU_NODES, "n1", {"spec": by_hand})
    await it.follow()
    await it.carving._ask(carve, attempt)
    assert [each for each, _ in await it.asked()] == ["by-hand"]


async def test_what_is_asked_of_other_gpus_stays() -> None:
    it = await scene(WANTS_ALL)
    it.decide()
    other = {"mig": [{"uuid": "GPU-b", "attempt": "by-hand", "layout": [{"profile": "2g.20gb", "start": 2}]}]}
    await it.api.patch(GPU_NODES, "n1", {"spec": other})
    await it.follow()
    await it.carving.look()
    assert [layout for _, layout in await it.asked()] == [[("2g.20gb", 2)], [("7g.80gb", 0)]]


async def test_what_goes_on_two_gpus_of_a_node_at_once_is_given_to_nobody() -> None:
    it = await scene(pod("p", extended={TWO: "1"}), pod("q", extended={TWO: "1"}))
    it.cluster.upsert_node(node("n1", gpus=0, labels=OFFERED, extended={ONE: "14"}))
    full = [{**SLICE, "start": start, "uuid": f"MIG-{start}"} for start in range(7)]
    cards = [{"uuid": uuid, "mig": True, "profiles": PROFILES, "layout": full} for uuid in ("GPU-a", "GPU-b")]
    await it.api.patch(GPU_NODES, "n1", {"status": {"cards": cards}}, subresource="status")
    await it.follow()
    it.decide()
    await it.carving.look()
    assert len(await it.asked()) == 2
    assert it.cluster.free_slices("n1") == {ONE: 10}
    assert it.cluster.validate() == []


async def test_a_new_leader_places_nobody_on_what_the_one_before_had_destroyed() -> None:
    it = await scene(WANTS_ALL)
    it.decide()
    await it.carving.look()
    await it.follow()
    after = cluster(node("n1", gpus=0, labels=OFFERED, extended={ONE: "1"}), WANTS_ALL)
    carving = Partitioner(it.api, Cache(after), settings=CarvingSettings(), rng=random.Random(3))
    carving.kind().sink.upsert(await it.gpu_node())
    carving.begin()
    assert after.free_slices("n1") == {}
    carving.decided()
    await carving.look()
    assert after.free_slices("n1") == {}
    assert len(await it.asked()) == 1


async def test_a_pod_that_gives_up_meanwhile_says_nothing_and_another_says_what_decisions_say() -> None:
    it = await scene(WANTS_ALL, pod("q", extended={TWO: "1"}, cpu="100"))
    it.decide()
    await it.carving.look()
    it.decide()
    assert it.says("q") == (Code.NO_CARD_CAN_BE_CARVED, f"1 {TWO}")
    it.cluster.remove_pod("uid-p")
    await it.show(mig=False)
    await it.carving.look()
    it.decide()
    assert it.says("p") is None
    found = it.says("q")
    assert found is not None
    assert found[0] is Code.NO_NODE_FITS


async def test_pods_for_which_nothing_can_be_cut_hold_up_no_other() -> None:
    hopeless = [pod(f"h{number}", extended={TWO: "1"}, cpu=str(100 + number), priority=9) for number in range(20)]
    it = await scene(*hopeless, WANTS_ALL)
    it.decide()
    for _ in range(10):
        await it.carving.look()
        await anyio.sleep(1)
    assert [layout for _, layout in await it.asked()] == [[("7g.80gb", 0)]]


async def test_pods_in_front_that_get_nothing_keep_nobody_from_slices() -> None:
    """Each of them wants more CPU than there is."""
    hopeless = [pod(f"h{number:02}", extended={SEVEN: "1"}, cpu=f"{100 + number}", priority=9) for number in range(40)]
    it = await scene(*hopeless, pod("p", extended={TWO: "1"}))
    it.decide()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(it.carving.run)
        await anyio.sleep(30)  # nothing changes meanwhile
        tasks.cancel_scope.cancel()
    it.decide()
    assert [layout for _, layout in await it.asked()] == [[("1g.10gb", 0), ("2g.20gb", 2)]]
    assert it.says() == (Code.CARVING_UNDER_WAY, "n1")
    assert it.says("h00") == (Code.NO_CARD_CAN_BE_CARVED, f"1 {SEVEN}")


async def test_nothing_is_said_where_no_gpu_is_offered() -> None:
    it = await scene(WANTS_ALL)
    it.cluster.upsert_node(node("n1", gpus=0, extended={ONE: "1"}))
    it.decide()
    await it.carving.look()
    it.decide()
    found = it.says()
    assert found is not None
    assert (found[0], await it.asked()) == (Code.NO_NODE_FITS, [])
