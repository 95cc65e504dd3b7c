from __future__ import annotations

from scheduler.core.model.quota import BadField, QueueRecord
from scheduler.core.model.verdict import Code, QueueCause, Verdict
from scheduler.core.queues.tree import DEEPEST, Tree, TreeQueue


def tree(*pairs: tuple[str, str]) -> Tree:
    """Queues with their parents."""
    return Tree(QueueRecord(name=name, parent=parent) for name, parent in pairs)


def names(made: Tree, numbers: tuple[int, ...]) -> list[str]:
    return [made.queues[number].name for number in numbers]


def test_parents_come_before_their_children_and_each_knows_its_path() -> None:
    made = tree(("team", "dept"), ("squad", "team"), ("dept", ""), ("other", ""))
    assert [queue.name for queue in made.queues] == ["dept", "other", "team", "squad"]
    assert [queue.number for queue in made.queues] == [0, 1, 2, 3]
    squad = made.leaf("squad")
    assert isinstance(squad, TreeQueue)
    assert names(made, squad.path) == ["squad", "team", "dept"]
    assert names(made, made.top) == ["dept", "other"]
    assert names(made, made.queues[0].children) == ["team"]


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
        found = made.leaf(name)
        assert isinstance(found, Verdict)
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
