from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.model.quota import NOTHING, UNLIMITED, BadField, QueueRecord, Resources
from scheduler.core.model.verdict import Code
from scheduler.core.queues.accounts import accounts
from scheduler.core.queues.sums import Sum
from scheduler.core.queues.tree import Tree
from scheduler.core.report.state import QueueState, queue_states

GPU = 10**9
BAD = BadField("resources.gpu.limit", "-2.0")


def gpus(count: int) -> Resources:
    return Resources(gpu_nano=count * GPU)


def using(held: int, *, asked: int = 0, fixed: int = 0) -> Sum:
    return Sum(held=gpus(held), kept=gpus(held), asked=gpus(held + asked), fixed=gpus(fixed), pods=1)


def states(records: Sequence[QueueRecord], sums: Mapping[str, Sum], total: int = 8) -> dict[str, QueueState]:
    made = accounts(Tree(records), sums, gpus(total))
    return {state.record.name: state for state in queue_states(records, made, sums)}


def test_a_parent_shows_what_all_below_it_hold_and_ask_and_names_its_children() -> None:
    found = states(
        [QueueRecord(name="top"), QueueRecord(name="b", parent="top"), QueueRecord(name="a", parent="top")],
        {"a": using(1, asked=2), "b": using(3, fixed=2)},
    )
    top = found["top"]
    assert (top.held, top.asked, top.fixed) == (gpus(4), gpus(6), gpus(2))
    assert {name: each.children for name, each in found.items()} == {"top": ("a", "b"), "a": (), "b": ()}
    assert (found["a"].held, found["a"].asked) == (gpus(1), gpus(3))


def test_a_queue_without_pods_holds_nothing() -> None:
    assert states([QueueRecord(name="a")], {})["a"] == QueueState(record=QueueRecord(name="a"), fair=NOTHING)


def test_without_queues_there_is_nothing_to_say() -> None:
    assert states([], {"anything": using(1)}) == {}


@pytest.mark.parametrize(
    ("records", "code"),
    [
        pytest.param([QueueRecord(name="a", parent="gone")], Code.QUEUE_PARENT_NOT_FOUND, id="no parent"),
        pytest.param([QueueRecord(name="a", bad=BAD)], Code.QUEUE_CLOSED, id="closed"),
        pytest.param(
            [QueueRecord(name="a", parent="top"), QueueRecord(name="top", bad=BAD)],
            Code.QUEUE_CLOSED,
            id="below a closed one",
        ),
        pytest.param(
            [QueueRecord(name="a", parent="b"), QueueRecord(name="b", parent="a")], Code.QUEUE_CYCLE, id="cycle"
        ),
    ],
)
def test_a_queue_that_cannot_be_used_says_why_and_still_shows_what_it_holds(
    records: list[QueueRecord], code: Code
) -> None:
    found = states(records, {"a": using(2, asked=1)})["a"]
    assert found.broken is not None
    assert (found.broken.code, found.held, found.asked, found.fair) == (code, gpus(2), gpus(3), None)


def test_what_is_held_below_a_closed_queue_shows_in_it_and_not_above_it() -> None:
    """The queue above is not charged for it either."""
    found = states(
        [
            QueueRecord(name="top"),
            QueueRecord(name="closed", parent="top", bad=BAD),
            QueueRecord(name="leaf", parent="closed"),
        ],
        {"leaf": using(2), "closed": using(1)},
    )
    assert {name: each.held for name, each in found.items()} == {"top": NOTHING, "closed": gpus(3), "leaf": gpus(2)}
    assert found["top"].children == ("closed",)


def test_queues_of_a_cycle_do_not_add_up_each_other() -> None:
    ring = [QueueRecord(name=name, parent=parent) for name, parent in (("a", "b"), ("b", "a"), ("leaf", "a"))]
    found = states(ring, {"a": using(1), "b": using(2), "leaf": using(4)})
    assert {name: each.held for name, each in found.items()} == {"a": gpus(5), "b": gpus(2), "leaf": gpus(4)}


def test_above_quota_names_the_resources_of_which_more_is_held() -> None:
    quota = Resources(cpu_milli=UNLIMITED, mem_bytes=5, gpu_nano=2 * GPU)
    held = Sum(held=Resources(9, 6, 2 * GPU), pods=1)
    assert states([QueueRecord(name="a", quota=quota)], {"a": held})["a"].above_quota == ("memory",)


_NAMES = ["a", "b", "c", "d", "e", "f"]


@given(
    parents=st.lists(st.sampled_from([*_NAMES, "", "gone"]), min_size=6, max_size=6),
    held=st.lists(st.integers(0, 5), min_size=6, max_size=6),
    closed=st.sets(st.sampled_from(_NAMES), max_size=2),
)
def test_any_tree_adds_up_as_a_walk_from_each_pod_to_the_first_queue_above_that_does_not_count_it(
    parents: list[str], held: list[int], closed: set[str]
) -> None:
    records = [
        QueueRecord(name=name, parent=parent, bad=BAD if name in closed else None)
        for name, parent in zip(_NAMES, parents, strict=True)
    ]
    tree, by_name = Tree(records), {record.name: record for record in records}
    expected = dict.fromkeys(_NAMES, 0)
    for name, count in zip(_NAMES, held, strict=True):
        at, seen = name, set[str]()
        while at in by_name and at not in seen and (at in tree.broken) == (name in tree.broken):
            seen.add(at)
            expected[at] += count
            if _is_in_a_cycle(at, by_name):
                break
            at = by_name[at].parent
    found = states(records, {name: using(count) for name, count in zip(_NAMES, held, strict=True) if count})
    assert {name: state.held.gpu_nano // GPU for name, state in found.items()} == expected


def _is_in_a_cycle(name: str, by_name: Mapping[str, QueueRecord]) -> bool:
    at = by_name[name].parent
    for _ in by_name:
        if at == name:
            return True
        at = by_name[at].parent if at in by_name else ""
    return False


def test_a_chain_of_broken_queues_costs_no_more_than_a_flat_list() -> None:
    """A user who can write Queues must not be able to hold up the scheduler by them."""

    def took_s(parent_of: Mapping[int, str]) -> float:
        records = [QueueRecord(name=f"q{i}", parent=parent_of[i]) for i in range(4000)]
        made = accounts(Tree(records), {}, gpus(8))
        took = []
        for _ in range(3):
            began = process_time()
            queue_states(records, made, {})
            took.append(process_time() - began)
        return min(took)

    flat = took_s(dict.fromkeys(range(4000), "gone"))
    chain = took_s({i: f"q{i - 1}" if i else "gone" for i in range(4000)})
    assert chain < 20 * flat + 0.05
