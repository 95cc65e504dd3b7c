from __future__ import annotations

from gpu.bind_request import PlannedDevice
from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import placements
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.quota import Resources
from scheduler.core.nodes.node_usage import Charge
from scheduler.core.queues.sums import Row, Stage
from tests.scheduler.core.objects import NANO, bound, changed, cluster, feed, node, pod, queue
from wire import names


def held(made: Cluster) -> dict[str, int]:
    """Nano-GPUs that are held, by queue."""
    made.count_queues()
    assert made.validate() == []
    return {name: each.held.gpu_nano for name, each in made.queues.sums.sums.items()}


def test_a_placement_counts_from_when_it_is_under_way_and_once_when_it_is_bound() -> None:
    waits = pod("p", gpus=2)
    made = cluster(node(), waits)
    assert held(made) == {"default-queue": 0}
    (placement,) = placements(made.decide(0).entries)
    made.commits.assume(placement)
    assert held(made) == {"default-queue": 2 * NANO}
    feed(made, bound(waits, "n1"))
    assert held(made) == {"default-queue": 2 * NANO}
    made.remove_pod("uid-p", has_ended=True)
    assert held(made) == {}


def test_a_placement_that_is_given_up_counts_no_more() -> None:
    made = cluster(node(), pod("p", gpus=2))
    (placement,) = placements(made.decide(0).entries)
    made.commits.assume(placement)
    made.commits.release("uid-p", attempt=placement.number)
    assert held(made) == {"default-queue": 0}


def test_reservations_and_pods_of_others_count_in_no_queue() -> None:
    foreign = bound(pod("f", gpus=1, scheduler="default-scheduler"), "n1")
    assert held(cluster(node(), foreign)) == {}


def test_gated_pods_and_pods_that_are_deleted_ask_for_nothing() -> None:
    made = cluster(node(), pod("g", gpus=1, gated=True), pod("d", gpus=1, deleting=True))
    assert held(made) == {}


def test_what_waits_for_memory_counts_by_the_smallest_card_as_nodes_come_and_go() -> None:
    made = cluster(node("n1", mem_mib=40_000), pod("p", mem=10_000))
    made.count_queues()
    made.decide(0)
    asked = made.queues.sums.sums["default-queue"].asked.gpu_nano
    feed(made, node("n2", mem_mib=20_000))
    made.decide(0)
    assert (asked, made.queues.sums.sums["default-queue"].asked.gpu_nano) == (NANO // 4, NANO // 2)
    made.remove_node("n2")
    made.decide(0)
    assert made.queues.sums.sums["default-queue"].asked.gpu_nano == NANO // 4
    assert made.validate() == []


def test_a_pod_without_a_grant_is_counted_again_when_the_card_of_its_node_is_known() -> None:
    made = cluster(node("n1"), bound(pod("p", mem=10_000), "n1", ("g", 0), with_grant=False))
    assert held(made) == {"default-queue": NANO}
    feed(made, node("n1", mem_mib=40_000))
    assert held(made) == {"default-queue": NANO // 4}


def test_what_is_divided_is_what_ready_nodes_have_for_us() -> None:
    made = cluster(node("n1", 8), node("n2", 4, ready=False), queue("a"))
    feed(made, bound(pod("f", gpus=3, scheduler="default-scheduler"), "n1"))
    made.refresh()
    assert made.queues.accounts().total.gpu_nano == 5 * NANO
    feed(made, node("n2", 4))
    made.refresh()
    assert made.queues.accounts().total.gpu_nano == 9 * NANO
    made.remove_node("n1")
    made.refresh()
    assert made.queues.accounts().total.gpu_nano == 4 * NANO


def test_a_pod_that_is_named_twice_counts_with_the_most_that_one_says() -> None:
    made = cluster(node())
    record = made.read_pod(pod("p", fraction="0.5")).record
    assert record is not None
    says = [Charge(pod_uid="uid-p", node="n1", devices=(PlannedDevice("g", nano),)) for nano in (300, 500, 400)]
    found = made.queues.row(record, None, says, None)
    assert found == Row("default-queue", Resources(gpu_nano=500), Stage.HELD)


def test_accounts_of_one_decision_are_not_those_of_the_next() -> None:
    made = cluster(node(), queue("default-queue"))
    made.refresh()
    first, second = made.queues.accounts(), made.queues.accounts()
    first.of[0].held = first.of[0].held.plus(first.total)
    assert second.of[0].held != first.of[0].held


def test_changed_labels_move_a_pod_that_waits() -> None:
    waits = pod("p", gpus=1, labels={names.QUEUE_LABEL: "a"})
    made = cluster(node(), waits)
    made.count_queues()
    assert set(made.queues.sums.sums) == {"a"}
    feed(made, changed(waits, labels={names.QUEUE_LABEL: "b"}))
    made.count_queues()
    assert set(made.queues.sums.sums) == {"b"}


def test_what_classes_asked_is_forgotten_with_their_pods() -> None:
    made = cluster(node(), *(pod(f"p{i}", cpu=f"{i + 1}m", fraction="0.5") for i in range(100)))
    made.count_queues()
    asked = made.queues.asked(PodClass())
    for i in range(100):
        made.remove_pod(f"uid-p{i}", has_ended=True)
    made.count_queues()
    assert len(made.queues._amounts_of) == 0
    assert made.queues.asked(PodClass()) == asked


def test_groups_are_told_of_in_the_order_in_which_their_pods_were_marked() -> None:
    """Not in that of hashes: writes of status would come in another order in each process."""
    made, told = cluster(), list[tuple[str, str]]()
    made.queues.sums.on_group = told.append
    marked = [f"uid-{number}" for number in range(30)]
    made.queues.mark(marked)
    made.queues.count(lambda uid: Row("a", Resources(), Stage.WAITING, group=("ns", uid)))
    assert told == [("ns", uid) for uid in marked]


def test_pods_that_are_counted_in_parts_are_counted_each_once_and_in_order() -> None:
    made, told = cluster(), list[tuple[str, str]]()
    made.queues.sums.on_group = told.append
    marked = [f"uid-{number}" for number in range(7)]
    made.queues.mark(marked)
    more = [
        made.queues.count_some(lambda uid: Row("a", Resources(), Stage.WAITING, group=("ns", uid)), 3) for _ in "123"
    ]
    assert more == [True, True, False]
    assert told == [("ns", uid) for uid in marked]


def test_pods_wait_in_the_order_in_which_they_were_seen() -> None:
    names_ = [f"p-{number}" for number in range(30)]
    made = cluster(*(pod(name, gpus=1) for name in names_))
    assert [waiting.name for waiting in made.waiting()] == names_
