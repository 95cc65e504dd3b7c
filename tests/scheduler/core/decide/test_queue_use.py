from __future__ import annotations

from scheduler.core.decide import queue_use
from scheduler.core.model.plan import placements
from scheduler.core.model.resources import Resources
from scheduler.core.queues.accounts import Use
from tests.scheduler.core.objects import NANO, cluster, node, pod, pod_group


def test_what_is_asked_what_is_the_least_and_what_it_is_where_it_is_placed() -> None:
    made = cluster(node("n1", mem_mib=40_000), pod("p", mem=10_000, cpu="1"))
    snapshot = made.snapshot()
    record = snapshot.pod("uid-p")
    assert record is not None
    expected = Use("default-queue", Resources(1000, 0, NANO // 4))
    assert queue_use.asked(snapshot, [record]) == queue_use.least(snapshot, [record]) == expected
    (placement,) = placements(made.decide(0).entries)
    assert queue_use.placed(snapshot, record, placement) == expected


def test_members_of_a_gang_count_together_in_the_queue_of_their_group() -> None:
    made = cluster(node(), pod_group("g", 2, queue="a", preemptibility="non-preemptible"))
    for i in range(3):
        made.upsert_pod(pod(f"m{i}", gpus=2, group="g"))
    snapshot = made.snapshot()
    members = snapshot.waiting_members("ns", "g", 0)
    assert queue_use.asked(snapshot, members) == Use("a", Resources(gpu_nano=6 * NANO), is_fixed=True)
