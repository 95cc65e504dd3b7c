from __future__ import annotations

import msgspec
import pytest

from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.priority_order import Rank
from scheduler.core.model.quota import NOTHING, QueueRecord, Resources
from scheduler.core.queues import reserved_nodes
from scheduler.core.queues.accounts import Account
from scheduler.core.queues.reserved_nodes import UNKNOWN, Berth
from scheduler.core.queues.tree import Tree

_HOLDER = Rank(0, 0, "2026-01-01T12:00:00Z", "large")
_BEFORE = Rank(-50, 0, "2026-01-01T12:30:00Z", "urgent")
_AFTER = Rank(0, 0, "2026-01-01T12:00:01Z", "small")
_BERTH = Berth(
    queue="a", rank=_HOLDER, namespace="ns", name="large", is_gang=False, since_s=0, nodes=("n1",), gpus=8, free_s=100
)


@pytest.mark.parametrize(
    ("queue", "rank", "is_starved", "end_s", "free_s", "is_off"),
    [
        ("a", _HOLDER, False, UNKNOWN, UNKNOWN, False),
        ("a", _AFTER, False, UNKNOWN, 100, True),
        ("a", _AFTER, True, UNKNOWN, 100, True),
        ("a", _BEFORE, False, UNKNOWN, 100, False),
        ("a", _AFTER, False, 100, 100, False),
        ("a", _AFTER, False, 101, 100, True),
        ("a", _AFTER, False, 100, UNKNOWN, True),
        ("b", _BEFORE, False, UNKNOWN, 100, True),
        ("b", _AFTER, True, UNKNOWN, 100, False),
        ("b", _AFTER, False, 99, 100, False),
    ],
)
def test_who_is_kept_off(queue: str, rank: Rank, is_starved: bool, end_s: int, free_s: int, is_off: bool) -> None:
    berth = msgspec.structs.replace(_BERTH, free_s=free_s)
    assert berth.keeps_off(queue=queue, rank=rank, is_starved=is_starved, end_s=end_s) is is_off


@pytest.mark.parametrize(
    ("runtimes", "is_own", "end_s"),
    [
        ([(60, 0)], False, 1_060),
        ([(0, 30)], True, 1_030),
        ([(0, 30)], False, UNKNOWN),
        ([(60, 30)], True, 1_030),
        ([(60, 30)], False, 1_060),
        ([(60, 0), (90, 0)], False, 1_090),
        ([(60, 0), (0, 0)], True, UNKNOWN),
        ([], True, UNKNOWN),
    ],
)
def test_the_end_of_pods_is_that_of_the_last(runtimes: list[tuple[int, int]], is_own: bool, end_s: int) -> None:
    classes = [PodClass(deadline_s=deadline, max_runtime_s=said) for deadline, said in runtimes]
    assert reserved_nodes.end_s(classes, 1_000, is_own=is_own) == end_s


@pytest.mark.parametrize(
    ("own", "above", "expected"), [(5, 7, 5), (None, 7, 7), (None, None, 600), (-1, 7, -1), (0, 7, 0)]
)
def test_patience_is_the_queues_or_that_of_the_nearest_above(own: int | None, above: int | None, expected: int) -> None:
    records = [QueueRecord(name="dept", patience_ns=above), QueueRecord(name="a", parent="dept", patience_ns=own)]
    tree = Tree(records)
    leaf = tree.find("a")
    assert leaf is not None
    assert reserved_nodes.patience_ns(tree, leaf, 600) == expected


def test_patience_ends_with_a_whole_second() -> None:
    assert [reserved_nodes.ends_of_patience_s(10, ns) for ns in (0, 1, 1_000_000_000, 1_000_000_001)] == [
        10,
        11,
        11,
        12,
    ]


def _gpus(count: int) -> Resources:
    return Resources(gpu_nano=count * 10**9)


@pytest.mark.parametrize(
    ("kept", "fair", "behind", "is_entitled"), [(4, 8, 0, True), (5, 8, 0, False), (5, 8, 1, True), (9, 8, 5, True)]
)
def test_a_queue_has_a_right_to_a_group_within_its_share(kept: int, fair: int, behind: int, is_entitled: bool) -> None:
    account = Account(kept=_gpus(kept)._replace(cpu_milli=10), fair=_gpus(fair))
    assert reserved_nodes.is_entitled(account, _gpus(4), behind=_gpus(behind)) is is_entitled


@pytest.mark.parametrize(("kept", "is_starved"), [(0, True), (4, True), (5, False)])
def test_a_queue_is_starved_while_its_next_group_is_within_its_quota(kept: int, is_starved: bool) -> None:
    tree = Tree([QueueRecord(name="a", quota=_gpus(8))])
    leaf = tree.find("a")
    assert leaf is not None
    assert reserved_nodes.is_starved(Account(kept=_gpus(kept)), leaf, _gpus(4)) is is_starved
    assert reserved_nodes.is_starved(Account(kept=NOTHING), leaf, NOTHING)
