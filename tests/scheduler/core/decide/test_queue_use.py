from __future__ import annotations

from collections.abc import Iterator

from typing_extensions import override

from scheduler.core.decide.allowance import LIMITS, Allowance
from scheduler.core.decide.attempts import Attempts, asked_use, least_use, placed_use
from scheduler.core.decide.gangs import whole_gang
from scheduler.core.model.plan import placements
from scheduler.core.model.priority_order import order_members
from scheduler.core.model.quota import Resources
from scheduler.core.model.records import PodRecord
from scheduler.core.queues.accounts import Use
from scheduler.core.scheduling_queue.effects import Notes
from tests.scheduler.core.objects import NANO, cluster, node, pod, pod_group


def test_what_is_asked_what_is_the_least_and_what_it_is_where_it_is_placed() -> None:
    made = cluster(node("n1", mem_mib=40_000), pod("p", mem=10_000, cpu="1"))
    snapshot = made.snapshot()
    record = snapshot.pod("uid-p")
    assert record is not None
    expected = Use("default-queue", Resources(1000, 0, NANO // 4))
    assert asked_use(snapshot, [record]) == least_use(snapshot, [record]) == expected
    (placement,) = placements(made.decide(0).entries)
    assert placed_use(snapshot, record, placement) == expected


def test_members_of_a_gang_count_together_in_the_queue_of_their_group() -> None:
    made = cluster(node(), pod_group("g", 2, queue="a", preemptibility="non-preemptible"))
    for i in range(3):
        made.upsert_pod(pod(f"m{i}", gpus=2, group="g"))
    snapshot = made.snapshot()
    members = snapshot.waiting_members("ns", "g", 0)
    assert asked_use(snapshot, members) == Use("a", Resources(gpu_nano=6 * NANO), is_fixed=True)


def test_a_gang_can_be_preempted_where_one_of_its_members_can() -> None:
    made = cluster(node(), pod_group("g", 2, queue="a"))
    for i in range(2):
        made.upsert_pod(pod(f"m{i}", gpus=1, group="g", priority=100 * i))
    snapshot = made.snapshot()
    members = order_members(snapshot.waiting_members("ns", "g", 0))
    assert [least_use(snapshot, some).is_fixed for some in (members[:1], members[1:], members)] == [1, 0, 0]


class Looked(list[PodRecord]):
    """Pods, and how often all of them were looked at."""

    times = 0

    @override
    def __iter__(self) -> Iterator[PodRecord]:
        self.times += 1
        return super().__iter__()


def test_what_a_gang_uses_is_counted_once_however_many_queues_are_above() -> None:
    made = cluster(node(), pod_group("g", 3, queue="a"), *(pod(f"m{i}", gpus=1, group="g") for i in range(3)))
    snapshot = made.prepared(0)
    allowance = Allowance(namespaces=1, most=LIMITS.most)
    attempts = Attempts(snapshot, 0, LIMITS, allowance, Notes(snapshot.backlog))
    whole = whole_gang(snapshot.backlog.gang(("ns", "g")), attempts, [])
    assert whole is not None
    looked = whole.pods = Looked(whole.pods)
    assert {whole.use for _ in range(30)} == {Resources(gpu_nano=3 * NANO)}
    assert looked.times == 1
