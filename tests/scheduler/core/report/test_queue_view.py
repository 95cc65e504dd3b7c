"""Queues in numbers: as decisions count them, those that can't be used among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.model.quota import NOTHING, UNLIMITED, BadField, QueueRecord, Resources
from scheduler.core.model.verdict import Code, Verdict
from scheduler.core.queues.accounts import accounts
from scheduler.core.queues.tree import Sum, Tree
from scheduler.core.report.queue_explanation import Explanation, explanation
from scheduler.core.report.queue_view import Amounts, QueueView, queue_views
from scheduler.core.report.state import QueueState, owed_nano_gpus, queue_states
from tests.scheduler.core.objects import NANO, bound, cluster, node, pod, pod_group, queue
from tests.scheduler.core.report.listing import listed
from tests.values import there
from wire import names

GIB = 2**30


def say(verdict: Verdict) -> str:
    return f"{verdict.code.value} at {verdict.queue.at}" if verdict.queue else verdict.code.value


def views(*objects: Any) -> dict[str, QueueView]:
    made = cluster(*objects)
    queues = made.prepared(0).queues
    return {view.name: view for view in queue_views(queues, queues.accounts(), say)}


def of(team: str, name: str, *, gpus: int = 1, **more: Any) -> Any:
    return pod(name, gpus=gpus, labels={names.QUEUE_LABEL: team}, **more)


def gpus(amounts: Amounts) -> float:
    return amounts.gpu_nano / NANO


def test_a_parent_counts_what_its_children_hold_and_ask() -> None:
    found = views(
        node(gpus=8),
        queue("dept", gpu=(4, 1, 6)),
        queue("a", "dept", gpu=(2, 1, -1)),
        queue("b", "dept"),
        bound(of("a", "runs", gpus=2), "n1"),
        bound(of("a", "leaves", deleting=True), "n1"),
        bound(of("b", "urgent", priority=100), "n1"),
        of("b", "waits", gpus=3),
    )
    dept = found["dept"]
    assert (dept.children, dept.pods, found["a"].pods, found["b"].pods) == (("a", "b"), 0, 2, 2)
    assert [gpus(each) for each in (dept.allocated, dept.terminating, dept.allocated_non_preemptible)] == [4, 1, 1]
    assert [gpus(each) for each in (dept.requested, dept.fair_share, dept.quota, dept.limit)] == [6, 6, 4, 6]
    assert {name: gpus(view.fair_share) for name, view in found.items()} == {"dept": 6, "a": 2, "b": 4}
    assert found["a"].limit.gpu_nano == -1
    assert (dept.unusable, found["a"].weight_millionths.gpu) == (None, 10**6)


def test_a_queue_that_can_not_be_used_says_so_and_what_its_pods_hold() -> None:
    found = views(
        node(gpus=8),
        queue("dept"),
        queue("lost", "nowhere"),
        queue("below", "lost"),
        bound(of("lost", "runs", gpus=3), "n1"),
        of("dept", "waits", gpus=8),
    )
    assert found["lost"].unusable is not None
    assert found["lost"].unusable.message == "QueueParentDoesNotExist at nowhere"
    assert found["below"].unusable is not None
    assert (gpus(found["lost"].allocated), gpus(found["lost"].fair_share)) == (3, 0)
    # What it holds is not there for others to divide.
    assert gpus(found["dept"].fair_share) == 5


def test_without_queue_objects_there_is_nothing_to_show() -> None:
    assert views(node(gpus=8), of("a", "waits")) == {}


# Why a queue gets what it gets: the division's own steps, the order of the decision itself.

GPU = 2


def queue_explanation_say(verdict: Verdict) -> str:
    return verdict.code.value


def explained(name: str, *objects: Any) -> Explanation | None:
    return explanation(listed(*objects), name, queue_explanation_say)


def found(name: str, *objects: Any) -> Explanation:
    return there(explained(name, *objects))


TREE = (
    node(gpus=9),
    queue("dept", gpu=(4, 1, -1)),
    queue("other", gpu=(0, 1, -1)),
    queue("a", "dept", gpu=(1, 2, -1)),
    queue("b", "dept", gpu=(0, 1, -1)),
)
BUSY = (*TREE, of("a", "a1", gpus=9), of("b", "b1", gpus=9), of("other", "o1", gpus=9))


def test_the_division_is_told_level_by_level_step_by_step() -> None:
    told = found("a", *BUSY)
    assert [level.below for level in told.levels] == ["", "dept"]
    top, dept = (level.divisions[GPU] for level in told.levels)
    assert [(step.kind, step.priority, [each // NANO for each in step.given]) for step in top.steps] == [
        ("quota", None, [4, 0]),
        ("round", 100, [2, 2]),
        ("leftover", 100, [1, 0]),
    ]
    assert (top.total // NANO, dept.total // NANO, dept.left) == (9, 7, 0)
    assert [(part.queue, part.fair_share // NANO) for part in dept.queues] == [("a", 5), ("b", 2)]
    assert [(part.quota // NANO, part.weight_millionths, part.limit) for part in dept.queues] == [
        (1, 2 * 10**6, -1),
        (0, 10**6, -1),
    ]
    assert told.path[0].fair_share.gpu_nano == dept.queues[0].fair_share
    assert [view.name for view in told.path] == ["a", "dept"]


def test_of_a_queue_with_children_their_division_is_told_too() -> None:
    assert [level.below for level in found("dept", *BUSY).levels] == ["", "dept"]
    assert [order.below for order in found("dept", *BUSY).orders] == ["", "dept"]


def test_the_order_is_that_of_the_decision_and_says_why() -> None:
    told = found("b", *TREE, bound(of("b", "runs"), "n1"), of("b", "b1"), of("a", "a1"), of("other", "o1"))
    top, dept = told.orders
    assert [(turn.queue, turn.after_by) for turn in top.turns] == [("dept", ""), ("other", "quota")]
    assert [(turn.queue, turn.after_by, turn.next.name) for turn in dept.turns] == [
        ("a", "", "a1"),
        ("b", "quota", "b1"),
    ]
    assert told.next is not None
    assert (told.next.kind, told.next.namespace, told.next.requested.gpu_nano) == ("Pod", "ns", NANO)
    assert told.next.held_back is None


def test_a_gang_is_named_with_what_starts_it() -> None:
    gang = [of("a", f"w{at}", gpus=2, group="gang") for at in range(3)]
    told = found("a", *TREE, pod_group("gang", 2, queue="a"), *gang)
    assert told.next is not None
    assert (told.next.kind, told.next.name, told.next.requested.gpu_nano) == ("PodGroup", "gang", 4 * NANO)


@pytest.mark.parametrize(
    ("limit", "priority", "code"), [(1, 0, "OverLimit"), (-1, 100, "NonPreemptibleOverQuota"), (-1, 0, None)]
)
def test_what_holds_the_next_back_is_told(limit: int, priority: int, code: str | None) -> None:
    objects = (
        node(gpus=8),
        queue("dept", gpu=(1, 1, limit)),
        queue("a", "dept"),
        of("a", "w", gpus=2, priority=priority),
    )
    told = there(found("a", *objects).next)
    assert (told.held_back.code if told.held_back else None) == code


def test_memory_of_a_gpu_is_held_back_only_if_it_is_too_much_on_every_card() -> None:
    """As the scheduler does: on the largest card it is the smallest part."""
    small, large = node("n1", gpus=1, mem_mib=1000), node("n2", gpus=1, mem_mib=4000)
    for limit, held in ((0.25, None), (0.2, "OverLimit")):
        waits = of("a", "w", gpus=0, mem=1000)
        told = there(found("a", small, large, queue("a", gpu=(0, 1, limit)), waits).next)
        assert (told.held_back.code if told.held_back else None) == held
        assert told.requested.gpu_nano == NANO


@pytest.mark.parametrize(
    ("name", "code", "path"),
    [
        ("lost", "QueueParentDoesNotExist", ["lost"]),
        ("x", "QueueCycle", ["x", "y"]),
        ("bad", "QueueClosed", ["bad", "dept"]),
    ],
)
def test_of_a_queue_that_can_not_be_used_the_broken_link_is_told(name: str, code: str, path: list[str]) -> None:
    broken = (queue("lost", "nowhere"), queue("x", "y"), queue("y", "x"), queue("bad", "dept", gpu=(-7, 1, -1)))
    told = found(name, *TREE, *broken)
    assert told.unusable is not None
    assert (told.unusable.code, [view.name for view in told.path]) == (code, path)
    assert (told.levels, told.orders, told.next) == ((), (), None)


def test_there_is_nothing_to_explain_of_a_queue_that_is_not_there() -> None:
    assert explained("nobody", *TREE) is None


QUEUE_OWED_GPU = 10**9


def queue_owed_gpus(count: int) -> Resources:
    return Resources(gpu_nano=count * QUEUE_OWED_GPU)


def queue_owed_queue(name: str, quota: int, limit: int = -1, parent: str = "") -> QueueRecord:
    most = UNLIMITED if limit < 0 else limit * QUEUE_OWED_GPU
    guaranteed = UNLIMITED if quota < 0 else quota * QUEUE_OWED_GPU
    return QueueRecord(
        name=name, parent=parent, quota=Resources(gpu_nano=guaranteed), limit=Resources(UNLIMITED, UNLIMITED, most)
    )


def using(held: int, waits: int = 0, leaving: int = 0) -> Sum:
    return Sum(
        held=queue_owed_gpus(held + leaving), kept=queue_owed_gpus(held), asked=queue_owed_gpus(held + waits), pods=1
    )


@pytest.mark.parametrize(
    ("records", "sums", "expected"),
    [
        pytest.param([queue_owed_queue("a", 4)], {"a": using(1, waits=2)}, {"a": 2}, id="asks within its quota"),
        pytest.param([queue_owed_queue("a", 4)], {"a": using(1, waits=9)}, {"a": 3}, id="asks for more than its quota"),
        pytest.param([queue_owed_queue("a", 4)], {"a": using(4, waits=9)}, {"a": 0}, id="has its quota"),
        pytest.param([queue_owed_queue("a", 4)], {"a": using(6, waits=9)}, {"a": 0}, id="has more than its quota"),
        pytest.param([queue_owed_queue("a", 4)], {"a": using(2)}, {"a": 0}, id="waits for nothing"),
        pytest.param([queue_owed_queue("a", 0)], {"a": using(0, waits=5)}, {"a": 0}, id="has no quota"),
        pytest.param([queue_owed_queue("a", -1)], {"a": using(2, waits=5)}, {"a": 0}, id="quota without end"),
        pytest.param(
            [queue_owed_queue("a", 4, limit=2)], {"a": using(1, waits=9)}, {"a": 1}, id="its limit is below its quota"
        ),
        pytest.param(
            [queue_owed_queue("a", 4)], {"a": using(1, waits=2, leaving=2)}, {"a": 1}, id="pods are terminating"
        ),
        pytest.param(
            [queue_owed_queue("top", 4), queue_owed_queue("a", 0, parent="top")],
            {"a": using(1, waits=2)},
            {"top": 2, "a": 0},
            id="the department has a quota, the team has none",
        ),
        pytest.param(
            [queue_owed_queue("top", 8), queue_owed_queue("a", 4, limit=2, parent="top")],
            {"a": using(2, waits=9)},
            {"top": 0, "a": 0},
            id="the team is at its limit, so its department is not starved",
        ),
        pytest.param(
            [
                queue_owed_queue("top", 0, limit=3),
                queue_owed_queue("a", 4, parent="top"),
                queue_owed_queue("b", 0, parent="top"),
            ],
            {"a": using(0, waits=4), "b": using(2)},
            {"top": 0, "a": 1, "b": 0},
            id="the department is near its limit",
        ),
        pytest.param(
            [queue_owed_queue("top", 4), queue_owed_queue("a", 4, parent="top")],
            {"top": using(0, waits=3)},
            {"top": 0, "a": 0},
            id="pods of a queue with children",
        ),
    ],
)
def test_owed_is_what_pods_wait_for_within_quota_and_limits(
    records: list[QueueRecord], sums: dict[str, Sum], expected: dict[str, int]
) -> None:
    tree = Tree(records)
    owed = owed_nano_gpus(accounts(tree, sums, queue_owed_gpus(16)))
    assert {each.name: owed[each.number] // QUEUE_OWED_GPU for each in tree.queues} == expected


QUEUE_STATE_GPU = 10**9
BAD = BadField("resources.gpu.limit", "-2.0")


def queue_state_gpus(count: int) -> Resources:
    return Resources(gpu_nano=count * QUEUE_STATE_GPU)


def queue_state_using(held: int, *, asked: int = 0, fixed: int = 0) -> Sum:
    return Sum(
        held=queue_state_gpus(held),
        kept=queue_state_gpus(held),
        asked=queue_state_gpus(held + asked),
        fixed=queue_state_gpus(fixed),
        pods=1,
    )


def states(records: Sequence[QueueRecord], sums: Mapping[str, Sum], total: int = 8) -> dict[str, QueueState]:
    made = accounts(Tree(records), sums, queue_state_gpus(total))
    return {state.record.name: state for state in queue_states(records, made, sums)}


def test_a_parent_shows_what_all_below_it_hold_and_ask_and_names_its_children() -> None:
    found = states(
        [QueueRecord(name="top"), QueueRecord(name="b", parent="top"), QueueRecord(name="a", parent="top")],
        {"a": queue_state_using(1, asked=2), "b": queue_state_using(3, fixed=2)},
    )
    top = found["top"]
    assert (top.held, top.asked, top.fixed) == (queue_state_gpus(4), queue_state_gpus(6), queue_state_gpus(2))
    assert {name: each.children for name, each in found.items()} == {"top": ("a", "b"), "a": (), "b": ()}
    assert (found["a"].held, found["a"].asked) == (queue_state_gpus(1), queue_state_gpus(3))


def test_a_queue_without_pods_holds_nothing() -> None:
    assert states([QueueRecord(name="a")], {})["a"] == QueueState(record=QueueRecord(name="a"), fair=NOTHING)


def test_without_queues_there_is_nothing_to_say() -> None:
    assert states([], {"anything": queue_state_using(1)}) == {}


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
    found = states(records, {"a": queue_state_using(2, asked=1)})["a"]
    assert found.broken is not None
    assert (found.broken.code, found.held, found.asked, found.fair) == (
        code,
        queue_state_gpus(2),
        queue_state_gpus(3),
        None,
    )


def test_what_is_held_below_a_closed_queue_shows_in_it_and_not_above_it() -> None:
    """The queue above is not charged for it either."""
    found = states(
        [
            QueueRecord(name="top"),
            QueueRecord(name="closed", parent="top", bad=BAD),
            QueueRecord(name="leaf", parent="closed"),
        ],
        {"leaf": queue_state_using(2), "closed": queue_state_using(1)},
    )
    assert {name: each.held for name, each in found.items()} == {
        "top": NOTHING,
        "closed": queue_state_gpus(3),
        "leaf": queue_state_gpus(2),
    }
    assert found["top"].children == ("closed",)


def test_queues_of_a_cycle_do_not_add_up_each_other() -> None:
    ring = [QueueRecord(name=name, parent=parent) for name, parent in (("a", "b"), ("b", "a"), ("leaf", "a"))]
    found = states(ring, {"a": queue_state_using(1), "b": queue_state_using(2), "leaf": queue_state_using(4)})
    assert {name: each.held for name, each in found.items()} == {
        "a": queue_state_gpus(5),
        "b": queue_state_gpus(2),
        "leaf": queue_state_gpus(4),
    }


def test_above_quota_names_the_resources_of_which_more_is_held() -> None:
    quota = Resources(cpu_milli=UNLIMITED, mem_bytes=5, gpu_nano=2 * QUEUE_STATE_GPU)
    held = Sum(held=Resources(9, 6, 2 * QUEUE_STATE_GPU), pods=1)
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
    found = states(records, {name: queue_state_using(count) for name, count in zip(_NAMES, held, strict=True) if count})
    assert {name: state.held.gpu_nano // QUEUE_STATE_GPU for name, state in found.items()} == expected


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
        made = accounts(Tree(records), {}, queue_state_gpus(8))
        took = []
        for _ in range(3):
            began = process_time()
            queue_states(records, made, {})
            took.append(process_time() - began)
        return min(took)

    flat = took_s(dict.fromkeys(range(4000), "gone"))
    chain = took_s({i: f"q{i - 1}" if i else "gone" for i in range(4000)})
    assert chain < 20 * flat + 0.05
