from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.model.quota import UNLIMITED, QueueRecord, Resources
from scheduler.core.queues.fair_share import TOP, Divisions, Records, allocatable, fair_shares, use_by_number
from scheduler.core.queues.tree import Tree
from scheduler.core.queues.use_over_time import NOT_COUNTED, UseOverTime

GPU = 10**9
EVEN = Resources(10**6, 10**6, 10**6)


def gpus(count: float) -> Resources:
    return Resources(gpu_nano=round(count * GPU))


def test_children_divide_what_their_parent_gets() -> None:
    tree = Tree(
        [
            QueueRecord(name="left", weight=EVEN),
            QueueRecord(name="right", weight=EVEN),
            QueueRecord(name="a", parent="left", weight=EVEN),
            QueueRecord(name="b", parent="left", weight=EVEN),
        ]
    )
    asked = {"left": gpus(12), "right": gpus(12), "a": gpus(6), "b": gpus(6)}
    fair = fair_shares(tree, gpus(8), [asked[queue.name] for queue in tree.queues])
    assert {queue.name: fair[queue.number].gpu_nano // GPU for queue in tree.queues} == {
        "left": 4,
        "right": 4,
        "a": 2,
        "b": 2,
    }


def test_what_queues_used_counts_for_all_above_them() -> None:
    tree = Tree([QueueRecord(name="top"), *(QueueRecord(name=name, parent="top") for name in "abc")])
    used = UseOverTime(of={"a": (1, 2, 4), "b": (6, 12, 24), "gone": (9, 9, 9)})
    found = dict(zip((queue.name for queue in tree.queues), use_by_number(tree, used), strict=True))
    assert found == {"top": (7, 14, 28), "a": (1, 2, 4), "b": (6, 12, 24), "c": (0, 0, 0)}


def test_each_dimension_is_divided_by_itself() -> None:
    tree = Tree([QueueRecord(name="a", weight=EVEN), QueueRecord(name="b", weight=EVEN)])
    asked = [Resources(1000, 0, 9 * GPU), Resources(9000, 70, 0)]
    assert fair_shares(tree, Resources(4000, 100, 8 * GPU), asked) == [
        Resources(1000, 0, 8 * GPU),
        Resources(3000, 70, 0),
    ]


def test_allocatable_is_the_share_or_the_quota_within_the_limit() -> None:
    record = QueueRecord(
        name="a",
        quota=Resources(10, 50, UNLIMITED),
        limit=Resources(100, 40, 7),
    )
    queue = Tree([record]).queues[0]
    assert allocatable(queue, Resources(20, 0, 3)) == Resources(20, 40, 7)


def test_each_level_is_on_record_with_the_share_that_it_divides() -> None:
    tree = Tree(
        [
            QueueRecord(name="left", weight=EVEN),
            QueueRecord(name="right", weight=EVEN),
            QueueRecord(name="a", parent="left", weight=EVEN),
        ]
    )
    asked = {"left": gpus(3), "right": gpus(9), "a": gpus(3)}
    records = Records()
    fair_shares(tree, gpus(8), [asked[queue.name] for queue in tree.queues], records=records)
    left = tree.find("left")
    assert left is not None
    totals = {parent: [record.total for record in noted] for parent, noted in records.of.items()}
    assert totals == {TOP: [0, 0, 8 * GPU], left.number: [0, 0, 3 * GPU]}


@given(st.data())
def test_divisions_that_are_taken_over_equal_those_that_are_made_again(data: st.DataObject) -> None:
    few, many = st.integers(0, 4), st.integers(0, 100)
    names = ["top", "other", "a", "b", "c"]
    tree = Tree(
        QueueRecord(
            name=name,
            parent="top" if len(name) == 1 else "",
            quota=gpus(data.draw(few)),
            weight=Resources(gpu_nano=data.draw(st.integers(1, 4))),
        )
        for name in names
    )
    known, asked, total, used = Divisions(), [gpus(50)] * len(names), gpus(40), NOT_COUNTED
    for _ in range(6):
        match data.draw(st.sampled_from(["asked", "total", "used", "k"])):
            case "asked":
                asked[data.draw(st.integers(0, 4))] = gpus(data.draw(many))
            case "total":
                total = gpus(data.draw(many))
            case "used":
                name = data.draw(st.sampled_from(names))
                used = UseOverTime(of={name: (0, 0, data.draw(many) * 10**7)}, k_milli=used.k_milli)
            case _:
                used = UseOverTime(of=used.of, k_milli=data.draw(many) * 100)
        fresh = fair_shares(tree, total, asked, used=used)
        assert fair_shares(tree, total, asked, used=used, known=known) == fresh
