from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gpu.bind_request import PlannedDevice
from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import placements
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.quota import BadField, QueueElsewhere, QueueRecord, Resources
from scheduler.core.model.verdict import Code, QueueCause, Verdict
from scheduler.core.nodes.node_usage import Charge
from scheduler.core.queues.tree import DEEPEST, QueueSums, Row, Stage, Sum, Tree, TreeQueue, summed, summed_by_group
from tests.scheduler.core.objects import NANO, bound, changed, cluster, feed, node, pod, queue
from tests.values import of_kind, there
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
    record = there(made.read_pod(pod("p", fraction="0.5")).record)
    says = [Charge(pod_uid="uid-p", node="n1", devices=(PlannedDevice("g", nano),)) for nano in (300, 500, 400)]
    found = made.queues.row(record, None, says, None)
    assert found == Row("default-queue", Resources(gpu_nano=500), Stage.HELD)


def test_accounts_of_one_decision_are_not_those_of_the_next() -> None:
    made = cluster(node(), queue("default-queue"))
    made.refresh()
    first, second = made.queues.accounts(), made.queues.accounts()
    first.of[0].held = first.of[0].held.plus(first.total)
    assert second.of[0].held != first.of[0].held


def test_the_tree_is_that_of_the_queues_as_they_are_now() -> None:
    made = cluster(node(), queue("a"))
    assert [each.name for each in made.queues.tree.queues] == ["a"]
    made.queues.records.put(QueueRecord(name="b", parent="a"))
    assert tree_names(made.queues.tree, made.queues.tree.queues[0].children) == ["b"]
    made.queues.elsewhere.put(QueueElsewhere(name="c", pool="other"))
    told = of_kind(Verdict, made.queues.tree.leaf("c"))
    assert told.queue is not None
    assert told.queue.pool == "other"
    made.queues.records.drop(QueueRecord(name="b", parent="a"))
    assert [each.name for each in made.queues.tree.queues] == ["a"]


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


TWO, FIVE = Resources(gpu_nano=2), Resources(gpu_nano=5)


def test_a_pod_counts_by_its_stage() -> None:
    sums = QueueSums()
    sums.put("waits", Row("a", TWO, Stage.WAITING))
    sums.put("runs", Row("a", FIVE, Stage.HELD, is_fixed=True))
    sums.put("leaves", Row("a", TWO, Stage.LEAVING))
    assert sums.sums["a"] == Sum(held=TWO.plus(FIVE), fixed=FIVE, kept=FIVE, asked=TWO.plus(FIVE), pods=3)


def test_a_pod_that_moves_on_leaves_nothing_behind() -> None:
    sums = QueueSums()
    for row in (Row("a", TWO, Stage.WAITING), Row("a", FIVE, Stage.HELD), Row("b", FIVE, Stage.LEAVING), None):
        sums.put("p", row)
    assert sums.sums == {}


def test_what_says_nothing_new_is_no_new_version() -> None:
    sums = QueueSums()
    sums.put("p", Row("a", TWO, Stage.HELD))
    version = sums.version
    sums.put("p", Row("a", TWO, Stage.HELD))
    sums.put("nobody", None)
    assert sums.version == version


def test_a_pod_that_changes_its_group_tells_of_the_one_that_it_leaves_first() -> None:
    sums, told = QueueSums(), list[tuple[str, str]]()
    groups = [("ns", f"group-{number}") for number in range(20)]
    for group in groups:
        sums.put("p", Row("a", TWO, Stage.HELD, group=group))
        sums.on_group = told.append
    assert told == [each for pair in pairwise(groups) for each in pair]


ROWS = st.builds(
    Row,
    st.sampled_from("ab"),
    st.builds(Resources, *[st.integers(0, 5)] * 3),
    st.sampled_from(Stage),
    st.booleans(),
    st.none() | st.tuples(st.just("ns"), st.sampled_from("gh")),
)


@given(st.lists(st.tuples(st.sampled_from("pqrs"), st.none() | ROWS)))
def test_the_sums_equal_a_recount_after_any_events(events: list[tuple[str, Row | None]]) -> None:
    sums, last = QueueSums(), dict[str, Row]()
    for uid, row in events:
        sums.put(uid, row)
        last.pop(uid, None)
        if row is not None:
            last[uid] = row
    assert sums.sums == summed(last.values())
    of_groups = summed_by_group(last.values())
    assert {group: sums.of_group(("ns", group)) for group in "gh"} == {
        group: of_groups.get(("ns", group)) for group in "gh"
    }
    assert sums.differences(last) == []


def test_a_difference_to_a_recount_is_told() -> None:
    sums = QueueSums()
    sums.put("p", Row("a", TWO, Stage.HELD))
    assert len(sums.differences({"p": Row("a", FIVE, Stage.HELD)})) == 2
    assert len(sums.differences({})) == 2


def test_pods_of_a_pod_group_are_summed_beside_their_queues() -> None:
    sums = QueueSums()
    sums.put("p", Row("a", TWO, Stage.HELD, group=("ns", "g")))
    sums.put("q", Row("b", FIVE, Stage.WAITING, group=("ns", "g")))
    sums.put("alone", Row("b", FIVE, Stage.WAITING))
    assert sums.of_group(("ns", "g")) == Sum(held=TWO, kept=TWO, asked=TWO.plus(FIVE), pods=2)
    assert len(sums.differences({})) == 6


def test_sums_of_their_own_have_other_rows_and_leave_the_first_as_they_were() -> None:
    sums = QueueSums()
    sums.put("p", Row("a", TWO, Stage.HELD, group=("ns", "g")))
    other = sums.changed({"p": None, "q": Row("b", FIVE, Stage.HELD, group=("ns", "new"))})
    assert (other.of_group(("ns", "g")), other.of_group(("ns", "new"))) == (
        None,
        Sum(held=FIVE, kept=FIVE, asked=FIVE, pods=1),
    )
    assert (sums.of_group(("ns", "g")), sums.of_group(("ns", "new"))) == (
        Sum(held=TWO, kept=TWO, asked=TWO, pods=1),
        None,
    )


def test_each_change_of_a_pod_group_is_told_and_nothing_else() -> None:
    sums, told = QueueSums(), list[tuple[str, str]]()
    sums.on_group = told.append
    sums.put("p", Row("a", TWO, Stage.WAITING, group=("ns", "g")))
    sums.put("p", Row("a", TWO, Stage.WAITING, group=("ns", "g")))
    sums.put("alone", Row("a", TWO, Stage.WAITING))
    assert told == [("ns", "g")]
    sums.put("p", Row("a", TWO, Stage.WAITING, group=("ns", "h")))
    assert sorted(told[1:]) == [("ns", "g"), ("ns", "h")]
    sums.put("p", None)
    assert told[3:] == [("ns", "h")]


def test_a_pods_row_is_what_was_put_last() -> None:
    sums = QueueSums()
    assert sums.row("p") is None
    sums.put("p", Row("a", TWO, Stage.HELD))
    assert sums.row("p") == Row("a", TWO, Stage.HELD)
    sums.put("p", None)
    assert sums.row("p") is None


def tree(*pairs: tuple[str, str]) -> Tree:
    """Queues with their parents."""
    return Tree(QueueRecord(name=name, parent=parent) for name, parent in pairs)


def tree_names(made: Tree, numbers: tuple[int, ...]) -> list[str]:
    return [made.queues[number].name for number in numbers]


def test_parents_come_before_their_children_and_each_knows_its_path() -> None:
    made = tree(("team", "dept"), ("squad", "team"), ("dept", ""), ("other", ""))
    assert [queue.name for queue in made.queues] == ["dept", "other", "team", "squad"]
    assert [queue.number for queue in made.queues] == [0, 1, 2, 3]
    squad = of_kind(TreeQueue, made.leaf("squad"))
    assert tree_names(made, squad.path) == ["squad", "team", "dept"]
    assert tree_names(made, made.top) == ["dept", "other"]
    assert tree_names(made, made.queues[0].children) == ["team"]


def test_without_queues_there_is_one_that_takes_everything() -> None:
    made = tree()
    assert made.is_implied
    assert made.leaf("whatever") == made.leaf("") == made.queues[0]


def test_an_order_of_objects_makes_no_difference() -> None:
    pairs = [("a", ""), ("b", "a"), ("c", "a"), ("d", "c")]
    assert tree(*pairs).queues == tree(*reversed(pairs)).queues


def test_a_cycle_is_told_and_what_hangs_below_it() -> None:
    made = tree(("a", "b"), ("b", "a"), ("below", "a"), ("sound", ""))
    for name in ("a", "b", "below"):
        found = of_kind(Verdict, made.leaf(name))
        assert (found.code, found.detail) == (Code.QUEUE_CYCLE, name)
    assert [queue.name for queue in made.queues] == ["sound"]


def test_a_closed_queue_closes_those_below_it() -> None:
    bad = BadField("resources.gpu.quota", "-2.0")
    made = Tree([QueueRecord(name="a", bad=bad), QueueRecord(name="b", parent="a")])
    cause = QueueCause(at="a", field="resources.gpu.quota", value="-2.0")
    assert made.leaf("b") == Verdict(code=Code.QUEUE_CLOSED, detail="b", queue=cause)


def test_a_chain_without_end_is_refused_before_it_costs() -> None:
    made = tree(("q0", ""), *((f"q{i}", f"q{i - 1}") for i in range(1, DEEPEST + 2)))
    assert isinstance(made.leaf(f"q{DEEPEST}"), Verdict)
    assert made.leaf(f"q{DEEPEST + 1}") == Verdict(code=Code.QUEUE_TOO_DEEP, detail=f"q{DEEPEST + 1}", required=DEEPEST)


def test_as_long_as_nothing_was_read_no_queue_takes_anything() -> None:
    made = Tree(is_read=False)
    assert made.leaf("a") == Verdict(code=Code.NOT_READ, detail="queues.scheduling.run.ai")
