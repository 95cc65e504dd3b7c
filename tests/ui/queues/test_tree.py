"""What counts for queues is what the scheduler counts, whatever else keeps a pod waiting."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from scheduler.conditions.messages import told
from scheduler.core.model.settings import NodePool, Settings
from scheduler.core.queues.queues import Queues
from scheduler.core.queues.use_over_time import Source, UseOverTime
from scheduler.core.report.queue_explanation import ListedQueues, explanation
from scheduler.core.report.queue_view import Amounts, QueueView, queue_views
from tests.runtime.test_replicas import FLAG, written
from tests.scheduler.core.decide.turns import order_of_turns
from tests.scheduler.core.objects import (
    NANO,
    bind_request,
    bound,
    changed_group,
    cluster,
    ended,
    node,
    pod,
    pod_group,
    queue,
)
from tests.scheduler.core.report.listing import random_objects
from tests.ui.queues.seen import explained, known, of, views
from ui.commands import explain as telling
from ui.commands.inspect import queues_seen
from ui.queues.count import NOW_NS, Counting, recorded
from ui.queues.pools import Divided, Found, digested, divided
from ui.queues.tables import GPU, amount, in_tree, named, requested, tree_sheets, weight
from ui.tables import plain
from wire import names
from wire.core import Node, Pod
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup
from wire.crds.queue import Queue
from wire.resource import DeviceTaintRule

CLUSTER = (
    node(gpus=8, cpu="64", memory="256Gi"),
    queue("dept", gpu=(4, 1, 6)),
    queue("a", "dept", gpu=(2, 1, -1)),
    queue("b", "dept", gpu=(0.5, 2, -1), priority=50),
    queue("lost", "nowhere"),
    bound(of("a", "runs", gpus=3, cpu="8"), "n1"),
    bound(of("a", "leaves", deleting=True), "n1"),
    of("b", "waits", gpus=9),
)


def shown(*objects: Any, wide: bool = False) -> list[str]:
    return [line for sheet in tree_sheets(views(*objects), wide=wide) for line in plain(sheet)]


def test_queues_stand_below_their_parents_with_their_gpus() -> None:
    assert shown(*CLUSTER) == [
        "GPUs:",
        "QUEUE   QUOTA   FAIR SHARE   ALLOCATED   REQUESTED   LIMIT",
        "dept    4       6            4           12          6",
        "  a     2       3            4           3           unlimited",
        "  b     0.5     3            0           9           unlimited",
        "lost    0       -            0           0           unlimited",
        "Queues that take nobody:",
        "QUEUE   WHY",
        "lost    Queue lost can't be used: queue nowhere, a parent of it, does not exist",
    ]


def test_wide_has_each_resource() -> None:
    head, *rows = shown(*CLUSTER, wide=True)
    assert head.split("   ")[0] == "QUEUE"
    assert "NON-PREEMPTIBLE" in head
    assert [row.split() for row in rows[3:6]] == [
        ["a", "GPUs", "2", "3", "4", "3", "unlimited", "0", "1", "1", "100", "2"],
        ["a", "Memory", "(GB)", "unlimited", "0", "0", "0", "unlimited", "0", "0", "1", "100", "2"],
        ["a", "CPU", "cores", "unlimited", "8", "8", "8", "unlimited", "0", "0", "1", "100", "2"],
    ]


@pytest.mark.parametrize(
    ("queues", "expected"),
    [
        ([("b", ""), ("a", ""), ("c", "a")], [("a", 0), ("c", 1), ("b", 0)]),
        ([("x", "y"), ("y", "x"), ("z", "y")], [("x", 0), ("y", 1), ("z", 2)]),
        ([("own", "own")], [("own", 0)]),
    ],
    ids=["a tree", "a cycle", "below itself"],
)
def test_every_queue_stands_once(queues: list[tuple[str, str]], expected: list[tuple[str, int]]) -> None:
    told = in_tree(views(*(queue(name, parent) for name, parent in queues)))
    assert [(view.name, depth) for depth, view in told] == expected


def test_a_chain_of_thousands_is_no_matter() -> None:
    chain = [queue(f"q{at:04}", f"q{at - 1:04}" if at else "") for at in range(3000)]
    assert [depth for depth, _ in in_tree(views(*chain))] == list(range(3000))


def test_without_queues_that_is_said() -> None:
    assert shown(node(gpus=1)) == ["There are no Queues: no pod is limited, even if it names a queue."]


TREE: tuple[Any, ...] = (node(gpus=8), queue("a"), queue("b"))


def gpus(*objects: Any) -> dict[str, tuple[float, float]]:
    """GPUs that each queue has allocated and requested."""
    return {
        view.name: (view.allocated.gpu_nano / NANO, view.requested.gpu_nano / NANO) for view in views(*TREE, *objects)
    }


def test_a_pod_on_its_way_counts_as_allocated() -> None:
    goes = of("a", "goes", gpus=2)
    assert gpus(goes, bind_request(goes, "n1"))["a"] == (2, 2)


def test_pods_of_a_group_count_in_the_queue_of_their_group() -> None:
    gang = [of("a", f"w{at}", group="gang") for at in range(2)]
    assert gpus(pod_group("gang", 2, queue="b"), *gang) == {"a": (0, 0), "b": (0, 2)}


def test_volumes_and_jobs_keep_nobody_waiting_as_they_are_not_read() -> None:
    mounts = of("a", "mounts", spec={"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]})
    works = of("b", "works", owner=("batch/v1", "Job"))
    order = order_of_turns(known(*TREE, mounts, works).snapshot, NOW_NS)
    turns = {each.queue.name: each.first.rank for each in order.ranking(-1)}
    assert {name: rank.uid for name, rank in turns.items() if rank} == {"a": "uid-mounts", "b": "uid-works"}
    told = explained("a", *TREE, mounts, works)
    assert {turn.queue: turn.next.name for turn in told.orders[0].turns} == {"a": "mounts", "b": "works"}


def test_what_has_ended_counts_for_nothing() -> None:
    assert gpus(ended(bound(of("a", "done"), "n1")))["a"] == (0, 0)


@pytest.mark.parametrize(("pod", "is_in_doubt"), [(written(FLAG), False), (written("--config=/file"), True)])
def test_pods_of_a_list_that_broke_off_do_not_say_whether_taint_rules_count(pod: Pod, is_in_doubt: bool) -> None:
    rule = msgspec.convert({"metadata": {"name": "r"}, "spec": {"taint": {"key": "t"}}}, DeviceTaintRule)
    counting = Counting(devices=recorded(classes=(), slices=(), claims=(), rules=[rule]))
    counting.read_pod(written())
    assert counting.count(Found(pods=[counting.read_pod(pod)])).has_doubtful_rules is is_in_doubt


CPU, MEMORY = 0, 1


@pytest.mark.parametrize(
    ("at", "value", "down", "up"),
    [
        (CPU, 1500, "1.5", "1.5"),
        (MEMORY, 549_755_813_888, "549.75", "549.76"),
        (GPU, 333_333_333, "0.33", "0.34"),
        (GPU, 2 * 10**9, "2", "2"),
        (GPU, -1, "unlimited", "unlimited"),
    ],
)
def test_amounts_are_told_to_two_places(at: int, value: int, down: str, up: str) -> None:
    assert (amount(at, value), amount(at, value, up=True)) == (down, up)


def test_one_is_no_plural() -> None:
    assert [named(GPU, count * 10**9) for count in (1, 2)] == ["1 GPU", "2 GPUs"]
    assert weight(2_500_000) == "2.5"


@pytest.mark.parametrize(
    ("asks", "expected"),
    [
        (Amounts(4000, 10**9, 10**9), "1 GPU"),
        (Amounts(4000, 10**9, 0), "4 cores, 1 GB of memory"),
        (Amounts(), "nothing"),
    ],
)
def test_a_workload_is_told_by_its_gpus(asks: Amounts, expected: str) -> None:
    assert requested(asks) == expected


# Queues of each node pool are counted as its scheduler counts them: its nodes, its pods, its queues.

POOLS = ("", "a", "b")


def in_pool(pool: str, obj: Any) -> Any:
    """The same object with the label of a pool; without one for ""."""
    labels = {key: value for key, value in (obj.metadata.labels or {}).items() if key != names.NODE_POOL_LABEL}
    labels |= {names.NODE_POOL_LABEL: pool} if pool else {}
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, labels=labels))


def read(*objects: Any, used: dict[str, UseOverTime] | None = None) -> Divided:
    def divided_of(kind: type) -> list[Any]:
        return [each for each in objects if isinstance(each, kind)]

    found: Found[Pod] = Found(
        nodes=divided_of(Node),
        pods=divided_of(Pod),
        queues=divided_of(Queue),
        groups=divided_of(PodGroup),
        requests=divided_of(BindRequest),
        used=used or {},
    )
    return divided(digested(found, ListedQueues().read_pod))


def divided_views(found: Divided) -> dict[str, QueueView]:
    return {view.name: view for view in queues_seen(found, ()).queues}


def divided_of(team: str, name: str, **more: Any) -> Pod:
    return pod(name, labels={names.QUEUE_LABEL: team}, **more)


#: Two queues of one pool and one of the default one, with four and eight GPUs; a pod of ``a`` runs beyond its nodes.
TWO = (
    node("plain", 8),
    in_pool("a", node("na", 4)),
    in_pool("a", queue("left")),
    in_pool("a", queue("right")),
    queue("other"),
    in_pool("a", divided_of("left", "big", gpus=4)),
    in_pool("a", divided_of("right", "small", gpus=1)),
    bound(divided_of("other", "runs", gpus=6), "plain"),
    bound(divided_of("other", "beyond", gpus=1), "na"),
)


def test_queues_divide_what_nodes_of_their_pool_have_for_its_pods() -> None:
    """Of four GPUs of the pool a pod of the default one has one, which counts in its own queue."""
    found = divided_views(read(*TWO))
    assert {name: (view.node_pool, view.fair_share.gpu_nano // 10**9) for name, view in found.items()} == {
        "left": ("a", 2),
        "right": ("a", 1),
        "other": ("default", 7),
    }
    assert found["other"].allocated.gpu_nano == 7 * 10**9


def test_a_gang_counts_in_the_pool_of_its_podgroup() -> None:
    gang = changed_group(pod_group("g", 1, queue="left"), labels={names.NODE_POOL_LABEL: "a"})
    found = divided_views(read(*TWO, gang, pod("member", gpus=2, group="g")))
    assert found["left"].requested.gpu_nano == 6 * 10**9


def test_a_queue_below_one_of_another_pool_takes_nobody() -> None:
    found = divided_views(read(*TWO, in_pool("a", queue("child", "other"))))
    assert found["child"].unusable is not None
    assert found["other"].children == ()


def test_without_labels_nothing_is_divided() -> None:
    (view,) = divided_views(read(node("n", 8), queue("q"))).values()
    assert view.node_pool == ""
    assert read(node("n", 8)).of.keys() == {""}


def test_use_over_time_counts_in_its_pool_alone() -> None:
    used = UseOverTime(source=Source.STALE, since_s=1)
    found = read(*TWO, used={"a": used})
    stale = {name: divided_explained(found, name).use_stale_since_s for name in ("left", "other")}
    assert stale == {"left": 1, "other": None}


def divided_explained(found: Divided, name: str) -> Any:
    listed = found.of_queue(name)
    assert listed is not None
    return explanation(listed, name, lambda verdict: told(verdict).message)


def test_each_pool_has_a_table() -> None:
    lines = [line for sheet in tree_sheets(list(divided_views(read(*TWO)).values())) for line in plain(sheet)]
    assert [line.split()[0] for line in lines] == ["GPUs", "QUEUE", "left", "right", "GPUs", "QUEUE", "other"]
    assert lines[0] == "GPUs of node pool a:"
    assert lines[4] == "GPUs of node pool default:"


def test_an_explanation_says_what_is_divided() -> None:
    lines = [line for sheet in telling.queue_sheets(divided_explained(read(*TWO), "left")) for line in plain(sheet)]
    assert "GPUs of node pool a: 3, divided among 2 queues." in lines
    others = [line for sheet in telling.queue_sheets(divided_explained(read(*TWO), "other")) for line in plain(sheet)]
    assert "GPUs of node pool default: 8. Each queue gets what it requests." in others


def pool_of(obj: Any) -> str:
    return str((obj.metadata.labels or {}).get(names.NODE_POOL_LABEL, ""))


def _placed(rng: random.Random, objects: Iterator[Any]) -> Iterator[Any]:
    for each in objects:
        yield each if isinstance(each, BindRequest) else in_pool(rng.choice(POOLS), each)


@pytest.mark.parametrize("seed", range(30))
def test_each_pool_is_counted_as_its_scheduler_counts_it(seed: int) -> None:
    rng = random.Random(seed)
    objects = list(_placed(rng, random_objects(rng)))
    found = read(*objects)
    assert found.of.keys() == {pool_of(each) for each in objects if isinstance(each, Queue)}
    for pool, listed in found.of.items():
        mine = [each for each in objects if not isinstance(each, Queue) or pool_of(each) == pool]
        queues = cluster(*mine, settings=Settings(pool=NodePool(value=pool))).prepared(0).queues
        assert _views(listed.queues) == _views(queues)


def _views(queues: Queues) -> list[QueueView]:
    return queue_views(queues, queues.accounts(), lambda verdict: told(verdict).message)
