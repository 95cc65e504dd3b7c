"""What is explained is counted for the scheduler that decides on it: the nodes, pods and queues of its node pool."""

from __future__ import annotations

from typing import Any

import anyio
import msgspec
import pytest

from kube.client.resources import CONFIG_MAPS, QUEUES
from runtime.options.selection import GROUP, NODE, POD
from scheduler.conditions.messages import told
from scheduler.core.filters.node_pool import OwnPool
from scheduler.core.model.plan import Explain
from scheduler.core.model.settings import NodePool, Settings
from scheduler.core.model.verdict import Verdict
from scheduler.core.preemption import eviction_history
from scheduler.core.preemption.eviction_history import KEY, PIECES, Hour, Piece, Taken
from scheduler.core.preemption.nomination_record import Record, Texts, written
from scheduler.core.what_if.explanation import Explained, node_explained
from scheduler.settings import SchedulerSettings
from simulator.world import WorldSettings
from tests.scheduler import stage
from tests.scheduler.core.objects import changed_group, cluster, node, pod, pod_group, queue
from tests.ui.queues.seen import known
from ui.explain import explanation
from ui.queues import reader
from ui.queues.count import NOW_NS, Known
from ui.queues.pools import About
from wire import names
from wire.crds.queue import Queue

VIRTUAL_TIME = True

WALL_S = 1_800_000_000
A, B = {names.NODE_POOL_LABEL: "a"}, {names.NODE_POOL_LABEL: "b"}


def read(kind: str, name: str, *objects: Any) -> Known:
    return known(*objects, about=About(kind=kind, namespace="" if kind == NODE else "ns", name=name))


def explained(kind: str, name: str, *objects: Any) -> Explained:
    found = read(kind, name, *objects)
    return explanation.explained(found, explanation.subject(found, kind, "ns", name), [], WALL_S)


def on(found: Explained) -> set[str]:
    return {each.node for each in found.outcome.placed}


def of_pool(made: Queue, labels: dict[str, str]) -> Queue:
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, labels=labels))


@pytest.mark.parametrize(
    ("labels", "node_of_it"), [({}, "plain"), (A, "na"), (B, "nb"), ({names.NODE_POOL_LABEL: ""}, "plain")]
)
def test_a_pod_fits_on_nodes_of_its_own_pool_alone(labels: dict[str, str], node_of_it: str) -> None:
    nodes = (node("na", gpus=2, labels=A), node("nb", gpus=2, labels=B), node("plain", gpus=2))
    assert on(explained(POD, "p", *nodes, pod("p", gpus=2, labels=labels))) == {node_of_it}


def test_nodes_of_other_pools_are_a_reason_of_their_own() -> None:
    nodes = (node("na", gpus=8, labels=A), node("nb", gpus=1, labels=B))
    found = explained(POD, "p", *nodes, pod("p", gpus=2, labels=B))
    assert {(each.kind, each.nodes) for each in found.node_reasons} == {(OwnPool.kind, 1), ("insufficient", 1)}
    assert found.nodes == 2


def test_the_verdict_is_that_of_the_pools_scheduler() -> None:
    objects = (node("na", gpus=8, labels=A), node("nb", gpus=1, labels=B), pod("p", gpus=2, labels=B))
    decided = cluster(*objects, settings=Settings(pool=NodePool(value="b"))).decide(NOW_NS)
    verdicts: list[Verdict] = [each.verdict for each in decided.entries if isinstance(each, Explain)]
    assert [explained(POD, "p", *objects).verdict] == verdicts


@pytest.mark.parametrize("kind", [POD, GROUP])
def test_a_gang_is_of_the_pool_of_its_podgroup_whatever_its_pods_say(kind: str) -> None:
    gang = changed_group(pod_group("g", 2), labels=B)
    pods = [pod(f"w{number}", gpus=1, group="g", labels=A) for number in range(2)]
    nodes = (node("na", gpus=8, labels=A), node("nb", gpus=8, labels=B))
    assert on(explained(kind, "w0" if kind == POD else "g", *nodes, gang, *pods)) == {"nb"}


def test_a_pod_does_not_wait_behind_those_of_other_pools() -> None:
    """Without pools the older pod would take the only node, and the younger one come later."""
    objects = (node("na", gpus=2, labels=A), pod("old", gpus=2, created="2025-01-01T00:00:00Z"))
    assert not explained(POD, "p", *objects, pod("p", gpus=2, labels=A)).comes_later


def test_queues_of_other_pools_are_not_there_and_their_pool_is_said() -> None:
    queues = (queue("q"), of_pool(queue("other"), A))
    for name, said in (
        ("q", "Queue q belongs to node pool default; the pod is in a"),
        ("none", "Queue none does not exist"),
    ):
        waits = pod("p", gpus=2, labels={**A, names.QUEUE_LABEL: name})
        verdict = explained(POD, "p", node("na", gpus=2, labels=A), *queues, waits).verdict
        assert verdict is not None
        assert verdict.code.value == "QueueDoesNotExist"
        assert told(verdict).message == said


def test_a_node_is_explained_for_the_pods_of_its_pool() -> None:
    pods = (pod("p", gpus=9, labels=A), pod("q", gpus=9, labels=B), pod("r", gpus=9))
    for name, labels in (("na", A), ("plain", {})):
        there = (node("na", gpus=8, labels=A), node("plain", gpus=8), *pods)
        found = node_explained(read(NODE, name, *there).snapshot, name, NOW_NS)
        assert found is not None, labels
        assert (found.waiting, found.fits) == (1, 0)
        assert {each.reason.kind for each in found.kept_off} == {"insufficient"}


def test_what_is_counted_for_one_scheduler_is_used_again_for_objects_of_the_same_pool() -> None:
    objects = (node("na", labels=A), pod("p", labels=A), pod("q", labels=A), pod("r"))
    found = read(POD, "p", *objects)
    answers = {name: found.is_for(About(kind=POD, namespace="ns", name=name)) for name in ("p", "q", "r", "gone")}
    assert answers == {"p": True, "q": True, "r": False, "gone": False}


def test_a_cluster_without_pools_is_counted_once_for_all() -> None:
    found = read(POD, "p", node("n"), pod("p"), pod("q"))
    assert found.snapshot.settings.pool is None
    assert found.is_for(About(kind=POD, namespace="ns", name="q"))


# What is read of a cluster for an explanation.

#: Its scheduler keeps no record of its own.
NO_ROOM = WorldSettings(seed=1, scheduler=SchedulerSettings(decisions=Settings(preemption=False)))
READER_WALL_S = 1_767_225_700


@pytest.mark.parametrize("pool", ["", "blue"])
async def test_the_record_of_evictions_is_that_of_the_scheduler_that_decides(pool: str) -> None:
    async with stage.stage("1x2x80GiB", settings=NO_ROOM) as world:
        for of in ("", "blue"):
            metadata = {"name": of or "default-queue", "labels": {names.NODE_POOL_LABEL: of} if of else {}}
            await world.api.create(QUEUES, {"metadata": metadata, "spec": {}})
        await _create_record(world, f"-{pool}" if pool else "")
        await stage.create(world, stage.pod("plain"), _labelled(stage.pod("labelled")))
        await anyio.sleep(1.0)
        made: dict[str, tuple[bool, set[str]]] = {}
        for name in ("plain", "labelled"):
            about = About(kind=POD, name=name, namespace=stage.TEAM)
            known = await reader.read(world.api, wall_s=READER_WALL_S, about=about)
            made[name] = known.snapshot.settings.preemption, set(known.snapshot.preemption_facts.evicted)
        has: tuple[bool, set[str]] = (True, {"owner"})
        none: tuple[bool, set[str]] = (False, set())
        assert made == ({"plain": none, "labelled": has} if pool else {"plain": has, "labelled": none})


async def _create_record(world: Any, suffix: str) -> None:
    piece = Piece(Hour().at(READER_WALL_S).number, {"team": Taken({"owner": (READER_WALL_S - 10,)})})
    at = f"{names.EVICTIONS}-{piece.number % PIECES}{suffix}"
    texts = (
        (f"{names.NOMINATIONS}{suffix}", "nominations", written(Record())),
        (at, KEY, eviction_history.written(piece, Texts())),
    )
    for name, key, text in texts:
        record = {"metadata": {"name": name}, "data": {key: text}}
        await world.api.create(CONFIG_MAPS, record, namespace=names.SYSTEM_NAMESPACE)


def _labelled(pod: dict[str, Any]) -> dict[str, Any]:
    pod["metadata"]["labels"] = {names.NODE_POOL_LABEL: "blue"}
    return pod
