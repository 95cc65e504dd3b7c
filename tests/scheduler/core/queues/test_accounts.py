from __future__ import annotations

import pytest

from scheduler.core.model.quota import NOTHING, UNLIMITED, WITHOUT_END, QueueRecord, Resources
from scheduler.core.model.verdict import Code, QueueCause, Verdict
from scheduler.core.queues.accounts import Accounts, Use, accounts
from scheduler.core.queues.sums import Sum
from scheduler.core.queues.tree import Tree

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
