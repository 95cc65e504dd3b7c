from __future__ import annotations

import pytest

from scheduler.core.model.resources import Resources
from scheduler.core.queues.sums import QueueSums, Row, Stage
from scheduler.core.queues.vanished import VanishedRows
from sharing.entries import LEARNS_S, LONGEST_SILENCE_S, VANISHED_MARGIN_S
from tests.scheduler.core.objects import NANO, bound, cluster, ended, feed, node, pod, queue
from tests.scheduler.core.queues.test_use import read
from wire import names
from wire.core import Pod

S = 1_000_000_000
#: How long a pod with this grace period counts after it has vanished.
GRACE_S = 600
WAIT_S = LEARNS_S + GRACE_S + VANISHED_MARGIN_S

ROW = Row("a", Resources(gpu_nano=NANO), Stage.HELD)


def runs(name: str = "p", *, grace_s: int = GRACE_S, gpus: int = 1) -> Pod:
    asks = pod(name, gpus=gpus, labels={names.QUEUE_LABEL: "a"}, spec={"terminationGracePeriodSeconds": grace_s})
    return bound(asks, "n1")


def held(sums: QueueSums) -> int:
    return sums.sums["a"].held.gpu_nano // NANO if "a" in sums.sums else 0


class Rows:
    """Sums of pods that vanish from n1, whose node is ready, not ready, or gone."""

    def __init__(self, *, most: int = 1000) -> None:
        self.sums = QueueSums()
        self.rows = VanishedRows(self.sums.put, most=most)
        self.is_ready: bool | None = True

    def vanish(self, name: str, *, grace_s: int = GRACE_S, row: Row | None = ROW) -> None:
        record = read(bound(pod(name, spec={"terminationGracePeriodSeconds": grace_s}), "n1"))
        self.rows.see(record, row)

    def at(self, now_s: int) -> int:
        """How many GPUs are counted at a time."""
        made = cluster(*([] if self.is_ready is None else [node("n1", ready=self.is_ready)]))
        self.rows.expire(now_s * S, made.node)
        return held(self.sums)


def test_a_pod_counts_for_its_grace_period_after_its_kubelet_has_learned_of_it() -> None:
    it = Rows()
    it.vanish("p")
    assert [it.at(now_s) for now_s in (0, WAIT_S - 1, WAIT_S)] == [1, 1, 0]
    assert (len(it.rows), it.rows.next_ns, it.sums.sums) == (0, None, {})


def test_each_has_its_own_grace_period() -> None:
    it = Rows()
    it.vanish("p")
    it.vanish("q", grace_s=2 * GRACE_S)
    assert it.at(0) == 2
    assert it.rows.next_ns == WAIT_S * S
    assert it.at(WAIT_S) == 1
    assert it.rows.next_ns == (WAIT_S + GRACE_S) * S


def test_the_wait_begins_again_when_its_node_has_not_been_ready() -> None:
    it = Rows()
    it.vanish("p")
    assert it.at(0) == 1
    it.is_ready = False
    assert it.at(100) == 1
    assert it.rows.next_ns == (100 + LONGEST_SILENCE_S) * S
    it.is_ready = True
    assert [it.at(now_s) for now_s in (WAIT_S, 2 * WAIT_S - 1, 2 * WAIT_S)] == [1, 1, 0]


def test_a_node_that_is_silent_for_long_frees_its_pods() -> None:
    it = Rows()
    it.is_ready = False
    it.vanish("p")
    assert [it.at(now_s) for now_s in (5, 4 + LONGEST_SILENCE_S, 5 + LONGEST_SILENCE_S)] == [1, 1, 0]


def test_a_node_that_is_gone_frees_its_pods() -> None:
    it = Rows()
    it.vanish("p")
    it.is_ready = None
    assert it.at(1) == 0


@pytest.mark.parametrize("row", [None, Row("a", Resources(), Stage.HELD)], ids=["counts nowhere", "asks for nothing"])
def test_a_pod_that_counted_for_nothing_is_not_kept(row: Row | None) -> None:
    it = Rows()
    it.vanish("p", row=row)
    assert len(it.rows) == 0


def test_one_namespace_fills_its_share_and_counts_as_much() -> None:
    it = Rows(most=3)
    for number in range(10):
        it.vanish(f"p{number}", grace_s=GRACE_S * (number < 9))
    assert (len(it.rows), it.at(0)) == (4, 10)
    assert it.at(WAIT_S - 1) == 10
    assert it.at(WAIT_S) == 0


def test_a_pod_that_is_deleted_by_force_counts_against_the_limit_until_it_has_ended() -> None:
    """The limit is one GPU: without this a tenant takes another one with each pod that it deletes."""
    made = cluster(node("n1", 8), queue("a", gpu=(0, 1, 1)), runs("r"))
    feed(made, pod("p", gpus=1, labels={names.QUEUE_LABEL: "a"}))
    made.remove_pod("uid-r")
    plan = made.decide(S)
    assert not [entry for entry in plan.entries if hasattr(entry, "placement")]
    assert made.validate() == []
    assert plan.wake_at_ns == (1 + WAIT_S) * S
    plan = made.decide((1 + WAIT_S) * S)
    assert [entry.placement.name for entry in plan.entries if hasattr(entry, "placement")] == ["p"]
    assert made.validate() == []


def test_a_pod_whose_end_was_seen_counts_no_more() -> None:
    made = cluster(node("n1", 8), queue("a", gpu=(0, 1, 1)), runs("r"))
    feed(made, ended(runs("r")))
    made.remove_pod("uid-r")
    made.count_queues()
    assert held(made.queues.sums) == 0
