"""What counts for queues is what the scheduler counts, whatever else keeps a pod waiting."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.runtime.test_scheduler_pods import FLAG, written
from tests.scheduler.core.decide.turns import order_of_turns
from tests.scheduler.core.objects import NANO, bind_request, bound, ended, node, pod_group, queue
from tests.ui.queues.seen import explained, known, of, views
from ui.queues.count import NOW_NS, Counting, recorded
from wire.core import Pod
from wire.resource import DeviceTaintRule

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
    turns = {each.queue.name: each.first.rank for each in order.standings(-1)}
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
    assert counting.count([], [counting.read_pod(pod)], found=[]).has_doubtful_rules is is_in_doubt
