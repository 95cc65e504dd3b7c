from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.model.quota import Resources
from scheduler.core.queues.sums import QueueSums, Row, Stage, Sum, summed, summed_by_group

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
