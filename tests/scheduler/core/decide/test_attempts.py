"""What a decision learns of a class, until when that holds, and who pays for it."""

from __future__ import annotations

import gc
from itertools import pairwise

import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.decide.allowance import COST_OF_PLACING, LIMITS, Allowance
from scheduler.core.decide.attempts import RESERVE, Attempts, KeptOff
from scheduler.core.model.plan import Placement
from scheduler.core.model.priority_order import Rank
from scheduler.core.model.records import PodRecord
from scheduler.core.model.verdict import Verdict
from scheduler.core.queues.reserved_nodes import NodeReserve
from scheduler.core.scheduling_queue.effects import Effects
from scheduler.core.snapshot.statement import Statement
from tests.scheduler.core.filters import beside
from tests.scheduler.core.objects import cluster, feed, node, pod
from tests.values import of_kind, there


def _attempts(made: Cluster) -> Attempts:
    snapshot = made.prepared(0)
    return Attempts(snapshot, 0, LIMITS, Allowance(namespaces=1, most=LIMITS.most), Effects(snapshot.scheduling_queue))


def _full() -> tuple[Cluster, PodRecord, PodRecord]:
    """A node whose two GPUs are taken, who has them, and a pod that waits for them."""
    made = cluster(node(gpus=2), pod("taker", gpus=2, bound_to="n1"), pod("p", gpus=2))
    taker, waiting = there(made.pod("uid-taker")), there(made.pod("uid-p"))
    return made, taker, waiting


def test_a_class_that_fitted_nowhere_is_judged_again_after_an_eviction() -> None:
    made, taker, waiting = _full()
    attempts = _attempts(made)
    assert isinstance(attempts.place(waiting), Verdict)
    assert attempts.by_retiring(waiting) is None
    assert waiting.cls in attempts.classes.hopeless
    assert waiting.cls in attempts.classes.roomless
    attempts.placer.statement.evict(taker)
    assert (attempts.classes.hopeless, attempts.classes.roomless) == ({}, {})
    assert isinstance(attempts.place(waiting), Placement)


def test_what_earlier_decisions_kept_of_a_class_is_not_believed_after_an_eviction() -> None:
    made, taker, waiting = _full()
    made.decide(0)
    attempts = _attempts(made)
    assert attempts.classes.verdict(waiting.cls, "ns") is not None
    again = _attempts(made)
    again.placer.statement.evict(taker)
    assert again.classes.verdict(waiting.cls, "ns") is None
    assert isinstance(again.place(waiting), Placement)


@pytest.mark.parametrize("by_statement", [True, False])
def test_once_the_eviction_is_taken_back_the_class_fits_nowhere_again(by_statement: bool) -> None:
    made, taker, waiting = _full()
    attempts = _attempts(made)
    mark = attempts.checkpoint()
    attempts.placer.statement.evict(taker)
    assert isinstance(attempts.place(waiting), Placement)
    if by_statement:
        attempts.placer.statement.rollback(mark.statement)
    else:
        attempts.rollback(mark)
    assert attempts.placer.statement.evictions == 0
    assert isinstance(attempts.place(waiting), Verdict)


def test_what_was_learned_under_charges_that_are_taken_back_is_forgotten_with_them() -> None:
    made, taker, waiting = _full()
    feed(made, node("n2", gpus=2), pod("q", gpus=2), pod("large", gpus=9))
    other, large = there(made.pod("uid-q")), there(made.pod("uid-large"))
    attempts = _attempts(made)
    assert isinstance(attempts.place(large), Verdict)  # what was known before is as long as what is learned below
    mark = attempts.checkpoint()
    attempts.placer.statement.evict(taker)
    assert [type(attempts.place(each)) for each in (waiting, other)] == [Placement, Placement]
    assert isinstance(attempts.place(waiting), Verdict)
    attempts.rollback(mark)
    assert waiting.cls not in attempts.classes.hopeless
    assert isinstance(attempts.place(waiting), Placement)


_ALONE = beside.anti_affinity(beside.term(beside.HOST))


def test_nodes_that_others_close_are_not_among_those_that_are_kept_for_somebody() -> None:
    made = beside.made(beside.running("r", "p"), beside.waiting(_ALONE), nodes=beside.NODES[:2])
    waiting, attempts = there(made.pod("uid-w")), _attempts(made)
    attempts.kept.begin_turn((_reserve("p"),))
    assert not attempts.kept.fit_any(attempts.placer, [waiting.cls])
    attempts.kept.begin_turn((_reserve("p"), _reserve("q")))
    kept_off = of_kind(KeptOff, attempts.place(waiting))
    assert {each.kind: each.nodes for each in kept_off.verdict.node_reasons} == {RESERVE: 1, "pod-anti-affinity": 1}
    assert kept_off.verdict.reserve == attempts.kept.cause(_reserve("q"))


def _reserve(node: str) -> NodeReserve:
    rank = Rank(0, 0, "", f"uid-{node}")
    return NodeReserve(
        queue="", rank=rank, namespace="ns", name=node, is_gang=False, since_s=0, begun_s=0, nodes=(node,), gpus=8
    )


@pytest.mark.parametrize("is_kept", [True, False])
def test_whose_rules_are_tried_on_paper_pays_for_what_they_cost(is_kept: bool) -> None:
    made = beside.made(
        *(beside.running(f"r{i}", "q", app="b") for i in range(300)),
        beside.waiting(_ALONE),
        beside.waiting({}, "x", namespace="another"),
    )
    keeper, other = there(made.pod("uid-w")), there(made.pod("uid-x"))
    attempts = _attempts(made)
    assert attempts.keep_place(keeper) if is_kept else attempts.place_on_paper(keeper)
    assert isinstance(attempts.place(other), Placement)
    assert attempts.allowance.spent_by("another") == COST_OF_PLACING
    assert (attempts.keeping["ns"] - COST_OF_PLACING if is_kept else attempts.allowance.spent_by("ns")) >= 50


def test_each_pod_pays_for_all_its_rules_that_are_asked_again() -> None:
    selectors = [{"matchLabels": {"app": f"a{i}"}} for i in range(32)]
    alone = beside.anti_affinity(*(beside.term(beside.HOST, each) for each in selectors))
    made = beside.made(*(beside.waiting(alone, name) for name in "xyz"))
    attempts, spent = _attempts(made), [0]
    for name in "xyz":
        waiting = there(made.pod(f"uid-{name}"))
        assert isinstance(attempts.place(waiting), Placement)
        spent.append(attempts.allowance.spent_by("ns"))
    first, *more = [after - before for before, after in pairwise(spent)]
    assert first >= COST_OF_PLACING + 10 * 32
    assert all(each >= COST_OF_PLACING + 32 for each in more)


def _statements() -> int:
    return sum(isinstance(kept, Statement) for kept in gc.get_objects())


def test_a_decision_leaves_no_working_copy_to_the_garbage_collector() -> None:
    """One is some MiB on a large cluster, and the collector may come late."""
    made, *_ = _full()
    feed(made, pod("half", fraction="0.5"), node("n2"))
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    before = _statements()
    try:
        for now_ns in range(3):
            made.decide(now_ns)
        assert _statements() == before
    finally:
        if was_enabled:
            gc.enable()
