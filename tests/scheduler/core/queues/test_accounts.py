from __future__ import annotations

import msgspec
import pytest

from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.priority_order import Rank
from scheduler.core.model.quota import NOTHING, UNLIMITED, WITHOUT_END, QueueRecord, Resources
from scheduler.core.model.verdict import Code, QueueCause, Verdict
from scheduler.core.queues import reserved_nodes
from scheduler.core.queues.accounts import Account, Accounts, Use, accounts
from scheduler.core.queues.reserved_nodes import UNKNOWN, NodeReserve
from scheduler.core.queues.tree import Sum, Tree
from tests.values import there

GPU = 10**9


def gpus(count: int) -> Resources:
    return Resources(gpu_nano=count * GPU)


def limit(count: int) -> Resources:
    return Resources(UNLIMITED, UNLIMITED, count * GPU)


TREE = Tree(
    [
        QueueRecord(name="dept", limit=limit(6), quota=limit(4)),
        QueueRecord(name="a", parent="dept", limit=limit(5), quota=limit(3)),
        QueueRecord(name="b", parent="dept", limit=WITHOUT_END, quota=limit(3)),
    ]
)


def made(**sums: Sum) -> Accounts:
    return accounts(TREE, sums, gpus(8))


def held(count: int, fixed: int = 0) -> Sum:
    return Sum(held=gpus(count), kept=gpus(count), asked=gpus(count), fixed=gpus(fixed), pods=1)


def test_a_parent_has_what_its_children_have() -> None:
    found = made(a=held(2, fixed=1), b=held(3))
    assert {q.name: found.of[q.number].held.gpu_nano // GPU for q in TREE.queues} == {"a": 2, "b": 3, "dept": 5}
    assert found.of[0].fixed == gpus(1)


@pytest.mark.parametrize(
    ("sums", "use", "expected"),
    [
        ({}, Use("a", gpus(5)), None),
        ({}, Use("a", gpus(6)), (Code.OVER_LIMIT, QueueCause(at="a", resource="gpu", most=5 * GPU, asked=6 * GPU))),
        (
            {"b": held(4)},
            Use("a", gpus(3)),
            (Code.OVER_LIMIT, QueueCause(at="dept", resource="gpu", most=6 * GPU, held=4 * GPU, asked=3 * GPU)),
        ),
        ({"b": held(4)}, Use("a", gpus(2)), None),
        ({}, Use("a", gpus(3), is_fixed=True), None),
        (
            {},
            Use("a", gpus(4), is_fixed=True),
            (Code.OVER_QUOTA, QueueCause(at="a", resource="gpu", most=3 * GPU, asked=4 * GPU)),
        ),
        (
            {"b": held(2, fixed=2)},
            Use("a", gpus(3), is_fixed=True),
            (Code.OVER_QUOTA, QueueCause(at="dept", resource="gpu", most=4 * GPU, held=2 * GPU, asked=3 * GPU)),
        ),
        ({"a": held(9)}, Use("a", Resources(cpu_milli=1)), None),
    ],
    ids=[
        "up to the limit",
        "beyond its limit",
        "beyond the department's limit",
        "up to the department's limit",
        "up to the quota",
        "beyond its quota",
        "beyond the department's quota",
        "above the limit in what it does not ask",
    ],
)
def test_a_use_is_refused_by_the_first_queue_that_it_passes(
    sums: dict[str, Sum], use: Use, expected: tuple[Code, QueueCause] | None
) -> None:
    found = made(**sums).refusal(use)
    assert found == (None if expected is None else Verdict(code=expected[0], detail=use.queue, queue=expected[1]))


def test_charges_count_up_to_the_top_and_are_taken_back() -> None:
    found = made()
    before = [each.held for each in found.of]
    mark = found.checkpoint()
    found.charge(Use("a", gpus(2), is_fixed=True))
    found.charge(Use("b", gpus(1)))
    assert (found.of[0].held, found.of[0].fixed, found.of[0].kept) == (gpus(3), gpus(2), gpus(3))
    assert (found.charged_since(mark), found.charged_since(mark, of_fixed=True)) == (gpus(3), gpus(2))
    assert found.room_for(Use("a", gpus(1))) == 3
    found.rollback(mark)
    assert [each.held for each in found.of] == before
    assert [each.fixed for each in found.of] == [NOTHING] * 3


@pytest.mark.parametrize(("is_leaving", "kept"), [(False, 2), (True, 5)])
def test_what_would_go_is_taken_off_and_what_is_terminating_is_not_kept_any_more(is_leaving: bool, kept: int) -> None:
    found = made(a=held(2, fixed=1), b=held(3))
    mark, before = found.checkpoint(), [(each.held, each.kept) for each in found.of]
    found.release(Use("b", gpus(3)), is_leaving=is_leaving)
    assert (found.of[0].held, found.of[0].kept) == (gpus(2), gpus(kept))
    found.rollback(mark)
    assert [(each.held, each.kept) for each in found.of] == before


def test_there_is_room_for_as_many_as_the_tightest_queue_takes() -> None:
    found = made(b=held(3))
    assert [found.room_for(Use("a", gpus(count))) for count in (1, 2, 3, 4)] == [3, 1, 1, 0]
    assert found.room_for(Use("nobody", gpus(1))) == 0
    assert found.room_for(Use("b", NOTHING)) == 1


def test_what_counts_for_a_queue_that_is_not_there_is_not_divided() -> None:
    assert made(gone=held(3)).total == gpus(5)
    assert made(gone=held(9)).total == NOTHING


_OWNER = Rank(0, 0, "2026-01-01T12:00:00Z", "large")
_BEFORE = Rank(-50, 0, "2026-01-01T12:30:00Z", "urgent")
_AFTER = Rank(0, 0, "2026-01-01T12:00:01Z", "small")
_RESERVE = NodeReserve(
    queue="a",
    rank=_OWNER,
    namespace="ns",
    name="large",
    is_gang=False,
    since_s=0,
    begun_s=0,
    nodes=("n1",),
    gpus=8,
    free_s=100,
)


@pytest.mark.parametrize(
    ("queue", "rank", "is_starved", "end_s", "free_s", "is_off"),
    [
        ("a", _OWNER, False, UNKNOWN, UNKNOWN, False),
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
    reserve = msgspec.structs.replace(_RESERVE, free_s=free_s)
    assert reserve.keeps_off(queue=queue, rank=rank, is_starved=is_starved, end_s=end_s) is is_off


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
    leaf = there(tree.find("a"))
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
    leaf = there(tree.find("a"))
    assert reserved_nodes.is_starved(Account(kept=_gpus(kept)), leaf, _gpus(4)) is is_starved
    assert reserved_nodes.is_starved(Account(kept=NOTHING), leaf, NOTHING)
