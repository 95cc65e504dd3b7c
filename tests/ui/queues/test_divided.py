"""Queues of each node pool are counted as its scheduler counts them: its nodes, its pods, its queues."""

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
from scheduler.core.report.listed_queues import ListedQueues
from scheduler.core.report.queue_explanation import explanation
from scheduler.core.report.queue_view import QueueView, queue_views
from tests.scheduler.core.objects import bound, changed_group, cluster, node, pod, pod_group, queue
from tests.scheduler.core.report.listing import random_objects
from ui.commands.inspect import queues_seen
from ui.queues import explanation as telling
from ui.queues.pools import Divided, divided
from ui.queues.tables import tree_sheets
from ui.tables import plain
from wire import names
from wire.core import Node, Pod
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup
from wire.crds.queue import Queue

POOLS = ("", "a", "b")


def in_pool(pool: str, obj: Any) -> Any:
    """The same object with the label of a pool; without one for ""."""
    labels = {key: value for key, value in (obj.metadata.labels or {}).items() if key != names.NODE_POOL_LABEL}
    labels |= {names.NODE_POOL_LABEL: pool} if pool else {}
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, labels=labels))


def read(*objects: Any, used: dict[str, UseOverTime] | None = None) -> Divided:
    reader = ListedQueues()

    def of(kind: type) -> list[Any]:
        return [each for each in objects if isinstance(each, kind)]

    return divided(
        of(Node),
        list(map(reader.read_pod, of(Pod))),
        found=of(Queue),
        groups=of(PodGroup),
        requests=of(BindRequest),
        used=used,
    )


def views(found: Divided) -> dict[str, QueueView]:
    return {view.name: view for view in queues_seen(found, ()).queues}


def of(team: str, name: str, **more: Any) -> Pod:
    return pod(name, labels={names.QUEUE_LABEL: team}, **more)


#: Two queues of one pool and one of the default one, with four and eight GPUs; a pod of ``a`` runs beyond its nodes.
TWO = (
    node("plain", 8),
    in_pool("a", node("na", 4)),
    in_pool("a", queue("left")),
    in_pool("a", queue("right")),
    queue("other"),
    in_pool("a", of("left", "big", gpus=4)),
    in_pool("a", of("right", "small", gpus=1)),
    bound(of("other", "runs", gpus=6), "plain"),
    bound(of("other", "beyond", gpus=1), "na"),
)


def test_queues_divide_what_nodes_of_their_pool_have_for_its_pods() -> None:
    """Of four GPUs of the pool a pod of the default one has one, which counts in its own queue."""
    found = views(read(*TWO))
    assert {name: (view.node_pool, view.fair_share.gpu_nano // 10**9) for name, view in found.items()} == {
        "left": ("a", 2),
        "right": ("a", 1),
        "other": ("default", 7),
    }
    assert found["other"].allocated.gpu_nano == 7 * 10**9


def test_a_gang_counts_in_the_pool_of_its_podgroup() -> None:
    gang = changed_group(pod_group("g", 1, queue="left"), labels={names.NODE_POOL_LABEL: "a"})
    found = views(read(*TWO, gang, pod("member", gpus=2, group="g")))
    assert found["left"].requested.gpu_nano == 6 * 10**9


def test_a_queue_below_one_of_another_pool_takes_nobody() -> None:
    found = views(read(*TWO, in_pool("a", queue("child", "other"))))
    assert found["child"].unusable is not None
    assert found["other"].children == ()


def test_without_labels_nothing_is_divided() -> None:
    (view,) = views(read(node("n", 8), queue("q"))).values()
    assert view.node_pool == ""
    assert read(node("n", 8)).of.keys() == {""}


def test_use_over_time_counts_in_its_pool_alone() -> None:
    used = UseOverTime(source=Source.STALE, since_s=1)
    found = read(*TWO, used={"a": used})
    stale = {name: explained(found, name).use_stale_since_s for name in ("left", "other")}
    assert stale == {"left": 1, "other": None}


def explained(found: Divided, name: str) -> Any:
    listed = found.of_queue(name)
    assert listed is not None
    return explanation(listed, name, lambda verdict: told(verdict).message)


def test_each_pool_has_a_table() -> None:
    lines = [line for sheet in tree_sheets(list(views(read(*TWO)).values())) for line in plain(sheet)]
    assert [line.split()[0] for line in lines] == ["GPUs", "QUEUE", "left", "right", "GPUs", "QUEUE", "other"]
    assert lines[0] == "GPUs of node pool a:"
    assert lines[4] == "GPUs of node pool default:"


def test_an_explanation_says_what_is_divided() -> None:
    lines = [line for sheet in telling.sheets(explained(read(*TWO), "left")) for line in plain(sheet)]
    assert "GPUs of node pool a: 3, divided among 2 queues." in lines
    others = [line for sheet in telling.sheets(explained(read(*TWO), "other")) for line in plain(sheet)]
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
